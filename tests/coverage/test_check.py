"""Checks: estimates against exact numbers, a ranking of data, planted faults, and the verdicts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from hyq.core.errors import HyqError
from hyq.core.types import Array, Transitions
from hyq.coverage.check import Check, bounds_of, check_all, facts, theory
from hyq.coverage.drift import Drift, Part
from hyq.coverage.fqe import evaluate_saved, features_for
from hyq.coverage.policy import load_policy, play_in, save_policy
from hyq.coverage.scan import row_hashes
from hyq.coverage.support import Logged, Support
from hyq.data.dataset import Dataset, Episode
from hyq.data.steps import StepView
from hyq.envs.batched import BatchedEnv
from hyq.envs.combination_lock import CombinationLockVector, LockSpec
from hyq.envs.tabular import make_tabular_vector
from hyq.experts.lock import lock_dataset, lock_provenance, optimal_policy
from hyq.fqi.block import BlockFunction
from hyq.fqi.classes import DiscreteValueFunction, GreedyPolicy, ValueFunction
from hyq.fqi.linear import LinearFunction
from hyq.fqi.mlp import MLPFunction
from hyq.fqi.rollout import lockstep
from hyq.fqi.tabular import TabularFunction
from hyq.theory.transfer import tabular_transfer
from tests.coverage.test_cells import mixture, roaming
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


def checked(data: Dataset, **known: Any) -> Check:
    (found,) = check_all({"data": data}, **known)
    return found


def compared(data: Dataset, *functions: ValueFunction, episodes: int = 500) -> Check:
    policy = GreedyPolicy(functions)
    played = "pi", play_in(policy, data, None, episodes)
    return checked(data, played=played, by_step=policy, policy="pi")


def messages(found: Check) -> str:
    return " ".join(f"{f.severity}: {f.text}" for f in found.findings)


# By step


def test_tabular_states_are_one_hot_features() -> None:
    env = make_tabular_vector(5000)
    data, mdp = log(env, uniform(3), "hyq/Tabular-v0"), env.mdp
    found = compared(data, *(TabularFunction(q) for q in mdp.optimal_q()), episodes=3000)
    d, nu = mdp.occupancy(mdp.greedy_policy(mdp.optimal_q())), mdp.occupancy(mdp.uniform_policy())
    exact = tabular_transfer(d, nu)
    assert found.coverage is not None
    assert found.best is not None
    assert found.coverage.transfer.value == pytest.approx(exact, rel=0.05)
    assert found.coverage.transfer.low < exact < found.coverage.transfer.high
    condition = np.where(d > 0, d / nu, 0).sum(axis=(1, 2)).max()
    assert found.coverage.condition == pytest.approx(condition, rel=0.3)
    assert found.best.mean_return == pytest.approx(mdp.optimal_value(), abs=0.02)
    assert "expected" in messages(found)  # few states repeat
    assert found.verdict[0].startswith("The data covers the policy pi")


def test_the_lock_datasets_are_ranked_as_hyq_finds_them() -> None:
    """Trajectory data before occupancy data before that of random actions (results/theory)."""
    lock = LockSpec(horizon=10)
    made = log(CombinationLockVector(2000, **vars(lock)), uniform(10), "")
    data = {
        "uniform": replace(made, provenance=lock_provenance(lock)),
        "occupancy": lock_dataset(lock, "occupancy", 20_000),
        "trajectory": lock_dataset(lock, "trajectory", 20_000),
    }
    policy = GreedyPolicy(tuple(optimal_policy(lock)))
    played = "pi", play_in(policy, data["uniform"], None, 500)
    found = check_all(data, played=played, by_step=policy, policy="pi")
    assert [one.name for one in found] == ["trajectory", "occupancy", "uniform"]
    assert "unlike any" in messages(found[1])
    assert "does not cover" in found[2].verdict[0]


def test_estimates_of_the_lock_are_those_of_its_latent_mdp() -> None:
    lock = LockSpec(horizon=10)
    found = compared(lock_dataset(lock, "occupancy", 50_000), *optimal_policy(lock))
    mdp = lock.latent_mdp()
    d = mdp.occupancy(mdp.greedy_policy(mdp.optimal_q()))
    nu = np.zeros_like(d)
    nu[:, :2] = 0.5 / lock.actions
    assert found.coverage is not None
    assert found.coverage.transfer.value == pytest.approx(tabular_transfer(d, nu), rel=0.05)
    assert found.best is not None
    assert found.best.mean_return == 1.0


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


def short_episodes(reach: float, second: Array, first: int = 0) -> Dataset:
    """Log episodes with both actions at step 0, of which some continue with those of `second`."""
    going = len(second)
    n = round(going / reach)
    return Dataset.from_arrays(
        observation=first + np.repeat([0, 1], [n, going]),
        action=np.concatenate([np.arange(n) // 2 % 2, second]),
        reward=np.ones(n + going),
        next_observation=first + np.repeat([1, 2, 2], [going, n - going, going]),
        terminated=np.repeat([False, True, True], [going, n - going, going]),
        timestep=np.repeat([0, 1], [n, going]),
        provenance={"environment": "test/Short-v0", "parameters": {"reach": reach, "first": first}},
    )


@pytest.mark.usefixtures("short")
def test_steps_count_as_many_episodes_as_reach_them() -> None:
    """Both policy and data reach step 1 in half of the episodes: C^2 = 1 / 0.5 + 0.5^2 / 0.25."""
    second = TabularFunction(np.array([[0.0, 1.0]] * 3))
    half = compared(short_episodes(0.5, np.arange(2000) // 2 % 2), second, second).coverage
    assert half is not None
    assert half.own == pytest.approx(math.sqrt(1.5), abs=0.05)
    assert half.transfer.value == pytest.approx(math.sqrt(3), rel=0.05)
    assert half.transfer.low < math.sqrt(3) < half.transfer.high
    rare = compared(short_episodes(0.005, np.zeros(100, int)), second, second).coverage
    assert rare is not None
    assert rare.over_time.tolist() == [1.0, 0.0]
    assert 0.0 < rare.unseen < 0.01
    assert rare.covered


@pytest.mark.usefixtures("short")
def test_many_states_need_no_matrix(tmp_path: Path) -> None:
    data = short_episodes(0.5, np.arange(200) // 2 % 2, first=99_997)
    table = TabularFunction(np.tile(np.array([0.0, 1.0], np.float32), (100_000, 1)))
    coverage = compared(data, table, table).coverage
    assert coverage is not None
    assert coverage.transfer.value == pytest.approx(math.sqrt(3), rel=0.1)
    data.save(tmp_path / "data")
    save_policy(tmp_path / "pi", [table] * 2)
    evaluated = evaluate_saved(tmp_path / "pi", tmp_path / "data", replicates=2)
    assert evaluated.value.value == pytest.approx(1.5)


def test_rows_without_order_have_no_best_episodes() -> None:
    """Transitions of long episodes without their steps look like many episodes of one step."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 3)), rng.integers(2, size=600), rng.random(600)
    data = Dataset.from_arrays(*rows, rng.standard_normal((600, 3)), np.arange(600) % 50 == 49)
    found = checked(data)
    assert not len(found.cells.returns)
    assert found.verdict[0].startswith("Cannot tell how good this data is: its rows are single")
    assert found.verdict[1] == "Try: hyq data check data --policy DIR"


