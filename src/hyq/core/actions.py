"""Action spaces as agents see them: choices counted from 0, boxes from -1 to 1."""

from typing import Any, Literal

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array

ActionKind = Literal["discrete", "continuous"]


def action_kind(space: gym.Space[Any]) -> ActionKind:
    """Tell which kind of algorithm acts in a space."""
    if isinstance(space, gym.spaces.Discrete):
        return "discrete"
    if isinstance(space, gym.spaces.Box) and space.dtype.kind == "f" and np.prod(space.shape):
        return "continuous"
    raise HyqError(
        f"actions of {space} are not supported: wrap the environment so that they are Discrete, "
        "or a Box of floats with bounds"
    )


class Actions:
    """An action space, and the one that agents choose from in its place."""

    def __init__(self, space: gym.Space[Any]) -> None:
        """Raise for a space that no agent here can act in."""
        self.kind = action_kind(space)
        self.outer = space
        self._low = self._high = self._middle = self._half = np.zeros(0)
        if isinstance(space, gym.spaces.Discrete):
            self.space: gym.Space[Any] = gym.spaces.Discrete(int(space.n))
            return
        assert isinstance(space, gym.spaces.Box)
        if not space.is_bounded() or (space.low >= space.high).any():
            raise HyqError(
                f"continuous actions need a lower and a higher bound in every dimension, the "
                f"environment has {space}: wrap it, for instance in "
                "gymnasium.wrappers:RescaleAction, or correct its action_space"
            )
        # One axis, whatever the environment has: networks have one.
        self.space = gym.spaces.Box(-1.0, 1.0, (int(np.prod(space.shape)),), np.float32)
        self._low, self._high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._middle, self._half = (self._low + self._high) / 2, (self._high - self._low) / 2

    def to_env(self, action: Array) -> Array:
        """Return actions as the environment takes them."""
        if isinstance(self.outer, gym.spaces.Discrete):
            return action + self.outer.start
        shaped = action.reshape(*action.shape[:-1], *self._middle.shape)
        scaled = self._middle + self._half * shaped
        return np.clip(scaled, self._low, self._high).astype(self.outer.dtype)

    def from_env(self, action: Array) -> Array:
        """Undo `to_env`."""
        if isinstance(self.outer, gym.spaces.Discrete):
            return action - self.outer.start
        scaled = np.clip((action - self._middle) / self._half, -1.0, 1.0).astype(np.float32)
        return scaled.reshape(*scaled.shape[: scaled.ndim - self._middle.ndim], -1)

    def random(self, count: int, rng: np.random.Generator) -> Array:
        """Draw actions of agents uniformly."""
        if isinstance(self.space, gym.spaces.Discrete):
            return rng.integers(self.space.n, size=count)
        return rng.uniform(-1.0, 1.0, (count, *(self.space.shape or ()))).astype(np.float32)
