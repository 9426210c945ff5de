"""Inspection: estimates against exact numbers, a ranking of data, and planted faults."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from hyq.core.errors import HyqError
from hyq.core.seeding import torch_seed
from hyq.core.types import Array, FloatArray, IntArray, Transitions
from hyq.coverage import inspect
from hyq.coverage.estimate import (
    Counts,
    Covariance,
    PolicyCoverage,
    StepCoverage,
    new_folds,
    next_folds,
)
from hyq.coverage.features import FeatureKind, features_for
from hyq.coverage.fqe import evaluate_saved
from hyq.coverage.inspect import inspect_dataset
from hyq.coverage.inspection import Inspection, easier
from hyq.coverage.policy import load_policy, save_policy
from hyq.coverage.scan import effective_dimension, row_hashes, unsupported
from hyq.data.dataset import Dataset, Episode
from hyq.data.steps import StepView
from hyq.ensembles import Ensemble
from hyq.envs.batched import BatchedEnv
from hyq.envs.combination_lock import CombinationLockVector, LockSpec, lock_parameters
from hyq.envs.linear import make_linear_mdp_vector
from hyq.envs.tabular import make_tabular_vector
from hyq.experts.lock import lock_dataset, lock_provenance
from hyq.fqi.block import BlockFunction
from hyq.fqi.classes import DiscreteValueFunction, GreedyPolicy
from hyq.fqi.linear import LinearFunction
from hyq.fqi.mlp import MLPFunction, member_functions
from hyq.fqi.rollout import lockstep
from hyq.fqi.tabular import TabularFunction
from hyq.theory.bounds import condition_numbers
from hyq.theory.transfer import linear_transfer, tabular_transfer
from tests.fqi.continuous_actions import ConvexLinearFunction, Polytope

Behaviour = Callable[[int, Array], Array]
TABLE = np.random.default_rng(7).normal(size=(3, 3)).astype(np.float32)


def log(env: BatchedEnv, behaviour: Behaviour, environment: str, **parameters: int) -> Dataset:
    """Log an episode in each environment; the dataset says where it is from."""
    parts = [rows for rows, _ in lockstep(env, behaviour, env.horizon, seed=3)]
    step = np.repeat(np.arange(env.horizon), env.num_envs)
    provenance = {"environment": environment, "parameters": parameters}
    return Dataset.from_transitions(Transitions.concatenate(parts), step, provenance)


def uniform(actions: int, seed: int = 0) -> Behaviour:
    rng = np.random.default_rng(seed)
    return lambda h, s: rng.integers(actions, size=len(s))


def messages(found: Inspection) -> str:
    return " ".join(f"{f.severity}: {f.text}" for f in found.findings)


# Estimates


@pytest.mark.parametrize("instance", range(8))
def test_the_condition_number_is_within_a_tenth_at_50k_samples(
    instance: int, tmp_path: Path
) -> None:
    env = make_linear_mdp_vector(10_000, instance_seed=instance)
    log(env, uniform(4), "hyq/LinearMDP-v0", instance_seed=instance).save(tmp_path / "data")
    linear = env.linear
    save_policy(tmp_path / "pi", [LinearFunction(w) for w in linear.optimal_weights()])
    found = inspect_dataset(tmp_path / "data", policy=tmp_path / "pi", episodes=4000)
    assert found.rows == 50_000
    mdp = linear.mdp
    d = mdp.occupancy(mdp.greedy_policy(mdp.optimal_q()))
    nu = mdp.occupancy(mdp.uniform_policy())
    policy = found.comparator
    assert policy is not None
    exact = float(condition_numbers(linear.features, d, nu).trace.max())
    assert policy.condition.value == pytest.approx(exact, rel=0.1)
    assert policy.transfer.value == pytest.approx(linear_transfer(linear.features, d, nu), rel=0.1)


def test_tabular_states_are_one_hot_features(tmp_path: Path) -> None:
    env = make_tabular_vector(5000)
    log(env, uniform(3), "hyq/Tabular-v0").save(tmp_path / "data")
    mdp = env.mdp
    save_policy(tmp_path / "pi", [TabularFunction(q) for q in mdp.optimal_q()])
    found = inspect_dataset(tmp_path / "data", policy=tmp_path / "pi", episodes=3000)
    d = mdp.occupancy(mdp.greedy_policy(mdp.optimal_q()))
    exact = tabular_transfer(d, mdp.occupancy(mdp.uniform_policy()))
    assert found.comparator is not None
    assert found.comparator.transfer.value == pytest.approx(exact, rel=0.05)
    assert found.comparator.transfer.low < exact < found.comparator.transfer.high
    assert found.comparator.mean_return == pytest.approx(mdp.optimal_value(), abs=0.02)
    assert "expected" in messages(found)  # few states repeat


def test_every_logged_pair_of_indices_supports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly all of 900 pairs a step are logged, though a sample of a thousand rows lacks many."""
    monkeypatch.setattr(inspect, "BLOCK_BYTES", 1 << 14)  # several blocks a step
    env = make_tabular_vector(20_000, states=150, actions=6, horizon=2)
    data = log(env, uniform(6), "hyq/Tabular-v0", states=150, actions=6, horizon=2)
    data.save(tmp_path / "data")
    mdp = env.mdp
    save_policy(tmp_path / "pi", [TabularFunction(q) for q in mdp.optimal_q()])
    found = inspect_dataset(tmp_path / "data", policy=tmp_path / "pi", episodes=2000)
    d = mdp.occupancy(mdp.greedy_policy(mdp.optimal_q()))
    exact = tabular_transfer(d, mdp.occupancy(mdp.uniform_policy()))
    policy = found.comparator
    assert policy is not None
    assert policy.unsupported == pytest.approx(policy.outside, abs=1e-12)
    assert policy.unsupported < 0.005
    assert found.escaping == 0.0
    assert policy.transfer.value == pytest.approx(exact, rel=0.05)
    assert found.verdict[0].startswith("WELL COVERED")