def written(**columns: Array) -> Dataset:
    """Return two steps of 200 episodes as rows without order, with some columns changed."""
    n, rng = 400, np.random.default_rng(1)
    observation = rng.standard_normal((n, 3))
    whole: dict[str, Any] = {
        "observation": observation,
        "action": rng.integers(3, size=n),
        "reward": rng.random(n),
        "next_observation": np.concatenate([observation[n // 2 :], observation[: n // 2] + 9]),
        "terminated": np.repeat([False, True], n // 2),
        "timestep": np.repeat([0, 1], n // 2),
    }
    return Dataset.from_arrays(**whole | columns)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reward", np.zeros(400), "No transition has a reward"),
        ("reward", np.arange(400) == 7, "Rewards are sparse: 0.25%"),
        ("terminated", np.zeros(400), "No episode ended by itself"),
        ("action", np.zeros(400, int), "Nearly all logged actions are the same"),
        ("observation", np.ones((400, 3)), "3 of 3 numbers of the observation never change"),
    ],
)
def test_planted_faults_are_found(name: str, value: Array, message: str) -> None:
    assert message not in messages(checked(written()))
    columns = {name: value} | ({"next_observation": value} if name == "observation" else {})
    assert message in messages(checked(written(**columns)))


def test_errors_come_before_anything_that_could_be_learned() -> None:
    found = checked(written(reward=np.zeros(400)))
    assert found.verdict[0].startswith("Not ready: one thing below")
    assert found.verdict[1] == "Then: hyq data check data"


# Whole episodes


def test_data_says_what_can_be_learned_and_what_to_type() -> None:
    found = checked(
        replace(mixture(0.1, 1), provenance={"env": "CartPole-v1", "wrappers": ["a:B"]})
    )
    assert found.verdict == [
        "Thin data: a policy about as good as its best tenth of episodes (mean return 10, of all "
        "1) can be learned, but needs about 10 times as much data as they alone.",
        "Try: hyq train --env CartPole-v1 --wrappers a:B --data data --out runs/data",
    ]
    good = checked(mixture(0.3, 1)).verdict
    assert good[0] == (
        "Good data: a policy about as good as its 30 best episodes (mean return 10, of all 3) "
        "can be learned."
    )
    assert good[1].endswith("hyq data check data --env ID")
    few = checked(mixture(0.02, 1)).verdict[0]
    assert few.startswith("Cannot tell: too few of 100 episodes are better than the others.")


def test_less_good_data_is_called_thin_and_still_less_hardly_enough() -> None:
    """Where fewer than a tenth are good, they are the best, not all that earn nothing."""
    thin = checked(mixture(0.05, 1, episodes=200)).verdict[0]
    assert thin.startswith(
        "Thin data: a policy about as good as its 10 best episodes (mean return 10"
    )
    assert "about 20 times as much data as they alone" in thin
    scarce = checked(mixture(0.005, 1, episodes=1000)).verdict[0]
    assert scarce.startswith("Hardly enough: too little of the data is like its 5 best episodes")
    assert "all 100 episodes return 10" in checked(mixture(1.0, 1)).verdict[0]


def test_few_or_strange_episodes_cannot_tell() -> None:
    assert checked(roaming(1, episodes=12)).verdict[0].startswith("Cannot tell: too few of 12")
    whole = mixture(0.5, seed=1)
    rng, alone = np.random.default_rng(0), np.array(whole.observation)
    alone[::5, 0] = 1e6 * rng.random(len(alone[::5]))
    found = checked(replace(whole, observation=alone))
    assert found.coverage is not None


def test_episodes_that_are_there_twice_are_called_out() -> None:
    logs = mixture(0.5, seed=1)
    found = checked(Dataset.of([*logs, *logs], {}))
    assert "of the episodes repeat an earlier one exactly. Was data merged twice?" in messages(
        found
    )


def test_a_time_limit_that_was_logged_as_an_end_is_called_out() -> None:
    lengths = [50] * 25 + [12, 17] * 5
    parts = [
        Episode(np.zeros((n + 1, 2), np.float32), np.arange(n) % 2, np.ones(n), True)
        for n in lengths
    ]
    said = "71% of the episodes are marked as terminated after exactly 50 steps"
    assert said in messages(checked(Dataset.of(parts, {})))
    right = [replace(part, terminated=len(part.action) < 50) for part in parts]
    assert "marked as terminated" not in messages(checked(Dataset.of(right, {})))


def test_an_environment_that_differs_is_an_error() -> None:
    parts = (Part("rewards", 1e-4, "the reward differs most"), Part("ends", math.nan, ""))
    found = checked(mixture(0.5, 1), env="X-v0", drift=Drift(parts, 800, 0.9, {}))
    assert "error: X-v0 differs from the data in its rewards: the reward differs" in messages(found)
    assert "Whether X-v0 agrees in its ends is unknown" in messages(found)
    assert found.verdict[0].startswith("Not ready")
    agreed = (Part("rewards", 0.5, "agree"),)
    found = checked(mixture(0.5, 1), env="X-v0", drift=Drift(agreed, 800, 0.9, {}))
    assert "X-v0 agrees with the data in 800 live steps" in messages(found)
    assert "--env X-v0" in found.verdict[1]
    assert "error: it is not" in messages(checked(mixture(0.5, 1), env="X-v0", misfit="it is not"))


@pytest.mark.parametrize(
    ("inside", "says", "types"),
    [
        (
            0.5,
            "Cannot tell from this data the return of the policy runs/x: 50%",
            "hyq evaluate runs/x",
        ),
        (1.0, "The data covers the policy runs/x: 100%", "hyq evaluate runs/x --data data"),
    ],
)
def test_what_the_logs_say_of_a_policy(inside: float, says: str, types: str) -> None:
    found = checked(mixture(0.5, 1), policy="runs/x", support=Support(0.4, inside))
    alone = replace(found, coverage=None, best=None)
    assert alone.verdict[0].startswith(says)
    assert alone.verdict[1] == f"Try: {types}"
    assert facts(found)["and stays where data is"] == f"{inside:.1%} of its time"
    assert ("trust the play" in messages(found)) == (inside == 0.5)


def test_vectors_and_dictionaries_are_checked_throughout() -> None:
    rng = np.random.default_rng(0)
    parts = [
        Episode(
            {"joints": rng.normal(size=(31, 6)), "goal": rng.normal(size=(31, 1))},
            rng.uniform(-1, 1, size=(30, 2)),
            rng.random(30),
            True,
        )
        for _ in range(60)
    ]
    found = checked(Dataset.of(parts, {}))
    assert set(found.ranges) == {"goal[0]", *(f"joints[{i}]" for i in range(6))}
    assert facts(found)["actions"] == "vectors (2,) float64"
    assert theory(found)["C_pi"].endswith("own data would have 1")


def test_bounds_are_those_that_are_finite() -> None:
    space = gym.spaces.Dict(
        {
            "a": gym.spaces.Box(-1, 2, (2,)),
            "b": gym.spaces.Box(-np.inf, 1, ()),
            "c": gym.spaces.Discrete(3),
        }
    )
    assert bounds_of(space) == {"a[0]": (-1, 2), "a[1]": (-1, 2)}


# Parts


def test_support_by_hand() -> None:
    logged = np.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
    found = Logged.of(logged, np.array([0, 0, 0, 1, 1]), np.arange(5))
    visits = np.array([[0.05], [5.05], [5.05], [3.0], [0.0]])
    assert found.nearest(visits, np.array([0, 1, 0, 0, 7]))[0].tolist() == [1, 1, 0, 0, 0]
    vectors = Logged.of(logged, np.array([[0.0], [0.0], [0.0], [9.0], [9.0]]), np.arange(5))
    assert vectors.nearest(visits[:2], np.array([[0.0], [0.0]]))[0].tolist() == [1, 0]


TABLE_POLICY = GreedyPolicy((TabularFunction(np.zeros((1, 1))),))


def view_of(observation: Array, action: Array) -> StepView:
    """Return one step of transitions that lead back to where they began."""
    n = len(action)
    rows = Transitions(observation, action, np.ones(n), np.ones(n), observation)
    return Dataset.from_transitions(rows, np.zeros(n, int)).by_step()


def test_states_beyond_all_numbers_raise() -> None:
    features_for(TABLE_POLICY, view_of(np.array([0, 2**60 - 1]), np.array([0, 6])), [])
    with pytest.raises(HyqError, match="number them from 0"):
        features_for(TABLE_POLICY, view_of(np.array([0, 2**61 - 1]), np.array([0, 8])), [])


def test_narrow_integers_do_not_wrap() -> None:
    many = np.arange(256, dtype=np.uint8)
    features = features_for(TABLE_POLICY, view_of(many, many % 4), [])
    group, _ = features(0, many, many % 4)
    assert len(np.unique(group)) == 256
    np.testing.assert_array_equal(group, features(0, np.arange(256), many % 4)[0])


def test_hashes() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1000, 5)).astype(np.float32)
    assert len(np.unique(row_hashes(rows))) == 1000
    np.testing.assert_array_equal(row_hashes(rows), row_hashes(rows.copy()))
    assert row_hashes(rows, rows)[0] != row_hashes(rows)[0]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8])
