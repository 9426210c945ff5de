"""Fitted Q evaluation against exact values."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray, Transitions
from hyq.coverage.fqe import Evaluation, evaluate_saved
from hyq.coverage.policy import load_policy, save_policy
from hyq.data.dataset import Dataset
from hyq.envs.linear import LinearMDPEnv, random_linear_mdp
from hyq.envs.tabular import TabularEnv
from hyq.fqi.linear import LinearFunction
from hyq.fqi.mlp import MLPFunction
from hyq.fqi.rollout import lockstep
from hyq.fqi.tabular import TabularFunction
from tests.policies import constant_policy


def log(env: TabularEnv | LinearMDPEnv, seed: int) -> Dataset:
    """Log an episode in each environment of the uniformly random policy."""
    rng = np.random.default_rng(seed)
    actions = env.mdp.actions
    steps = [
        rows
        for rows, _ in lockstep(
            env, lambda h, s: rng.integers(actions, size=len(s)), env.horizon, seed
        )
    ]
    step = np.repeat(np.arange(env.horizon), env.num_envs)
    return Dataset.from_transitions(Transitions.concatenate(steps), step, {})


def evaluated(tmp: Path, seed: int, episodes: int) -> tuple[Evaluation, float]:
    """Evaluate a random deterministic policy on a random MDP; return the true value with it."""
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP.random(rng, states=4, actions=3, horizon=4)
    table: FloatArray = rng.random(mdp.reward.shape)
    log(TabularEnv(episodes, mdp, "bernoulli"), seed).save(tmp / f"data{seed}")
    save_policy(tmp / f"policy{seed}", [TabularFunction(f) for f in table])
    result = evaluate_saved(tmp / f"policy{seed}", tmp / f"data{seed}", replicates=50, seed=seed)
    return result, mdp.value(mdp.greedy_policy(table))


def test_the_interval_holds_the_true_value_on_most_of_100_random_mdps(tmp_path: Path) -> None:
    held = 0
    for seed in range(100):
        result, truth = evaluated(tmp_path, seed, episodes=400)
        held += result.value.low <= truth <= result.value.high
    assert held >= 90


def test_more_data_makes_the_error_smaller(tmp_path: Path) -> None:
    result, truth = evaluated(tmp_path, 1001, episodes=20_000)
    assert result.value.value == pytest.approx(truth, abs=0.03)
    assert result.value.low <= truth <= result.value.high
    assert result.value.high - result.value.low < 0.06
    assert 0.2 < result.agreement < 0.5


def test_linear_functions(tmp_path: Path) -> None:
    linear = random_linear_mdp(3)
    log(LinearMDPEnv(4000, linear), 0).save(tmp_path / "data")
    weights = linear.optimal_weights()
    save_policy(tmp_path / "policy", [LinearFunction(w) for w in weights])
    result = evaluate_saved(tmp_path / "policy", tmp_path / "data", replicates=30)
    assert result.value.value == pytest.approx(linear.mdp.optimal_value(), abs=0.02)


def test_a_policy_the_data_does_not_support_is_called_out(tmp_path: Path) -> None:
    """Data of action 0 only: a policy that takes another one half of the time is lost half way."""
    rows = Transitions(
        np.array([0, 1] * 50),
        np.zeros(100, int),
        np.ones(100),
        np.zeros(100),
        np.array([0, 1] * 50),
    )
    Dataset.from_transitions(rows, np.zeros(100, int), {}).save(tmp_path / "data")
    for table, share in (([[1.0, 0.0], [0.0, 1.0]], 0.5), ([[1.0, 0.0], [1.0, 0.0]], 1.0)):
        save_policy(tmp_path / f"{share}", [TabularFunction(np.array(table))])
        result = evaluate_saved(tmp_path / f"{share}", tmp_path / "data", replicates=5)
        assert result.inside == pytest.approx(share)
        assert result.value.value == pytest.approx(share)
    evaluated(tmp_path, 3, episodes=400)
    full = evaluate_saved(tmp_path / "policy3", tmp_path / "data3", replicates=5)
    assert full.inside == pytest.approx(1.0)


def test_an_action_that_is_taken_late_is_counted(tmp_path: Path) -> None:
    """Only in states that few rows lead to does the policy do what the logs never did."""
    rows = 3000
    state = (np.arange(rows) >= rows - 5).astype(int)
    logged = Transitions(state, np.zeros(rows, int), np.ones(rows), np.ones(rows), state)
    twice = Transitions.concatenate([logged, logged])
    Dataset.from_transitions(twice, np.repeat([0, 1], rows), {}).save(tmp_path / "data")
    table = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    save_policy(tmp_path / "policy", [TabularFunction(table)] * 2)
    result = evaluate_saved(tmp_path / "policy", tmp_path / "data", replicates=2)
    assert result.value.value == pytest.approx(2 * (rows - 5) / rows)


def test_a_policy_of_another_space_raises(tmp_path: Path) -> None:
    evaluated(tmp_path, 7, episodes=20)  # four states
    layers = ((np.zeros((5, 3), np.float32), np.zeros(3, np.float32)),)
    others = {
        "small": TabularFunction(np.zeros((2, 3))),
        "linear": LinearFunction(np.zeros(9)),
        "network": MLPFunction(layers),
    }
    for name, function in others.items():
        save_policy(tmp_path / name, [function] * 4)
        with pytest.raises(HyqError, match="does not fit the data"):
            evaluate_saved(tmp_path / name, tmp_path / "data7")


def test_same_seed_same_interval(tmp_path: Path) -> None:
    evaluated(tmp_path, 7, episodes=100)
    again = [
        evaluate_saved(tmp_path / "policy7", tmp_path / "data7", replicates=5, seed=seed).value
        for seed in (1, 1, 2)
    ]
    assert again[0] == again[1]
    assert again[0] != again[2]


def test_mistakes_are_named(tmp_path: Path) -> None:
    evaluated(tmp_path, 7, episodes=20)
    with pytest.raises(HyqError, match="replicates"):
        evaluate_saved(tmp_path / "policy7", tmp_path / "data7", replicates=1)
    short = load_policy(tmp_path / "policy7").functions[:2]
    save_policy(tmp_path / "short", short)
    with pytest.raises(HyqError, match="2 steps"):
        evaluate_saved(tmp_path / "short", tmp_path / "data7")
    with pytest.raises(HyqError, match="no policy"):
        load_policy(tmp_path)


@pytest.mark.parametrize("place", ["best", "last", "."])
def test_a_deep_policy_is_to_be_played(place: str, tmp_path: Path) -> None:
    constant_policy(0, gym.spaces.Box(0, 1, (3,)), 2).save(tmp_path / "run" / place)
    with pytest.raises(HyqError, match=r"deep policy.* let it play"):
        load_policy(tmp_path / "run")


def test_a_value_stays_within_what_the_rewards_can_add_up_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows fit anything, and what they say far away from them is nonsense."""
    rng = np.random.default_rng(0)
    rows = 10
    logged = Transitions(
        rng.normal(size=(rows, 4)),
        rng.integers(2, size=rows),
        rng.random(rows),
        np.ones(rows),
        100 * rng.normal(size=(rows, 4)),
    )
    Dataset.from_transitions(logged, np.repeat([0, 1], rows // 2), {}).save(tmp_path / "data")
    layers = ((rng.normal(size=(4, 2)).astype(np.float32), np.zeros(2, np.float32)),)
    save_policy(tmp_path / "policy", [MLPFunction(layers)] * 2)
    kept = evaluate_saved(tmp_path / "policy", tmp_path / "data")
    monkeypatch.setattr("hyq.coverage.fqe._possible_returns", lambda dataset: (-np.inf, np.inf))
    free = evaluate_saved(tmp_path / "policy", tmp_path / "data")
    assert np.abs(kept.replicates).max() < 10.0
    assert np.abs(free.replicates).max() > 20.0, "or the bounds are not what kept it"
