"""DQfD: its loss by hand, its exact shares, and what the margin does to good and bad logs."""

import math
from collections import deque

import numpy as np
import pytest
import torch

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Transitions
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import BAD, CombinationLockVector, LockSpec
from hyq.envs.tabular import make_tabular_vector
from hyq.experts.lock import LockData, lock_dataset
from hyq.fqi.base import Step
from hyq.fqi.dqfd import DQfD, DQfDConfig, dqfd_loss
from hyq.fqi.networks import Minibatch, Source, StepNetworks, draw_mixed
from hyq.fqi.rollout import VectorEnv, lockstep
from tests.fqi.conformance import check_conformance

LOCK = LockSpec(horizon=6, actions=4, instance_seed=1)
TINY = DQfDConfig(iterations=3, pretraining=1, updates=3, hidden=(7,), batch_size=48)


def copies(count: int, lock: LockSpec = LOCK) -> CombinationLockVector:
    return CombinationLockVector(count, **vars(lock))


def run(config: DQfDConfig, env: VectorEnv, data: Dataset) -> list[Step]:
    return list(DQfD(config).run(env, data, Streams(0)))


def linear(weights: list[list[float]], target: list[list[float]]) -> StepNetworks:
    """Return one input, two actions: Q(x, .) = first row * x + second row."""
    networks = StepNetworks(1, 1, (), 2, learning_rate=0.1, seed=0)
    with torch.no_grad():
        for network, (slope, bias) in ((networks.online, weights), (networks.target, target)):
            network.weights[0].copy_(torch.tensor([[slope]]))
            network.biases[0].copy_(torch.tensor([[bias]]))
    return networks


def small_batch(discount: float, weight: list[float]) -> Minibatch:
    """Log x = 1, a = 0, r = 0.25, x' = 2 offline; the same row is met online."""
    rows = Transitions(
        np.full((1, 2, 1), 1.0),
        np.zeros((1, 2), np.int64),
        np.full((1, 2), 0.25),
        np.full((1, 2), discount),
        np.full((1, 2, 1), 2.0),
    )
    return Minibatch.of(rows, np.array(weight), logged=1)


@pytest.mark.parametrize(
    ("discount", "target"),
    [
        # The network prefers action 1 at x' = 2, where its target's value is 2 * 0.3 - 0.1.
        (1.0, 0.25 + 0.5),
        (0.0, 0.25),
    ],
)
def test_the_loss(discount: float, target: float) -> None:
    # Q(x, .) = (x, 1.5 x); the target's is (0.4 x, 0.3 x - 0.1), which prefers action 0
    networks = linear([[1.0, 1.5], [0.0, 0.0]], [[0.4, 0.3], [0.0, -0.1]])
    config = DQfDConfig(margin=0.8, margin_weight=0.5, l2=0.01)
    loss, terms = dqfd_loss(config, networks, small_batch(discount, [0.75, 0.25]))
    squared, margin = (1.0 - target) ** 2, 1.5 + 0.8 - 1.0
    found = {name: term.item() for name, term in terms.items()}
    expected = {"offline_residual": squared, "online_residual": squared, "margin_loss": margin}
    assert found == pytest.approx(expected, rel=1e-5)
    norm = 1.0 + 1.5**2
    assert loss.item() == pytest.approx(squared + 0.5 * 0.75 * margin + 0.01 * norm, rel=1e-5)


def test_targets_are_kept_in_range() -> None:
    huge = linear([[9.0, 9.0], [0.0, 0.0]], [[9.0, 9.0], [0.0, 0.0]])
    config = DQfDConfig(value_range=(0.0, 1.0), l2=0.0, margin_weight=0.0)
    _, terms = dqfd_loss(config, huge, small_batch(1.0, [0.5, 0.5]))
    assert terms["offline_residual"].item() == pytest.approx((9.0 - 1.0) ** 2)


@pytest.mark.parametrize(
    ("share", "logged"), [(0.0, 0), (0.01, 1), (0.1, 1), (0.25, 2), (0.5, 5), (0.9, 9), (1.0, 10)]
)
def test_the_offline_share_is_exact_whatever_the_rounding(share: float, logged: int) -> None:
    def source(reward: float) -> Source:
        column = np.zeros(4)
        seen = np.array([[0.0], [0.0], [1.0], [1.0]])  # the step
        rows = Transitions(seen, column.astype(int), column + reward, column, seen)
        return Source.of(rows, np.array([0, 0, 1, 1]), horizon=2, members=2)

    each = DQfDConfig(offline_share=share, batch_size=20).rows(members=2)
    batch = draw_mixed([source(1.0), source(0.0)], each, share, np.random.default_rng(0))
    assert batch.logged == logged
    assert batch.reward.shape == (2, 10)
    np.testing.assert_array_equal(batch.reward[:, :logged], 1.0)
    np.testing.assert_array_equal(batch.reward[:, logged:], 0.0)
    assert batch.weight.sum().item() == pytest.approx(1.0)
    assert batch.weight[:logged].sum().item() == pytest.approx(share)
    np.testing.assert_array_equal(batch.observation[..., 0], [[0] * 10, [1] * 10])


