"""An environment that costs next to nothing, so that a comparison measures the learning."""

from typing import Any

import gymnasium as gym
import numpy as np


class Synthetic(gym.Env[Any, Any]):
    """17 observations and 6 actions, as HalfCheetah has them: noise that the actions push."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (17,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
        self._state = np.zeros(17, np.float32)
        self._played = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._played = 0
        self._state = self.np_random.standard_normal(17, np.float32)
        return self._state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._played += 1
        self._state = 0.9 * self._state + 0.3 * self.np_random.standard_normal(17, np.float32)
        self._state[:6] += 0.1 * action
        reward = -float(self._state @ self._state)
        return self._state, reward, False, self._played >= 1000, {}
