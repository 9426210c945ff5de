"""Hy-Q measured against exact optima, where the paper says it must succeed."""

import math
from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np
import pytest

from hyq.core.mdp import FiniteMDP
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.online import OnlineStore
from hyq.envs.batched import BatchedEnv
from hyq.envs.linear import make_linear_mdp_vector
from hyq.envs.lqr import make_lqr_vector
from hyq.envs.offline_hard import (
    A,
    B,
    C,
    L,
    R,
    Variant,
    make_offline_hard_vector,
    offline_hard_mdp,
)
from hyq.envs.tabular import make_tabular_vector
from hyq.fqi.classes import FunctionClass, GreedyPolicy, ValueFunction
from hyq.fqi.hyq_fqi import HyQ, HyQConfig, fitted_q_iteration
from hyq.fqi.linear import LinearClass
from hyq.fqi.rollout import lockstep
from hyq.fqi.tabular import TabularClass
from tests.fqi.continuous_actions import (
    ConvexLinearClass,
    Polytope,
    QuadraticClass,
    make_convex_linear_mdp_vector,
)
from tests.fqi.finite import FiniteClass, offline_hard_class

# The counterexample of "Why don't offline RL methods work?"

BOTH_ORDERS = pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["Q1-first", "Q2-first"])


def adversarial_class(order: tuple[int, int]) -> FiniteClass:
    """Return F = {Q1*, Q2*} in this order of preference, with ties at A broken towards C."""
    return FiniteClass(offline_hard_class()[list(order)], action_order=np.array([R, L]))


def covering_data() -> Dataset:
    """Every action at A and at B, which covers an optimal policy, and nothing at C."""
    rows = Transitions(
        observation=np.array([A, A, B, B]),
        action=np.array([L, R, L, R]),
        reward=np.array([0.0, 0.0, 1.0, 1.0]),
        discount=np.array([1.0, 1.0, 0.0, 0.0]),
        next_observation=np.array([B, C, B, B]),
    )
    return Dataset.from_transitions(rows, np.array([0, 0, 1, 1]), {})


def value_in(variant: Variant, functions: Sequence[ValueFunction]) -> float:
    policy = np.array([np.eye(2)[f.greedy(np.arange(3))] for f in functions])
    return offline_hard_mdp(variant).value(policy)


@BOTH_ORDERS
def test_offline_fqi_fails_on_one_of_the_two_mdps(order: tuple[int, int]) -> None:
    family = adversarial_class(order)
    functions, metrics, _ = fitted_q_iteration(
        covering_data().by_step(),
        OnlineStore(),
        family,
        HyQConfig(collection="q-type"),
        (family.zero(),) * 2,
        Streams(0),
        1.0,
    )
    assert metrics["offline_residual"] == 0.0
    values = [value_in(variant, functions) for variant in get_args(Variant)]
    assert sorted(values) == [0.0, 1.0]


@BOTH_ORDERS
@pytest.mark.parametrize("variant", get_args(Variant))
def test_hyq_is_optimal_on_both_mdps(order: tuple[int, int], variant: Variant) -> None:
    env = make_offline_hard_vector(1, variant=variant)
    config = HyQConfig(iterations=3, collection="q-type")
    algorithm = HyQ(adversarial_class(order), config)
    [*_, last] = algorithm.run(env, covering_data(), Streams(0))
    assert value_in(variant, last.policy.functions) == 1.0


# Linear Bellman complete models: within one per cent of the exact optimum

Behaviour = Callable[[np.random.Generator, int], Array]


def logged(env: BatchedEnv, behaviour: Behaviour, seed: int) -> Dataset:
    """Log one episode per copy of `env` under `behaviour`, which sees nothing."""
    rng = np.random.default_rng(seed)
    steps = [
        rows
        for rows, _ in lockstep(env, lambda h, _: behaviour(rng, env.num_envs), env.horizon, seed)
    ]
    step = np.repeat(np.arange(len(steps)), [len(rows) for rows in steps])
    return Dataset.from_transitions(Transitions.concatenate(steps), step, {})


def learn(
    env: BatchedEnv,
    offline: Dataset,
    family: FunctionClass[ValueFunction],
    value_range: tuple[float, float] = (0.0, 1.0),
) -> Sequence[ValueFunction]:
    config = HyQConfig(iterations=10, collection="q-type", value_range=value_range)
    [*_, last] = HyQ(family, config).run(env, offline, Streams(1))
    return last.policy.functions


def assert_near_optimal(mdp: FiniteMDP, policy: FloatArray) -> None:
    optimum = mdp.optimal_value()
    assert mdp.value(policy) >= 0.99 * optimum
    # The target is not one that any policy would meet.
    assert mdp.value(mdp.uniform_policy()) < 0.9 * optimum


def test_tabular_mdp() -> None:
    offline = logged(make_tabular_vector(1000), lambda g, n: g.integers(3, size=n), 7)
    env = make_tabular_vector(100)
    functions = learn(env, offline, TabularClass(env.mdp.states, env.mdp.actions))
    policy = np.array([np.eye(3)[f.greedy(np.arange(5))] for f in functions])
    assert_near_optimal(env.mdp, policy)


def test_linear_mdp() -> None:
    offline = logged(make_linear_mdp_vector(1000), lambda g, n: g.integers(4, size=n), 7)
    env = make_linear_mdp_vector(100)
    family = LinearClass(env.linear.dimension, env.linear.weight_bound)
    functions = learn(env, offline, family)
    policy = np.array([np.eye(4)[f.greedy(env.linear.features)] for f in functions])
    assert_near_optimal(env.mdp, policy)


def test_linear_mdp_with_a_convex_action_set() -> None:
    offline = logged(
        make_convex_linear_mdp_vector(1000), lambda g, n: g.dirichlet(np.ones(4), size=n), 7
    )
    env = make_convex_linear_mdp_vector(100)
    family = ConvexLinearClass(env.linear.dimension, Polytope.simplex(4), env.linear.weight_bound)
    functions = learn(env, offline, family)
    # A mixture played in a state is a stochastic policy over the simplex's vertices.
    policy = np.array([f.greedy(env.linear.features) for f in functions])
    assert_near_optimal(env.mdp, np.maximum(policy, 0.0))


def test_linear_quadratic_regulator() -> None:
    offline = logged(make_lqr_vector(300), lambda g, n: g.standard_normal((n, 2)), 7)
    env = make_lqr_vector(50)
    functions = learn(env, offline, QuadraticClass(3, 2), value_range=(-math.inf, math.inf))
    gain = np.array([-f.greedy(np.eye(3)).T for f in functions])
    optimum = env.system.optimal_value()
    assert env.system.policy_value(gain) >= optimum - 0.01 * abs(optimum)
    assert env.system.policy_value(np.zeros_like(gain)) < optimum - 0.1 * abs(optimum)


def test_acting_on_the_learned_functions_earns_the_exact_value() -> None:
    env = make_linear_mdp_vector(5000)
    family = LinearClass(env.linear.dimension, env.linear.weight_bound)
    offline = logged(env, lambda g, n: g.integers(4, size=n), 7)
    functions = learn(make_linear_mdp_vector(100), offline, family)
    policy = np.array([np.eye(4)[f.greedy(env.linear.features)] for f in functions])
    earned = np.zeros(5000)
    for rows, _ in lockstep(env, GreedyPolicy(functions), env.horizon, seed=11):
        earned += rows.reward
    error = earned.std() / math.sqrt(5000)
    assert earned.mean() == pytest.approx(env.mdp.value(policy), abs=5 * error)