def test_rows_of_round_numbers_have_hashes_of_their_own(kind: type) -> None:
    """Zeros and ones differ only in a few of the highest bits of a floating-point number."""
    bits: Array = np.random.default_rng(0).integers(2, size=(20_000, 32)).astype(kind)
    for rows in (bits, np.eye(500, dtype=kind), np.arange(-100, 100).astype(kind)[:, None]):
        hashes = row_hashes(rows)
        assert len(np.unique(hashes)) == len(np.unique(rows, axis=0))


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


@pytest.mark.parametrize(
    ("says", "given"),
    [
        ("at least 10, got 1", {"episodes": 1}),
        ("--env", {}),
        ("cannot make", {"env": "hyq/None-v0"}),
        ("observations are", {"env": "hyq/Tabular-v0"}),
        ("3 steps", {"steps": 3}),
    ],
)
def test_mistakes_are_named(says: str, given: Mapping[str, Any]) -> None:
    policy = GreedyPolicy((TabularFunction(np.zeros((40, 3))),) * given.get("steps", 2))
    if given.get("env") == "hyq/Tabular-v0":
        horizon = make_tabular_vector(1).horizon
        policy = GreedyPolicy((TabularFunction(np.zeros((40, 3))),) * horizon)
        data = Dataset.from_arrays(
            np.zeros((9, 3)),
            np.zeros(9, int),
            np.ones(9),
            np.zeros((9, 3)),
            np.zeros(9),
            timestep=np.arange(9) % horizon,
        )
    else:
        data = written()
    with pytest.raises(HyqError, match=says):
        play_in(policy, data, given.get("env"), given.get("episodes", 20))
    lock = lock_dataset(LockSpec(horizon=2), "occupancy", 100)
    with pytest.raises(HyqError, match="does not fit"):
        play_in(GreedyPolicy((LinearFunction(np.zeros(3)),) * 2), lock, None, 20)