def covers(logged: IntArray, rows: FloatArray, visits: FloatArray, width: int) -> StepCoverage:
    """Compare visits of group 1 with logged rows of some groups, all of one step."""
    covariance = Covariance(np.array([1]))
    covariance.add(logged, rows, new_folds(len(rows)))
    n = len(visits)
    return covariance.covers(np.ones(n, int), visits, np.arange(n), n, len(rows))


def test_the_jackknife_removes_the_bias_of_a_small_sample() -> None:
    """With n = 10 rows a dimension the plug-in estimate is 11% too large; the corrected is not."""
    rng = np.random.default_rng(0)
    width, rows = 10, 100
    estimates = []
    for _ in range(60):
        logged, visits = rng.standard_normal((rows, width)), rng.standard_normal((200, width))
        estimates.append(covers(np.ones(rows, int), logged, visits, width).condition)
    plug_in = width * rows / (rows - width - 1)
    assert abs(np.mean(estimates) - width) < 0.4 * (plug_in - width)


def test_visits_outside_the_span_are_counted() -> None:
    covariance = Covariance(np.array([0, 1]))
    rows = np.array([[1.0, 0.0]] * 40)
    covariance.add(np.zeros(40, int), rows, new_folds(40))
    visits = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    seen = covariance.covers(np.array([0, 0, 1, 0]), visits, np.arange(4), 4, 40)
    assert (seen.visits, seen.outside[0]) == (4, 2)
    assert seen.condition == pytest.approx(0.5)  # of the half that is inside
    none = covariance.covers(np.array([1]), visits[:1], np.arange(1), 4, 40)
    assert none.condition == math.inf
    assert PolicyCoverage.of([seen]).transfer.value == math.inf


