import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hyq.fqi.tabular import TabularClass
from tests.fqi.conformance import regression


def test_cells_are_weighted_means_and_unseen_cells_are_zero() -> None:
    family = TabularClass(states=2, actions=2)
    problem = regression(
        observation=np.array([0, 0, 1]),
        action=np.array([1, 1, 0]),
        target=np.array([1.0, 4.0, 7.0]),
        weight=np.array([0.4, 0.2, 0.4]),
    )
    fitted = family.fit(problem)
    np.testing.assert_allclose(fitted.table, [[0.0, 2.0], [7.0, 0.0]])
    np.testing.assert_array_equal(fitted.greedy(np.array([0, 1])), [1, 0])


def test_a_cell_seen_with_zero_weight_counts_as_unseen() -> None:
    family = TabularClass(states=1, actions=2)
    problem = regression(np.zeros(2, int), np.array([0, 1]), np.ones(2), np.array([1.0, 0.0]))
    fitted = family.fit(problem)
    np.testing.assert_array_equal(fitted.table, [[1.0, 0.0]])


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_it_agrees_with_least_squares_on_indicators(seed: int) -> None:
    rng = np.random.default_rng(seed)
    family = TabularClass(states=3, actions=2)
    n = int(rng.integers(1, 12))
    problem = regression(
        rng.integers(3, size=n), rng.integers(2, size=n), rng.normal(size=n), np.full(n, 1 / n)
    )
    indicator = np.eye(6)[2 * problem.rows.observation + problem.rows.action]
    expected, *_ = np.linalg.lstsq(indicator, problem.target)
    fitted = family.fit(problem)
    np.testing.assert_allclose(fitted.table.ravel(), expected, atol=1e-12)
    rebuilt = family.zero().with_arrays(fitted.arrays())
    np.testing.assert_array_equal(rebuilt.table, fitted.table)
