"""Figures as data: what sums seeds up, where curves end, what is told apart, and what is said."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyq.report.figures import Curve, Level, Panel, content, level, run_points, summed
from hyq.report.plot import draw_panels, short, spread
from hyq.report.records import RunResult


def curve(*runs: tuple[list[float], list[float], bool]) -> Curve:
    return summed("a", [((x, y), held) for x, y, held in runs])


def test_a_curve_begins_where_all_have_begun_and_ends_where_the_first_stopped_unsolved() -> None:
    found = curve(([10, 20, 30], [1, 2, 3], False), ([20], [5], False), ([10, 20], [0, 4], False))
    assert list(found.x) == [20], "one has no value before, and one none after"
    assert list(found.y) == [4]
    ((x, y),) = found.others
    assert (list(x), list(y)) == ([20, 30], [2, 3]), "the one that ran on is drawn by itself"


def test_nothing_is_invented_before_a_first_evaluation() -> None:
    found = curve(*[([50_500.0, 101_000.0], [0.05, 1.0], True)] * 3)
    assert found.x[0] == 50_500
    assert found.x[-1] == 101_000, "nor after the last"


def test_a_run_that_solved_its_problem_keeps_its_last_value_while_others_run() -> None:
    solved = ([10.0], [1.0], True)
    found = curve(solved, solved, ([10, 20], [0.0, 1.0], True))
    assert (list(found.x), list(found.y)) == ([10, 20], [1, 1])
    assert found.low[0] == pytest.approx(0.4)
    assert not found.others
    unsolved = curve(solved, solved, ([10, 20], [0.0, 0.5], False))
    assert list(unsolved.x) == [10, 20]


def test_few_seeds_are_drawn_one_by_one_and_none_is_no_curve() -> None:
    two = curve(([1, 2], [3, 4], False), ([1, 2], [5, 6], False))
    assert (two.seeds, len(two.low), len(two.others)) == (2, 0, 1)
    none = summed("a", [(([], []), False)])
    assert (none.seeds, none.end) == (0, None)


@given(st.lists(st.integers(1, 400), min_size=3, max_size=6), st.integers(0, 100))
def test_the_median_is_that_of_values_at_every_step_that_all_have(
    lengths: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    runs = [(np.arange(1.0, n + 1), rng.normal(size=n)) for n in lengths]
    found = summed("a", [(run, False) for run in runs])
    assert found.x[-1] == min(lengths)
    for x, y in zip(found.x, found.y, strict=True):
        assert y == pytest.approx(np.median([values[int(x) - 1] for _, values in runs]))
    for x, _ in found.others:
        assert x[0] >= min(lengths)


def test_two_records_of_one_step_are_its_last() -> None:
    rows = [{"online_steps": 0, "eval_return": v} for v in (1.0, 2.0)]
    run = RunResult({}, [*rows, {"online_steps": 5, "eval_return": 3.0}], {"solved": True})
    assert run_points(run, "eval_return") == (([0, 5], [2.0, 3.0]), True)


def test_a_figure_says_how_many_seeds_it_has() -> None:
    one, five = (
        replace(curve(([1], [1], False)), seeds=1),
        replace(curve(([1], [1], False)), seeds=5),
    )
    assert Panel("", [one]).said == "1 seed"
    assert Panel("", [replace(one, seeds=2)]).said == "2 seeds, a line each"
    assert Panel("", [five], note="more").said == "median of 5 seeds, 20th to 80th percentile; more"
    panel = Panel("", [one, five])
    assert panel.said.startswith("median of 1 to 5 seeds, as named")
    assert [panel.name(each) for each in panel.curves] == ["a (1 seed)", "a (5 seeds)"]
    assert Panel("", [replace(one, seeds=0)]).said == ""


def test_names_stand_apart_and_within() -> None:
    places = spread([0.0, 0.01, 0.02, 0.9, 1.0], 0.05)
    assert np.diff(places).min() >= 0.05 - 1e-9
    assert 0 <= places[0] <= places[-1] <= 1
    assert spread([], 0.1) == []


def test_every_line_is_named_beside_it() -> None:
    x, y = np.arange(3.0), np.arange(3.0)
    panel = Panel("$first$", [Curve("a", x, y), Curve("", x, y), Level(2.0, "offline")])
    figure = draw_panels(
        [panel, Panel("second", [Curve("b", x, y)]), Panel("third", [])], columns=2
    )
    assert len(figure.axes) == 3
    said = [{text.get_text() for text in axes.texts} for axes in figure.axes]
    assert said[0] >= {"a", "offline"}
    assert said[1] >= {"b"}
    assert figure.axes[0].lines[-1].get_linestyle() == "--", "a level is dashed"
    assert figure.axes[0].get_title("left") == "$first$"


def test_a_logarithmic_axis_has_a_place_for_what_was_before_the_first_step() -> None:
    panel = Panel("", [Curve("a", [0, 1000, 20_000], [1, 2, 3])], log_x=10)
    (axes,) = draw_panels([panel]).axes
    assert axes.get_xlim()[0] == 0
    places = [axes.transData.transform((x, 1))[0] for x in (0, 1000, 20_000)]
    assert places[0] < places[1] < places[2]


def test_what_a_script_draws_is_plain_numbers() -> None:
    levels = [level("b", [1.0, 2.0, 3.0]), Level(4.0, "mark")]
    found = content([Panel("t", [curve(([1], [2], False)), *levels])])
    (panel,) = found["panels"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [one.get("level") for one in panel["series"]] == [None, 2.0, 4.0]
    assert (panel["series"][1]["low"], panel["series"][2]["mark"]) == (pytest.approx(1.4), True)


def test_steps_are_short() -> None:
    assert [short(v) for v in (0, 0.5, 250, 1e3, 25e4, 1.5e6, 1024)] == [
        "0", "0.5", "250", "1k", "250k", "1.5M", "1,024"]  # fmt: skip
