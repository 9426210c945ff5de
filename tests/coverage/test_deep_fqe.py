"""Fitted Q evaluation of deep policies against values that are known."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.cli import main
from hyq.collector import PreprocessingConfig
from hyq.core.errors import HyqError
from hyq.core.types import Transitions
from hyq.coverage.deep_fqe import WIDER, deep_evaluation
from hyq.coverage.fqe import Evaluation
from hyq.data.dataset import Dataset, Episode
from hyq.policy import Policy
from tests.policies import PIXELS, constant_policy, fresh_policy, pixel_policy

GAMMA, GOAL, MOVES = 0.9, 4, 0.7
PLACE = gym.spaces.Box(0, GOAL, (1,), np.float32)


def always(action: int) -> Policy:
    """Return a policy that prefers one of two actions everywhere."""
    return constant_policy(action, PLACE, 2)


def walk(seed: int, episodes: int = 100, right: float = 0.6, longest: int = 12) -> Dataset:
    """Log walkers who step right with chance MOVES, or left; each step costs 1 up to the goal."""
    rng = np.random.default_rng(seed)
    logged = []
    for _ in range(episodes):
        place, places = 0, [0]
        actions: list[int] = []
        while place < GOAL and len(actions) < longest:
            actions.append(int(rng.random() < right))
            if actions[-1] == 0:
                place = max(place - 1, 0)
            elif rng.random() < MOVES:
                place += 1
            places.append(place)
        seen = np.array(places, np.float32)[:, None]
        cost = np.full(len(actions), -1, np.float32)
        logged.append(Episode(seen, np.array(actions), cost, place == GOAL))
    return Dataset.of(logged, {})


def worth_of_right() -> float:
    worth = 0.0
    for _ in range(GOAL):
        worth = (-1 + GAMMA * MOVES * worth) / (1 - GAMMA * (1 - MOVES))
    return worth


def evaluated(policy: Policy, dataset: Dataset, updates: int = 250) -> Evaluation:
    return deep_evaluation(policy, dataset, gamma=GAMMA, replicates=4, updates=updates)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk over five places needs no large networks, and they learn it in few updates."""
    monkeypatch.setattr("hyq.coverage.deep_fqe.HIDDEN", 16)
    monkeypatch.setattr("hyq.coverage.deep_fqe.LEARNING_RATE", 5e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_interval_holds_the_value_of_a_walk_by_chance(seed: int) -> None:
    """Most of the episodes are cut off, which must not look like an end."""
    truth, found = worth_of_right(), evaluated(always(1), walk(seed))
    assert found.value.low <= truth <= found.value.high
    assert found.value.value == pytest.approx(truth, abs=0.25)
    assert found.value.high - found.value.low < 3.0
    assert found.doubts == ()


def test_the_other_policy_never_arrives() -> None:
    found = evaluated(always(0), walk(0))
    assert found.value.value == pytest.approx(-1 / (1 - GAMMA), abs=0.5)


def test_the_interval_is_wider_than_the_spread_and_within_what_is_possible() -> None:
    found = evaluated(always(1), walk(0))
    margin = WIDER * found.replicates.std(ddof=1) * 3.182  # Student's t of 4 networks
    assert found.value.value == pytest.approx(found.replicates.mean())
    assert found.value.high - found.value.low == pytest.approx(2 * margin, rel=1e-3)
    early = evaluated(always(1), walk(0), updates=1)
    assert (early.value.low, early.value.high) == pytest.approx((-1 / (1 - GAMMA), 0))
    assert any("disagree" in doubt for doubt in early.doubts)


def test_the_same_seed_gives_the_same_networks() -> None:
    policy, dataset = always(1), walk(0, episodes=20)

    def networks(seed: int) -> list[float]:
        return deep_evaluation(
            policy, dataset, gamma=GAMMA, replicates=2, updates=5, seed=seed
        ).replicates.tolist()

    assert networks(1) == networks(1)
    assert networks(1) != networks(2)


def test_a_policy_that_was_never_logged_is_called_out() -> None:
    found = evaluated(always(0), walk(0, right=1.0), updates=1)
    assert found.agreement == 0
    assert found.inside == 0
    assert any("leaves what was logged" in doubt for doubt in found.doubts)


def test_dataset_in_which_nothing_ever_happens_are_called_out() -> None:
    dataset = walk(0, longest=3)
    assert not dataset.terminated.any()
    found = evaluated(always(1), dataset, updates=1)
    assert any("looks alike" in doubt for doubt in found.doubts)


def test_what_cannot_be_evaluated_raises() -> None:
    policy, dataset = always(1), walk(0, episodes=12)
    with pytest.raises(HyqError, match="shape"):
        deep_evaluation(constant_policy(1, gym.spaces.Box(0, 1, (2,)), 2), dataset)
    parts = gym.spaces.Dict({"place": PLACE, "goal": PLACE})
    stacked = fresh_policy(PLACE, gym.spaces.Discrete(2), preprocessing=PreprocessingConfig(2))
    for other, says in (
        (constant_policy(1, PIXELS, 2), "images"),
        (stacked, "stacks"),
        (constant_policy(1, parts, 2), "with the keys"),
    ):
        with pytest.raises(HyqError, match=says):
            deep_evaluation(other, dataset)
    with pytest.raises(HyqError, match="episodes"):
        deep_evaluation(policy, walk(0, episodes=9))
    with pytest.raises(HyqError, match="actions from 1 to 2"):
        deep_evaluation(policy, replace(dataset, action=dataset.action + 1))
    with pytest.raises(HyqError, match="gamma"):
        deep_evaluation(policy, dataset, gamma=1.0)
    with pytest.raises(HyqError, match="replicates must be at least 2"):
        deep_evaluation(policy, dataset, replicates=1)
    with pytest.raises(HyqError, match="updates"):
        deep_evaluation(policy, dataset, updates=0)


class Push(Policy):
    """A policy of vectors of actions that always pushes alike."""

    force = 1.0

    def choose(self, observation: Any) -> Any:
        """Return a row for each place."""
        return np.full((len(observation["place"]), 1), self.force, np.float32)


def pushed(seed: int) -> Dataset:
    """Log walkers who are pushed by any force in [-1, 1] and earn it, as long as they go on."""
    rng, logged = np.random.default_rng(seed), []
    for _ in range(150):
        force = rng.uniform(-1, 1, (8, 1)).astype(np.float32)
        place = np.cumsum([0.0, *force[:, 0]]).astype(np.float32)[:, None]
        seen = {"place": np.clip(place, -2, 2), "flag": np.zeros((9, 1), np.float32)}
        logged.append(Episode(seen, force, force[:, 0], False))
    return Dataset.of(logged, {})


def test_vectors_of_actions_and_dictionaries_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A force earns itself at every step: forever, as all episodes were cut off."""
    box = gym.spaces.Box(-2, 2, (1,), np.float32)
    space = gym.spaces.Dict({"place": box, "flag": box})
    push: Any = Push(None, space, gym.spaces.Box(-1, 1, (1,), np.float32))  # type: ignore[arg-type]
    for force in (0.8, -0.5):
        monkeypatch.setattr(Push, "force", force)
        found = evaluated(push, pushed(0), updates=500)
        assert found.value.low <= force / (1 - GAMMA) <= found.value.high
        assert found.value.value == pytest.approx(force / (1 - GAMMA), abs=1.2)
        assert 0.0 < found.agreement < 0.2
        assert found.inside > 0.9
    with pytest.raises(HyqError, match="shape"):
        deep_evaluation(push, replace(pushed(0), action=np.zeros((1200, 2), np.float32)))


def test_from_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyq.commands.evaluate.UPDATES", 5)
    always(1).save(tmp_path / "policy")
    walk(0, right=0.0).save(tmp_path / "dataset")
    words = ["evaluate", str(tmp_path / "policy"), "--data", str(tmp_path / "dataset")]
    assert main([*words, "--replicates", "2", "--gamma", "0.9"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search("cannot tell from this data: .*the policy leaves what was logged", shown)
    assert "interval" not in shown
    assert main([*words, "--env", "CartPole-v1"]) == 2
    assert "does not use --env" in capsys.readouterr().err
    pixel_policy().save(tmp_path / "sees")
    assert main(["evaluate", str(tmp_path / "sees"), "--data", "nowhere"]) == 2
    assert "images" in capsys.readouterr().err
    rows = Transitions(np.zeros(4), np.zeros(4, int), np.ones(4), np.ones(4), np.zeros(4))
    Dataset.from_transitions(rows, np.zeros(4, int), {}).save(tmp_path / "tuples")
    assert main([*words[:-1], str(tmp_path / "tuples")]) == 2
    assert "evaluated on episodes" in capsys.readouterr().err
    assert main([*words[:-1], str(tmp_path / "nowhere")]) == 2
    assert "no dataset" in capsys.readouterr().err
    assert main([*words[:2], "--gamma", "0.9"]) == 2
    assert "does not use --gamma" in capsys.readouterr().err
    replace(always(1), about={"algorithm": "rnd"}).save(tmp_path / "sampling")
    assert main(["evaluate", str(tmp_path / "sampling"), *words[2:]]) == 2
    assert "stochastic" in capsys.readouterr().err
