"""Videos: what is recorded is what was played, and what is rendered again is what was recorded."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq import collector
from hyq.actor_critic import Actor, Mode
from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.core.seeding import torch_seed
from hyq.core.types import Array
from hyq.experts.montezuma_data import SHIPPED, Recordings
from hyq.networks import Encoder, input_scaling
from hyq.policy import Policy
from hyq.runs import runner
from hyq.runs.spec import RunSpec
from hyq.runs.video import (
    Environment,
    EpisodeFacts,
    EpisodeResult,
    Video,
    choose,
    load_policy,
    play,
    play_returns,
    play_video,
    replay,
)
from tests.policies import PLAIN, constant_policy, fresh_policy, pixel_policy

GAME = Environment("hyq/Montezuma-v0", (), {"step_limit": 40, "num_threads": 1})
VECTORS = gym.spaces.Box(-9, 9, (2,), np.float32)
THREE = gym.spaces.Discrete(3, start=5)


def expert_video(steps: int = 120) -> Video:
    """Return a video of the shipped expert's beginning: the first key is worth 100 points."""
    recording = Recordings.load(SHIPPED["montezuma-planner"]).expert[0]
    environment = Environment("hyq/Montezuma-v0", (), {"num_threads": 1})
    about = {"policy": "best", "algorithm": "hyq", "data": "montezuma/hard", "seed": 100}
    episode = EpisodeResult(recording.seed, 100.0, steps, (1,))
    return Video(environment, about, 7, 0.01, (episode,), tuple(recording.actions[:steps].tolist()))


def test_an_episode_depends_on_the_seed_and_its_number_alone() -> None:
    made = play_video(pixel_policy(), GAME, 3, seed=7, epsilon=0.3)
    assert [episode.length for episode in made.episodes] == [40, 40, 40]
    assert len({episode.seed for episode in made.episodes}) == 3
    assert made.episodes[0].rooms == (1,)
    assert play_video(pixel_policy(), GAME, 3, seed=7, epsilon=0.3) == made
    assert play_video(pixel_policy(), GAME, 2, seed=7, epsilon=0.3).episodes == made.episodes[:2]
    assert play_video(pixel_policy(), GAME, 3, seed=8, epsilon=0.3).episodes != made.episodes


def test_epsilon_is_the_chance_of_a_random_action() -> None:
    greedy = play_video(pixel_policy(), GAME, 1, seed=7, epsilon=0.0)
    random = play_video(pixel_policy(), GAME, 1, seed=7, epsilon=1.0)
    assert len(set(greedy.actions)) < 8 < len(set(random.actions)), "a fresh network has habits"
    with pytest.raises(HyqError, match="epsilon"):
        play_video(pixel_policy(), GAME, 1, seed=7, epsilon=1.5)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = play_video(pixel_policy(), GAME, 2, seed=7)
    made.save(tmp_path)
    assert Video.load(tmp_path) == made


def test_what_is_rendered_again_is_what_was_recorded() -> None:
    moments = list(replay(expert_video(), wanted={0, 120}))
    assert len(moments) == 121
    assert [moment.step for moment in moments if moment.image is not None] == [0, 120]
    first, last = moments[0], moments[-1]
    assert (first.score, first.room, last.score) == (0.0, 1, 100.0)
    assert first.image is not None
    assert first.image.shape == (210, 160, 3)
    other = replace(expert_video(), episodes=(replace(expert_video().best, total=400.0),))
    with pytest.raises(HyqError, match="came out with 100 instead of 400"):
        list(replay(other))


def test_the_best_episode_is_the_highest_and_then_the_shortest() -> None:
    episodes = tuple(
        EpisodeResult(seed, *rest, (1,)) for seed, rest in enumerate([(0.0, 5), (9.0, 8), (9.0, 7)])
    )
    assert replace(expert_video(), episodes=episodes).best.seed == 2


def test_room_shares_count_an_episode_once() -> None:
    facts = EpisodeFacts.of([(9.0, 5, (1, 2)), (0.0, 1, (1,)), (2.0, 3, (1, 2, 6)), (1, 1, (1,))])
    assert facts == EpisodeFacts(4, 10, 3.0, {1: 1.0, 2: 0.5, 6: 0.25})


