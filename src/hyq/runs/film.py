"""Filming a saved policy: episodes on seeds of their own, and the best one kept move by move.

A film is a small record. An episode is its seed and its actions, so the record of the best one is
enough to see it again, picture by picture, without the policy that played it.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_json
from hyq.core.seeding import Streams
from hyq.core.targets import softmax
from hyq.core.types import Array, FloatArray
from hyq.data.dataset import Episode
from hyq.envs.make import make_filmed, make_lanes
from hyq.models.policy import DESCRIPTION, DeepPolicy, Player
from hyq.rollout import lanes_to_play, play, refuse_endless
from hyq.runs.deep import deep_run
from hyq.runs.records import RunDirectory, is_run
from hyq.runs.rnd import rnd_run
from hyq.runs.trainings import json_object

FORMAT = "hyq-film-1"
FILE = "film.json"
EPSILON = 0.01
"""Chance of a random action: without any, a policy may stall where it would not stay."""
TOGETHER = 10
"""Episodes that are played at a time, so that the network looks at a batch."""

Kept = Literal["best", "last"]
"""Which of a run's policies: the best that was evaluated, or the one it ended with."""


@dataclass(frozen=True)
class Scene:
    """An environment to play in, by name."""

    env: str
    wrappers: tuple[str, ...] = ()
    parameters: Mapping[str, Any] | None = None

    def make(self) -> gym.Env[Any, Any]:
        """Make the environment, ready to be rendered."""
        return make_filmed(self.env, wrappers=self.wrappers, **(self.parameters or {}))


@dataclass(frozen=True)
class Actor:
    """A policy, where it plays, and what it is called."""

    policy: DeepPolicy
    scene: Scene
    about: Mapping[str, Any]
    """Method, data, seed and which of the run's policies, where that is known."""
    draws: bool = False
    """Whether it draws its actions by their scores, as policies do that were trained so."""

    @classmethod
    def load(
        cls,
        path: Path,
        kept: Kept = "best",
        env: str | None = None,
        wrappers: tuple[str, ...] = (),
        env_parameters: str = "{}",
    ) -> "Actor":
        """Load a run's policy, or a saved one.

        One outside of a run needs its environment named, with what is around it and its parameters
        as a JSON object.
        """
        parameters = json_object(env_parameters)
        if env is None and (wrappers or parameters):
            raise HyqError("wrappers and env_parameters are of a named environment: give env too")
        run, place = find_policy(path, kept)
        scene, about, draws = None, {"policy": place.name}, False
        if is_run(run):
            manifest = RunDirectory.open(run).manifest
            draws = manifest["experiment"] == "rnd"
            spec = (rnd_run if draws else deep_run)(manifest["spec"])
            scene = Scene(spec.env, spec.wrappers, spec.parameters)
            about |= {name: getattr(spec, name) for name in ("algorithm", "data", "seed")}
        if env is not None:
            scene = Scene(env, wrappers, parameters)
        if scene is None:
            raise HyqError(f"{path} does not say where it was trained: name it with --env")
        return cls(DeepPolicy.load(place), scene, about, draws)

    def choose(self, observation: Array, chances: Sequence[np.random.Generator]) -> list[int]:
        """Return an action for each row of observations, drawn with a generator of its own."""
        if not self.draws:
            greedy: list[int] = self.policy.act(observation).tolist()
            return greedy
        likely = softmax(self.policy.scores(observation)).cumsum(axis=1)
        drawn = np.array([chance.random() for chance in chances])[:, None] * likely[:, -1:]
        chosen: list[int] = (self.policy.first_action + (likely <= drawn).sum(axis=1)).tolist()
        return chosen


def find_policy(path: Path, kept: Kept = "best") -> tuple[Path, Path]:
    """Return the directories of a run and of its policy, given either of them."""
    if (path / DESCRIPTION).exists():
        return path.parent, path
    # A run without evaluations knows no best policy.
    kept_here = [name for name in (kept, "last") if (path / name / DESCRIPTION).exists()]
    if not kept_here:
        raise HyqError(f"{path} holds no policy: give a run that has evaluated or ended")
    return path, path / kept_here[0]


