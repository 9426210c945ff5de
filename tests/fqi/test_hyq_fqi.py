"""Hy-Q itself: what it collects, what it counts, what it regresses on, and that it learns."""

import math
from collections import deque
from itertools import pairwise

import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.schedules import PiecewiseLinear
from hyq.core.seeding import Streams
from hyq.core.types import Transitions
from hyq.data.dataset import Dataset
from hyq.data.online import OnlineStore
from hyq.envs.combination_lock import CombinationLockVector, LockSpec
from hyq.envs.tabular import TabularEnv
from hyq.experts.lock import lock_dataset
from hyq.fqi.base import State
from hyq.fqi.block import BlockClass
from hyq.fqi.classes import Regression
from hyq.fqi.hyq_fqi import (
    HyQ,
    HyQConfig,
    collect,
    fitted_q_iteration,
    online_residual,
)
from hyq.fqi.tabular import TabularClass, TabularFunction
from tests.fqi.conformance import check_conformance, returns

LOCK = LockSpec(horizon=6, actions=4, instance_seed=1)


def copies(count: int) -> CombinationLockVector:
    return CombinationLockVector(count, **vars(LOCK))


def block() -> BlockClass:
    return BlockClass(LOCK.observation_dim, LOCK.actions)


def test_v_type_rolls_in_and_counts_every_transition() -> None:
    functions = (block().zero(),) * 6
    batch, samples = collect(copies(5), functions, "v-type", Streams(0))
    assert [len(rows) for rows in batch] == [5] * 6
    assert samples == 5 * (1 + 2 + 3 + 4 + 5 + 6)


def test_v_type_acts_uniformly_at_its_depth_and_greedily_before() -> None:
    functions = (block().zero(),) * 6  # greedy is always action 0
    batch, _ = collect(copies(4000), functions, "v-type", Streams(0))
    for rows in batch:
        np.testing.assert_allclose(np.bincount(rows.action) / 4000, 0.25, atol=0.03)
    good = LOCK.good_actions()
    reached = np.mean([(good[0] == 0).mean()])
    first_fall = batch[1].reward  # only copies that survived action 0 can still fall
    assert (first_fall > 0).mean() <= reached + 0.02


def test_q_type_keeps_whole_episodes() -> None:
    functions = (block().zero(),) * 6
    batch, samples = collect(copies(5), functions, "q-type", Streams(0))
    assert [len(rows) for rows in batch] == [5] * 6
    assert samples == 5 * 6
    assert all((rows.action == 0).all() for rows in batch)
    for earlier, later in pairwise(batch):
        np.testing.assert_array_equal(earlier.next_observation, later.observation)


def uniform_dataset(mdp: FiniteMDP, rows: int, seed: int) -> Dataset:
    """Draw every (h, s, a) about equally often, with next states from the MDP."""
    rng = np.random.default_rng(seed)
    parts = []
    for h in range(mdp.horizon):
        s, a = rng.integers(mdp.states, size=rows), rng.integers(mdp.actions, size=rows)
        chances = mdp.transition[h, s, a].cumsum(axis=1)
        next_state = (rng.random(rows)[:, None] > chances).sum(axis=1)
        continuation = np.full(rows, float(h < mdp.horizon - 1))
        parts.append(Transitions(s, a, mdp.reward[h, s, a], continuation, next_state))
    step = np.repeat(np.arange(mdp.horizon), rows)
    return Dataset.from_transitions(Transitions.concatenate(parts), step, {})


def test_fqi_on_full_coverage_is_value_iteration() -> None:
    mdp = FiniteMDP.random(np.random.default_rng(0), states=4, actions=3, horizon=5)
    family = TabularClass(4, 3)
    functions, metrics, _ = fitted_q_iteration(
        uniform_dataset(mdp, 40_000, 0).by_step(),
        OnlineStore(),
        family,
        HyQConfig(),
        (family.zero(),) * 5,
        Streams(0),
        0.5,
    )
    states = np.arange(4)
    learned = np.stack([f.values(states) for f in functions])
    np.testing.assert_allclose(learned, mdp.optimal_q(), atol=0.01)
    assert metrics["realised_offline_share"] == pytest.approx(1.0)  # nothing was collected


