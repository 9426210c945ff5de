"""Montezuma's Revenge as the paper plays it (the set-up of Burda et al. 2018).

An agent step is four emulator frames; its image is the pixelwise maximum of the last two, grey
and downsampled to 84x84. Each *frame* repeats the action of the frame before with probability 0.25
("sticky actions"), all 18 actions are legal, rewards are the game's points, and an episode is
truncated after 4,500 steps. There are no random no-ops and no FIRE at the start: in this game FIRE
jumps.

`MontezumaVector` is many games on ale-py's native vector environment, which does not show the
console's memory. `Montezuma` is one such game beside an `ALEInterface` that plays the same seed and
actions and does show it, so its `info` has the room.
"""

from collections.abc import Sequence
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from hyq.core.errors import HyqError
from hyq.core.settings import check_range
from hyq.core.types import Array, FloatArray

GAME = "montezuma_revenge"
ACTIONS = 18
FRAME_SKIP = 4
FRAMES_A_SECOND = 60
STICKINESS = 0.25
STEP_LIMIT = 4500
SIDE = 84

ROOM = 3
"""Where the game keeps the room in the console's 128 bytes of memory."""

START_ROOM = 1
FLOORS = (range(3), range(3, 8), range(8, 15), range(15, 24))
"""The rooms of the first level's pyramid, floor by floor from the top, each from left to right."""

Frame = NDArray[np.uint8]
Flags = NDArray[np.bool_]


