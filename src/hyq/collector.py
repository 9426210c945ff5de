"""Acting in many environments at once: episodes from named seeds, exploration, exact replay.

An episode is a function of its seed and its actions. Remembering those is enough to come back to
the very same state of *any* environment that keeps Gymnasium's contract about seeds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from hyq.core.actions import Actions
from hyq.core.errors import HyqError, in_one_line
from hyq.core.images import downsample
from hyq.core.seeding import Streams
from hyq.core.settings import check_range
from hyq.core.trees import Tree, flatten, leaves, space_tree, subtree, tree_map, without_tuples
from hyq.core.types import Array, BoolArray, FloatArray

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]
LONGEST_EPISODE = 100_000
"""Steps after which an evaluation is abandoned: without a time limit, a policy that stalls would
keep its episode running for ever."""
MOST_ENVS = 32
"""Environments that an evaluation steps together; more would hardly be faster."""


@dataclass(frozen=True)
class PreprocessingConfig:
    """How frames become observations."""

    frame_stack: int = 1
    """Newest frames that make one observation."""
    downsample: int = 1
    """Factor by which images are averaged down."""

    def __post_init__(self) -> None:
        check_range("frame_stack", self.frame_stack, 1, 256)
        check_range("downsample", self.downsample, 1)


class Preprocessing:
    """Frames of an environment made into the observations that a network sees."""

    def __init__(self, config: PreprocessingConfig, space: gym.Space[Any]) -> None:
        self.config = config
        self.raw_space = without_tuples(space)
        self.frame_space = _map_space(self._frame_space, self.raw_space)
        self.space = _map_space(self._stacked_space, self.frame_space)

    def frames(self, observation: Any) -> Tree:
        """Prepare a batch of frames as the environment gives them."""
        return tree_map(
            lambda frames, space: (
                downsample(frames, self.config.downsample)
                .reshape(len(frames), *space.shape)
                .astype(space.dtype, copy=False)
            ),
            without_tuples(observation),
            space_tree(self.frame_space),
        )

    def _frame_space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        counts = gym.spaces.MultiBinary | gym.spaces.MultiDiscrete
        if not isinstance(space, gym.spaces.Box | counts):
            raise HyqError(
                f"observations must be arrays or dictionaries of arrays, not {space}: wrap the "
                "environment, for instance in gymnasium.wrappers:FlattenObservation"
            )
        if isinstance(space, gym.spaces.MultiBinary):
            space = gym.spaces.Box(0, 1, space.shape, np.int8)
        elif isinstance(space, gym.spaces.MultiDiscrete):
            last = space.start + space.nvec - 1
            space = gym.spaces.Box(space.start, last, dtype=space.dtype.type)
        low, high = (
            downsample(bound[None], self.config.downsample)[0] for bound in (space.low, space.high)
        )
        if space.dtype == np.float64:  # the precision that buffers and networks have
            low, high = low.astype(np.float32), high.astype(np.float32)
        if self.config.frame_stack > 1 and low.ndim == 3 and len(low) == 1:
            low, high = low[0], high[0]  # vectors of games may show stacks of one frame
        return gym.spaces.Box(low, high, dtype=low.dtype.type)

    def _stacked_space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        stack = self.config.frame_stack
        if stack == 1:
            return space
        assert isinstance(space, gym.spaces.Box)
        low, high = (np.repeat(bound[None], stack, axis=0) for bound in (space.low, space.high))
        return gym.spaces.Box(low, high, dtype=low.dtype.type)


@dataclass(frozen=True)
class Outcome:
    """What one step of every environment led to."""

    frame: Tree
    """Prepared frame after the step: of an episode that ended, its last."""
    reward: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    life_lost: BoolArray
    """Where the environment counts lives and one was lost, the last one included."""
    finished: tuple[tuple[int, float, int], ...]
    """(environment, return, length) of each episode that ended."""

    @property
    def ended(self) -> BoolArray:
        """Where the episode is over, one way or the other."""
        return self.terminated | self.truncated


class Collector:
    """Episodes in every environment of a vector environment, each from a seed of its own.

    Environments are reset by hand, so no transition ever crosses from one episode into the next.
    Actions are those of agents here: counted from 0, or from -1 to 1 (`core.actions`).

    Where seeding takes long, the environment may say how many steps a seed lasts, as `seed_lasts`:
    until then episodes continue with its randomness, and the actions of all of them are remembered.
    """

    def __init__(
        self,
        env: VectorEnv,
        streams: Streams,
        config: PreprocessingConfig = PreprocessingConfig(),
    ) -> None:
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise HyqError(
                "the vector environment must not reset by itself: make it with "
                "autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED"
            )
        self.env, self.num_envs = env, env.num_envs
        self.preprocessing = Preprocessing(config, env.single_observation_space)
        self.actions = Actions(env.single_action_space)
        self._streams, self._stack = streams, config.frame_stack
        self._seed_lasts = int(getattr(env, "seed_lasts", 0))
        self._episode = np.zeros(env.num_envs, np.int64)
        self._seeded = np.zeros(env.num_envs, np.int64)
        """The episode of each environment that was seeded last; actions are remembered since."""
        self._actions: list[list[Array]] = [[] for _ in range(env.num_envs)]
        self._length = np.zeros(env.num_envs, np.int64)
        self._return = np.zeros(env.num_envs)
        self._pending: Array | None = None
        self._lives: Array | None = None
        self._frames: Tree = None
        """The newest frames of every environment, (num_envs, frame_stack, ...)."""
        try:
            every = np.ones(env.num_envs, dtype=bool)
            self._reset(every, seeded=every)
        except HyqError:
            raise
        except Exception as error:
            if isinstance(env, AsyncVectorEnv):
                env.close(terminate=True)  # closed later it would wait for replies that never come
            raise HyqError(
                f"the environment's first reset failed ({in_one_line(error)}): it is called as "
                "reset(seed=..., options=...) and must return an observation of its "
                "observation_space and a dict"
            ) from error

    @property
    def frame(self) -> Tree:
        """The newest frame of every environment."""
        return tree_map(lambda frames: frames[:, -1], self._frames)

    @property
    def observation(self) -> Tree:
        """What a policy sees: the newest frames of every environment, oldest first."""
        return self._frames if self._stack > 1 else self.frame

    def send(self, actions: Array) -> None:
        """Start a step everywhere; where it can, the environment works in the background."""
        for taken, action in zip(self._actions, actions, strict=True):
            taken.append(action)
        actions = self.actions.to_env(actions)
        if hasattr(self.env, "step_async"):
            self.env.step_async(actions)
        else:
            self._pending = actions

    def receive(self) -> Outcome:
        """Wait for the step to end; where an episode is over, the next one starts."""
        try:
            if hasattr(self.env, "step_wait"):
                seen, reward, terminated, truncated, info = self.env.step_wait()
            else:
                assert self._pending is not None, "send actions first"
                seen, reward, terminated, truncated, info = self.env.step(self._pending)
        except ValueError as error:
            if "expected 5, got 4" in str(error):
                raise HyqError(
                    "the environment's step returned 4 values, as it did long ago: it must return "
                    "observation, reward, terminated, truncated and info"
                ) from error
            raise
        frame = self.preprocessing.frames(seen)
        for name, values in (("a reward", reward), *(("an observation", x) for x in leaves(frame))):
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise HyqError(f"the environment gave {name} that is not finite")
        self._return += reward
        self._length += 1
        ended = np.flatnonzero(terminated | truncated).tolist()
        outcome = Outcome(
            frame,
            reward,
            terminated,
            truncated,
            self._lost_life(info),
            tuple((env, float(self._return[env]), int(self._length[env])) for env in ended),
        )
        self._frames = tree_map(
            lambda frames, newest: np.concatenate((frames[:, 1:], newest[:, None]), axis=1),
            self._frames,
            frame,
        )
        if ended:
            self._episode += outcome.ended
            spent = np.array([len(actions) >= self._seed_lasts for actions in self._actions])
            self._reset(outcome.ended, seeded=outcome.ended & spent)
        return outcome

    def _reset(self, mask: BoolArray, seeded: BoolArray) -> None:
        """Start the next episode where the mask says, and in some of those from a new seed."""
        seeds = [
            self._streams.integer("episode", env, int(self._episode[env])) if seeded[env] else None
            for env in range(self.num_envs)
        ]
        options = None if mask.all() else {"reset_mask": mask}
        seen, info = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]
        frame = self.preprocessing.frames(seen)
        if self._frames is None:
            self._frames = tree_map(lambda x: np.repeat(x[:, None], self._stack, axis=1), frame)
        else:
            # A copy: the outcome still shows the last frame of what ended.
            self._frames = tree_map(np.copy, self._frames)
            tree_map(
                lambda old, new: old.__setitem__(mask, new[mask][:, None]), self._frames, frame
            )
        self._return[mask], self._length[mask] = 0.0, 0
        self._seeded[seeded] = self._episode[seeded]
        for env in np.flatnonzero(seeded):
            self._actions[env] = []
        if "lives" in info:
            lives = np.asarray(info["lives"])
            self._lives = lives if self._lives is None else np.where(mask, lives, self._lives)

    def _lost_life(self, info: dict[str, Any]) -> BoolArray:
        before = self._lives
        if "lives" in info:
            self._lives = np.asarray(info["lives"])
        if before is None or self._lives is None:  # some count them only from the first step on
            return np.zeros(self.num_envs, dtype=bool)
        return self._lives < before

    def state(self) -> dict[str, Array]:
        """Return what brings every episode back: its seed, the actions since, the newest frames."""
        space = self.actions.space
        taken = [action for actions in self._actions for action in actions]
        return {
            "seeded": self._seeded.copy(),
            "length": np.array([len(actions) for actions in self._actions]),
            "actions": np.array(taken, space.dtype).reshape(-1, *(space.shape or ())),
            **{f"frames.{name}": x.copy() for name, x in flatten({"": self._frames}).items()},
        }

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Play every episode again from its seed, up to where it was.

        The environments step together, so one with a shorter history plays any action until its
        time comes.
        """
        length = state["length"]
        histories = np.split(state["actions"], np.cumsum(length)[:-1])
        longest = int(length.max())
        space = self.actions.space
        waiting = np.zeros(space.shape or (), space.dtype)
        for clock in range(longest + 1):
            begins = length == longest - clock
            if begins.any():
                self._episode[begins] = state["seeded"][begins]
                self._reset(begins, seeded=begins)
            if clock < longest:
                past = clock - longest + length
                played = zip(histories, past, strict=True)
                self.send(np.array([h[t] if t >= 0 else waiting for h, t in played], space.dtype))
                self.receive()
        saved = subtree("frames", state)
        for name, frames in flatten({"": self._frames}).items():
            if not np.array_equal(frames, saved[name]):
                raise HyqError(
                    "the environment did not come back to its saved state when its actions were "
                    "played again: it is not deterministic, so this run cannot resume exactly"
                )


