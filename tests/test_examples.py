"""The examples and notebooks, executed at a small size."""

import runpy
import sys
from pathlib import Path

import pytest

from tests.small import ROOT, make_small
from tools.notebooks import code_cells, run

SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_there_are_six_scripts_and_two_notebooks() -> None:
    assert (len(SCRIPTS), len(NOTEBOOKS)) == (6, 2)
    assert all(len(script.read_text().splitlines()) < 60 for script in SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script.name, "48"])
    make_small(monkeypatch)
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_its_outputs(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = code_cells(notebook)
    assert all(cell["execution_count"] for cell in stored)
    assert sum(bool(cell["outputs"]) for cell in stored) >= len(stored) - 1
    monkeypatch.chdir(tmp_path)
    make_small(monkeypatch)
    cells = code_cells(notebook)
    cells[0]["source"] = [s.replace("STEPS = 6000", "STEPS = 48") for s in cells[0]["source"]]
    run(cells, {"__name__": notebook.stem})
    assert all(cell["execution_count"] for cell in cells)