def room_place(room: int) -> tuple[int, int]:
    """Return a room's floor, from the top, and how far it is to the right of the middle."""
    for floor, rooms in enumerate(FLOORS):
        if room in rooms:
            return floor, room - rooms[len(rooms) // 2]
    raise HyqError(f"the pyramid's rooms are 0 to {FLOORS[-1][-1]}, got {room}")


def emulator(
    seed: int = 0, *, stickiness: float = 0.0, frame_skip: int = FRAME_SKIP
) -> ALEInterface:
    """Start a game on an emulator whose state can be read, cloned and restored."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", stickiness)
    ale.setInt("frame_skip", frame_skip)
    _start(ale, seed)
    return ale


def _start(ale: ALEInterface, seed: int) -> None:
    rom = roms.get_rom_path(GAME)
    if rom is None:
        raise HyqError(f"ale-py {ale_py.__version__} has no {GAME} ROM: install ale-py 0.12")
    ale.setInt("random_seed", seed)
    # Loading the ROM is what makes the emulator take a new seed.
    ale.loadROM(rom)
    ale.reset_game()


class Montezuma(gym.Env[Frame, np.int64]):
    """One game. Observations are the last `stack` images, newest last, black before the start.

    `info` has the `room`, the `score` so far and the `lives` left; `render` gives the screen as a
    person sees it. They come from an emulator that plays the native game along, frame by frame.
    """

    metadata = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": FRAMES_A_SECOND // FRAME_SKIP,
    }

    def __init__(
        self, stack: int = 4, step_limit: int = STEP_LIMIT, render_mode: str | None = None
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise HyqError(f"render_mode must be 'rgb_array' or None, got {render_mode!r}")
        self.render_mode = render_mode
        self._game = MontezumaVector(1, stack, step_limit, num_threads=1)
        self.observation_space = self._game.single_observation_space
        self.action_space = self._game.single_action_space
        self.ale: ALEInterface | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frame, dict[str, Any]]:
        """Start a new game; `seed` is the emulator's, whose randomness continues without one.

        The first one is drawn if it is not given.
        """
        super().reset(seed=seed)
        if self.ale is None:
            seed = _drawn_seed(self.np_random) if seed is None else seed
            self.ale = emulator(seed, stickiness=STICKINESS)
        elif seed is None:
            self.ale.reset_game()
        else:
            _start(self.ale, seed)
        images, info = self._game.reset(seed=[seed])
        return images[0], self._info(self.ale, info)

    def step(self, action: int | np.int64) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Play four frames."""
        images, reward, terminated, truncated, info = self._game.step(np.array([action]))
        assert self.ale is not None
        points = self.ale.act(int(action))
        assert points == reward[0], "the emulator and the native game have come apart"
        over = bool(terminated[0]), bool(truncated[0])
        return images[0], float(reward[0]), *over, self._info(self.ale, info)

    def render(self) -> Frame:
        """Return the newest screen in colour, 210x160."""
        if self.ale is None:
            raise gym.error.ResetNeeded("there is no screen yet: call reset() before render()")
        return self.ale.getScreenRGB()

    def close(self) -> None:
        """Let go of the native game."""
        self._game.close()

    def _info(self, ale: ALEInterface, info: dict[str, Any]) -> dict[str, Any]:
        room, lives = int(ale.getRAM()[ROOM]), int(info["lives"][0])
        return {"room": room, "score": int(info["score"][0]), "lives": lives}


class MontezumaVector(gym.vector.VectorWrapper):
    """Many games on ale-py's native threads.

    A finished game is never reset by itself, so there are no dummy transitions: reset it before the
    next step with `reset(options={"reset_mask": finished})`. `info` has the `lives` and the `score`
    of each game; the room is in the console's memory, which ale-py's vector does not show.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    seed_lasts = 5000
    """Steps that games should be played on without a new seed: to seed loads the ROM, which takes
    20 times as long as to reset the game."""

    def __init__(
        self, num_envs: int, stack: int = 4, step_limit: int = STEP_LIMIT, num_threads: int = 0
    ) -> None:
        check_range("num_envs", num_envs, 1)
        check_range("stack", stack, 1)
        check_range("step_limit", step_limit, 1)
        self._games = AtariVectorEnv(
            GAME,
            num_envs,
            num_threads=num_threads,
            # ale-py offers no mode without automatic resets; one done by mask comes before its own.
            autoreset_mode=AutoresetMode.NEXT_STEP,
            max_num_frames_per_episode=step_limit * FRAME_SKIP,
            repeat_action_probability=STICKINESS,
            full_action_space=True,
            img_height=SIDE,
            img_width=SIDE,
            stack_num=stack,
            frameskip=FRAME_SKIP,
            noop_max=0,
            reward_clipping=False,
            use_fire_reset=False,
        )
        super().__init__(self._games)
        self._score: FloatArray = np.zeros(num_envs)
        self._finished: Flags = np.ones(num_envs, np.bool_)
        self._started = False

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start new games everywhere, or in those of `options["reset_mask"]`.

        `seed` is the emulator's, one a game whether that game is reset or not; an integer s means
        s, s + 1, ... Without one the randomness of an emulator continues; the first is drawn.
        """
        mask = self._mask(options)
        given = self._given_seeds(seed)
        if not self._started:
            given = [_drawn_seed(self.np_random) if one is None else one for one in given]
        chosen = [seed for seed, resets in zip(given, mask, strict=True) if resets]
        seeds = [_NO_SEED if seed is None else seed for seed in chosen]
        images, info = self._games.reset(seed=np.array(seeds), options={"reset_mask": mask})
        self._started = True
        self._score = np.where(mask, 0.0, self._score)
        self._finished &= ~mask
        return images, self._info(info)

    def step(self, actions: Array) -> tuple[Array, FloatArray, Flags, Flags, dict[str, Any]]:
        """Play four frames in every game."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Array) -> None:
        """Let the threads play on while the caller does something else."""
        if self._finished.any():
            games = np.flatnonzero(self._finished).tolist()
            raise gym.error.ResetNeeded(
                f"environments {games} are finished: reset them before step()"
            )
        self._games.send(np.asarray(actions, dtype=np.int64))

    def step_wait(self) -> tuple[Array, FloatArray, Flags, Flags, dict[str, Any]]:
        """Return what `step_async` led to."""
        images, points, terminated, truncated, info = self._games.recv()
        reward = points.astype(np.float64)
        self._score = self._score + reward
        self._finished = terminated | truncated
        return images, reward, terminated, truncated & ~terminated, self._info(info)

    def _mask(self, options: dict[str, Any] | None) -> Flags:
        chosen = (options or {}).get("reset_mask")
        mask = np.ones(self.num_envs, np.bool_) if chosen is None else np.asarray(chosen)
        if mask.dtype != np.bool_ or mask.shape != (self.num_envs,) or not mask.any():
            raise HyqError(f"reset_mask needs {self.num_envs} truth values, at least one true")
        if not (self._started or mask.all()):
            raise HyqError("reset all environments once before resetting some")
        return mask

    def _given_seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return range(seed, seed + self.num_envs)
        if len(seed) != self.num_envs:
            raise HyqError(f"give one seed an environment: {self.num_envs}, not {len(seed)}")
        return seed

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        return {"lives": np.asarray(info["lives"]), "score": self._score}


_NO_SEED = -1
"""What ale-py takes for no seed."""


def _drawn_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))
