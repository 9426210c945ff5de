"""The theorem, measured: the controls do what they say, and the algorithm is Algorithm 1."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hyq.coverage.inspect import policy_visits
from hyq.coverage.policy import SavedPolicy
from hyq.envs.combination_lock import CombinationLockVector, LockSpec, lock_parameters
from hyq.experiments import theory
from hyq.experiments.lock_coverage import optimal_policy
from hyq.experiments.theory import (
    Case,
    ProblemKind,
    build,
    comparator_policy,
    measure,
    offline_data,
    plan,
)


@pytest.mark.parametrize("problem", ["tabular", "lock"])
@pytest.mark.parametrize("share", [1.0, 0.25, 1 / 16])
def test_the_share_controls_the_transfer_coefficient(problem: ProblemKind, share: float) -> None:
    """C_pi^2 = H / p wherever the worst policy never does what the optimal one does."""
    result = measure(Case(problem=problem, share=share, iterations=2))
    assert result.transfer <= math.sqrt(4 / share) * (1 + 1e-9)
    assert result.transfer >= 0.9 * math.sqrt(4 / share)


@pytest.mark.parametrize("problem", ["tabular", "linear", "lock"])
def test_the_comparator_is_approached_within_the_bound(problem: ProblemKind) -> None:
    result = measure(Case(problem=problem, share=0.5, iterations=128, size=4))
    assert len(result.values) == 128
    assert result.comparator_value == pytest.approx(result.optimal_value)
    assert 0 < result.cumulative < result.bound
    late = result.comparator_value - result.values[-16:].mean()
    assert late < 0.5 * (result.comparator_value - result.values[:4].mean())


def test_laying_batches_end_to_end_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(iterations=20)
    whole = measure(case).values
    monkeypatch.setattr(theory, "_SEGMENT", 3)
    np.testing.assert_array_equal(measure(case).values, whole)


def test_same_seed_same_numbers_other_seed_other_numbers() -> None:
    case = Case(iterations=16)
    assert measure(case).cumulative == measure(case).cumulative
    assert measure(case).cumulative != measure(replace(case, seed=1)).cumulative


def test_offline_pairs_follow_nu() -> None:
    problem = build(Case(size=3))
    mdp = problem.mdp
    nu = np.random.default_rng(0).dirichlet(np.ones(12), size=4).reshape(mdp.reward.shape)
    data = offline_data(problem, nu, 20_000, np.random.default_rng(1))
    for h in range(mdp.horizon):
        rows = data.at(h)
        cells = np.bincount(rows.observation * mdp.actions + rows.action, minlength=12)
        np.testing.assert_allclose(cells / 20_000, nu[h].ravel(), atol=0.02)
        assert set(np.unique(rows.reward)) <= {0.0, 1.0}
        assert (rows.discount == (h < 3)).all()


def test_a_comparator_that_departs_leaves_the_optimum_uncovered() -> None:
    case = Case(comparator=0.5, share=1.0, iterations=64, size=4)
    result = measure(case)
    assert result.optimal_transfer == math.inf
    assert result.transfer == pytest.approx(2.0)
    assert result.comparator_value < result.optimal_value
    mdp = build(case).mdp
    same = comparator_policy(mdp, 0.0, np.random.default_rng(0))
    assert mdp.value(same) == pytest.approx(mdp.optimal_value())


def test_a_warm_start_forgets_and_pooling_does_not() -> None:
    """On the lock with little data, dropping the offline data costs more than keeping it."""
    case = Case(problem="lock", horizon=4, iterations=64, share=0.5)
    kept = measure(case).cumulative
    dropped = measure(replace(case, use="warm start")).cumulative
    assert kept < 0.5 * dropped


def test_the_quick_plan_is_small_and_whole(tmp_path: Path) -> None:
    quick, full = plan(quick=True), plan(quick=False)
    assert {case.problem for case in quick.rates} == {case.problem for case in full.rates}
    assert max(case.iterations for case in quick.rates) <= 32
    assert {case.use for case in quick.forgetting} == set(theory.USES)


def test_the_lock_expert_opens_the_lock() -> None:
    lock = LockSpec(horizon=8)
    policy = SavedPolicy(tuple(optimal_policy(lock)))
    env = CombinationLockVector(100, **lock_parameters(lock))
    visits = policy_visits(policy, env, seed=1)
    assert visits.returns.mean() == 1.0
