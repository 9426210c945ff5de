"""CQL against losses worked out by hand, exact values, and what the penalty is for."""

import math
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
import torch

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.seeding import Streams
from hyq.core.types import Transitions
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import CombinationLockVector, LockSpec
from hyq.envs.tabular import make_tabular_vector
from hyq.experts.lock import lock_dataset
from hyq.fqi.base import Step
from hyq.fqi.classes import DiscreteValueFunction, GreedyPolicy
from hyq.fqi.cql import CQL, CQLConfig, cql_loss
from hyq.fqi.networks import Minibatch, StepNetworks
from hyq.fqi.rollout import VectorEnv
from tests.fqi.conformance import check_conformance, returns

LOCK = LockSpec(horizon=6, actions=4, instance_seed=1)


def copies(count: int, lock: LockSpec = LOCK) -> CombinationLockVector:
    return CombinationLockVector(count, **vars(lock))


def train(config: CQLConfig, env: VectorEnv, data: Dataset, seed: int = 0) -> Step:
    [last] = deque(CQL(config).run(env, data, Streams(seed)), maxlen=1)
    return last


def linear(weights: list[list[float]], target: list[list[float]]) -> StepNetworks:
    """Return one input, two actions: Q(x, .) = first row * x + second row."""
    networks = StepNetworks(1, 1, (), 2, learning_rate=0.1, seed=0)
    with torch.no_grad():
        for network, (slope, bias) in ((networks.online, weights), (networks.target, target)):
            network.weights[0].copy_(torch.tensor([[slope]]))
            network.biases[0].copy_(torch.tensor([[bias]]))
    return networks


def small() -> StepNetworks:
    """Q(x, .) = (x, 2 x + 0.5); the target's is (0, x)."""
    return linear([[1.0, 2.0], [0.0, 0.5]], [[0.0, 1.0], [0.0, 0.0]])


def learned(step: Step) -> list[DiscreteValueFunction]:
    assert isinstance(step.policy, GreedyPolicy)
    return [f for f in step.policy.functions if isinstance(f, DiscreteValueFunction)]


def small_batch(discount: float) -> Minibatch:
    """Log x = 1, a = 0, r = 0.25, x' = 2."""
    rows = Transitions(
        np.full((1, 1, 1), 1.0),
        np.zeros((1, 1), np.int64),
        np.full((1, 1), 0.25),
        np.full((1, 1), discount),
        np.full((1, 1, 1), 2.0),
    )
    return Minibatch.of(rows, np.ones(1), logged=1)


@pytest.mark.parametrize(
    ("discount", "target"),
    [(1.0, 0.25 + 0.9 * 2.0), (0.0, 0.25)],
)
def test_the_terms_of_the_loss(discount: float, target: float) -> None:
    config = CQLConfig(discount=0.9, alpha=0.3)
    loss, terms = cql_loss(config, small(), small_batch(discount))
    squared, penalty = (1.0 - target) ** 2, math.log(math.exp(1.0) + math.exp(2.5)) - 1.0
    assert terms["offline_residual"].item() == pytest.approx(squared)
    assert terms["penalty"].item() == pytest.approx(penalty)
    assert terms["value"].item() == pytest.approx(2.0)
    assert loss.item() == pytest.approx(squared + 0.3 * penalty)


def test_the_gradient_of_the_loss() -> None:
    networks = small()
    loss, _ = cql_loss(CQLConfig(discount=0.9, alpha=0.1), networks, small_batch(0.0))
    parameters = [networks.online.weights[0], networks.online.biases[0]]
    gradients = torch.autograd.grad(loss, parameters)
    share = math.exp(1.0) / (math.exp(1.0) + math.exp(2.5))
    by_q0 = 2 * (1.0 - 0.25) + 0.1 * (share - 1)
    by_q1 = 0.1 * (1 - share)
    for gradient in gradients:  # the input is 1, so that both are the same
        torch.testing.assert_close(gradient, torch.tensor([[[by_q0, by_q1]]]))


def covered(mdp: FiniteMDP, copies: int, timed: bool) -> Dataset:
    """Log every (h, s, a), next states in proportion to P; states one-hot, or (step, state)."""
    h, s, a, next_state = (index.ravel() for index in np.indices(mdp.transition.shape))
    count = np.rint(mdp.transition * copies).astype(int).ravel()
    h, s, a, next_state = (np.repeat(index, count) for index in (h, s, a, next_state))
    eye, size = np.eye((mdp.horizon + 1) * mdp.states, dtype=np.float32), mdp.states
    observation = eye[h * size + s] if timed else eye[s, :size]
    successor = eye[(h + 1) * size + next_state] if timed else eye[next_state, :size]
    continuation = (h < mdp.horizon - 1).astype(np.float32)
    return Dataset.from_transitions(
        Transitions(observation, a, mdp.reward[h, s, a], continuation, successor), h, {}
    )


