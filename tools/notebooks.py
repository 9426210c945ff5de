"""The notebooks of examples/: run their cells again and keep what they print and draw.

python -m tools.notebooks            # all of them, in a directory of their own
"""

import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def code_cells(path: Path) -> list[dict[str, Any]]:
    """Return the cells with code."""
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


def run(cells: list[dict[str, Any]], namespace: dict[str, Any]) -> None:
    """Run cells in order, and put what each prints and draws into its outputs."""
    import matplotlib as mpl  # noqa: PLC0415 - before anything draws

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    for number, cell in enumerate(cells, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
        cell["execution_count"], cell["outputs"] = number, []
        if text := printed.getvalue():
            lines = text.splitlines(keepends=True)
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": lines})
        for figure in map(pyplot.figure, pyplot.get_fignums()):
            drawn = io.BytesIO()
            figure.savefig(drawn, format="png", dpi=80, metadata={"Software": None})
            image = base64.b64encode(drawn.getvalue()).decode()
            data = {"image/png": image, "text/plain": ["<Figure>"]}
            cell["outputs"].append({"output_type": "display_data", "data": data, "metadata": {}})
        pyplot.close("all")


def main() -> None:
    """Run every notebook, or those named."""
    named = [Path(word).resolve() for word in sys.argv[1:]]
    for path in named or sorted((ROOT / "examples").glob("*.ipynb")):
        notebook = json.loads(path.read_text())
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            os.environ.setdefault("OMP_NUM_THREADS", "1")
            code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            run(code, {"__name__": path.stem})
        path.write_text(json.dumps(notebook, indent=1) + "\n")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
