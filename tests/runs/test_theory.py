"""The theorem, measured: the controls do what they say, and the algorithm is Algorithm 1."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hyq.coverage.policy import played_by_step
from hyq.envs.combination_lock import CombinationLockVector, LockSpec
from hyq.experts.lock import optimal_policy
from hyq.fqi.classes import GreedyPolicy
from hyq.runs import theory
from hyq.runs.theory import (
    BoxClass,
    Case,
    ProblemKind,
    build,
    comparator_policy,
    measure,
    offline_data,
    plan,
    setting,
)
from hyq.theory.assumptions import largest_returns, range_completeness
from hyq.theory.theorem import cumulative_bound
from tests.fqi.conformance import regression


def measured(case: Case) -> SimpleNamespace:
    found, values = measure(case)
    return SimpleNamespace(**found, values=values)


@pytest.mark.parametrize("problem", ["tabular", "lock"])
@pytest.mark.parametrize("share", [1.0, 0.25, 1 / 16])
def test_the_share_controls_the_transfer_coefficient(problem: ProblemKind, share: float) -> None:
    """C_pi^2 = H / p wherever the worst policy never does what the optimal one does."""
    result = measured(Case(problem=problem, share=share, iterations=2))
    assert result.transfer <= math.sqrt(4 / share) * (1 + 1e-9)
    assert result.transfer >= 0.9 * math.sqrt(4 / share)


@pytest.mark.parametrize("problem", ["tabular", "linear", "lock"])
def test_the_comparator_is_approached_within_the_bound(problem: ProblemKind) -> None:
    result = measured(Case(problem=problem, share=0.5, iterations=128, size=4))
    assert len(result.values) == 128
    assert result.comparator_value == pytest.approx(result.optimal_value)
    bound = cumulative_bound(
        setting(result.transfer, result.rank, 4, result.v_max), iterations=128, m_off=128
    )
    assert 0 < result.cumulative < bound
    late = result.comparator_value - result.values[-16:].mean()
    assert late < 0.5 * (result.comparator_value - result.values[:4].mean())


@pytest.mark.parametrize("problem", ["tabular", "linear", "lock"])
def test_the_class_is_complete_and_targets_stay_in_its_range(problem: ProblemKind) -> None:
    built = build(Case(problem=problem))
    mdp = built.mdp
    assert built.v_max == (1.0 if problem == "lock" else 4.0)
    payoff = np.ones(mdp.reward.shape) if built.bernoulli else mdp.reward
    assert range_completeness(mdp, largest_returns(mdp, payoff)) is None
    if problem == "linear":
        # One box of weights serves every step, because features carry what can still be gained.
        for h in range(mdp.horizon):
            next_values = built.observe(h + 1, np.arange(mdp.states)) @ np.ones(built.rank)
            backup = mdp.bellman(h, next_values)
            features = built.observe(h, np.arange(mdp.states)).reshape(-1, built.rank)
            weights = np.linalg.lstsq(features, backup.ravel(), rcond=None)[0]
            np.testing.assert_allclose(features @ weights, backup.ravel(), atol=1e-9)
            assert weights.min() >= 0
            assert weights.max() <= 1


def test_box_weights_are_the_least_squares_solution() -> None:
    """The conditions of optimality: no gradient inside, none that points back in at a bound."""
    rng = np.random.default_rng(0)
    bounds = set()
    for rows in (3, 40, 40, 40):
        observation = rng.dirichlet(np.ones(4), size=(rows, 2))
        target = rng.uniform(-0.5, 1.5, rows)
        action, weight = rng.integers(2, size=rows), np.full(rows, 1 / rows)
        family = BoxClass(4)
        fitted = family.fit(regression(observation, action, target, weight))
        features = observation[np.arange(rows), action]
        gradient = features.T @ (features @ fitted.weights - target) / rows
        inside = (fitted.weights > 0) & (fitted.weights < 1)
        np.testing.assert_allclose(gradient[inside], 0.0, atol=1e-9)
        assert (gradient[fitted.weights == 0] >= -1e-9).all()
        assert (gradient[fitted.weights == 1] <= 1e-9).all()
        bounds |= set(np.where(inside, 0.5, fitted.weights).tolist())
    assert bounds == {0.0, 0.5, 1.0}


def test_laying_batches_end_to_end_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(iterations=20)
    whole = measured(case).values
    monkeypatch.setattr(theory, "_SEGMENT", 3)
    np.testing.assert_array_equal(measured(case).values, whole)


def test_same_seed_same_numbers_other_seed_other_numbers() -> None:
    case = Case(iterations=16)
    assert measured(case).cumulative == measured(case).cumulative
    assert measured(case).cumulative != measured(replace(case, seed=1)).cumulative


def test_offline_pairs_follow_nu() -> None:
    problem = build(Case(size=3))
    mdp = problem.mdp
    nu = np.random.default_rng(0).dirichlet(np.ones(12), size=4).reshape(mdp.reward.shape)
    data = offline_data(problem, nu, 20_000, np.random.default_rng(1))
    for h in range(mdp.horizon):
        rows = data.by_step().at(h)
        cells = np.bincount(rows.observation * mdp.actions + rows.action, minlength=12)
        np.testing.assert_allclose(cells / 20_000, nu[h].ravel(), atol=0.02)
        assert set(np.unique(rows.reward)) <= {0.0, 1.0}
        assert (rows.discount == (h < 3)).all()


def test_a_comparator_that_departs_leaves_the_optimum_uncovered() -> None:
    case = Case(comparator=0.5, share=1.0, iterations=64, size=4)
    result = measured(case)
    assert not result.optimal_covered
    assert result.transfer == pytest.approx(2.0)
    assert result.comparator_value < result.optimal_value
    mdp = build(case).mdp
    same = comparator_policy(mdp, 0.0, np.random.default_rng(0))
    assert mdp.value(same) == pytest.approx(mdp.optimal_value())


def test_a_warm_start_forgets_and_pooling_does_not() -> None:
    """On the lock with little data, dropping the offline data costs more than keeping it."""
    case = Case(problem="lock", horizon=4, iterations=64, share=0.5)
    kept = measured(case).cumulative
    dropped = measured(replace(case, use="warm start")).cumulative
    assert kept < 0.5 * dropped


def test_the_quick_plan_is_small_and_whole(tmp_path: Path) -> None:
    quick, full = plan(quick=True), plan(quick=False)
    assert {case.problem for case in quick["rates"]} == {case.problem for case in full["rates"]}
    assert max(case.iterations for case in quick["rates"]) <= 32
    assert {case.use for case in quick["forgetting"]} == set(theory.USES)


def test_the_lock_expert_opens_the_lock() -> None:
    lock = LockSpec(horizon=8)
    policy = GreedyPolicy(tuple(optimal_policy(lock)))
    env = CombinationLockVector(100, **vars(lock))
    assert played_by_step(policy, env, seed=1).returns().mean() == 1.0