def test_an_action_whose_rows_lie_in_one_fold_has_no_interval() -> None:
    """One row of 1000 has C^2 = 1000, which no other row confirms."""
    group = np.zeros(1000, int)
    group[0] = 1
    for width in (1, 2):
        found = PolicyCoverage.of(
            [covers(group, np.ones((1000, width)), np.ones((50, width)), width)]
        )
        assert found.condition.value == pytest.approx(1000)
        assert found.transfer.value == pytest.approx(math.sqrt(1000))
        assert found.condition.high == found.transfer.high == math.inf


def test_steps_of_the_same_episodes_are_no_independent_evidence() -> None:
    """Sixteen equal steps say no more than one: C is four times as large, and so is its spread."""
    group = np.random.default_rng(0).integers(10, size=1000)
    visits = np.where(np.arange(200) % 2, 1.0, 0.5)[:, None]
    step = covers(group, np.ones((1000, 1)), visits, 1)
    one, many = PolicyCoverage.of([step]).transfer, PolicyCoverage.of([step] * 16).transfer
    assert many.value == pytest.approx(4 * one.value)
    assert many.high - many.low == pytest.approx(4 * (one.high - one.low))


def test_the_worst_of_many_steps_is_not_the_luckiest_estimate() -> None:
    """Twenty steps with condition number 20 each, and the same with one of 30 among them."""
    rng = np.random.default_rng(0)
    errors = []
    visits = np.ones(9, int), np.ones((9, 1)), np.arange(9), 9, 5000
    for seen in (1 / 20, 1 / 30):
        for _ in range(20):
            steps = []
            for share in [seen] + [1 / 20] * 19:
                counts = Counts(np.array([1]))
                logged = (rng.random(5000) < share).astype(int)
                counts.add(logged, np.ones((5000, 1)), new_folds(5000))
                steps.append(counts.covers(*visits))
            found = PolicyCoverage.of(steps).condition
            assert found.low < 1 / seen < found.high
            errors.append((found.value * seen, max(step.condition for step in steps) * seen))
    (tied, plain), (alone, _) = np.reshape(errors, (2, 20, 2)).mean(axis=1)
    assert plain > 1.1
    assert tied - 1 < 0.6 * (plain - 1)
    assert alone == pytest.approx(1.0, abs=0.05)


def test_counts_are_the_covariance_of_one_hot_features() -> None:
    rng = np.random.default_rng(0)
    logged, visited = rng.integers(6, size=20), rng.integers(2, 10, size=40)
    logged[4] = 7  # which one fold alone has
    wanted, episodes = np.unique(visited), np.sort(rng.permutation(50)[:40])
    found = []
    for moments in (Covariance(wanted), Counts(wanted)):
        for part in (slice(0, 7), slice(7, 20)):
            moments.add(logged[part], np.ones((20, 1))[part], new_folds(20)[part])
        found.append(moments.covers(visited, np.ones((40, 1)), episodes, 50, 23))
    assert 0 < found[0].outside[0] < found[0].outside.max()
    for name, value in vars(found[0]).items():
        np.testing.assert_allclose(getattr(found[1], name), value, err_msg=name)


def test_an_episode_stays_in_its_fold() -> None:
    folds = new_folds(30)
    alive = np.arange(30) % 3 > 0
    np.testing.assert_array_equal(next_folds(folds, alive, 20), folds[alive])
    np.testing.assert_array_equal(next_folds(folds, alive, 30), folds)  # ends that are none
    np.testing.assert_array_equal(next_folds(folds, alive, 25), new_folds(25))


