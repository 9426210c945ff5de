"""Learning without an environment, experience that is kept, and runs that start from others."""

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import hyq
from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.core.files import read_json
from hyq.data.dataset import Dataset, Episode
from hyq.data.fits import check_fits
from hyq.data.spaces import spaces_of
from hyq.runs import runner
from hyq.runs.kept import said
from hyq.runs.runner import Objects
from hyq.runs.spec import RunSpec
from tests.fqi.chain import STATES, Chain, SteeredChain, chain_logs, steered

LOGS = chain_logs(60, 0.7)
BRIEF: dict[str, Any] = {"hidden": (8,), "batch_size": 16, "report_every": 50, "progress": False}
ONLINE: dict[str, Any] = {"num_envs": 2, "learning_starts": 10, "evaluation_episodes": 0}


def test_spaces_are_those_that_the_data_carries_or_shows() -> None:
    seen, actions = spaces_of(LOGS)
    assert seen == gym.spaces.Box(-np.inf, np.inf, (STATES,), np.float32)
    assert actions == gym.spaces.Discrete(2)
    force = spaces_of(steered(LOGS))[1]
    assert isinstance(force, gym.spaces.Box)
    assert -3 <= force.low[0] < -2.5
    assert 0.5 < force.high[0] <= 1
    pictures = Episode(np.zeros((3, 24, 24), np.uint8), np.array([[0.5], [0.5]]), np.ones(2), True)
    image, one = spaces_of(Dataset.of([pictures], {}))
    assert image == gym.spaces.Box(0, 255, (24, 24), np.uint8)
    assert one == gym.spaces.Box(-1, 1, (1,), np.float32)
    still = Episode(np.zeros((3, 1), np.float32), np.full((2, 1), 7.0), np.ones(2), True)
    fixed = spaces_of(Dataset.of([still], {}))[1]
    assert fixed == gym.spaces.Box(6, 8, (1,), np.float32)
    named = {"imported": {"actions": ["left", "right", "up"]}}
    assert spaces_of(Dataset.of(LOGS, named))[1] == gym.spaces.Discrete(3)


@pytest.mark.parametrize("data", [LOGS, steered(LOGS)], ids=["discrete", "continuous"])
def test_offline_algorithms_need_no_environment(data: Dataset, tmp_path: Path) -> None:
    data.save(tmp_path / "logs")
    policy = hyq.train(
        data=tmp_path / "logs", algorithm="iql", updates=100, out=tmp_path / "run", **BRIEF
    )
    assert data.action.shape[1:] == np.shape(policy.act(np.eye(STATES, dtype=np.float32)[0]))
    found = policy.training.summary["estimate"]
    assert found["episodes"] == 12
    if found["doubts"]:
        assert "return" not in found
        assert said(found).startswith("cannot tell from this data")
    else:
        assert found["interval"][0] <= found["return"] <= found["interval"][1]
        assert "held-out episodes the policy's return is about" in said(found)
    assert policy.training.scores == []
    assert [row["updates"] for row in policy.training.rows] == [50, 100]
    assert policy.training.out == tmp_path / "run"
    assert read_json(tmp_path / "run" / "summary.json")["estimate"] == found
    assert "policy of iql: Box" in str(policy)


def test_what_cannot_be_judged_says_so() -> None:
    few = hyq.train(data=chain_logs(20, 0.7), algorithm="bc", updates=50, **BRIEF)
    assert few.training.summary["estimate"] == {
        "doubts": ["there are too few episodes to hold some out"]
    }
    with pytest.raises(HyqError, match="hyq acts: name an environment, or learn from data alone"):
        hyq.train(data=LOGS, **BRIEF)
    with pytest.raises(HyqError, match="give an environment, or data"):
        hyq.train(algorithm="bc")
    with pytest.raises(HyqError, match="a run without an environment does not use --threshold"):
        runner.start(RunSpec(data="nowhere", algorithm="bc", threshold=1.0))


def test_evaluation_episodes_raise_without_an_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = "a run without an environment does not use --evaluation-episodes"
    with pytest.raises(HyqError, match=wanted):
        hyq.train(data=LOGS, algorithm="bc", evaluation_episodes=20)
    LOGS.save(tmp_path / "logs")
    words = ["train", "--data", str(tmp_path / "logs"), "--algorithm", "bc"]
    # As many as the default: given all the same.
    words += ["--evaluation-episodes=20", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert wanted in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"wrappers": ("a:b",)}, "without an environment"),
        ({"env_parameters": {"a": 1}}, "without an environment"),
        ({"processes": True}, "without an environment"),
        ({"evaluate_every": 2}, "without an environment"),
        ({"evaluation_epsilon": 0.1}, "without an environment"),
        ({"env": "X-v0", "evaluation_episodes": 0, "evaluate_every": 2}, "without evaluations"),
        ({"env": "X-v0", "evaluation_episodes": 0, "evaluation_epsilon": 0.1}, "evaluations"),
    ],
)
def test_options_of_a_run_without_effect_raise(change: dict[str, Any], what: str) -> None:
    with pytest.raises(HyqError, match=f"{what} does not use"):
        runner.start(RunSpec(**{"data": "nowhere", "algorithm": "bc", **change}))


