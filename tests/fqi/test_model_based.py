"""The model-based hybrid against tables by hand, fitted Q-iteration, and exact optima."""

import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.online import OnlineStore
from hyq.envs.batched import BatchedEnv
from hyq.envs.linear import make_linear_mdp_vector
from hyq.envs.tabular import make_tabular_vector
from hyq.fqi.classes import Regression, ValueFunction
from hyq.fqi.hyq_fqi import HyQ, HyQConfig, fitted_q_iteration
from hyq.fqi.model_based import LinearModel, TabularModel
from hyq.fqi.rollout import lockstep
from hyq.fqi.tabular import TabularClass
from tests.fqi.conformance import check_conformance


def logged(env: BatchedEnv, seed: int) -> Dataset:
    """Log one episode per copy of `env` under uniformly random actions."""
    rng, actions = np.random.default_rng(seed), env.single_action_space.n  # type: ignore[attr-defined]

    def act(h: int, observation: Array) -> Array:
        return rng.integers(actions, size=env.num_envs)

    steps = [rows for rows, _ in lockstep(env, act, env.horizon, seed)]
    step = np.repeat(np.arange(len(steps)), [len(rows) for rows in steps])
    return Dataset.from_transitions(Transitions.concatenate(steps), step, {})


Q_TYPE = HyQConfig(10, "q-type")


def planning(data: Transitions, weight: FloatArray, after: ValueFunction | None) -> Regression:
    """A problem whose targets a model has no use for."""
    nothing = np.full(len(data), np.nan)
    return Regression(data, nothing, weight, after)


def rows(*table: tuple[int, int, float, float, int]) -> Transitions:
    s, a, r, discount, after = (np.array(column) for column in zip(*table, strict=True))
    return Transitions(s, a, r, discount, after)


def test_the_tabular_model_is_made_of_weighted_frequencies() -> None:
    data = rows((0, 1, 0.5, 1.0, 0), (0, 1, 0.0, 1.0, 1), (1, 0, 1.0, 1.0, 0), (1, 0, 0.0, 0.0, 0))
    transition, reward = TabularModel(2, 2).identify(data, np.array([0.3, 0.1, 0.3, 0.3]))
    np.testing.assert_allclose(reward, [[0.0, 0.375], [0.5, 0.0]])
    np.testing.assert_allclose(transition[0, 1], [0.75, 0.25])
    np.testing.assert_allclose(transition[1, 0], [0.5, 0.0])  # half of the weight terminated
    np.testing.assert_allclose(transition[[0, 1], [0, 1]], 0.0)  # never seen


def test_planning_backs_values_up_through_the_model() -> None:
    data = rows((0, 0, 0.2, 1.0, 0), (0, 0, 0.2, 1.0, 1))
    after = TabularClass(2, 1).zero().with_arrays({"table": np.array([[0.4], [0.8]])})
    half = np.array([0.5, 0.5])
    planned = TabularModel(2, 1).fit(planning(data, half, after))
    np.testing.assert_allclose(planned.table, [[0.2 + 0.6], [0.0]])
    clipped = TabularModel(2, 1, (0.0, 0.7)).fit(planning(data, half, after))
    np.testing.assert_allclose(clipped.table, [[0.7], [0.0]])
    last = TabularModel(2, 1).fit(planning(data, half, None))
    np.testing.assert_allclose(last.table, [[0.2], [0.0]])


def test_the_linear_model_recovers_the_factors() -> None:
    env = make_linear_mdp_vector(20_000)
    data, linear = logged(env, 3), env.linear
    for h in range(2):
        at = data.by_step().at(h)
        measure, reward = LinearModel(linear.dimension).identify(at, np.full(len(at), 1 / len(at)))
        np.testing.assert_allclose(reward, linear.reward_weights[h], atol=1e-4)  # no noise in r
        # mu_h V for V = an arbitrary function of the next state, here a linear one of its features
        value = linear.features.sum(axis=1) @ np.arange(1.0, linear.dimension + 1)
        seen = at.next_observation.sum(axis=1) @ np.arange(1.0, linear.dimension + 1)
        np.testing.assert_allclose(measure @ seen, linear.measures[h] @ value, rtol=0.05)


def test_ridge_shrinks_what_little_data_says() -> None:
    observation = np.ones((1, 1, 1))
    one = Transitions(observation, np.zeros(1, int), np.ones(1), np.ones(1), observation)
    for ridge in (1e-6, 1.0):
        _, reward = LinearModel(1, ridge).identify(one, np.ones(1))
        assert reward[0] == pytest.approx(1 / (1 + ridge))