class Short(gym.Env[Any, Any]):
    """Two steps, of which the second is reached with some chance: `first`, the next, then over."""

    def __init__(self, reach: float, first: int) -> None:
        """Continue with chance `reach`."""
        self.observation_space = gym.spaces.Discrete(first + 3)
        self.action_space = gym.spaces.Discrete(2)
        self._reach, self._first, self._state = reach, first, first

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Start anew."""
        super().reset(seed=seed)
        self._state = self._first
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Continue, or end."""
        on = self._state == self._first and self.np_random.random() < self._reach
        self._state = self._first + (1 if on else 2)
        return self._state, 1.0, not on, False, {}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `Short` known by name."""
    spec = EnvSpec("test/Short-v0", entry_point=f"{__name__}:Short")
    monkeypatch.setitem(gym.registry, spec.id, spec)


def short_episodes(path: Path, reach: float, second: IntArray, first: int = 0) -> None:
    """Log episodes with both actions at step 0, of which some continue with those of `second`."""
    going = len(second)
    n = round(going / reach)
    data = Dataset.from_arrays(
        observation=first + np.repeat([0, 1], [n, going]),
        action=np.concatenate([np.arange(n) // 2 % 2, second]),
        reward=np.ones(n + going),
        next_observation=first + np.repeat([1, 2, 2], [going, n - going, going]),
        terminated=np.repeat([False, True, True], [going, n - going, going]),
        timestep=np.repeat([0, 1], [n, going]),
        provenance={"environment": "test/Short-v0", "parameters": {"reach": reach, "first": first}},
    )
    data.save(path)


@pytest.mark.usefixtures("short")
def test_steps_count_as_many_episodes_as_reach_them(tmp_path: Path) -> None:
    """Both policy and data reach step 1 in half of the episodes: C^2 = 1 / 0.5 + 0.5^2 / 0.25."""
    save_policy(tmp_path / "pi", [TabularFunction(np.array([[0.0, 1.0]] * 3))] * 2)
    short_episodes(tmp_path / "half", 0.5, np.arange(2000) // 2 % 2)
    half = inspect_dataset(tmp_path / "half", policy=tmp_path / "pi").comparator
    assert half is not None
    assert half.mean_length == pytest.approx(1.5, abs=0.1)
    assert half.transfer.value == pytest.approx(math.sqrt(3), rel=0.05)
    assert half.transfer.low < math.sqrt(3) < half.transfer.high

    short_episodes(tmp_path / "rare", 0.005, np.zeros(100, int))
    rare = inspect_dataset(tmp_path / "rare", policy=tmp_path / "pi")
    assert rare.steps[1].unsupported == 1.0
    assert rare.comparator is not None
    assert 0.0 < rare.comparator.unsupported < 0.01
    assert rare.comparator.outside == pytest.approx(rare.comparator.unsupported)
    assert rare.verdict[0].startswith("WELL COVERED")


@pytest.mark.usefixtures("short")
def test_many_states_need_no_matrix(tmp_path: Path) -> None:
    """A hundred thousand one-hot features would have covariances of 80 GB, in each of ten folds."""
    short_episodes(tmp_path / "data", 0.5, np.arange(200) // 2 % 2, first=99_997)
    table = np.tile(np.array([0.0, 1.0], np.float32), (100_000, 1))
    save_policy(tmp_path / "pi", [TabularFunction(table)] * 2)
    found = inspect_dataset(tmp_path / "data", policy=tmp_path / "pi").comparator
    assert found is not None
    assert found.transfer.value == pytest.approx(math.sqrt(3), rel=0.1)
    evaluated = evaluate_saved(tmp_path / "pi", tmp_path / "data", replicates=2)
    assert evaluated.value.value == pytest.approx(1.5)


NO_POLICY = GreedyPolicy(())


def view_of(observation: Array, action: Array) -> StepView:
    """Return one step of transitions that lead back to where they began."""
    n = len(action)
    rows = Transitions(observation, action, np.ones(n), np.ones(n), observation)
    return Dataset.from_transitions(rows, np.zeros(n, int)).by_step()


def test_narrow_integers_do_not_wrap(tmp_path: Path) -> None:
    step = np.repeat(np.arange(40, dtype=np.uint8), 10)
    write(tmp_path / "data", timestep=step, action=np.tile(np.arange(10, dtype=np.uint8), 40))
    found = inspect_dataset(tmp_path / "data")
    assert [one.action_entropy for one in found.steps] == pytest.approx([math.log(10)] * 40)
    many, rng = np.arange(256, dtype=np.uint8), np.random.default_rng(0)
    features = features_for("raw", view_of(many, many % 4), [], [], rng, NO_POLICY)
    group, _ = features(0, many, many % 4)
    assert len(np.unique(group)) == 256
    np.testing.assert_array_equal(group, features(0, np.arange(256), many % 4)[0])


def test_support_by_hand() -> None:
    logged = np.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
    groups = np.array([0, 0, 0, 1, 1])
    visits = np.array([[0.05], [5.05], [5.05], [3.0], [0.0]])
    visited = np.array([0, 1, 0, 0, 7])
    assert unsupported(logged, groups, visits, visited).tolist() == [0, 0, 1, 1, 1]


# The lock: which data is better?


def expert(lock: LockSpec) -> list[BlockFunction]:
    """Return the optimal policy as block functions."""
    env = CombinationLockVector(1, **lock_parameters(lock))
    code = env._latent_code[0]  # of every step
    encoder = (code / np.square(code).sum(axis=1, keepdims=True)).T
    good = lock.good_actions()
    functions = []
    for h in range(lock.horizon):
        head = np.zeros((3, lock.actions), np.float32)
        head[[0, 1], good[h]] = 1.0
        functions.append(BlockFunction(encoder, np.zeros(3, np.float32), head, "hard"))
    return functions


def test_the_lock_datasets_are_ranked_as_hyq_finds_them(tmp_path: Path) -> None:
    """Trajectory data before occupancy data before that of random actions (results/theory)."""
    lock = LockSpec(horizon=10)
    for kind in ("trajectory", "occupancy"):
        lock_dataset(lock, kind, 20_000).save(tmp_path / kind)
    env = CombinationLockVector(2000, **lock_parameters(lock))
    made = log(env, uniform(10), "")
    replace(made, provenance=lock_provenance(lock)).save(tmp_path / "uniform")
    save_policy(tmp_path / "pi", expert(lock))
    kinds: tuple[FeatureKind, ...] = ("network", "raw")
    for kind in kinds:
        found = {
            name: inspect_dataset(tmp_path / name, policy=tmp_path / "pi", features=kind)
            for name in ("trajectory", "occupancy", "uniform")
        }
        assert easier(found["trajectory"], found["occupancy"])
        assert easier(found["occupancy"], found["uniform"])
        assert not easier(found["uniform"], found["trajectory"])
        assert easier(found["uniform"], found["uniform"]) is None
        assert easier(found["occupancy"], found["occupancy"]) is None
    assert found["uniform"].verdict[0].startswith("NOT COVERED")
    assert "COVERED" in found["trajectory"].verdict[0]
    assert "unlike any" in messages(found["occupancy"])
    with pytest.raises(HyqError, match="same policy"):
        easier(inspect_dataset(tmp_path / "uniform"), found["uniform"])


def test_estimates_of_the_lock_are_those_of_its_latent_mdp(tmp_path: Path) -> None:
    lock = LockSpec(horizon=10)
    lock_dataset(lock, "occupancy", 50_000).save(tmp_path / "data")
    save_policy(tmp_path / "pi", expert(lock))
    found = inspect_dataset(tmp_path / "data", policy=tmp_path / "pi", features="network")
    mdp = lock.latent_mdp()
    d = mdp.occupancy(mdp.greedy_policy(mdp.optimal_q()))
    nu = np.zeros_like(d)
    nu[:, :2] = 0.5 / lock.actions
    assert found.comparator is not None
    assert found.comparator.transfer.value == pytest.approx(tabular_transfer(d, nu), rel=0.05)
    assert found.comparator.mean_return == 1.0


# Facts and faults


def test_episodes_are_put_together_again(tmp_path: Path) -> None:
    """Trajectory data is linked and its returns known, in order or shuffled; occupancy is not."""
    lock = LockSpec(horizon=6)
    data = lock_dataset(lock, "trajectory", 1200)
    data.save(tmp_path / "ordered")
    rng = np.random.default_rng(0)
    order = np.concatenate([h * 200 + rng.permutation(200) for h in range(6)])
    rows = data.by_step().transitions[order]
    Dataset.from_transitions(rows, data.timestep).save(tmp_path / "shuffled")
    exact = data.reward.reshape(6, 200).sum(axis=0)
    for name in ("ordered", "shuffled"):
        found = inspect_dataset(tmp_path / name)
        assert found.episodes.linked == 1.0
        np.testing.assert_allclose(np.sort(found.episodes.returns), np.sort(exact), atol=1e-6)
        assert found.verdict[0].startswith("The best tenth")
        assert "If one policy played them" in found.verdict[0]
        assert "start and transitions are deterministic" in found.verdict[0]
        assert not found.episodes.cut
    lock_dataset(lock, "occupancy", 1200).save(tmp_path / "loose")
    loose = inspect_dataset(tmp_path / "loose")
    assert loose.episodes.linked == 0.0
    assert "not linked" in loose.verdict[0]


def test_rows_without_order_are_no_episodes(tmp_path: Path) -> None:
    """Transitions of long episodes without their steps look like many episodes of one step."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 3)), rng.integers(2, size=600), rng.random(600)
    for name, ended in (("loose", np.arange(600) % 50 == 49), ("bandit", np.ones(600, bool))):
        Dataset.from_arrays(*rows, rng.standard_normal((600, 3)), ended).save(tmp_path / name)
    loose = inspect_dataset(tmp_path / "loose")
    assert loose.episodes.linked == 0.0
    assert "carry no order" in loose.verdict[0]
    assert "compete" not in " ".join(loose.verdict)
    bandit = inspect_dataset(tmp_path / "bandit")
    assert bandit.episodes.linked == 1.0
    assert bandit.verdict[0].startswith("The best tenth")


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_episodes_that_earn_the_same_set_no_example(reward: float, tmp_path: Path) -> None:
    write(tmp_path / "data", reward=np.full(400, reward))
    found = inspect_dataset(tmp_path / "data")
    assert found.episodes.linked == 1.0
    assert f"all earn {2 * reward:.3g}" in found.verdict[0]
    assert "can compete" not in " ".join(found.verdict)


