"""The page of `hyq reproduce theory`: the bounds beside what was measured."""

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from hyq.commands.suites import reproduce_theory
from hyq.core.errors import HyqError
from hyq.report.theory import (
    EPSILON,
    Row,
    mean_curve,
    panels,
    read_measurements,
    read_rows,
    report_theory,
    samples_bound,
    samples_needed,
    slope,
    slope_rows,
)
from hyq.runs import theory
from hyq.runs.theory import Case
from hyq.theory.theorem import Setting, cumulative_bound, sample_complexity
from tests.report.suites import Page


def measured(iterations: int, cumulative: float, **other: object) -> Row:
    """A line of the records."""
    row = {
        "panel": "rates",
        "problem": "tabular",
        "iterations": iterations,
        "share": 0.25,
        "seed": 0,
        "horizon": 4,
        "m_off": iterations,
        "transfer": 4.0,
        "rank": 32,
        "v_max": 4.0,
        "first_loss": 0.5,
        "cumulative": cumulative,
    }
    return row | other


def test_samples_are_counted_from_where_the_average_policy_stays_near() -> None:
    rows = [measured(t, loss) for t, loss in ((32, 3.0), (64, 12.8), (128, 12.8), (256, 20.0))]
    assert samples_needed(rows, 0.1) == (2 * 4 * 128, True)  # near at 32 by luck, not at 64
    assert samples_needed(rows, 0.01) == (2 * 4 * 256, False)
    assert samples_needed(rows, 1.0) == (2 * 4 * 32, True)


def test_the_bounds_are_those_of_the_corrected_theorem(tmp_path: Path) -> None:
    lines = [measured(32, 3.0), measured(64, 4.0), measured(64, 6.0, seed=1, transfer=6.0)]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    rows = read_measurements(tmp_path)
    setting = Setting(4.0, 32, 4, largest=4.0, length=4 * 32**0.5, parameters=4 * 32)
    assert rows[1]["bound"] == cumulative_bound(setting, 64, 64)
    one = sample_complexity(setting, EPSILON)
    assert samples_bound(rows[:2], EPSILON) == one
    assert samples_bound(rows, EPSILON) > one
    (line,) = slope_rows(rows)
    assert tuple(line[-2:]) == ("≤ 256", f"{samples_bound(rows, EPSILON):.2g}")
    assert float(line[5]) == pytest.approx((rows[1]["bound"] + rows[2]["bound"]) / 2, rel=0.05)
    assert len(panels(rows)) == 9


def test_slopes_and_curves() -> None:
    x = [1.0, 2.0, 4.0, 8.0]
    assert slope(x, [3 * v**0.5 for v in x]) == pytest.approx(0.5)
    assert np.isnan(slope(x, [0.0] * 4))
    rows = [{"t": t, "cumulative": c} for t, c in ((2, 1.0), (1, 4.0), (2, 3.0))]
    assert mean_curve(rows, "t") == ([1, 2], [4.0, 2.0])


def test_the_theory_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two cases a panel stand for the experiment; the page needs nothing but itself."""
    planned = theory.plan(quick=True)
    cases = (Case(iterations=4, share=1.0), Case(iterations=8, share=1.0))
    monkeypatch.setattr(theory, "plan", lambda quick: dict.fromkeys(planned, cases))
    reproduce_theory(out=tmp_path / "out", quick=True)
    assert "slope" in capsys.readouterr().out
    assert len(read_rows(tmp_path / "out")) == 10
    page = Page((tmp_path / "out" / "theory.html").read_text())
    assert all(link.startswith("data:") for link in page.links)
    assert "tabular" in page.text
    assert "In 10 of 10 runs the loss is within the bound of Theorem 1" in page.text
    assert (tmp_path / "out" / "theory.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(HyqError, match="exists"):
        reproduce_theory(out=tmp_path / "out", quick=True)
    with pytest.raises(HyqError, match="no measurements"):
        report_theory(tmp_path, Console(file=StringIO()))
