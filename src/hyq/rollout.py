"""The acting loop of the deep half: lanes of a vector environment, each at its own pace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from hyq.core.errors import HyqError, in_one_line
from hyq.core.images import shrink
from hyq.core.seeding import Streams
from hyq.core.types import Array, BoolArray, FloatArray

VectorEnv = gym.vector.VectorEnv[Array, Array, Array]
LONGEST_EPISODE = 100_000
"""Steps after which an evaluation gives up. Without a time limit, a policy that stalls would keep
its episode going for ever."""


@dataclass(frozen=True)
class Outcome:
    """What one step of every lane led to."""

    frame: Array
    """Observation after the step: of an episode that ended, its last."""
    reward: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    life_lost: BoolArray
    """Where the environment counts lives and one was lost, the last one included."""
    finished: tuple[tuple[int, float, int], ...]
    """(lane, return, length) of each episode that ended."""

    @property
    def ended(self) -> BoolArray:
        """Where the episode is over, one way or the other."""
        return self.terminated | self.truncated


class Lanes:
    """Episodes going on in every lane of a vector environment, each from a seed of its own.

    Lanes are reset by hand, so no transition ever crosses from one episode into the next. An
    episode is a function of its seed and its actions; remembering those is enough to come back to
    the very same state of *any* environment that keeps Gymnasium's promise about seeds.

    Where seeding takes long, the environment may say how many steps a seed lasts, as `seed_lasts`:
    until then episodes go on with its randomness, and the actions of all of them are remembered.
    """

    def __init__(
        self, env: VectorEnv, streams: Streams, *, stack: int = 1, shrink_by: int = 1
    ) -> None:
        """Start the first episode of every lane; see `frame` and `observation` for what it shows.

        Args:
            env: Without automatic resets.
            streams: Where each episode's seed comes from.
            stack: Newest frames that make one observation.
            shrink_by: Factor by which image frames are shrunk.
        """
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise HyqError("lanes need a vector environment made with AutoresetMode.DISABLED")
        self.env, self._streams, self._stack, self._shrink_by = env, streams, stack, shrink_by
        self._seed_lasts = int(getattr(env, "seed_lasts", 0))
        self._episode = np.zeros(env.num_envs, np.int64)
        self._seeded = np.zeros(env.num_envs, np.int64)
        """The episode of each lane that was seeded last, from which on actions are remembered."""
        self._actions: list[list[int]] = [[] for _ in range(env.num_envs)]
        self._length = np.zeros(env.num_envs, np.int64)
        self._return = np.zeros(env.num_envs)
        self._pending: Array | None = None
        self._lives: Array | None = None
        self._frames: Array = np.empty(0)
        try:
            every = np.ones(env.num_envs, dtype=bool)
            self._reset(every, seeded=every)
        except HyqError:
            raise
        except Exception as error:
            if isinstance(env, AsyncVectorEnv):
                env.close(terminate=True)  # closed later it would wait for answers that never come
            raise HyqError(
                f"the environment's first reset failed ({in_one_line(error)}): it is called as "
                "reset(seed=..., options=...) and must return an observation of its "
                "observation_space and a dict"
            ) from error

    @property
    def frame(self) -> Array:
        """The newest frame of every lane."""
        return self._frames[:, -1]

    @property
    def observation(self) -> Array:
        """What a policy sees: the newest frames of every lane, oldest first."""
        return self._frames if self._stack > 1 else self._frames[:, -1]

    def send(self, actions: Array) -> None:
        """Let every lane begin its step; where it can, the environment works in the background."""
        for lane, action in enumerate(actions.tolist()):
            self._actions[lane].append(action)
        if hasattr(self.env, "step_async"):
            self.env.step_async(actions)
        else:
            self._pending = actions

    def receive(self) -> Outcome:
        """Wait for the step to end; lanes whose episode is over start the next one."""
        try:
            if hasattr(self.env, "step_wait"):
                frame, reward, terminated, truncated, info = self.env.step_wait()
            else:
                assert self._pending is not None, "send actions first"
                frame, reward, terminated, truncated, info = self.env.step(self._pending)
        except ValueError as error:
            if "expected 5, got 4" in str(error):
                raise HyqError(
                    "the environment's step returned 4 values, as it did long ago: it must return "
                    "observation, reward, terminated, truncated and info"
                ) from error
            raise
        frame = shrink(frame, self._shrink_by)
        self._return += reward
        self._length += 1
        for name, values in (("a reward", reward), ("an observation", frame)):
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise HyqError(f"the environment gave {name} that is not finite")
        outcome = Outcome(
            frame,
            reward,
            terminated,
            truncated,
            self._lost_life(info),
            tuple(
                (int(lane), float(self._return[lane]), int(self._length[lane]))
                for lane in np.flatnonzero(terminated | truncated)
            ),
        )
        if self._stack > 1:
            self._frames = np.concatenate((self._frames[:, 1:], frame[:, None]), axis=1)
        else:
            self._frames = frame[:, None]
        if outcome.finished:
            self._episode += outcome.ended
            spent = np.array([len(actions) >= self._seed_lasts for actions in self._actions])
            self._reset(outcome.ended, seeded=outcome.ended & spent)
        return outcome

    def _reset(self, mask: BoolArray, seeded: BoolArray) -> None:
        """Start the next episode in some lanes, and in some of those from a seed of its own."""
        seeds = [
            self._streams.integer("episode", lane, int(self._episode[lane]))
            if seeded[lane]
            else None
            for lane in range(len(seeded))
        ]
        options = None if mask.all() else {"reset_mask": mask}
        frame, info = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]
        frame = shrink(frame, self._shrink_by)
        if not len(self._frames):
            self._frames = np.repeat(frame[:, None], self._stack, axis=1)
        self._frames = self._frames.copy()  # the outcome still shows the last frame of what ended
        self._frames[mask] = frame[mask][:, None]
        self._return[mask], self._length[mask] = 0.0, 0
        self._seeded[seeded] = self._episode[seeded]
        for lane in np.flatnonzero(seeded):
            self._actions[lane] = []
        if "lives" in info:
            lives = np.asarray(info["lives"])
            self._lives = lives if self._lives is None else np.where(mask, lives, self._lives)

    def _lost_life(self, info: dict[str, Any]) -> BoolArray:
        before = self._lives
        if "lives" in info:
            self._lives = np.asarray(info["lives"])
        if before is None or self._lives is None:  # some count them only from the first step on
            return np.zeros(self.env.num_envs, dtype=bool)
        return self._lives < before

    def arrays(self) -> dict[str, Array]:
        """Return what brings every lane back: its last seed, actions since, and newest frames."""
        return {
            "seeded": self._seeded.copy(),
            "length": np.array([len(actions) for actions in self._actions]),
            "actions": np.array(list(chain(*self._actions)), dtype=np.int64),
            "frames": self._frames.copy(),
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Play every lane again from its last seed, up to where it was.

        The lanes step together, so one with a shorter history plays anything until its time comes.
        """
        histories = np.split(arrays["actions"], np.cumsum(arrays["length"])[:-1])
        longest = int(arrays["length"].max())
        for clock in range(longest + 1):
            begins = arrays["length"] == longest - clock
            if begins.any():
                self._episode[begins] = arrays["seeded"][begins]
                self._reset(begins, seeded=begins)
            if clock < longest:
                past = clock - longest + arrays["length"]
                waiting = int(self.env.single_action_space.start)  # type: ignore[attr-defined]
                self.send(
                    np.array(
                        [h[t] if t >= 0 else waiting for h, t in zip(histories, past, strict=True)]
                    )
                )
                self.receive()
        if not np.array_equal(self._frames, arrays["frames"]):
            raise HyqError(
                "the environment did not come back to its saved state when its actions were played "
                "again: it is not deterministic, so this run cannot go on exactly"
            )