def test_a_vector_environment_is_not_made_anew() -> None:
    made = gym.make_vec("CartPole-v1", 1)
    with pytest.raises(HyqError, match="made already, does not use --processes"):
        runner.start(RunSpec(algorithm="dqn", processes=True), objects=Objects(env=made))


@pytest.mark.parametrize("seconds", [math.nan, -1.0])
def test_the_time_between_checkpoints_is_a_time(seconds: float) -> None:
    with pytest.raises(HyqError, match="time between checkpoints"):
        runner.start(RunSpec("CartPole-v1", algorithm="dqn"), checkpoint_seconds=seconds)


def test_experience_needs_a_directory_and_something_collected(tmp_path: Path) -> None:
    with pytest.raises(HyqError, match="save_experience keeps the replay"):
        hyq.train(Chain, LOGS, 10, save_experience=True, **BRIEF, **ONLINE)
    with pytest.raises(HyqError, match="an algorithm that acts and replays"):
        hyq.train(Chain, LOGS, algorithm="bc", save_experience=True, out=tmp_path / "x", **BRIEF)
    assert not (tmp_path / "x").exists()


def test_the_command_learns_offline_and_then_goes_on_online(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LOGS.save(tmp_path / "logs")
    first, second = tmp_path / "offline", tmp_path / "online"
    words = ["--hidden", "8", "--batch-size", "16", "--report-every", "50"]
    data = ["--data", str(tmp_path / "logs")]
    offline = ["train", *data, "--algorithm", "cql", "--updates", "100", *words]
    assert main([*offline, "--out", str(first)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no environment" in shown
    assert said(read_json(first / "summary.json")["estimate"]) in shown
    gym.register("Chain-v0", entry_point="tests.fqi.chain:Chain", disable_env_checker=True)
    try:
        online = ["train", "--env", "Chain-v0", *data, "--online-steps", "100", *words]
        online += ["--pretraining", "0", "--start-from", str(first), "--save-experience"]
        assert main([*online, "--out", str(second), "--evaluation-episodes", "2"]) == 0
        again = ["train", "--env", "Chain-v0", *data, "--online-steps", "10", "--hidden", "9"]
        assert main([*again, "--start-from", str(first), "--out", str(tmp_path / "x")]) == 2
        assert "is of other networks" in capsys.readouterr().err
        assert not (tmp_path / "x").exists()
    finally:
        del gym.registry["Chain-v0"]
    kept = Dataset.load(second / "experience")
    assert 90 <= len(kept) <= 104
    assert kept.provenance["env"] == "Chain-v0"
    assert main(["train", "--data", str(second / "experience"), "--algorithm", "bc", "--updates",
                 "20", *words, "--out", str(tmp_path / "third")]) == 0  # fmt: skip


def test_a_run_begins_with_the_weights_of_another(tmp_path: Path) -> None:
    given = {"hidden": (8,), "batch_size": 16, "progress": False, **ONLINE}
    one = hyq.train(Chain, LOGS, 0, pretraining=80, out=tmp_path / "one", seed=3, **given)
    rows = np.eye(STATES, dtype=np.float32)
    for precision in ("float32", "bfloat16"):
        # So small a rate that the networks stay where they began.
        other = hyq.train(
            Chain, LOGS, 10, pretraining=3, learning_rate=1e-7, precision=precision,
            start_from=tmp_path / "one", seed=4, **given,
        )  # fmt: skip
        close = 1e-4 if precision == "float32" else 0.03
        np.testing.assert_allclose(other.scores(rows), one.scores(rows), atol=close)
    fresh = hyq.train(Chain, LOGS, 10, pretraining=3, learning_rate=1e-7, seed=4, **given)
    assert np.abs(fresh.scores(rows) - one.scores(rows)).max() > 0.1
    with pytest.raises(HyqError, match="does not exist: start from a run"):
        hyq.train(Chain, LOGS, 10, start_from=tmp_path, **given)


@pytest.mark.parametrize("make", [Chain, SteeredChain])
def test_experience_is_what_was_played(make: Any, tmp_path: Path) -> None:
    data = LOGS if make is Chain else steered(LOGS)
    episodes: list[Any] = []
    policy = hyq.train(
        make, data, 150, pretraining=5, out=tmp_path / "run", save_experience=True,
        callbacks=[lambda update: episodes.extend(update.row["episodes"])], **BRIEF, **ONLINE,
    )  # fmt: skip
    kept = Dataset.load(tmp_path / "run" / "experience")
    env = make()
    check_fits(kept, env.observation_space, env.action_space)
    assert len(kept) == 150
    whole = [e for e in kept if e.terminated or len(e.action) == 4]
    assert sorted((float(e.reward.sum()), len(e.action)) for e in whole) == sorted(
        (total, length) for _, total, length in episodes
    )
    for episode in kept:  # each step follows from the one before
        place = np.asarray(episode.observation).argmax(1)
        right = episode.action == 1 if make is Chain else episode.action[:, 0] > -1
        np.testing.assert_array_equal(place[1:], np.maximum(place[:-1] + 2 * right - 1, 0))
    assert policy.training.summary["online_steps"] == 150