def test_the_linear_model_earns_nothing_after_a_termination() -> None:
    observation = np.ones((2, 1, 1))
    paid, continuation = np.array([0.2, 0.2]), np.array([1.0, 0.0])
    two = Transitions(observation, np.zeros(2, int), paid, continuation, observation)
    after = LinearModel(1).zero().with_arrays({"weights": np.array([0.6])})
    problem = planning(two, np.array([0.75, 0.25]), after)
    planned = LinearModel(1, ridge=1e-9).fit(problem)
    assert planned.weights[0] == pytest.approx(0.2 + 0.75 * 0.6)
    clipped = LinearModel(1, 1e-9, (0.0, 0.4)).fit(problem)
    assert clipped.weights[0] == pytest.approx(0.2 + 0.75 * 0.4)


def test_planning_in_a_tabular_model_is_fitted_q_iteration() -> None:
    """Certainty equivalence: on one set of data the two are the same computation."""
    env = make_tabular_vector(60)
    offline, more = logged(env, 1).by_step(), logged(env, 2).by_step()
    online = OnlineStore((tuple(more.at(h) for h in range(5)),))
    zero = (TabularClass(5, 3).zero(),) * 5
    planned, fitted = (
        fitted_q_iteration(offline, online, family, HyQConfig(), zero, Streams(0), 0.3)[0]
        for family in (TabularModel(5, 3), TabularClass(5, 3))
    )
    for ours, theirs in zip(planned, fitted, strict=True):
        np.testing.assert_allclose(ours.table, theirs.table, atol=1e-12)


def test_the_offline_share_changes_what_is_learned() -> None:
    """Two sources that disagree about one cell: the model is their weighted mean."""
    offline = Dataset.from_transitions(rows(*[(0, 0, 1.0, 0.0, 0)] * 3), np.zeros(3, int), {})
    online = OnlineStore(((rows(*[(0, 0, 0.0, 0.0, 0)] * 9),),))
    for share, expected in ((0.0, 0.0), (0.25, 0.25), (0.5, 0.5), (1.0, 1.0), (None, 0.25)):
        model = TabularModel(1, 1)
        [function], metrics, _ = fitted_q_iteration(
            offline.by_step(), online, model, Q_TYPE, (model.zero(),), Streams(0), share
        )
        assert function.table[0, 0] == pytest.approx(expected)
        assert metrics["realised_offline_share"] == pytest.approx(expected)


def assert_near_optimal(mdp: FiniteMDP, policy: Array) -> None:
    optimum = mdp.optimal_value()
    assert mdp.value(policy) >= 0.99 * optimum
    assert mdp.value(mdp.uniform_policy()) < 0.92 * optimum  # not every policy would do


@pytest.mark.parametrize("instance", range(3))
def test_random_tabular_mdps(instance: int) -> None:
    settings = {"states": 6, "actions": 3, "horizon": 5, "instance_seed": instance}
    env = make_tabular_vector(100, **settings)  # type: ignore[arg-type]
    offline = logged(make_tabular_vector(1000, **settings), 7)  # type: ignore[arg-type]
    [*_, last] = HyQ(TabularModel(6, 3), Q_TYPE).run(env, offline, Streams(1))
    assert last.online_steps == 10 * 100 * 5
    assert last.metrics["realised_offline_share"] == pytest.approx(0.5)
    policy = np.array([np.eye(3)[f.greedy(np.arange(6))] for f in last.policy.functions])
    assert_near_optimal(env.mdp, policy)


@pytest.mark.parametrize("instance", range(3))
def test_random_linear_mdps(instance: int) -> None:
    env = make_linear_mdp_vector(100, instance_seed=instance)
    offline = logged(make_linear_mdp_vector(1000, instance_seed=instance), 7)
    model = LinearModel(env.linear.dimension)
    [*_, last] = HyQ(model, Q_TYPE).run(env, offline, Streams(1))
    greedy = [np.eye(4)[last.policy(h, env.linear.features)] for h in range(5)]
    assert_near_optimal(env.mdp, np.array(greedy))


def test_conformance() -> None:
    env = make_tabular_vector(4)
    config = HyQConfig(3, "q-type")
    offline = logged(make_tabular_vector(30), 0)
    check_conformance(lambda: HyQ(TabularModel(5, 3), config), env, offline)
    linear = make_linear_mdp_vector(4)
    offline = logged(make_linear_mdp_vector(30), 0)
    check_conformance(lambda: HyQ(LinearModel(4), config), linear, offline)


def test_impossible_settings_raise() -> None:
    with pytest.raises(HyqError):
        LinearModel(3, ridge=0.0)