def test_a_policy_of_rnd_samples_by_its_scores() -> None:
    policy = fresh_policy(VECTORS, THREE, about={"algorithm": "rnd"})
    seen: Array = np.repeat(np.array([[1.0, -1.0]], np.float32), 4000, axis=0)
    sampled = choose(policy, seen, np.random.default_rng(0))
    drawn = np.bincount(sampled, minlength=3) / len(seen)
    scores = policy.scores(seen[0])
    expected = np.exp(scores) / np.exp(scores).sum()
    assert np.abs(drawn - expected).max() < 0.03
    assert drawn.min() > 0.05, "the greedy policy would take one action alone"
    greedy = choose(replace(policy, about={}), seen, np.random.default_rng(0))
    assert set(greedy.tolist()) == {int(scores.argmax())}


class Corridor(gym.Env[Any, Any]):
    """Three actions, the smallest of which is 5: it earns 1 a step, others 0; images of one colour.

    All frames are shown in one array, as some environments do.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = VECTORS
    action_space = THREE

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self._steps = render_mode, 0
        self._shown = np.zeros(2, np.float32)

    def reset(self, **_: Any) -> tuple[Array, dict[str, Any]]:
        self._steps = 0
        self._shown[:] = 0
        return self._shown, {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert action in (5, 6, 7)
        self._steps += 1
        self._shown[:] = self._steps
        return self._shown, float(action == 5), self._steps == 6, False, {}

    def render(self) -> Any:
        return np.full((8, 12, 3), 40 * self._steps, np.uint8)


class Pushed(Corridor):
    """Two forces, the first of which is its reward."""

    action_space = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)  # type: ignore[assignment]

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        seen, _, over, cut, info = super().step(5)
        return seen, float(action[0]), over, cut, info


class Blind(Corridor):
    metadata = {"render_modes": []}  # noqa: RUF012


@pytest.fixture(autouse=True)
def corridors() -> Iterator[None]:
    for kind in (Corridor, Pushed, Blind):
        place = f"{__name__}:{kind.__name__}"
        gym.register(f"{kind.__name__}-v0", entry_point=place, disable_env_checker=True)
    yield
    for kind in (Corridor, Pushed, Blind):
        del gym.registry[f"{kind.__name__}-v0"]


def first_action() -> Policy:
    return constant_policy(0, VECTORS, 3, start=5)


def test_any_environment_with_images_can_be_recorded(tmp_path: Path) -> None:
    first_action().save(tmp_path / "policy")
    with pytest.raises(HyqError, match="no policy"):
        load_policy(tmp_path)
    policy = load_policy(tmp_path / "policy")
    with pytest.raises(HyqError, match="--env"):
        Environment.of(policy)
    made = play_video(policy, Environment.of(policy, "Corridor-v0"), 2, seed=0, epsilon=0.0)
    assert [episode.total for episode in made.episodes] == [6.0, 6.0]
    assert made.actions == (5,) * 6
    assert made.facts.room_shares == {}
    assert [moment.room for moment in replay(made)] == [None] * 7
    with pytest.raises(HyqError, match="Blind-v0"):
        play_video(policy, Environment("Blind-v0"), 1, seed=0)


def test_continuous_actions_are_recorded_and_played_again(tmp_path: Path) -> None:
    scaling = input_scaling(VECTORS)
    with torch_seed(0):
        actor = Actor(Encoder(VECTORS, PLAIN, scaling), 2, squashed=True)
    policy = Policy(Mode(actor), VECTORS, Pushed.action_space)
    made = play_video(policy, Environment("Pushed-v0"), 2, seed=0, epsilon=0.5)
    made.save(tmp_path)
    loaded = Video.load(tmp_path)
    assert loaded == made
    assert [len(action) for action in loaded.actions] == [2] * 6
    assert [moment.step for moment in replay(loaded)] == list(range(7))
    # Actions reach over the environment's range.
    assert max(abs(force) for action in made.actions for force in action) > 1


def test_played_episodes_hold_all_that_was_seen() -> None:
    """Environments that cannot be rendered are played too."""
    ((result, episode),) = play(first_action(), Environment("Blind-v0"), 1, seed=0, epsilon=0.0)
    assert np.asarray(episode.observation)[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert episode.action.tolist() == [5] * 6
    assert (episode.reward.sum(), episode.terminated) == (6.0, True)
    assert (result.total, result.length, result.rooms) == (6.0, 6, ())


def test_a_named_environment_takes_the_place_of_the_policy_s_own() -> None:
    wrappers = ("gymnasium.wrappers:FlattenObservation",)
    about = {"env": "CartPole-v1", "wrappers": ["a:B"], "env_parameters": {"size": 3}}
    policy = replace(first_action(), about=about)
    own = Environment("CartPole-v1", ("a:B",), {"size": 3})
    assert Environment.of(policy, trust=True) == Environment.of(policy, trust=["a:B"]) == own
    with pytest.raises(HyqError, match=r"would import a:B, .* --trust"):
        Environment.of(policy)
    named = Environment.of(policy, "Corridor-v0", wrappers, {"max_episode_steps": 4})
    with closing(named.make()) as env:
        assert isinstance(env, gym.wrappers.FlattenObservation)
    assert play_returns(policy, named, 2, seed=0).tolist() == [4.0, 4.0]
    assert [one.total for one, _ in play(policy, named, 2, seed=0, epsilon=0)] == [4.0, 4.0]
    for given in ({"wrappers": wrappers}, {"parameters": {"size": 3}}):
        with pytest.raises(HyqError, match="give env too"):
            Environment.of(policy, **given)


def test_an_episode_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    corridor = Environment("Corridor-v0")
    monkeypatch.setattr(collector, "LONGEST_EPISODE", 6)
    assert play_video(first_action(), corridor, 1, seed=0).best.length == 6
    monkeypatch.setattr(collector, "LONGEST_EPISODE", 5)
    with pytest.raises(HyqError, match="still runs after 5 steps"):
        play_video(first_action(), corridor, 1, seed=0)


def test_a_trained_policy_is_played_where_it_was_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"online_steps": 40, "learning_starts": 20, "hidden": [8], "report_every": 20}
    spec = RunSpec(
        "Corridor-v0",
        algorithm="dqn",
        settings=settings,
        evaluation_episodes=2,
        env_parameters={"max_episode_steps": 4},
    )
    list(runner.start(spec, tmp_path / "run"))
    policy = load_policy(tmp_path / "run", "last")
    assert (policy.about["policy"], policy.about["algorithm"]) == ("last", "dqn")
    environment = Environment.of(policy)
    assert environment == Environment("Corridor-v0", (), {"max_episode_steps": 4})
    assert [one.length for one, _ in play(policy, environment, 2, seed=0)] == [4, 4]
    # The corridor leaves nothing to chance: it earns what the run's own evaluation has found.
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "3"]) == 0
    best = load_policy(tmp_path / "run").about["return"]
    shown = " ".join(capsys.readouterr().out.split())
    assert f"return, mean {best:g} 95%" in shown
    assert "3, acting greedily" in shown


def test_a_trained_policy_of_rnd_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"online_steps": 64, "num_envs": 8, "rollout_steps": 4, "normalisation_steps": 0}
    spec = RunSpec("Corridor-v0", algorithm="rnd", settings=settings, evaluation_episodes=0)
    list(runner.start(spec, tmp_path / "run"))
    policy = load_policy(tmp_path / "run")
    ((_, episode),) = play(policy, Environment.of(policy), 1, seed=0, epsilon=0.0)
    assert len(set(episode.action.tolist())) > 1, "hardly trained, it prefers nothing"
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "3"]) == 0
    assert "3, sampling its actions as in training" in " ".join(capsys.readouterr().out.split())


def test_stacked_and_downsampled_frames_are_played_as_in_training() -> None:
    """The vector environment stacks frames itself, a single one leaves it to the player."""
    policy = pixel_policy()
    together = play_returns(policy, GAME, 2, seed=0)
    assert together.tolist() == [0.0, 0.0]
    with closing(GAME.make()) as env:
        frame, _ = env.reset(seed=0)
    stack = np.repeat(np.asarray(frame).reshape(1, 84, 84), 4, axis=0)
    assert policy.player().act(frame) == policy.act(stack)
