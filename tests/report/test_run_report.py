"""The table and the curves of any runs, from their records alone."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hyq.cli import main
from hyq.report.compare import compared, environment_lines, line_panels
from hyq.report.plot import draw_panels, write_figure
from hyq.report.records import RunResult
from hyq.report.tables import run_table
from tests.report.suites import write_run

LOCK = RunResult(
    {"algorithm": "hyq", "data": "occupancy", "horizon": 100, "seed": 3},
    [
        {"iteration": 1, "online_steps": 50_500, "eval_return": 0.05},
        {"iteration": 2, "online_steps": 101_000, "eval_return": 1.0},
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
        {"iteration": n, "online_steps": 10 * n, "updates": n, "eval_return": value}
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
    words += ["--page", str(tmp_path / "page.html")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "CartPole-v1" in said
    assert "lock, H" in said
    assert figure.read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "page.html").read_text()
    assert "On CartPole-v1, the newest return of the policy (median), highest first:" in page
    assert "Hy-Q: 2.5 (2 seeds)" in page
    assert "3 runs, 2 of them not finished" in page


def test_whatever_holds_runs_can_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        write_run(tmp_path / "runs" / "deeper" / str(seed), deep(seed, [1.0, 2.0]))
    assert main(["report", "runs"]) == 0
    assert "2 runs" in (tmp_path / "report.html").read_text()
    (tmp_path / "empty").mkdir()
    assert main(["report", "empty"]) == 2
    assert "not a run" in capsys.readouterr().err


def test_a_run_of_another_kind_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", replace(LOCK, experiment="cooking"))
    assert main(["report", str(tmp_path / "run"), "--figure", str(tmp_path / "c.png")]) == 2
    assert "'cooking'" in capsys.readouterr().err


@pytest.mark.parametrize("rows", [LOCK.rows, []])
def test_a_figure_is_drawn_even_of_a_run_that_has_just_begun(
    tmp_path: Path, rows: list[dict[str, float]]
) -> None:
    panels = line_panels(environment_lines([replace(LOCK, rows=rows, summary=None)]))
    write_figure(draw_panels(panels), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_two_seeds_are_drawn_as_they_are_and_three_are_summed_up() -> None:
    runs = [deep(seed, [seed, 2.0 * seed]) for seed in (1, 2, 3)]
    ((curve,),) = (panel.curves for panel in line_panels(environment_lines(runs[:2])))
    assert (curve.label, curve.seeds, len(curve.low)) == ("Hy-Q", 2, 0)
    assert list(curve.y) == [1, 2]
    ((_, y),) = curve.others
    assert list(y) == [2, 4]
    (panel,) = line_panels(environment_lines(runs))
    (curve,) = panel.curves
    assert panel.said == "median of 3 seeds, 20th to 80th percentile"
    assert list(curve.y) == [2, 4]
    assert np.allclose(curve.low, [1.4, 2.8])
    (axes,) = draw_panels([panel]).axes
    assert len(axes.collections) == 1, "a band"


def test_runs_that_differ_in_a_setting_are_not_taken_for_seeds_of_one() -> None:
    runs = [deep(seed, [1.0, 2.0], gamma=gamma) for gamma in (0.9, 0.99) for seed in (1, 2)]
    runs += [deep(3, [5.0, 6.0], gamma=0.9), deep(1, [0.0, 0.0], gamma=0.9, data="log.csv")]
    lines = environment_lines(runs)
    assert {line.label: len(line.runs) for line in lines} == {
        "Hy-Q, no data": 3,
        "Hy-Q, no data, gamma 0.99": 2,
        "Hy-Q, log.csv": 1,
    }
    said, *rest = compared(lines)
    assert "Hy-Q, no data: 2 (3 seeds); Hy-Q, no data, gamma 0.99: 2 (2 seeds)" in said
    assert "fewer than three seeds" in rest[-1]


def test_training_episodes_stand_for_evaluations_where_there_are_none() -> None:
    rows = [{"online_steps": n, "updates": 0, "recent_return": 2.0 * n} for n in (10, 20)]
    acting = replace(deep(1, []), rows=rows)
    offline = replace(
        deep(1, [], algorithm="bc"), rows=[{"online_steps": 0, "updates": 50, "eval_return": 7.0}]
    )
    for row in [*acting.rows, *offline.rows]:
        row["iteration"] = row["updates"] + row["online_steps"]
    (panel,) = line_panels(environment_lines([acting, offline]))
    assert [list(curve.y) for curve in panel.curves] == [[20.0, 40.0]]
    assert [level.value for level in panel.levels] == [7.0], "what never acts, beside what does"
    (panel,) = line_panels(environment_lines([offline]))
    assert ([*panel.curves[0].x], panel.x_label) == ([50], "updates")
