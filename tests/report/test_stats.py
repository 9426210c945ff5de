"""Statistics against hand-computed values and slow twins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from hyq.report.stats import (
    StepsToSolve,
    band,
    bootstrap_interval,
    interquartile_mean,
)


def test_the_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([9.0, 1, 2, 3])) == pytest.approx(2.5)
    # With 5 values the middle half is 2.5 wide: all of the third, 3/4 of its neighbours.
    assert interquartile_mean(np.array([0.0, 1, 2, 3, 100])) == pytest.approx(
        (0.75 * 1 + 2 + 0.75 * 3) / 2.5
    )
    assert interquartile_mean(np.array([7.0])) == 7.0


@given(st.integers(1, 20), st.integers(0, 1000))
def test_the_interquartile_mean_is_a_trimmed_mean_when_quarters_are_whole(
    quarters: int, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(size=4 * quarters)
    assert interquartile_mean(values) == pytest.approx(trim_mean(values, 0.25))


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        values = rng.normal(size=36).tolist()
        low, high = bootstrap_interval([values], rng, resamples=200, level=0.9)
        covered += low <= 0 <= high
    assert 0.8 <= covered / 200 <= 0.97


def test_the_band_is_the_papers() -> None:
    low, middle, high = band(np.array([[0.0], [1], [2], [3], [4]]))
    assert (low[0], middle[0], high[0]) == pytest.approx((0.8, 2.0, 3.2))


def test_the_band_ends_where_a_replicate_does_rather_than_show_the_survivors() -> None:
    curves = np.array([[0.0, 1, np.nan], [0, 1, np.nan], [0, 5, 5]])
    for edge, known in zip(band(curves), (1, 1, 3.4), strict=True):
        np.testing.assert_allclose(edge, [0, known, np.nan])


def test_censored_runs_count_without_pretending() -> None:
    one = StepsToSolve.of([10, 20, 90], [True, True, False])
    assert (one.solved, one.runs, str(one)) == (2, 3, "20")
    two = StepsToSolve.of([10, 90, 80], [True, False, False])
    assert two.median_is_bound
    assert str(two) == "> 80"
    # A run that gave up early is not a fast one.
    early = StepsToSolve.of([5, 20, 30], [False, True, True])
    assert str(early) == "30"