@dataclass(frozen=True)
class Take:
    """One episode of a film."""

    seed: int
    total: float
    """Its return."""
    length: int
    rooms: tuple[int, ...]
    """In the order of their first visit, where the environment names rooms."""


@dataclass(frozen=True)
class Film:
    """What a policy did in some episodes, and every action of the best one."""

    scene: Scene
    about: Mapping[str, Any]
    seed: int
    epsilon: float
    takes: tuple[Take, ...]
    actions: tuple[int, ...]
    """Of the best take."""

    @property
    def best(self) -> Take:
        """The take of the highest return, and among those the shortest."""
        return max(self.takes, key=_merit)

    @property
    def room_shares(self) -> dict[int, float]:
        """Share of the episodes that visited each room."""
        return room_shares([take.rooms for take in self.takes])

    def save(self, path: Path) -> None:
        """Write the record into a directory."""
        path.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, **asdict(self), "mean_return": self.mean_return}
        content["actions"] = " ".join(map(str, self.actions))
        write_json(path / FILE, content)

    @property
    def mean_return(self) -> float:
        """Average return of the takes."""
        return float(np.mean([take.total for take in self.takes]))

    @classmethod
    def load(cls, path: Path) -> "Film":
        """Read what `save` wrote."""
        content = read_json(path / FILE)
        if content.get("format") != FORMAT:
            raise HyqError(f"{path / FILE} is no {FORMAT} record")
        scene = content["scene"]
        return cls(
            Scene(scene["env"], tuple(scene["wrappers"]), scene["parameters"]),
            content["about"],
            content["seed"],
            content["epsilon"],
            tuple(Take(**{**take, "rooms": tuple(take["rooms"])}) for take in content["takes"]),
            tuple(map(int, content["actions"].split())),
        )


def room_shares(visited: Sequence[Sequence[int]]) -> dict[int, float]:
    """Return the share of episodes that visited each room, given the rooms of each."""
    rooms = sorted({room for rooms in visited for room in rooms})
    return {room: sum(room in rooms for rooms in visited) / len(visited) for room in rooms}


def play_film(
    actor: Actor,
    episodes: int,
    seed: int,
    epsilon: float = EPSILON,
    progress: Callable[[int], None] = lambda done: None,
) -> Film:
    """Let the policy play; episode i depends on the policy, the seed and i."""
    if episodes < 1:
        raise HyqError(f"a film needs an episode, got {episodes}")
    if not 0 <= epsilon <= 1:
        raise HyqError(f"epsilon must lie in [0, 1], got {epsilon}")
    streams = Streams(seed).below("film")
    envs = [actor.scene.make() for _ in range(min(TOGETHER, episodes))]
    takes: list[Take] = []
    moves: list[tuple[int, ...]] = []
    try:
        for first in range(0, episodes, len(envs)):
            numbers = range(first, min(first + len(envs), episodes))
            for played in _play_together(actor, envs, numbers, streams, epsilon):
                takes.append(played.take())
                moves.append(tuple(played.actions))
            progress(len(takes))
    finally:
        for env in envs:
            env.close()
    best = max(range(episodes), key=lambda number: _merit(takes[number]))
    return Film(actor.scene, actor.about, seed, epsilon, tuple(takes), moves[best])


def play_episodes(
    actor: Actor, episodes: int, seed: int, epsilon: float = EPSILON
) -> Iterator[Episode]:
    """Let the policy play, one episode after another, and keep all that it sees."""
    streams = Streams(seed).below("episodes")
    with closing(actor.scene.make()) as env:
        for number in range(episodes):
            (played,) = _play_together(actor, [env], [number], streams, epsilon)
            yield _seen_again(env, played.seed, played.actions)


def _seen_again(env: gym.Env[Any, Any], seed: int, actions: Sequence[int]) -> Episode:
    """Play the moves of an episode once more, and keep all that is seen."""
    frames, rewards, terminated = [np.array(env.reset(seed=seed)[0])], [], False
    for action in actions:
        frame, reward, terminated, _, _ = env.step(action)
        frames.append(np.array(frame))  # copies: environments may show all frames in one array
        rewards.append(float(reward))
    return Episode(np.stack(frames), np.array(actions), np.array(rewards), bool(terminated))