def write(path: Path, **columns: Array) -> None:
    """Write two steps of 200 episodes as rows without order, with some columns changed."""
    n = 400
    rng = np.random.default_rng(1)
    observation = rng.standard_normal((n, 3))
    whole: dict[str, Any] = {
        "observation": observation,
        "action": rng.integers(3, size=n),
        "reward": rng.random(n),
        "next_observation": np.concatenate([observation[n // 2 :], observation[: n // 2] + 9]),
        "terminated": np.repeat([False, True], n // 2),
        "timestep": np.repeat([0, 1], n // 2),
    }
    Dataset.from_arrays(**whole | columns).save(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reward", np.zeros(400), "No transition has a reward"),
        ("terminated", np.ones(400), "Every transition is terminated"),
        ("terminated", np.arange(400) < 5, "their episode continues"),
        ("terminated", np.zeros(400), "No transition is terminated"),
        ("action", np.zeros(400, int), "At 2 of 2 steps nearly all logged actions are the same"),
        ("observation", np.ones((400, 3)), "of the next observations are unlike any"),
    ],
)
def test_planted_faults_are_found(tmp_path: Path, name: str, value: Array, message: str) -> None:
    write(tmp_path / "data")
    assert message not in messages(inspect_dataset(tmp_path / "data"))
    write(tmp_path / "planted", **{name: value})
    assert message in messages(inspect_dataset(tmp_path / "planted"))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write(tmp_path / "data")
    file = tmp_path / "data" / "reward.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(HyqError, match=r"reward\.npy was altered"):
        inspect_dataset(tmp_path / "data")


def test_whole_episodes_are_inspected_step_by_step_too(tmp_path: Path) -> None:
    """The order of rows says which belong together, where their looks do not."""
    env = make_tabular_vector(3000)
    apart = log(env, uniform(3), "hyq/Tabular-v0")
    view = apart.by_step()
    rows = [view.at(h) for h in range(view.horizon)]
    whole = Dataset.of(
        [
            Episode(
                np.array([*(part.observation[i] for part in rows), rows[-1].next_observation[i]]),
                np.array([part.action[i] for part in rows]),
                np.array([part.reward[i] for part in rows]),
                bool(rows[-1].discount[i] == 0),
            )
            for i in range(3000)
        ],
        dict(apart.provenance),
    )
    apart.save(tmp_path / "apart")
    whole.save(tmp_path / "whole")
    save_policy(tmp_path / "pi", [TabularFunction(q) for q in env.mdp.optimal_q()])
    one, other = (
        inspect_dataset(tmp_path / name, policy=tmp_path / "pi") for name in ("apart", "whole")
    )
    assert one.steps == other.steps
    assert one.comparator == other.comparator
    assert other.episodes.linked == 1.0
    np.testing.assert_array_equal(other.episodes.returns, whole.returns())


def test_hashes_and_dimensions() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1000, 5)).astype(np.float32)
    assert len(np.unique(row_hashes(rows))) == 1000
    np.testing.assert_array_equal(row_hashes(rows), row_hashes(rows.copy()))
    assert row_hashes(rows, rows)[0] != row_hashes(rows)[0]
    assert effective_dimension(rng.standard_normal((500, 4))) == pytest.approx(4, abs=0.1)
    assert effective_dimension(np.ones((5, 4))) == 0.0


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8])
def test_rows_of_round_numbers_have_hashes_of_their_own(kind: type) -> None:
    """Zeros and ones differ only in a few of the highest bits of a floating-point number."""
    bits: Array = np.random.default_rng(0).integers(2, size=(20_000, 32)).astype(kind)
    for rows in (bits, np.eye(500, dtype=kind), np.arange(-100, 100).astype(kind)[:, None]):
        hashes = row_hashes(rows)
        assert len(np.unique(hashes)) == len(np.unique(rows, axis=0))


