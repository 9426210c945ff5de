"""The page of `hyq reproduce theory`: the bounds beside what was measured."""

import json
from pathlib import Path

import pytest

from hyq.report.theory import (
    EPSILON,
    Row,
    draw,
    read_measurements,
    samples_needed,
    samples_promised,
    slopes,
)
from hyq.theory.theorem import Setting, cumulative_bound, sample_complexity


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
    assert samples_promised(rows[:2], EPSILON) == one
    assert samples_promised(rows, EPSILON) > one
    (line,) = slopes(rows)
    assert line[-2:] == ("≤ 256", f"{samples_promised(rows, EPSILON):.2g}")
    assert float(line[5]) == pytest.approx((rows[1]["bound"] + rows[2]["bound"]) / 2, rel=0.05)
    assert draw(rows).startswith(b"\x89PNG")
