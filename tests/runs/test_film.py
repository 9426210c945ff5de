"""Filming: what is recorded is what was played, and what is seen again is what was recorded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq import rollout
from hyq.core.errors import HyqError
from hyq.core.types import Array
from hyq.experts.montezuma_data import Recordings
from hyq.models.networks import SMALL_CONVOLUTIONS, InputScaling, Network, NetworkSpec
from hyq.models.policy import DeepPolicy
from hyq.runs import film
from hyq.runs.film import (
    Actor,
    Film,
    Scene,
    Take,
    play_film,
    play_returns,
    replay,
    room_shares,
)

GAME = Scene("hyq/Montezuma-v0", (), {"step_limit": 40, "num_threads": 1})


def pixel_actor() -> Actor:
    network = Network((4, 1, 42, 42), 18, SMALL_CONVOLUTIONS, InputScaling.pixels())
    policy = DeepPolicy(network, network.initial(np.random.default_rng(1)), shrink_by=2)
    return Actor(policy, GAME, {"policy": "best"})


def vector_policy() -> DeepPolicy:
    scaling = InputScaling(np.zeros(2, np.float32), np.ones(2, np.float32))
    network = Network((2,), 3, NetworkSpec(hidden=(16,)), scaling, 0)
    return DeepPolicy(network, network.initial(np.random.default_rng(0)), first_action=5)


def expert_film(steps: int = 120) -> Film:
    """Return a film of the shipped expert's beginning: the first key is worth 100 points."""
    recording = Recordings.load().expert[0]
    scene = Scene("hyq/Montezuma-v0", (), {"num_threads": 1})
    about = {"policy": "best", "algorithm": "hyq", "data": "montezuma/hard", "seed": 100}
    take = Take(recording.seed, 100.0, steps, (1,))
    return Film(scene, about, 7, 0.01, (take,), tuple(recording.actions[:steps].tolist()))


def test_an_episode_depends_on_the_seed_and_its_number_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = play_film(pixel_actor(), 3, seed=7, epsilon=0.3)
    assert [take.length for take in made.takes] == [40, 40, 40]
    assert len({take.seed for take in made.takes}) == 3
    assert made.takes[0].rooms == (1,)
    monkeypatch.setattr(film, "TOGETHER", 1)
    assert play_film(pixel_actor(), 3, seed=7, epsilon=0.3) == made
    assert play_film(pixel_actor(), 3, seed=8, epsilon=0.3).takes != made.takes


def test_epsilon_is_the_chance_of_a_random_action() -> None:
    greedy = play_film(pixel_actor(), 1, seed=7, epsilon=0.0)
    random = play_film(pixel_actor(), 1, seed=7, epsilon=1.0)
    assert len(set(greedy.actions)) < 8 < len(set(random.actions)), (
        "an untrained network has habits"
    )


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = play_film(pixel_actor(), 2, seed=7)
    made.save(tmp_path)
    assert Film.load(tmp_path) == made


def test_what_is_seen_again_is_what_was_recorded() -> None:
    shots = list(replay(expert_film(), wanted={0, 120}))
    assert len(shots) == 121
    assert [shot.step for shot in shots if shot.picture is not None] == [0, 120]
    first, last = shots[0], shots[-1]
    assert (first.score, first.room, last.score) == (0.0, 1, 100.0)
    assert first.picture is not None
    assert first.picture.shape == (210, 160, 3)
    other = replace(expert_film(), takes=(Take(expert_film().best.seed, 400.0, 120, (1,)),))
    with pytest.raises(HyqError, match="came out with 100 instead of 400"):
        list(replay(other))


def test_the_best_take_is_the_highest_and_then_the_shortest() -> None:
    takes = tuple(
        Take(seed, *rest, (1,)) for seed, rest in enumerate([(0.0, 5), (9.0, 8), (9.0, 7)])
    )
    assert replace(expert_film(), takes=takes).best.seed == 2


def test_room_shares_count_an_episode_once() -> None:
    assert room_shares([(1, 2), (1,), (1, 2, 6), (1,)]) == {1: 1.0, 2: 0.5, 6: 0.25}


