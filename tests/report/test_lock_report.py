"""Tables and pictures from records alone."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from hyq.report.lock import draw_learning_curves, result_table
from hyq.report.runs import RunResult

SPEC = {
    "algorithm": "hyq",
    "data": "occupancy",
    "horizon": 100,
    "anti_reward_probability": 0.5,
    "seed": 3,
}
ROWS = [
    {"online_steps": 50_500, "eval_return": 0.05},
    {"online_steps": 101_000, "eval_return": 1.0},
]
SUMMARY = {
    "solved": True,
    "eval_return": 1.0,
    "online_steps": 101_000,
    "offline_samples": 500_000,
    "iterations": 2,
    "wall_seconds": 6.25,
}


def test_the_table_fits_a_terminal_and_tells_finished_from_unfinished() -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(result_table([RunResult(SPEC, ROWS, SUMMARY), RunResult(SPEC, ROWS, None)]))
    text = console.export_text()
    assert "101,000" in text
    assert "500,000" in text
    assert "not yet" in text
    assert "hyq" in text
    assert "…" not in text


@pytest.mark.parametrize("rows", [ROWS, []])
def test_a_picture_is_drawn_even_of_a_run_that_has_just_begun(
    tmp_path: Path, rows: list[dict[str, float]]
) -> None:
    picture = tmp_path / "curve.png"
    draw_learning_curves([RunResult(SPEC, rows, None)], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
