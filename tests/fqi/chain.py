"""A chain of five states whose optimal values are known by hand."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.types import Array, FloatArray
from hyq.data.dataset import Dataset, Episode

STATES, LIMIT, GAMMA = 5, 4, 0.9


class Chain(gym.Env[Array, Any]):
    """Right (1) leads to the last state, which pays 1 and ends the episode; left (0) leads back.

    Episodes start anywhere else and are truncated after a few steps.
    """

    observation_space = gym.spaces.Box(0.0, 1.0, (STATES,), np.float32)

    def __init__(self, first_action: int = 0) -> None:
        self.action_space = gym.spaces.Discrete(2, start=first_action)
        self._first_action = first_action
        self._state = self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._time = int(self.np_random.integers(STATES - 1)), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(int(action))
        self._state = max(self._state + (1 if action - self._first_action == 1 else -1), 0)
        self._time += 1
        end = self._state == STATES - 1
        return self._observe(), float(end), end, self._time == LIMIT and not end, {}

    def _observe(self) -> Array:
        return np.eye(STATES, dtype=np.float32)[self._state]


def optimal_q(gamma: float = GAMMA) -> FloatArray:
    """Q* (state, action) of every state but the last."""
    v = gamma ** np.arange(STATES - 2, -1, -1.0)
    left = gamma * v[np.maximum(np.arange(STATES - 1) - 1, 0)]
    return np.stack([left, v], axis=1)


def chain_logs(episodes: int, rightward: float, first_action: int = 0) -> Dataset:
    """Log a policy that goes right with a fixed probability."""
    env, rng = Chain(first_action), np.random.default_rng(7)

    def one(seed: int) -> Episode:
        observation, action, reward = [env.reset(seed=seed)[0]], [], []
        while True:
            action.append(first_action + int(rng.random() < rightward))
            seen, paid, terminated, truncated, _ = env.step(action[-1])
            observation.append(seen)
            reward.append(paid)
            if terminated or truncated:
                return Episode(
                    np.stack(observation),
                    np.array(action),
                    np.array(reward, np.float32),
                    terminated,
                )

    return Dataset.of((one(seed) for seed in range(episodes)), {"env": "chain"})


class SteeredChain(Chain):
    """The chain with a continuous action: right where it is positive."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-3.0, 1.0, (1,), np.float32)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        space, self.action_space = self.action_space, gym.spaces.Discrete(2)
        found = super().step(int(action[0] > -1))
        self.action_space = space
        return found


def steered(logs: Dataset) -> Dataset:
    """Turn choices into forces of any size within their halves of `SteeredChain`'s actions."""
    rng = np.random.default_rng(8)

    def one(episode: Episode) -> Episode:
        force = (2 * episode.action - 1) * rng.uniform(0, 2, len(episode.action)) - 1
        return replace(episode, action=force[:, None].astype(np.float32))

    return Dataset.of((one(episode) for episode in logs), {"env": "steered chain"})
