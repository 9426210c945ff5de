"""What every report starts from and ends in: the records of a run, and a picture on disk."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from hyq.core.errors import HyqError
from hyq.core.files import write_bytes
from hyq.runs.records import RunDirectory


@dataclass(frozen=True)
class RunResult:
    """The records of one run, of whichever kind."""

    spec: dict[str, Any]
    rows: list[dict[str, Any]]
    summary: dict[str, Any] | None

    @classmethod
    def read(cls, path: Path) -> "RunResult":
        """Read a run's directory, finished or not."""
        run = RunDirectory.open(path)
        return cls(run.manifest["spec"], run.rows, run.summary)


def make_room(path: Path) -> None:
    """Make the directory of a file that is going to be written, before time is spent on it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HyqError(f"cannot write {path}: {error.strerror}") from None
    if path.is_dir():
        raise HyqError(f"cannot write {path}: it is a directory, so name a file in it")


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the path's ending, whole or not at all."""
    buffer = BytesIO()
    if path.suffix == ".svg":
        # Text stays text, and neither the clock nor chance gets into the file.
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "hyq"}):
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    else:
        figure.savefig(buffer, format="png", dpi=130)
    write_bytes(path, buffer.getvalue())
