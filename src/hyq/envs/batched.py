"""Finite-horizon environments, written once for a batch of copies.

Every environment here describes its dynamics for a batch; `BatchedEnv` adds Gymnasium's vector
interface around that description and `SingleEnv` turns a batch of one into an ordinary
`gymnasium.Env`, so the single and the vector version can never disagree.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hyq.core.types import Array, FloatArray, IntArray


class BatchedEnv(gym.vector.VectorEnv[Array, Array, Array]):
    """A vector of copies of one finite-horizon MDP, stepped together in NumPy.

    A subclass sets `horizon`, `single_observation_space` and `single_action_space`, calls
    `super().__init__(num_envs)` and describes the MDP by the three methods below. A copy terminates
    after `horizon` steps and, as Gymnasium's NEXT_STEP mode has it, starts over on the step after.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    horizon: int

    def __init__(self, num_envs: int) -> None:
        super().__init__()
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._state: Array = np.empty(0)
        self._h: IntArray = np.zeros(num_envs, dtype=np.int64)

    @abstractmethod
    def _initial_state(self, count: int) -> Array:
        """Draw `count` states from d_0."""

    @abstractmethod
    def _advance(self, state: Array, action: Array, h: IntArray) -> tuple[Array, FloatArray]:
        """Draw (next state, reward) for each copy; `h` is the step index in [0, horizon)."""

    @abstractmethod
    def _observe(self, state: Array, h: IntArray) -> Array:
        """Emit an observation for each copy; `h` may equal `horizon`."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode in every copy."""
        super().reset(seed=seed)
        self._state = self._initial_state(self.num_envs)
        self._h = np.zeros(self.num_envs, dtype=np.int64)
        return self._observe(self._state, self._h), {}

    def step(
        self, actions: Array
    ) -> tuple[Array, FloatArray, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Advance every copy by one step (one that had finished is reset instead)."""
        if not len(self._state):
            raise gym.error.ResetNeeded("call reset() before step()")
        restart = self.finished
        running = ~restart
        state, reward = self._state.copy(), np.zeros(self.num_envs)
        state[restart] = self._initial_state(int(restart.sum()))
        state[running], reward[running] = self._advance(
            self._state[running], actions[running], self._h[running]
        )
        self._state, self._h = state, np.where(restart, 0, self._h + 1)
        observation = self._observe(self._state, self._h)
        return observation, reward, self.finished, np.zeros(self.num_envs, dtype=bool), {}

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Whether each copy is at the end of its episode."""
        return self._h == self.horizon


class SingleEnv(gym.Env[Array, Any]):
    """A `BatchedEnv` of one copy, as an ordinary Gymnasium environment."""

    def __init__(self, batch: BatchedEnv) -> None:
        if batch.num_envs != 1:
            raise ValueError(f"SingleEnv wraps a batch of one, got {batch.num_envs}")
        self.batch = batch
        self.observation_space = batch.single_observation_space
        self.action_space = batch.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start a new episode."""
        super().reset(seed=seed)
        observation, info = self.batch.reset(seed=seed, options=options)
        return observation[0], info

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take one step; after the last one, reset before stepping again."""
        if self.batch.finished[0]:
            raise gym.error.ResetNeeded("the episode is over: call reset() before step()")
        observation, reward, terminated, truncated, info = self.batch.step(np.asarray([action]))
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), info


def single(make: Callable[..., BatchedEnv]) -> Callable[..., SingleEnv]:
    """Turn a function that makes batches into one that makes a single environment."""
    return lambda **settings: SingleEnv(make(1, **settings))