def test_the_offline_share_changes_what_is_learned() -> None:
    """Two sources that disagree about one cell: the fit is their weighted mean."""

    def rows(reward: float, count: int) -> Transitions:
        zeros = np.zeros(count, int)
        return Transitions(zeros, zeros, np.full(count, reward), np.zeros(count), zeros)

    offline = Dataset.from_transitions(rows(1.0, 3), np.zeros(3, int), {})
    online = OnlineStore(((rows(0.0, 9),),))
    family = TabularClass(1, 1)
    for share, expected in ((0.0, 0.0), (0.25, 0.25), (0.5, 0.5), (1.0, 1.0), (None, 0.25)):
        functions, metrics, _ = fitted_q_iteration(
            offline.by_step(), online, family, HyQConfig(), (family.zero(),), Streams(0), share
        )
        assert functions[0].values(np.array([0]))[0, 0] == pytest.approx(expected)
        assert metrics["realised_offline_share"] == pytest.approx(expected)


def test_the_online_residual_is_the_surprise_of_the_old_function() -> None:
    family = TabularClass(2, 1)
    right = family.zero().with_arrays({"table": np.array([[0.5], [0.25]])})
    rows = Transitions(
        np.array([0, 1]), np.zeros(2, int), np.array([0.25, 0.5]), np.array([1.0, 0.0]),
        np.array([1, 1]),
    )  # fmt: skip
    residual = online_residual((right, right), (rows, rows[:0]), HyQConfig())
    # 0.5 - (0.25 + 0.25) = 0 in state 0, and 0.25 - 0.5 = -0.25 in state 1
    assert residual == pytest.approx(np.sqrt(0.25**2 / 2))


def test_q_type_hyq_learns_a_tabular_mdp_from_a_policy_it_must_beat() -> None:
    mdp = FiniteMDP.random(np.random.default_rng(2), states=5, actions=3, horizon=6)
    family = TabularClass(5, 3)
    config = HyQConfig(iterations=25, collection="q-type")
    steps = HyQ(family, config).run(TabularEnv(40, mdp), uniform_dataset(mdp, 300, 1), Streams(0))
    [last] = deque(steps, maxlen=1)
    table = np.stack([f.values(np.arange(5)) for f in last.state.functions(family.zero())])
    value = mdp.value(mdp.greedy_policy(table))
    assert value >= 0.99 * mdp.optimal_value()


@pytest.mark.parametrize("kind", ["occupancy", "trajectory"])
@pytest.mark.parametrize("text", [0.5, 1.0])
def test_v_type_hyq_opens_a_lock(kind: str, text: float) -> None:
    lock = LockSpec(horizon=12, anti_reward_probability=text, instance_seed=4)
    data = lock_dataset(lock, kind, 12 * 2000, seed=5)  # type: ignore[arg-type]
    env = CombinationLockVector(20, **vars(lock))
    test_env = CombinationLockVector(200, **vars(lock))
    config = HyQConfig(iterations=10)
    best = 0.0
    algorithm = HyQ(BlockClass(lock.observation_dim, 10), config)
    for step in algorithm.run(env, data, Streams(1)):
        best = float(returns(test_env, step.policy, 12, seed=99).mean())
        if best >= 0.99:
            break
    assert best >= 0.99


def run(seed: int, iterations: int, state: State | None = None) -> list[bytes]:
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    config = HyQConfig(iterations=iterations)
    steps = HyQ(block(), config).run(copies(3), data, Streams(seed), state)
    [last] = deque(steps, maxlen=1)
    return [array.tobytes() for f in last.policy.functions for array in f.arrays().values()]


def test_same_seed_same_bits_other_seed_other_bits() -> None:
    assert run(0, 2) == run(0, 2) != run(1, 2)


def test_a_run_continued_from_its_state_equals_one_that_never_stopped() -> None:
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    algorithm = HyQ(block(), HyQConfig(iterations=3))
    half = next(iter(algorithm.run(copies(3), data, Streams(0))))
    assert half.iteration == 1
    assert run(0, 3, half.state) == run(0, 3)


def test_a_state_that_was_handed_out_stays_as_it_was() -> None:
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    steps = iter(HyQ(block(), HyQConfig(iterations=2)).run(copies(3), data, Streams(0)))
    first = next(steps).state
    rows = len(first.online)
    second = next(steps).state
    assert len(first.online) == rows < len(second.online)


def test_the_state_given_in_is_not_changed() -> None:
    family = TabularClass(3, 2)
    mdp = FiniteMDP.random(np.random.default_rng(0), states=3, actions=2, horizon=2)
    before = State.of((family.zero(),) * 2)
    config = HyQConfig(iterations=1, collection="q-type")
    data = uniform_dataset(mdp, 50, 0)
    list(HyQ(family, config).run(TabularEnv(4, mdp), data, Streams(0), before))
    assert len(before.online) == 0


