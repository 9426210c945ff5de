from dataclasses import replace

import numpy as np
import pytest
import torch

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import FloatArray
from hyq.fqi.classes import Regression
from hyq.fqi.mlp import MLPClass, MLPFunction
from tests.fqi.conformance import regression

FAMILY = MLPClass(2, 2, hidden=(32,), learning_rate=1e-2, batch_size=64, updates=600)


def truth(x: FloatArray) -> FloatArray:
    """Return values in [0, 1] of two actions."""
    return np.stack([0.5 + 0.4 * np.sin(2 * x[:, 0]), 0.5 + 0.3 * x[:, 0] * x[:, 1]], axis=1)


def sample(seed: int, rows: int = 500) -> Regression:
    rng = np.random.default_rng(seed)
    x, action = rng.uniform(-1, 1, size=(rows, 2)), rng.integers(2, size=rows)
    target = truth(x)[np.arange(rows), action]
    return regression(x, action, target, np.full(rows, 1 / rows))


def fit(seed: int, problem: Regression, start: MLPFunction | None = None) -> MLPFunction:
    return FAMILY.fit(replace(problem, start=start, streams=Streams(seed)))


def test_it_learns_a_smooth_function_of_both_actions() -> None:
    fitted = fit(0, sample(0))
    fresh = sample(1).rows.observation
    error = fitted.values(fresh) - truth(fresh)
    assert np.sqrt((error**2).mean()) < 0.03
    assert np.sqrt(((truth(fresh) - truth(fresh).mean(axis=0)) ** 2).mean()) > 0.15


def test_weights_decide_between_contradicting_rows() -> None:
    problem = regression(
        np.zeros((3, 2)),
        np.zeros(3, int),
        np.array([0.0, 1.0, 0.2]),
        np.array([0.25, 0.75, 0.0]),
    )
    value = fit(0, problem).values(np.zeros((1, 2)))[0, 0]
    assert value == pytest.approx(0.75, abs=0.03)


def test_the_same_seed_gives_the_same_bits_and_leaves_torch_alone() -> None:
    problem = sample(0, rows=50)
    torch_state = torch.get_rng_state()
    first, again, other = (
        fit(seed, problem).values(problem.rows.observation) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert torch.equal(torch_state, torch.get_rng_state())


def test_a_fit_begins_where_it_is_told_and_leaves_its_start_unchanged() -> None:
    problem = sample(0, rows=200)
    start = fit(0, problem)
    before = start.values(problem.rows.observation)
    nudge = MLPClass(2, 2, hidden=(32,), learning_rate=1e-5, batch_size=64, updates=1)
    after = nudge.fit(replace(problem, start=start)).values(problem.rows.observation)
    np.testing.assert_allclose(after, before, atol=1e-3)
    assert not np.array_equal(after, before)
    np.testing.assert_array_equal(start.values(problem.rows.observation), before)


def test_values_are_clipped_to_their_range() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, size=(100, 2))
    problem = regression(x, np.arange(100) % 2, 5 * x[:, 0], np.full(100, 0.01))
    values = fit(0, problem).values(x)
    assert values.min() == 0.0
    assert values.max() == 1.0
    wide = MLPClass(2, 2, (32,), 1e-2, 64, updates=600, value_range=(-9.0, 9.0))
    unclipped = wide.fit(problem).values(x)
    assert unclipped.min() < -3.0
    assert unclipped.max() > 3.0


def test_zero_is_zero_and_arrays_rebuild_the_function() -> None:
    problem = sample(0, rows=50)
    assert not FAMILY.zero().values(problem.rows.observation).any()
    assert (
        not FAMILY.zero().with_arrays(FAMILY.zero().arrays()).values(problem.rows.observation).any()
    )
    fitted = fit(0, problem)
    arrays = fitted.arrays()
    assert {name: array.shape for name, array in arrays.items()} == {
        "range": (2,),
        "kernel_0": (2, 32),
        "bias_0": (32,),
        "kernel_1": (32, 2),
        "bias_1": (2,),
    }
    rebuilt = FAMILY.zero().with_arrays(arrays)
    np.testing.assert_array_equal(
        rebuilt.values(problem.rows.observation), fitted.values(problem.rows.observation)
    )


def test_settings_that_cannot_fit_raise() -> None:
    with pytest.raises(HyqError, match="must be positive"):
        MLPClass(2, 2, updates=0)
    with pytest.raises(HyqError, match="value_range must contain zero"):
        MLPClass(2, 2, value_range=(1.0, 2.0))
