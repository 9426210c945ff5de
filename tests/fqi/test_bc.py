"""Behaviour cloning against the frequencies it must learn, and where it can and cannot succeed."""

from collections import deque

import gymnasium as gym
import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import FloatArray, Transitions
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import BAD, CombinationLockVector, LockSpec
from hyq.envs.tabular import make_tabular_vector
from hyq.experts.lock import LockData, lock_dataset
from hyq.fqi.base import Step
from hyq.fqi.bc import BC, BCConfig
from hyq.fqi.classes import GreedyPolicy
from hyq.fqi.mlp import MLPFunction
from hyq.fqi.rollout import VectorEnv, lockstep
from tests.fqi.conformance import check_conformance

LOCK = LockSpec(horizon=6, actions=4, instance_seed=1)


def copies(count: int, lock: LockSpec = LOCK) -> CombinationLockVector:
    return CombinationLockVector(count, **vars(lock))


def train(config: BCConfig, env: VectorEnv, data: Dataset, seed: int = 0) -> Step:
    [last] = deque(BC(config).run(env, data, Streams(seed)), maxlen=1)
    return last


def one_hot_dataset(counts: FloatArray) -> Dataset:
    """Log every (h, s, a) `counts[h, s, a]` times, states as one-hot vectors."""
    step, state, action = (
        np.repeat(index.ravel(), counts.ravel().astype(int)) for index in np.indices(counts.shape)
    )
    rows, eye = np.zeros(len(step)), np.eye(counts.shape[1], dtype=np.float32)
    return Dataset.from_transitions(
        Transitions(eye[state], action, rows, rows, eye[state]), step, {}
    )


def test_on_one_hot_states_it_learns_the_conditional_frequencies() -> None:
    counts = np.array(
        [[[10, 30, 60], [80, 10, 10]], [[25, 25, 50], [5, 90, 5]], [[40, 40, 20], [10, 20, 70]]]
    )
    env = make_tabular_vector(1, states=2, actions=3, horizon=3)
    config = BCConfig(iterations=8, updates=100, learning_rate=0.05)
    last = train(config, env, one_hot_dataset(counts))
    assert isinstance(last.policy, GreedyPolicy)
    for h, function in enumerate(last.policy.functions):
        assert isinstance(function, MLPFunction)
        odds = np.exp(function.values(np.eye(2, dtype=np.float32)))
        np.testing.assert_allclose(
            odds / odds.sum(axis=1, keepdims=True), counts[h] / 100, atol=0.02
        )
        # and acts by the largest of them
        best = last.policy(h, np.eye(2, dtype=np.float32))
        assert all(counts[h, s, best[s]] == counts[h, s].max() for s in range(2))
    frequency = counts / 100
    entropy = -(frequency * np.log(frequency)).sum(axis=2).mean()
    assert last.metrics["negative_log_likelihood"] == pytest.approx(entropy, abs=0.02)


def survival(kind: LockData, lock: LockSpec, config: BCConfig) -> FloatArray:
    """Return the share of episodes still in a good state after each step."""
    data = lock_dataset(lock, kind, lock.horizon * 1000, seed=2)
    env = copies(500, lock)
    policy = train(config, env, data).policy
    return np.array(
        [float((env.latent != BAD).mean()) for _ in lockstep(env, policy, lock.horizon, seed=3)]
    )


@pytest.mark.parametrize("hidden", [(), (32,)])
def test_it_copies_the_expert_up_to_the_random_action(hidden: tuple[int, ...]) -> None:
    lock = LockSpec(horizon=12, instance_seed=4)
    alive = survival(
        "trajectory", lock, BCConfig(iterations=5, updates=100, learning_rate=0.01, hidden=hidden)
    )
    assert alive[5] >= 0.98
    assert alive[6] <= 0.5  # a guess among ten actions


def test_it_learns_nothing_from_random_actions() -> None:
    lock = LockSpec(horizon=12, instance_seed=4)
    alive = survival("occupancy", lock, BCConfig(iterations=3, updates=100))
    assert alive[3] <= 0.05


def test_the_environment_is_never_stepped() -> None:
    class Untouchable(CombinationLockVector):
        def step(self, actions: object) -> object:  # type: ignore[override]
            raise AssertionError

    env = Untouchable(2, **vars(LOCK))
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    assert train(BCConfig(iterations=2), env, data).online_steps == 0


@pytest.mark.parametrize("networks", ["shared", "per-step"])
def test_conformance(networks: str) -> None:
    config = BCConfig(
        iterations=3, updates=4, batch_size=8, hidden=(7,), networks=networks  # type: ignore[arg-type]
    )  # fmt: skip
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    check_conformance(lambda: BC(config), copies(2), data)


@pytest.mark.parametrize(
    "settings", [{"iterations": 0}, {"updates": 0}, {"batch_size": 0}, {"learning_rate": 0.0}]
)
def test_impossible_settings_raise(settings: dict[str, float]) -> None:
    with pytest.raises(HyqError):
        BCConfig(**settings)  # type: ignore[arg-type]


def test_actions_that_cannot_be_classified_raise() -> None:
    env = gym.make_vec("Pendulum-v1", num_envs=1)
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    with pytest.raises(HyqError, match="Discrete"):
        next(BC().run(env, data, Streams(0)))
