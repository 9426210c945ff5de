"""Playing a saved policy: returns, whole episodes, and videos of the best one.

A video is a small record. An episode is its seed and its actions, so the record of the best one is
enough to render it again without the policy that played it.
"""

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from scipy.special import softmax

from hyq.collector import PreprocessingConfig, check_endless, evaluate, evaluation_envs
from hyq.core.errors import HyqError
from hyq.core.files import raising_damage, read_json, write_json
from hyq.core.seeding import Streams
from hyq.core.settings import decode
from hyq.core.trees import Tree, tree_map, without_tuples
from hyq.core.trust import Trust, check_trusted, sign
from hyq.core.types import Array, FloatArray
from hyq.data.dataset import Episode
from hyq.envs.make import NATIVE, env_factory, make_rendered, make_vector_env
from hyq.policy import DESCRIPTION, Policy

FORMAT, FILE, SIGNATURE = "hyq-video-1", "video.json", "signature"
EPISODES, SEED = 20, 7
"""How a video is made by default; no episode of a training has the seed."""
EPSILON = 0.01
"""Chance of a random action: without any, a policy may stall where it would not stay."""
ABOUT = ("policy", "algorithm", "data", "seed")
"""What a video records about its policy, where it is known."""

Kept = Literal["best", "last"]
"""Which of a run's policies: the best that was evaluated, or the one it ended with."""


def load_policy(path: Path, kept: Kept = "best") -> Policy:
    """Load a saved policy, or one of a run's; `about` then also says which."""
    # A run without evaluations has no best policy.
    places = (path, path / kept, path / "last")
    place = next((place for place in places if (place / DESCRIPTION).exists()), None)
    if place is None:
        raise HyqError(f"{path} holds no policy: give a run that has evaluated or ended")
    policy = Policy.load(place)
    return replace(policy, about={**policy.about, "policy": place.name})


def is_stochastic(policy: Policy) -> bool:
    """Tell a policy that samples its actions, as in its training, from a greedy one."""
    return policy.about.get("algorithm") == "rnd"


def choose(policy: Policy, observation: Tree, rng: np.random.Generator) -> Array:
    """Return the policy's action for each row of a batch, as agents have actions."""
    if not is_stochastic(policy):
        return policy.choose(observation)
    likely = softmax(policy.scores(observation), axis=1).cumsum(axis=1)
    drawn = rng.random((len(likely), 1)) * likely[:, -1:]
    sampled: Array = (likely <= drawn).sum(axis=1)
    return sampled


@dataclass(frozen=True)
class Environment:
    """An environment to play in, by name."""

    env: str
    wrappers: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        policy: Policy,
        env: str | None = None,
        wrappers: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
        trust: Trust = False,
    ) -> "Environment":
        """Return the environment that is named, or else the one the policy was trained in.

        Code that only the policy's file names is imported where it is trusted, or one's own.
        """
        if env is None and (wrappers or parameters):
            raise HyqError("wrappers and env_parameters are of a named environment: give env too")
        if env is not None:
            return cls(env, tuple(wrappers), dict(parameters or {}))
        about = policy.about
        if about.get("env") is None:
            raise HyqError("the policy does not say where it was trained: name it with --env")
        named = {"env": "env", "wrappers": "wrappers", "parameters": "env_parameters"}
        found = decode(cls, {k: about[name] for k, name in named.items() if about.get(name)})
        check_trusted([found.env, *found.wrappers], "the policy", about.get(SIGNATURE), trust)
        return found

    def make(self, render: bool = False) -> gym.Env[Any, Any]:
        """Make one copy; raise where it is to be rendered and cannot be."""
        if render or self.env in NATIVE:
            return make_rendered(self.env, wrappers=self.wrappers, **self.parameters)
        return env_factory(self.env, self.wrappers, **self.parameters)()


def play_returns(policy: Policy, environment: Environment, episodes: int, seed: int) -> FloatArray:
    """Play without random actions; return the sum of rewards of each episode."""
    name, count = environment.env, evaluation_envs(episodes)
    made = make_vector_env(name, count, wrappers=environment.wrappers, **environment.parameters)
    with closing(made) as env:
        streams = Streams(seed).below("evaluate")
        rng = streams.generator("act")
        return evaluate(
            env,
            lambda seen: choose(policy, seen, rng),
            episodes,
            streams,
            # The policy downsamples images itself.
            PreprocessingConfig(policy.frame_stack_of(env.single_observation_space.sample())),
        )


@dataclass(frozen=True)
class EpisodeResult:
    """How one episode went."""

    seed: int
    total: float
    """Its return."""
    length: int
    rooms: tuple[int, ...]
    """In the order of their first visit, where the environment names rooms."""


def play(
    policy: Policy, environment: Environment, episodes: int, seed: int, epsilon: float = EPSILON
) -> Iterator[tuple[EpisodeResult, Episode]]:
    """Play one episode after another; episode i depends on the policy, the seed and i."""
    if not 0 <= epsilon <= 1:
        raise HyqError(f"epsilon must lie in [0, 1], got {epsilon}")
    with closing(environment.make()) as env:
        for number in range(episodes):
            streams = Streams(seed).below("play", number)
            env_seed, rng = streams.integer("env"), streams.generator("act")
            player = policy.player()
            frame, info = env.reset(seed=env_seed)
            frames, rooms = [_copied(frame)], [info.get("room")]
            actions: list[Any] = []
            rewards: list[float] = []
            terminated = truncated = False
            while not (terminated or truncated):
                check_endless(len(actions))
                observation = tree_map(lambda leaf: leaf[None], player.see(frames[-1]))
                [action] = choose(policy, observation, rng)
                if rng.random() < epsilon:
                    [action] = policy.actions.random(1, rng)
                action = policy.actions.to_env(action)
                frame, reward, terminated, truncated, info = env.step(action)
                frames.append(_copied(frame))
                actions.append(action)
                rewards.append(float(reward))
                rooms.append(info.get("room"))
            seen = tree_map(lambda *leaves: np.stack(leaves), *frames)
            episode = Episode(seen, np.array(actions), np.array(rewards), bool(terminated))
            visited = dict.fromkeys(int(room) for room in rooms if room is not None)
            yield EpisodeResult(env_seed, sum(rewards), len(actions), tuple(visited)), episode