def test_it_learns_offline_before_it_interacts() -> None:
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    steps = run(TINY, copies(5), data)
    each = 5 * (1 + 2 + 3 + 4 + 5 + 6)
    assert [step.online_steps for step in steps] == [0, each, 2 * each]
    assert "online_residual" not in steps[0].metrics
    assert "online_residual" in steps[1].metrics
    assert len(steps[-1].state.online) == 2 * 5 * 6


def test_q_type_collection_costs_whole_episodes() -> None:
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    config = DQfDConfig(
        iterations=2, pretraining=0, updates=1, hidden=(), batch_size=48, collection="q-type"
    )
    assert [step.online_steps for step in run(config, copies(5), data)] == [30, 60]


def demonstrations(reward: float) -> Dataset:
    """One state, horizon one: action 2 is logged nine times of ten, and action 0 pays `reward`."""
    action = np.array([2] * 9 + [0])
    one = np.ones((10, 1), np.float32)
    paid = np.where(action == 0, reward, 0.0)
    return Dataset.from_transitions(
        Transitions(one, action, paid, np.zeros(10), one), np.zeros(10, int), {}
    )


@pytest.mark.parametrize(("weight", "chosen"), [(1.0, 2), (0.0, 0)])
def test_the_margin_imitates_even_against_the_reward(weight: float, chosen: int) -> None:
    config = DQfDConfig(
        iterations=1,
        pretraining=1,
        updates=200,
        hidden=(),
        batch_size=64,
        learning_rate=0.03,
        margin_weight=weight,
    )
    env = make_tabular_vector(1, states=1, actions=4, horizon=1)
    [last] = run(config, env, demonstrations(reward=1.0))
    assert last.policy(0, np.ones((1, 1), np.float32)) == [chosen]


def test_the_penalty_on_parameters_shrinks_them() -> None:
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)

    def size(l2: float) -> float:
        config = DQfDConfig(iterations=1, updates=100, hidden=(8,), batch_size=48, l2=l2)
        [last] = run(config, copies(1), data)
        weights = [x for name, x in last.state.arrays.items() if name.startswith("online.")]
        return float(np.sqrt(sum(np.square(x).sum() for x in weights)))

    assert size(1.0) < 0.8 * size(0.0)


def depth(kind: LockData, margin_weight: float) -> float:
    """Return how many of 8 steps a policy survives after learning from `kind` and from acting."""
    lock = LockSpec(horizon=8, instance_seed=4)
    data = lock_dataset(lock, kind, 8 * 2000, seed=5)
    config = DQfDConfig(
        iterations=6,
        pretraining=4,
        updates=120,
        batch_size=8 * 32,
        margin_weight=margin_weight,
    )
    [last] = deque(DQfD(config).run(copies(20, lock), data, Streams(0)), maxlen=1)
    test_env = copies(300, lock)
    alive = [(test_env.latent != BAD).mean() for _ in lockstep(test_env, last.policy, 8, seed=9)]
    return float(np.sum(alive))


def test_the_margin_helps_with_demonstrations_and_misleads_without() -> None:
    assert depth("trajectory", 1.0) >= 3.9  # copies the expert up to its random action at step 4
    assert depth("occupancy", 1.0) <= 2.0  # copies random actions


@pytest.mark.parametrize("networks", ["shared", "per-step"])
@pytest.mark.parametrize("pretraining", [0, 1, 3])
def test_conformance(networks: str, pretraining: int) -> None:
    config = DQfDConfig(
        iterations=3,
        pretraining=pretraining,
        updates=2,
        hidden=(7,),
        batch_size=48,
        networks=networks,  # type: ignore[arg-type]
    )
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    check_conformance(lambda: DQfD(config), copies(2), data)


@pytest.mark.parametrize(
    "settings",
    [
        {"iterations": 0},
        {"learning_rate": math.nan},
        {"batch_size": 1},
        {"networks": "many"},
        {"collection": "none"},
        {"pretraining": -1},
        {"margin": -0.8},
        {"tau": 1.5},
        {"offline_share": 2.0},
    ],
)
def test_impossible_settings_raise(settings: dict[str, float]) -> None:
    with pytest.raises(HyqError):
        DQfDConfig(**settings)  # type: ignore[arg-type]
