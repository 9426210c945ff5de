"""The block class: its head against a slow twin, its encoder against known latents."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from hyq.core.errors import HyqError
from hyq.core.types import FloatArray, IntArray
from hyq.fqi.block import BlockClass, encode, head_solver
from hyq.fqi.classes import Regression
from tests.fqi.conformance import regression


def block_problem(
    rng: np.random.Generator,
    table: FloatArray,
    rows: int = 1500,
    dimension: int = 16,
    shares: Sequence[float] = (1 / 3, 1 / 3, 1 / 3),
) -> tuple[Regression, IntArray]:
    """Noisy rotated one-hot latents, and targets that depend on (latent, action) only."""
    latent = np.searchsorted(np.cumsum(shares), np.arange(rows) / rows, side="right")
    rotation = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    plain = np.eye(dimension)[latent] + rng.normal(scale=0.1, size=(rows, dimension))
    plain[:, 7] += 1.0  # a constant code, as that of the time
    observation = (5 * plain @ rotation).astype(np.float32)
    action = rng.integers(table.shape[1], size=rows)
    problem = regression(observation, action, table[latent, action], np.full(rows, 1 / rows))
    return problem, latent


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_the_head_is_the_exact_minimiser(seed: int, bounded: bool) -> None:
    rng = np.random.default_rng(seed)
    rows, actions = 60, 4
    code = rng.dirichlet(np.ones(3), size=rows).astype(np.float32)
    action = np.sort(rng.integers(actions - 1, size=rows))  # the last action is never seen
    target, weight = rng.normal(size=rows), rng.dirichlet(np.ones(rows))
    family = BlockClass(2, actions, ridge=1e-6, bounded=bounded)
    head = head_solver(action, target, weight, family)(code)
    bounds = (0.0, 1.0) if bounded else (-np.inf, np.inf)
    for a in np.unique(action):
        seen = action == a
        scale = np.sqrt(weight[seen])
        slow = lsq_linear(code[seen] * scale[:, None], target[seen] * scale, bounds, tol=1e-12)
        achieved = np.sum((scale * (code[seen] @ head[:, a] - target[seen])) ** 2)
        assert achieved <= 2 * slow.cost + 1e-6
        if bounded:
            assert head[:, a].min() >= 0.0
            assert head[:, a].max() <= 1.0
    np.testing.assert_array_equal(head[:, actions - 1], 0.0)


@pytest.mark.parametrize("encoding", ["hard", "soft"])
@pytest.mark.parametrize("v_max", [1.0, 7.0])
def test_the_fit_recovers_latents_and_values(encoding: str, v_max: float) -> None:
    rng = np.random.default_rng(0)
    table = v_max * np.array([[1.0, 0.0, 0.1], [0.0, 1.0, 0.1], [0.0, 0.0, 0.0]])
    problem, latent = block_problem(rng, table)
    family = BlockClass(16, 3, v_max=v_max, encoding=encoding)  # type: ignore[arg-type]
    fitted = family.fit(problem)
    tolerance = {"hard": 1e-3, "soft": 0.1}[encoding] * v_max
    values = fitted.values(problem.rows.observation)
    for z in range(3):
        np.testing.assert_allclose(values[latent == z].mean(axis=0), table[z], atol=tolerance)
    np.testing.assert_array_equal(
        fitted.greedy(problem.rows.observation)[latent < 2], latent[latent < 2]
    )


@pytest.mark.parametrize("shares", [(0.5, 0.5, 0.0), (0.9, 0.05, 0.05), (0.5, 0.496, 0.004)])
def test_latents_are_told_apart_before_any_value_does(shares: tuple[float, ...]) -> None:
    """Targets that are all equal, as where all logged actions are good; latents as rare as 6 rows.

    Two latents that are merged here are a wrong action later, and the fit must not merge them.
    """
    rng = np.random.default_rng(1)
    problem, latent = block_problem(rng, np.ones((3, 3)), dimension=32, shares=shares)
    family = BlockClass(32, 3)
    fitted = family.fit(problem)
    code = (problem.rows.observation @ fitted.encoder + fitted.bias).argmax(axis=1)
    table = np.array([[np.sum((latent == z) & (code == k)) for k in range(3)] for z in range(3)])
    assert table.max(axis=0).sum() > 0.98 * len(latent)


def test_data_outweighs_the_start() -> None:
    """Where rows vary most in a direction that says nothing, targets must correct the start."""
    rng = np.random.default_rng(2)
    problem, latent = block_problem(rng, np.eye(3))
    nuisance = rng.normal(scale=8.0, size=(len(latent), 2)) @ rng.normal(size=(2, 16)) / 4
    seen = (problem.rows.observation + nuisance).astype(np.float32)
    noisy = replace(problem, rows=replace(problem.rows, observation=seen))
    family = BlockClass(16, 3, steps=200)
    start = replace(family, steps=0).fit(noisy)
    fitted = family.fit(noisy)
    right = [np.mean(f.greedy(noisy.rows.observation) == latent) for f in (start, fitted)]
    assert right[0] < 0.8
    assert right[1] > 0.99


def test_values_stay_in_range_even_for_impossible_targets() -> None:
    rng = np.random.default_rng(3)
    problem, _ = block_problem(rng, 5 * np.eye(3) - 2)
    family = BlockClass(16, 3, v_max=2.0)
    values = family.fit(problem).values(problem.rows.observation)
    assert values.min() >= 0.0
    assert values.max() <= 2.0


def test_weights_decide_between_contradicting_rows() -> None:
    rng = np.random.default_rng(4)
    observation = np.repeat(rng.normal(size=(1, 8)), 4, axis=0).astype(np.float32)
    observation += rng.normal(scale=1e-3, size=observation.shape).astype(np.float32)
    weight = np.array([0.7, 0.1, 0.1, 0.1])
    problem = regression(observation, np.zeros(4, int), np.array([1.0, 0, 0, 0]), weight)
    family = BlockClass(8, 1, steps=0, latents=1)
    fitted = family.fit(problem)
    np.testing.assert_allclose(fitted.values(observation)[:, 0], 0.7, atol=1e-3)


def test_arrays_rebuild_the_function() -> None:
    rng = np.random.default_rng(5)
    problem, _ = block_problem(rng, np.eye(3))
    family = BlockClass(16, 3)
    fitted = family.fit(problem)
    again = family.zero().with_arrays(fitted.arrays())
    np.testing.assert_array_equal(
        fitted.values(problem.rows.observation), again.values(problem.rows.observation)
    )


def test_the_zero_function_is_zero_and_encodings_are_checked() -> None:
    zero = BlockClass(4, 2).zero()
    np.testing.assert_array_equal(zero.values(np.ones((3, 4), np.float32)), 0.0)
    with pytest.raises(HyqError, match="encoding"):
        BlockClass(4, 2, encoding="fuzzy")  # type: ignore[arg-type]


def test_codes_survive_large_logits_and_are_one_hot_at_temperature_zero() -> None:
    expected = np.array([[1.0, 0.0], [0.5, 0.5]])
    logits = np.array([[1e4, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(encode(logits, "soft"), expected)
    np.testing.assert_array_equal(encode(logits, "hard"), [[1, 0], [1, 0]])


def test_observations_that_are_all_equal_give_finite_functions() -> None:
    """A deterministic first state has nothing to scale by; NaN would spread to every step."""
    same = np.ones((5, 4), np.float32)
    problem = regression(same, np.array([0, 0, 0, 1, 1]), np.ones(5) * 0.5, np.full(5, 0.2))
    family = BlockClass(4, 2)
    fitted = family.fit(problem)
    np.testing.assert_allclose(fitted.values(same), 0.5, atol=1e-3)