MOST_LANES = 32
"""Played at a time; the network sees a batch, and more would hardly be faster."""


def lanes_to_play(episodes: int) -> int:
    """Return how many lanes share `episodes` evenly: a lane without one left would play on idly."""
    rounds = max(1, -(-episodes // MOST_LANES))
    return max(1, -(-episodes // rounds))


def play(
    env: VectorEnv,
    greedy: Callable[[Array], Array],
    episodes: int,
    streams: Streams,
    *,
    stack: int = 1,
    shrink_by: int = 1,
) -> FloatArray:
    """Play `episodes` episodes and return the sum of rewards of each.

    Every lane plays a fixed number of them, so that short episodes do not count more often. One
    of `LONGEST_EPISODE` steps is refused: it may have no end.
    """
    lanes = Lanes(env, streams, stack=stack, shrink_by=shrink_by)
    quota = np.full(env.num_envs, episodes // env.num_envs)
    quota[: episodes % env.num_envs] += 1
    length = np.zeros(env.num_envs, np.int64)
    returns: list[float] = []
    while quota.any():
        lanes.send(greedy(lanes.observation))
        length += 1
        for lane, total, _ in lanes.receive().finished:
            length[lane] = 0
            if quota[lane]:
                quota[lane] -= 1
                returns.append(total)
        refuse_endless(length[quota > 0].max(initial=0))
    return np.array(returns)


def refuse_endless(steps: int) -> None:
    """Give up an episode that still goes on after so many steps, if they are too many."""
    if steps >= LONGEST_EPISODE:
        raise HyqError(
            f"an episode still goes on after {LONGEST_EPISODE:,} steps: give the environment a "
            "time limit (gymnasium.wrappers.TimeLimit, or max_episode_steps of gymnasium.make)"
        )