def _copied(frame: Any) -> Tree:
    # Environments may show all frames in one array.
    return tree_map(np.array, without_tuples(frame))


@dataclass(frozen=True)
class EpisodeFacts:
    """Returns, lengths and rooms of the episodes of a policy or a dataset."""

    episodes: int
    transitions: int
    mean_return: float
    room_shares: dict[int, float]
    """Share of the episodes that visited each room."""

    @classmethod
    def of(cls, episodes: Sequence[tuple[float, int, Sequence[int]]]) -> "EpisodeFacts":
        """Sum up the return, the length and the rooms of each episode."""
        returns, lengths, visited = zip(*episodes, strict=True)
        rooms = sorted({room for rooms in visited for room in rooms})
        shares = {room: sum(room in rooms for rooms in visited) / len(visited) for room in rooms}
        return cls(len(returns), sum(lengths), float(np.mean(returns)), shares)


@dataclass(frozen=True)
class Video:
    """What a policy did in some episodes, and every action of the best one."""

    environment: Environment
    about: Mapping[str, Any]
    seed: int
    epsilon: float
    episodes: tuple[EpisodeResult, ...]
    actions: tuple[Any, ...]
    """Of the best episode: a number each, or a list of numbers."""

    @property
    def best(self) -> EpisodeResult:
        """The episode of the highest return, and among those the shortest."""
        return max(self.episodes, key=_merit)

    @property
    def facts(self) -> EpisodeFacts:
        """Returns, lengths and rooms of the episodes."""
        return EpisodeFacts.of([(one.total, one.length, one.rooms) for one in self.episodes])

    def save(self, path: Path) -> None:
        """Write the record into a directory."""
        path.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, **asdict(self), "mean_return": self.facts.mean_return}
        content["actions"] = " ".join(json.dumps(a, separators=(",", ":")) for a in self.actions)
        content[SIGNATURE] = sign([self.environment.env, *self.environment.wrappers])
        write_json(path / FILE, content)

    @classmethod
    def load(cls, path: Path, trust: Trust = False) -> "Video":
        """Read what `save` wrote; code that it names is trusted as that of a policy is."""
        content = read_json(path / FILE)
        if content.get("format") != FORMAT:
            raise HyqError(f"{path / FILE} is no {FORMAT} record")
        with raising_damage(path / FILE):
            content["actions"] = tuple(map(json.loads, content["actions"].split()))
            if not all(np.isfinite(action).all() for action in content["actions"]):
                raise ValueError("actions are not finite")
            video = decode(cls, {part.name: content[part.name] for part in fields(cls)})
            names = [video.environment.env, *video.environment.wrappers]
            check_trusted(names, path / FILE, content.get(SIGNATURE), trust)
        return video


def _merit(episode: EpisodeResult) -> tuple[float, int]:
    return episode.total, -episode.length


def play_video(
    policy: Policy,
    environment: Environment,
    episodes: int = EPISODES,
    seed: int = SEED,
    epsilon: float = EPSILON,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Video:
    """Let the policy play, and record what the best episode needs to be rendered again."""
    if episodes < 1:
        raise HyqError(f"a video needs an episode, got {episodes}")
    # Raises before time is spent, where it cannot be rendered.
    environment.make(render=True).close()
    results: list[EpisodeResult] = []
    best: tuple[int, ...] = ()
    for result, episode in play(policy, environment, episodes, seed, epsilon):
        results.append(result)
        if max(results, key=_merit) is result:
            best = tuple(episode.action.tolist())
        progress(len(results), episodes)
    about = {name: policy.about[name] for name in ABOUT if name in policy.about}
    return Video(environment, about, seed, epsilon, tuple(results), best)


@dataclass(frozen=True)
class Moment:
    """One step of an episode that is rendered again."""

    step: int
    score: float
    """Return so far."""
    room: int | None
    image: Array | None
    """In colour, where that was requested."""


def replay(video: Video, wanted: Container[int] = ()) -> Iterator[Moment]:
    """Take the actions of the best episode again, with images of the steps that are wanted."""
    score = 0.0
    with closing(video.environment.make(render=True)) as env:
        _, info = env.reset(seed=video.best.seed)
        yield Moment(0, score, info.get("room"), _image(env, 0 in wanted))
        kind = env.action_space.dtype
        for step, action in enumerate(video.actions, start=1):
            taken = np.array(action, kind) if isinstance(action, list) else action
            _, reward, _, _, info = env.step(taken)
            score += float(reward)
            yield Moment(step, score, info.get("room"), _image(env, step in wanted))
    if score != video.best.total:
        raise HyqError(
            f"the recorded episode came out with {score:g} instead of {video.best.total:g}: it was "
            "made with another version of the environment"
        )


def _image(env: gym.Env[Any, Any], wanted: bool) -> Array | None:
    try:
        return np.asarray(env.render()) if wanted else None
    except gym.error.DependencyNotInstalled as error:
        raise HyqError(f"the environment cannot be rendered: {error}") from None