def test_vector_actions_and_fourier_features(tmp_path: Path) -> None:
    write(tmp_path / "data", action=np.random.default_rng(2).standard_normal((400, 2)))
    found = inspect_dataset(tmp_path / "data")
    assert found.action.startswith("vectors (2,)")
    assert math.isnan(found.steps[0].action_entropy)


def test_network_features_are_a_policys_last_layer(tmp_path: Path) -> None:
    lock = LockSpec(horizon=4)
    lock_dataset(lock, "occupancy", 4000).save(tmp_path / "data")
    with torch_seed(0):
        network = Ensemble(lock.horizon, lock.observation_dim, (6,), lock.actions)
    save_policy(tmp_path / "pi", member_functions(network))
    kinds: tuple[FeatureKind, ...] = ("network", "fourier")
    for kind in kinds:
        found = inspect_dataset(tmp_path / "data", policy=tmp_path / "pi", features=kind)
        assert found.comparator is not None
        assert found.comparator.features == kind


@pytest.mark.parametrize(
    "function",
    [
        BlockFunction(np.eye(3, dtype=np.float32), np.zeros(3, np.float32), TABLE, "soft"),
        BlockFunction(np.eye(3, dtype=np.float32), np.zeros(3, np.float32), TABLE, "hard"),
        MLPFunction(((TABLE, np.zeros(3, np.float32)),), (0.0, 0.5)),
        MLPFunction(((TABLE, np.zeros(3, np.float32)),)),
    ],
    ids=["soft block", "hard block", "clipped network", "network"],
)
def test_a_saved_policy_is_the_same_when_it_is_loaded(
    tmp_path: Path, function: DiscreteValueFunction
) -> None:
    save_policy(tmp_path / "pi", [function])
    (again,) = load_policy(tmp_path / "pi").functions
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    assert isinstance(again, DiscreteValueFunction)
    np.testing.assert_array_equal(again.values(x), function.values(x))