def play_returns(actor: Actor, episodes: int, seed: int) -> FloatArray:
    """Let the policy play where nobody looks; return the sum of rewards of each episode."""
    scene = actor.scene
    parameters = scene.parameters or {}
    lanes = make_lanes(scene.env, lanes_to_play(episodes), wrappers=scene.wrappers, **parameters)
    with closing(lanes):
        streams = Streams(seed).below("evaluate")
        chance = streams.generator("act")
        return play(
            lanes,
            lambda seen: np.array(actor.choose(seen, [chance] * len(seen))),
            episodes,
            streams,
            stack=actor.policy.stack_of(lanes.single_observation_space.shape or ()),
        )


def _merit(take: Take) -> tuple[float, int]:
    """Order takes: by their return, and among equals the shorter is better."""
    return take.total, -take.length


class _Performance:
    """One episode under way."""

    def __init__(
        self, env: gym.Env[Any, Any], player: Player, streams: Streams, number: int
    ) -> None:
        self._env, self._player, self.seed = env, player, streams.integer("episode", number)
        self.chance = streams.generator("explore", number)
        frame, info = env.reset(seed=self.seed)
        self.observation = player.see(frame)
        self.total, self.over = 0.0, False
        self.actions: list[int] = []
        self.rooms: dict[int, None] = {}
        self._look(info)

    def step(self, action: int) -> None:
        """Play one action."""
        frame, reward, terminated, truncated, info = self._env.step(action)
        self.observation = self._player.see(frame)
        self.total += float(reward)
        self.over = terminated or truncated
        self.actions.append(action)
        self._look(info)

    def _look(self, info: Mapping[str, Any]) -> None:
        if "room" in info:
            self.rooms.setdefault(int(info["room"]))

    def take(self) -> Take:
        """Sum the episode up."""
        return Take(self.seed, self.total, len(self.actions), tuple(self.rooms))


def _play_together(
    actor: Actor,
    envs: Sequence[gym.Env[Any, Any]],
    numbers: Sequence[int],
    streams: Streams,
    epsilon: float,
) -> "list[_Performance]":
    actions, first = actor.policy.network.actions, actor.policy.first_action
    under_way = [
        _Performance(env, actor.policy.player(), streams, number)
        for env, number in zip(envs, numbers, strict=False)
    ]
    played = list(under_way)
    while under_way:
        seen = np.stack([one.observation for one in under_way])
        chosen = actor.choose(seen, [one.chance for one in under_way])
        for one, action in zip(under_way, chosen, strict=True):
            explores = one.chance.random() < epsilon
            one.step(first + int(one.chance.integers(actions)) if explores else action)
        under_way = [one for one in under_way if not one.over]
        refuse_endless(max((len(one.actions) for one in under_way), default=0))
    return played


@dataclass(frozen=True)
class Shot:
    """A moment of an episode that is seen again."""

    step: int
    score: float
    """Return so far."""
    room: int | None
    picture: Array | None
    """In colour, where it was asked for."""


def replay(film: Film, wanted: Container[int] = ()) -> Iterator[Shot]:
    """See the best take again, with pictures of the steps that are wanted."""
    env = film.scene.make()
    score = 0.0
    try:
        _, info = env.reset(seed=film.best.seed)
        yield Shot(0, score, info.get("room"), _picture(env, 0 in wanted))
        for step, action in enumerate(film.actions, start=1):
            _, reward, _, _, info = env.step(action)
            score += float(reward)
            yield Shot(step, score, info.get("room"), _picture(env, step in wanted))
    finally:
        env.close()
    if score != film.best.total:
        raise HyqError(
            f"the filmed episode came out with {score:g} instead of {film.best.total:g}: it was "
            "made with another version of the environment"
        )


def _picture(env: gym.Env[Any, Any], wanted: bool) -> Array | None:
    try:
        return np.asarray(env.render()) if wanted else None
    except gym.error.DependencyNotInstalled as error:
        raise HyqError(f"the environment cannot be drawn: {error}") from None
