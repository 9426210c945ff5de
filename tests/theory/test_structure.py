"""Bilinear rank, eluder dimension, and the witnesses of failed assumptions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray
from hyq.envs.offline_hard import A, B, C, Variant, offline_hard_mdp
from hyq.theory.assumptions import (
    finite_completeness,
    finite_realizability,
    largest_returns,
    linear_completeness,
    linear_realizability,
    range_completeness,
)
from hyq.theory.structure import (
    bellman_eluder_dimension,
    bilinear_rank,
    distributional_eluder,
    residual_matrices,
)
from tests.fqi.finite import offline_hard_class
from tests.theory.instances import random_instance, random_linear, seeds

MANY = settings(max_examples=100, deadline=None, derandomize=True)


@MANY
@given(seeds)
def test_ranks_are_as_low_as_the_models_promise(seed: int) -> None:
    """Linear Bellman completeness: Q-type rank <= d. Low-rank transitions: V-type rank <= d."""
    linear, instance = random_linear(seed)
    mdp, rng = linear.mdp, instance.rng
    weights = rng.standard_normal((12, mdp.horizon, linear.dimension))
    known = np.einsum("khd,sad->khsa", weights, linear.features)
    anything = rng.random((12, *mdp.reward.shape))
    assert bilinear_rank(mdp, known, "q-type") <= linear.dimension
    assert bilinear_rank(mdp, anything, "v-type") <= linear.dimension
    assert bilinear_rank(mdp, anything, "q-type") <= mdp.states * mdp.actions


def test_the_promised_ranks_are_reached() -> None:
    linear, instance = random_linear(4)
    mdp, rng = linear.mdp, instance.rng
    assert linear.dimension >= 2
    weights = rng.standard_normal((40, mdp.horizon, linear.dimension))
    known = np.einsum("khd,sad->khsa", weights, linear.features)
    assert bilinear_rank(mdp, known, "q-type") == linear.dimension


def test_types_differ_where_the_second_action_is_drawn() -> None:
    mdp = FiniteMDP(np.ones((1, 1, 2, 1)), np.array([[[1.0, 0.0]]]), np.ones(1))
    f, g = np.array([[[1.0, 0.0]]]), np.array([[[0.5, 0.7]]])
    joint = np.stack([f, g])
    q_type = residual_matrices(mdp, joint, "q-type")[0]
    v_type = residual_matrices(mdp, joint, "v-type")[0]
    np.testing.assert_allclose(q_type, [[0.0, -0.5], [0.0, 0.7]])
    np.testing.assert_allclose(v_type, [[0.0, 0.7], [0.0, 0.7]])


def slow_eluder(values: FloatArray, epsilon: float) -> int:
    """Try every ordered sequence; a level is right if it lies in all steps' intervals."""
    measures = range(len(values))
    best = 0
    levels = {epsilon}
    for size in range(1, len(values) + 1):
        for subset in itertools.combinations(measures, size):
            levels |= set(np.sqrt((values[list(subset)] ** 2).sum(axis=0)).tolist())
    for level in sorted(level for level in levels if level >= epsilon):
        for size in range(best + 1, len(values) + 1):
            for sequence in itertools.permutations(measures, size):
                if all(
                    (
                        (np.sqrt((values[list(sequence[:i])] ** 2).sum(axis=0)) <= level)
                        & (np.abs(values[sequence[i]]) > level)
                    ).any()
                    for i in range(size)
                ):
                    best = size
                    break
    return best


@settings(max_examples=50, deadline=None, derandomize=True)
@given(seeds)
def test_the_eluder_dimension_equals_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    values = rng.choice([0.0, 0.5, 1.0], size=shape) * rng.random(shape)
    epsilon = float(rng.choice([0.05, 0.2]))
    assert distributional_eluder(values, epsilon) == slow_eluder(values, epsilon)


def test_eluder_dimension_by_hand() -> None:
    assert distributional_eluder(np.eye(4), 0.5) == 4
    assert distributional_eluder(np.ones((4, 3)), 0.5) == 1
    assert distributional_eluder(np.zeros((3, 3)), 0.1) == 0
    # At 0.2 either function has already been seen too loudly; at 0.3, which is allowed, not.
    assert distributional_eluder(np.array([[1.0, 0.3], [0.3, 1.0]]), 0.2) == 2
    assert distributional_eluder(np.array([[0.5], [1.0]]), 0.4) == 1
    with pytest.raises(HyqError, match="positive"):
        distributional_eluder(np.eye(2), 0.0)
    with pytest.raises(HyqError, match="too many"):
        distributional_eluder(np.eye(13), 0.5)


def eluder_bound(rank: int, length: float, epsilon: float) -> int:
    """Bound dim_DE of values <x, w> of rank d with ||x|| ||w|| <= `length`.

    A sequence of n epsilon'-independent measures has x_i' V_i^{-1} x_i >= 1/2 for V_i = sum_{j<i}
    x_j x_j' + (epsilon'/||w||)^2 I, so (3/2)^n <= det V_n / det V_0 <= (1 + n length^2 / (d
    epsilon^2))^d; n is the largest number that allows.
    """
    n = 0
    while (n + 1) * math.log(1.5) <= rank * math.log1p((n + 1) * length**2 / (rank * epsilon**2)):
        n += 1
    return n