def test_a_policy_that_needs_its_polytope_is_not_taken_for_another(tmp_path: Path) -> None:
    save_policy(tmp_path / "pi", [ConvexLinearFunction(np.zeros(3), Polytope.simplex(3))])
    with pytest.raises(HyqError, match="unknown class"):
        load_policy(tmp_path / "pi")


@pytest.mark.parametrize(("rows", "sure"), [(30, False), (2000, True)])
def test_too_few_rows_for_so_many_features_are_unsure_and_never_flattered(
    rows: int, sure: bool
) -> None:
    """Visits are as the data's: both numbers are those of the policy's own data, 20 and 1."""
    rng, width = np.random.default_rng(rows), 20
    psi = rng.standard_normal((rows + 400, width))
    psi[:, 0] = 1.0
    data = Covariance(np.zeros(1, int))
    data.add(np.zeros(rows, int), psi[:rows], new_folds(rows))
    step = data.covers(np.zeros(400, int), psi[rows:], np.arange(400), 400, rows)
    found = PolicyCoverage.of([step])
    for number, truth in ((found.transfer, 1.0), (found.condition, 20.0)):
        assert 0 <= number.low <= truth <= number.high
        assert number.low <= number.value <= number.high
        assert number.value > 0.9 * truth
    assert step.condition > 0.9 * 20.0
    assert math.isfinite(found.condition.high) == sure