def test_a_policy_that_draws_follows_its_scores() -> None:
    actor = Actor(vector_policy(), GAME, {}, draws=True)
    seen: Array = np.repeat(np.array([[1.0, -1.0]], np.float32), 4000, axis=0)
    chances = [np.random.default_rng(seed) for seed in range(len(seen))]
    drawn = np.bincount(np.array(actor.choose(seen, chances)) - 5, minlength=3) / len(seen)
    scores = actor.policy.scores(seen[0])
    expected = np.exp(scores) / np.exp(scores).sum()
    assert np.abs(drawn - expected).max() < 0.03
    assert drawn.min() > 0.05, "the greedy policy would take one action alone"


class Corridor(gym.Env[Any, Any]):
    """Three actions, of which the environment calls the smallest 5; its picture is one colour."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gym.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gym.spaces.Discrete(3, start=5)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self._steps = render_mode, 0

    def reset(self, **_: Any) -> tuple[Array, dict[str, Any]]:
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert action in (5, 6, 7)
        self._steps += 1
        return np.full(2, self._steps, np.float32), 1.0, self._steps == 6, False, {}

    def render(self) -> Any:
        return np.full((8, 12, 3), 40 * self._steps, np.uint8)


class Blind(Corridor):
    metadata = {"render_modes": []}  # noqa: RUF012


@pytest.fixture
def corridors() -> Any:
    for kind in (Corridor, Blind):
        place = f"{__name__}:{kind.__name__}"
        gym.register(f"{kind.__name__}-v0", entry_point=place, disable_env_checker=True)
    yield
    for kind in (Corridor, Blind):
        del gym.registry[f"{kind.__name__}-v0"]


@pytest.mark.usefixtures("corridors")
def test_any_environment_with_pictures_can_be_filmed(tmp_path: Path) -> None:
    vector_policy().save(tmp_path / "policy")
    with pytest.raises(HyqError, match="--env"):
        Actor.load(tmp_path / "policy")
    made = play_film(Actor.load(tmp_path / "policy", env="Corridor-v0"), 2, seed=0, epsilon=0.5)
    assert [take.total for take in made.takes] == [6.0, 6.0]
    assert made.room_shares == {}
    assert [shot.room for shot in replay(made)] == [None] * 7
    with pytest.raises(HyqError, match="cannot be recorded"):
        play_film(Actor.load(tmp_path / "policy", env="Blind-v0"), 1, seed=0)
    with pytest.raises(HyqError, match="no policy"):
        Actor.load(tmp_path)


@pytest.mark.usefixtures("corridors")
def test_a_policy_outside_its_run_can_say_how_its_environment_is_made(tmp_path: Path) -> None:
    vector_policy().save(tmp_path / "policy")
    wrappers = ("gymnasium.wrappers:FlattenObservation",)
    actor = Actor.load(
        tmp_path / "policy", "best", "Corridor-v0", wrappers, '{"max_episode_steps": 4}'
    )
    assert isinstance(actor.scene.make(), gym.wrappers.FlattenObservation)
    assert play_returns(actor, 2, seed=0).tolist() == [4.0, 4.0]
    assert [take.total for take in play_film(actor, 2, seed=0).takes] == [4.0, 4.0]
    (tmp_path / "manifest.json").write_text("{}")  # of something else
    assert Actor.load(tmp_path / "policy", "best", "Corridor-v0", wrappers).about == actor.about
    for given in ({"wrappers": wrappers}, {"env_parameters": '{"size": 3}'}):
        with pytest.raises(HyqError, match="give env too"):
            Actor.load(tmp_path / "policy", **given)


@pytest.mark.usefixtures("corridors")
def test_an_episode_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = Actor(vector_policy(), Scene("Corridor-v0"), {})
    monkeypatch.setattr(rollout, "LONGEST_EPISODE", 6)
    assert play_film(actor, 1, seed=0).takes[0].length == 6
    monkeypatch.setattr(rollout, "LONGEST_EPISODE", 5)
    with pytest.raises(HyqError, match="still goes on after 5 steps"):
        play_film(actor, 1, seed=0)