def test_targets_are_clipped_and_the_residual_is_a_mean_over_the_logs() -> None:
    """Two steps of one state and action: the last pays 3, more than the range allows."""
    one = np.zeros(1, np.int64)
    rows = Transitions(
        np.array([0, 0, 0]),
        np.zeros(3, int),
        np.array([0.0, 3.0, 1.0]),
        np.ones(3),
        np.zeros(3, int),
    )
    data = Dataset.from_transitions(rows, np.array([0, 1, 1]), {})
    family, config = TabularClass(1, 1), HyQConfig(collection="none", value_range=(0.0, 2.0))
    functions, metrics, _ = fitted_q_iteration(
        data.by_step(), OnlineStore(), family, config, (family.zero(),) * 2, Streams(0), 1.0
    )
    assert functions[1].at(one, one) == pytest.approx(1.5)  # the mean of 3 clipped to 2, and of 1
    assert functions[0].at(one, one) == pytest.approx(1.5)
    assert metrics["offline_residual"] == pytest.approx(math.sqrt((0.25 + 0.25) / 3))


@pytest.mark.parametrize(
    "settings",
    [
        {"iterations": 0},
        {"collection": "x-type"},
        {"offline_share": 2.0},
        {"offline_share": PiecewiseLinear(((0.0, -1.0),))},
    ],
)
def test_impossible_settings_raise(settings: dict[str, float]) -> None:
    with pytest.raises(HyqError):
        HyQConfig(**settings)  # type: ignore[arg-type]


def test_a_share_of_zero_or_one_never_looks_at_the_other_source() -> None:
    """Online-only must not even centre its inputs by offline data, nor offline-only by online."""
    first = lock_dataset(LOCK, "trajectory", 600, seed=0)
    second = lock_dataset(LOCK, "occupancy", 300, seed=1)
    online_only = HyQ(block(), HyQConfig(iterations=2, offline_share=0.0))
    learned = [
        [step.state.arrays["2.encoder"] for step in online_only.run(copies(3), data, Streams(0))]
        for data in (first, second)
    ]
    np.testing.assert_array_equal(learned[0], learned[1])
    offline_only = HyQ(block(), HyQConfig(iterations=1, offline_share=1.0))
    learned = [
        [step.state.arrays["2.encoder"] for step in offline_only.run(copies(n), first, Streams(0))]
        for n in (2, 5)
    ]
    np.testing.assert_array_equal(learned[0], learned[1])


def test_without_collection_no_environment_is_touched() -> None:
    class Untouchable(CombinationLockVector):
        def step(self, actions: object) -> object:  # type: ignore[override]
            raise AssertionError

    config = HyQConfig(iterations=1, collection="none")
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    [step] = HyQ(block(), config).run(Untouchable(2, **vars(LOCK)), data, Streams(0))
    assert step.online_steps == 0
    assert step.metrics["realised_offline_share"] == pytest.approx(1.0)


def test_the_share_may_follow_a_schedule() -> None:
    """All offline at first, then half, then none: warm-start-then-online, with a step between."""
    schedule = PiecewiseLinear(((0.0, 1.0), (2.0, 0.0)))
    config = HyQConfig(iterations=4, offline_share=schedule)
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    steps = HyQ(block(), config).run(copies(2), data, Streams(0))
    assert [s.metrics["realised_offline_share"] for s in steps] == pytest.approx([1, 0.5, 0, 0])


@pytest.mark.parametrize("collection", ["q-type", "v-type"])
def test_conformance(collection: str) -> None:
    config = HyQConfig(iterations=3, collection=collection)  # type: ignore[arg-type]
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    check_conformance(lambda: HyQ(block(), config), copies(3), data)


def test_each_fit_starts_from_the_next_step_and_the_last_from_itself() -> None:
    started: list[float] = []

    class Recording(TabularClass):
        def fit(self, problem: Regression) -> TabularFunction:
            assert isinstance(problem.start, TabularFunction)
            started.append(float(problem.start.table[0, 0]))
            return super().fit(problem)

    rows = Transitions(
        np.zeros(3, int), np.zeros(3, int), np.array([0.0, 0.0, 1.0]), np.ones(3), np.zeros(3, int)
    )
    family = Recording(1, 1)
    previous = tuple(family.zero().with_arrays({"table": np.array([[v]])}) for v in (0.1, 0.2, 0.3))
    config = HyQConfig()
    data = Dataset.from_transitions(rows, np.arange(3), {})
    fitted_q_iteration(data.by_step(), OnlineStore(), family, config, previous, Streams(0), 1.0)
    assert started == pytest.approx([0.3, 1.0, 1.0])