def test_one_row_of_data_has_nothing_to_be_corrected_by() -> None:
    data = Covariance(np.zeros(1, int))
    data.add(np.zeros(1, int), np.ones((1, 1)), new_folds(1))
    step = data.covers(np.zeros(50, int), np.ones((50, 1)), np.arange(50), 50, 1)
    assert step.condition == 1.0


def test_states_beyond_all_numbers_raise() -> None:
    rng = np.random.default_rng(0)
    features_for("raw", view_of(np.array([0, 2**60 - 1]), np.array([0, 6])), [], [], rng, NO_POLICY)
    with pytest.raises(HyqError, match="number them from 0"):
        features_for(
            "raw", view_of(np.array([0, 2**61 - 1]), np.array([0, 8])), [], [], rng, NO_POLICY
        )


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(HyqError, match="not a dataset"):
        inspect_dataset(tmp_path / "none")
    with pytest.raises(HyqError, match="at least 10, got 1"):
        inspect_dataset(tmp_path / "none", episodes=1)
    write(tmp_path / "data")
    save_policy(tmp_path / "pi", [TabularFunction(np.zeros((2, 3)))] * 2)
    with pytest.raises(HyqError, match="--env"):
        inspect_dataset(tmp_path / "data", policy=tmp_path / "pi")
    with pytest.raises(HyqError, match="cannot make"):
        inspect_dataset(tmp_path / "data", policy=tmp_path / "pi", env="hyq/None-v0")
    with pytest.raises(HyqError, match="shape"):
        inspect_dataset(tmp_path / "data", env="hyq/Tabular-v0")
    with pytest.raises(HyqError, match="name it with --policy"):
        inspect_dataset(tmp_path / "data", features="fourier")
    lock_dataset(LockSpec(horizon=2), "occupancy", 100).save(tmp_path / "lock")
    assert inspect_dataset(tmp_path / "lock", env="hyq/CombinationLock-v0").comparator is None
    save_policy(tmp_path / "wrong", [LinearFunction(np.zeros(3))] * 2)
    with pytest.raises(HyqError, match="does not fit"):
        inspect_dataset(tmp_path / "lock", policy=tmp_path / "wrong")
    save_policy(tmp_path / "long", [TabularFunction(np.zeros((2, 3)))] * 3)
    with pytest.raises(HyqError, match="3 steps"):
        inspect_dataset(tmp_path / "data", policy=tmp_path / "long")
    (tmp_path / "data" / "reward.npy").unlink()
    with pytest.raises(HyqError, match="missing"):
        inspect_dataset(tmp_path / "data")