def evaluation_envs(episodes: int) -> int:
    """Return how many environments share `episodes` evenly, so that none plays on idly."""
    rounds = max(1, -(-episodes // MOST_ENVS))
    return max(1, -(-episodes // rounds))


def evaluate(
    env: VectorEnv,
    act: Callable[[Tree], Array],
    episodes: int,
    streams: Streams,
    config: PreprocessingConfig = PreprocessingConfig(),
) -> FloatArray:
    """Play `episodes` episodes and return the sum of rewards of each.

    `act` returns an agent's actions for a batch of observations. Every environment plays a
    fixed number of episodes, so that short ones do not count more often.
    """
    collector = Collector(env, streams, config)
    left = np.full(env.num_envs, episodes // env.num_envs)
    left[: episodes % env.num_envs] += 1
    length = np.zeros(env.num_envs, np.int64)
    returns: list[float] = []
    while left.any():
        collector.send(act(collector.observation))
        length += 1
        for index, total, _ in collector.receive().finished:
            length[index] = 0
            if left[index]:
                left[index] -= 1
                returns.append(total)
        check_endless(int(length[left > 0].max(initial=0)))
    return np.array(returns)


def check_endless(steps: int) -> None:
    """Raise where an episode still runs after too many steps."""
    if steps >= LONGEST_EPISODE:
        raise HyqError(
            f"an episode still runs after {LONGEST_EPISODE:,} steps: give the environment a "
            "time limit (gymnasium.wrappers.TimeLimit, or max_episode_steps of gymnasium.make)"
        )


def _map_space(function: Callable[[Any], Any], space: gym.Space[Any]) -> gym.Space[Any]:
    if isinstance(space, gym.spaces.Dict):
        return gym.spaces.Dict({n: _map_space(function, s) for n, s in space.spaces.items()})
    mapped: gym.Space[Any] = function(space)
    return mapped