@settings(max_examples=50, deadline=None, derandomize=True)
@given(seeds)
def test_a_low_rank_bounds_the_eluder_dimension(seed: int) -> None:
    instance = random_instance(seed)
    joint = instance.rng.random((5, *instance.mdp.reward.shape))
    matrices = residual_matrices(instance.mdp, joint, "q-type")
    epsilon = 0.1
    dimension = bellman_eluder_dimension(instance.mdp, joint, epsilon)
    bounds = []
    for matrix in matrices:
        left, singular, right = np.linalg.svd(matrix)
        rank = max(int((singular > 1e-10).sum()), 1)
        x, w = (left * singular)[:, :rank], right[:rank].T
        length = np.linalg.norm(x, axis=1).max() * np.linalg.norm(w, axis=1).max()
        bounds.append(eluder_bound(rank, float(length), epsilon))
    assert dimension <= max(bounds)


@pytest.mark.parametrize("variant", ["M1", "M2"])
def test_the_class_of_the_offline_counterexample_is_complete(variant: Variant) -> None:
    """On the states each step can visit: A on the first, B and C on the second."""
    mdp, tables = offline_hard_mdp(variant), offline_hard_class()
    assert mdp.bellman(1, None)[[B, C]].tolist() in tables[:, [B, C]].tolist()
    for f in tables:
        assert mdp.bellman(0, f)[A].tolist() in tables[:, A].tolist()


def test_witnesses_of_finite_classes() -> None:
    mdp = FiniteMDP.random(np.random.default_rng(5), states=3, actions=2, horizon=3)
    q = mdp.optimal_q()
    only_optimal = q[:, None]
    assert finite_realizability(mdp, only_optimal) is None
    assert finite_completeness(mdp, only_optimal) is None
    shifted = only_optimal.copy()
    shifted[0, 0, 0, 0] += 0.25
    witness = finite_realizability(mdp, shifted)
    assert witness is not None
    assert (witness.step, witness.state, witness.action) == (0, 0, 0)
    assert witness.gap == pytest.approx(0.25)
    # Realizable but not complete: a second member at the last step whose backup is missing.
    last = np.stack([q, q**2 + 0.5], axis=1)
    witness = finite_completeness(mdp, last)
    assert witness is not None
    assert witness.of is not None
    missing = mdp.bellman(witness.step, witness.of)
    np.testing.assert_allclose(witness.source, missing)
    assert np.abs(last[witness.step] - missing).max(axis=(1, 2)).min() == pytest.approx(witness.gap)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seeds)
def test_linear_mdps_are_realizable_and_complete(seed: int) -> None:
    linear, instance = random_linear(seed)
    assert linear_realizability(linear.mdp, linear.features, linear.weight_bound) is None
    assert linear_completeness(linear.mdp, linear.features, instance.rng) is None


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seeds)
def test_no_bounded_class_is_complete_if_it_is_the_same_at_every_step(seed: int) -> None:
    """T raises min_s max_a f by the reward, so the member where that is largest has no backup."""
    linear, instance = random_linear(seed)
    mdp, rng = instance.mdp, instance.rng
    if mdp.horizon == 1:
        return
    assert mdp.reward.max(axis=-1).min() > 1e-6
    members = rng.random((5, mdp.states, mdp.actions))
    assert finite_completeness(mdp, np.repeat(members[None], mdp.horizon, axis=0)) is not None
    assert range_completeness(mdp, np.ones(mdp.reward.shape)) is not None
    for radius in (linear.weight_bound, 100 * linear.weight_bound):
        # The ball's own largest member: the longest multiple of the constant function.
        constant = radius / linear.weight_bound * np.ones(linear.dimension)
        backup = mdp.bellman(0, linear.features @ constant)
        assert backup.min() > (linear.features @ constant).max()
        shortest = np.linalg.lstsq(
            linear.features.reshape(-1, linear.dimension), backup.ravel(), rcond=None
        )[0]
        if np.linalg.matrix_rank(linear.features.reshape(-1, linear.dimension)) == len(constant):
            assert np.linalg.norm(shortest) > radius


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seeds)
def test_a_range_for_every_step_is_complete(seed: int) -> None:
    """For tables, and for the weights of simplex features; targets of coin flips stay inside."""
    linear, instance = random_linear(seed)
    mdp, rng = instance.mdp, instance.rng
    for payoff in (mdp.reward, np.ones(mdp.reward.shape)):
        top = largest_returns(mdp, payoff)
        assert range_completeness(mdp, top) is None
        for h in range(mdp.horizon - 1):
            reached = mdp.transition[h] > 0
            target = payoff[h][:, :, None] + np.where(reached, top[h + 1].max(axis=-1), 0.0)
            assert (target <= top[h][:, :, None] + 1e-12).all()
    v = (mdp.horizon - np.arange(mdp.horizon + 1)) / mdp.horizon
    for h in range(mdp.horizon):
        f = linear.features @ rng.uniform(0, v[h + 1], size=linear.dimension)
        weights = linear.reward_weights[h] + linear.measures[h] @ f.max(axis=-1)
        np.testing.assert_allclose(linear.features @ weights, mdp.bellman(h, f), atol=1e-12)
        assert weights.min() >= 0
        assert weights.max() <= v[h] + 1e-12
        assert np.linalg.norm(weights) <= linear.weight_bound


def test_witnesses_of_linear_classes() -> None:
    linear, instance = random_linear(4)
    fewer = linear.features[..., :1]
    witness = linear_completeness(linear.mdp, fewer, instance.rng)
    assert witness is not None
    assert "not linear" in witness.reason
    assert linear_realizability(linear.mdp, fewer) is not None
    short = linear_realizability(linear.mdp, linear.features, radius=1e-3)
    assert short is not None
    assert "B_W" in short.reason