@pytest.mark.parametrize("networks", ["shared", "per-step"])
def test_without_a_penalty_it_finds_the_optimal_values_of_a_covered_mdp(networks: str) -> None:
    drawn = FiniteMDP.random(np.random.default_rng(3), states=3, actions=2, horizon=3)
    transition = np.zeros_like(drawn.transition)  # probabilities of halves, so that data is exact
    rng = np.random.default_rng(4)
    for index in np.ndindex(drawn.reward.shape):
        transition[index][rng.integers(3, size=2)] += 0.5
        transition[index] /= transition[index].sum()
    mdp = FiniteMDP(transition, drawn.reward, drawn.initial)
    config = CQLConfig(
        iterations=1, updates=700, networks=networks, hidden=(), batch_size=960,  # type: ignore[arg-type]
        learning_rate=0.02, discount=1.0, tau=0.1, alpha=0.0,
    )  # fmt: skip
    shared = networks == "shared"
    env = make_tabular_vector(1, states=3, actions=2, horizon=3)
    last = train(config, env, covered(mdp, 2, timed=shared))
    states = (
        np.eye(12, dtype=np.float32)[:9].reshape(3, 3, 12) if shared else np.stack([np.eye(3)] * 3)
    )
    values = np.stack([f.values(x) for f, x in zip(learned(last), states, strict=True)])
    np.testing.assert_allclose(values, mdp.optimal_q(), atol=0.01)


def test_the_discount_weighs_what_comes_later() -> None:
    """Two steps, one state, reward 1 at the end: Q_0 is gamma."""
    one = np.ones((2, 1), np.float32)
    rows = Transitions(one, np.zeros(2, int), np.array([0.0, 1.0]), np.array([1.0, 0.0]), one)
    config = CQLConfig(
        iterations=1, updates=600, networks="per-step", hidden=(), batch_size=2,
        learning_rate=0.01, discount=0.6, tau=0.1, alpha=0.0,
    )  # fmt: skip
    env = make_tabular_vector(1, states=1, actions=1, horizon=2)
    last = train(config, env, Dataset.from_transitions(rows, np.arange(2), {}))
    first, second = learned(last)
    assert second.values(one[:1]) == pytest.approx(1.0, abs=0.01)
    assert first.values(one[:1]) == pytest.approx(0.6, abs=0.01)


def test_the_penalty_keeps_to_logged_actions() -> None:
    """Only action 0 was ever logged and it pays nothing: what decides is the penalty alone."""
    one = np.ones((8, 1), np.float32)
    data = Dataset.from_transitions(
        Transitions(one, np.zeros(8, int), np.zeros(8), np.zeros(8), one), np.zeros(8, int), {}
    )
    env = make_tabular_vector(1, states=1, actions=5, horizon=1)

    def strays(alpha: float) -> int:
        config = CQLConfig(
            iterations=1, updates=60, hidden=(8,), batch_size=8, alpha=alpha, learning_rate=0.01
        )
        chosen = [train(config, env, data, seed).policy(0, one[:1])[0] for seed in range(6)]
        return sum(int(action != 0) for action in chosen)

    assert strays(alpha=0.1) == 0
    assert strays(alpha=0.0) >= 2  # the initial weights decide


def test_the_target_is_a_moving_average() -> None:
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    config = CQLConfig(iterations=1, updates=1, hidden=(5,))
    states = {
        tau: train(replace(config, tau=tau), copies(1), data).state.arrays for tau in (0.25, 1.0)
    }
    name, moved = "weights.0", states[0.25]
    np.testing.assert_array_equal(states[1.0][f"target.{name}"], states[1.0][f"online.{name}"])
    seed, width = Streams(0).integer("cql", "initial"), LOCK.observation_dim
    start = StepNetworks(1, width, (5,), 4, learning_rate=1.0, seed=seed).arrays()[f"online.{name}"]
    expected = 0.75 * start + 0.25 * moved[f"online.{name}"]
    np.testing.assert_allclose(moved[f"target.{name}"], expected, atol=1e-6)
    assert not np.array_equal(moved[f"online.{name}"], start)


def test_it_opens_a_lock_from_trajectories_where_cloning_would_guess() -> None:
    lock = LockSpec(horizon=8, instance_seed=4)
    data = lock_dataset(lock, "trajectory", 8 * 2000, seed=5)
    config = CQLConfig(
        iterations=6, updates=200, networks="per-step", hidden=(32,), batch_size=8 * 32, tau=0.1
    )
    env = copies(300, lock)
    peak = max(
        float(returns(env, step.policy, 8, seed=9).mean())
        for step in CQL(config).run(env, data, Streams(0))
    )
    assert peak >= 0.9


@pytest.mark.parametrize("networks", ["shared", "per-step"])
def test_conformance(networks: str) -> None:
    config = CQLConfig(
        iterations=3, updates=4, hidden=(7,), batch_size=16, networks=networks  # type: ignore[arg-type]
    )  # fmt: skip
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    check_conformance(lambda: CQL(config), copies(2), data)


@pytest.mark.parametrize(
    "settings",
    [
        {"iterations": 0},
        {"updates": 0},
        {"learning_rate": -1.0},
        {"networks": "many"},
        {"tau": 0.0},
        {"discount": 1.5},
        {"alpha": -0.1},
    ],
)
def test_impossible_settings_raise(settings: dict[str, float]) -> None:
    with pytest.raises(HyqError):
        CQLConfig(**settings)  # type: ignore[arg-type]
