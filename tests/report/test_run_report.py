"""The table and the curves of any runs, from their records alone."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hyq.cli import main
from hyq.report.curves import (
    Curve,
    Level,
    Panel,
    aggregate,
    draw_curves,
    draw_runs,
    seeds_note,
    short,
    write_figure,
)
from hyq.report.records import RunResult
from hyq.report.tables import run_table
from tests.report.suites import write_run

LOCK = RunResult(
    {"algorithm": "hyq", "data": "occupancy", "horizon": 100, "seed": 3},
    [
        {"online_steps": 50_500, "eval_return": 0.05},
        {"online_steps": 101_000, "eval_return": 1.0},
    ],
    {
        "solved": True,
        "eval_return": 1.0,
        "online_steps": 101_000,
        "offline_samples": 500_000,
        "wall_seconds": 6.25,
    },
    "lock",
)


def deep(seed: int, returns: list[float], **more: Any) -> RunResult:
    rows = [
        {"online_steps": 10 * n, "updates": n, "eval_return": value}
        for n, value in enumerate(returns, start=1)
    ]
    spec = {"env": "CartPole-v1", "algorithm": "hyq", "data": None, "seed": seed, **more}
    return RunResult(spec, rows, None)


def test_settings_are_found_where_either_version_of_a_spec_has_them() -> None:
    assert RunResult({"seed": 1, "settings": {"gamma": 0.9}}, [], None).setting("gamma") == 0.9
    assert RunResult({"seed": 1, "gamma": 0.9}, [], None).setting("gamma") == 0.9
    assert RunResult({"gamma": 0.9, "settings": {"gamma": 0.5}}, [], None).setting("gamma") == 0.5
    assert RunResult({"settings": {}}, [], None).setting("gamma", 1.0) == 1.0


def test_the_table_fits_a_terminal_and_tells_finished_from_unfinished() -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(run_table([LOCK, replace(LOCK, summary=None)]).rich())
    text = console.export_text()
    for word in ("lock, H = 100", "101,000", "500,000", "not yet", "hyq"):
        assert word in text
    assert "…" not in text


def test_runs_of_every_kind_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {"lock": LOCK, "a": deep(1, [1.0, 2.0]), "b": deep(2, [3.0])}
    for name, run in runs.items():
        write_run(tmp_path / name, run)
    figure = tmp_path / "curves.png"
    words = ["report", *(str(tmp_path / name) for name in runs), "--figure", str(figure)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "CartPole-v1" in said
    assert "lock, H" in said
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_run_of_another_kind_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", replace(LOCK, experiment="cooking"))
    assert main(["report", str(tmp_path / "run"), "--figure", str(tmp_path / "c.png")]) == 2
    assert "'cooking'" in capsys.readouterr().err


@pytest.mark.parametrize("rows", [LOCK.rows, []])
def test_a_figure_is_drawn_even_of_a_run_that_has_just_begun(
    tmp_path: Path, rows: list[dict[str, float]]
) -> None:
    write_figure(draw_runs([replace(LOCK, rows=rows, summary=None)]), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_two_seeds_are_drawn_as_they_are_and_three_are_summed_up() -> None:
    runs = [deep(seed, [seed, 2.0 * seed]) for seed in (1, 2, 3)]
    (axes,) = draw_runs(runs[:2]).axes
    assert [line.get_label() for line in axes.lines] == ["hyq, seed 1", "hyq, seed 2"]
    assert axes.get_xlabel() == "online steps (1 seed)"
    (axes,) = draw_runs(runs).axes
    assert [line.get_label() for line in axes.lines] == ["hyq"]
    assert len(axes.collections) == 1, "a band"
    assert axes.get_xlabel() == "online steps (3 seeds)"
    assert axes.lines[0].get_ydata()[-1] == 4.0  # type: ignore[index]


def test_an_aggregate_ends_where_the_first_run_stopped_unsolved() -> None:
    runs = [deep(1, [1.0, 2.0]), deep(2, [3.0])]
    _, middle, _ = aggregate(runs, np.array([5.0, 10.0, 20.0]))
    np.testing.assert_array_equal(middle, [2.0, 2.0, np.nan])
    solved = [runs[0], replace(runs[1], summary={"solved": True})]
    _, middle, _ = aggregate(solved, np.array([20.0]))
    assert middle.tolist() == [2.5]
    lock = replace(LOCK, summary={"solved": False})
    np.testing.assert_array_equal(aggregate([lock], np.array([1.0, 2e5]))[1], [0.0, np.nan])


def test_panels_share_a_legend_and_say_how_many_seeds_they_have() -> None:
    x, y = np.arange(3.0), np.arange(3.0)
    one, five = Curve("a", x, y), Curve("b", x, y, y - 1, y + 1, seeds=5)
    panels = [Panel("$first$", [one, five], [Level(2.0, "offline")]), Panel("second", [one])]
    figure = draw_curves([*panels, Panel("third", [])], columns=2)
    assert len(figure.axes) == 3
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "offline"]
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "online steps (1 to 5 seeds)",
        "online steps (1 seed)",
        "online steps",
    ]
    assert figure.axes[0].lines[-1].get_linestyle() == "--", "a level is dashed"
    assert seeds_note([replace(one, seeds=0)]) == ""


def test_steps_are_short() -> None:
    assert [short(v) for v in (0, 0.5, 250, 1e3, 25e4, 1.5e6, 1024)] == [
        "0", "0.5", "250", "1k", "250k", "1.5M", "1,024"]  # fmt: skip
