"""Raw screens as the field looks at them."""

from typing import Any

import gymnasium as gym
import numpy as np
from PIL import Image

from hyq.core.errors import MisfitError
from hyq.core.types import Array

SIDE, SKIP, NO_OPS = 84, 4, 30


class StandardPixels(gym.Wrapper[Array, Any, Array, Any]):
    """Grey screens of 84x84, the maximum of the last two of four (Mnih et al. 2015).

    On Atari games an episode begins after up to 30 actions that do nothing. Stacks of frames and
    scaled rewards are settings of the training (`frame_stack`, `reward`).
    """

    def __init__(self, env: gym.Env[Array, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not (isinstance(space, gym.spaces.Box) and space.dtype == np.uint8 and is_raw(space)):
            raise MisfitError(f"{space} is no raw screen in colour", "leave StandardPixels out")
        self.observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self._atari = hasattr(env.unwrapped, "ale")
        if self._atari:
            env.unwrapped._frameskip = 1  # type: ignore[attr-defined]  # frames are skipped here
        self._rng = np.random.default_rng()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode; the seed also decides for how long nothing is done."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        for _ in range(int(self._rng.integers(1, NO_OPS + 1)) if self._atari else 0):
            observation, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        return _small(observation), info

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Repeat an action, and show what was bright in either of the last two frames."""
        total, frames = 0.0, []
        for _ in range(SKIP):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            frames.append(observation)
            if terminated or truncated:
                break
        screen = np.max(frames[-2:], axis=0)
        return _small(screen), total, terminated, truncated, info


def is_raw(space: gym.Space[Any]) -> bool:
    """Tell whether observations are screens in colour, as large as games show them."""
    shape = space.shape or ()
    return len(shape) == 3 and shape[-1] == 3 and min(shape[:2]) >= SIDE


def _small(screen: Array) -> Array:
    grey = Image.fromarray(screen).convert("L")
    return np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX))
