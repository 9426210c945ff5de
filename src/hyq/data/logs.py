"""Logged data for the deep methods: transitions without order, or whole episodes."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError, MisfitError
from hyq.core.types import Array
from hyq.data.dataset import Dataset, Rows, any_manifest, blocks
from hyq.data.episodes import FORMAT, Episodes

Logs = Dataset | Episodes
TOLERANCE = 0.25
"""Share of a bounded width by which logs may leave it: environments do not all keep their word.
What is bounded on one side only has no width, and is not checked."""


ROUNDING = 1e-6
"""Relative: single precision does not hold a bound to the last digit."""


def load_logs(path: Path | str) -> Logs:
    """Open the logs in a directory, of either kind."""
    directory = Path(path)
    if any_manifest(directory).get("format") == FORMAT:
        return Episodes.load(directory)
    return Dataset.load(directory)


def check_logs(logs: Logs, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
    """Refuse logs whose observations or actions cannot have come from the environment."""
    rows = logs if isinstance(logs, Episodes) else logs.transitions
    shape, expected = rows.observation.shape[1:], env.single_observation_space.shape
    if expected not in (shape, (1, *shape)):  # lanes of pictures may show stacks of one
        raise MisfitError(
            f"the logs' observations have shape {shape}, the environment's {expected}",
            "give logs of this environment, or wrap it as it was when they were made",
        )
    _check_scale("observation", rows.observation, env.single_observation_space)
    if isinstance(logs, Dataset):
        _check_scale(
            "next_observation", logs.transitions.next_observation, env.single_observation_space
        )
    action: Array = rows.action
    space = env.single_action_space
    assert isinstance(space, gym.spaces.Discrete)
    if not np.issubdtype(action.dtype, np.integer) or action.ndim != 1:
        raise HyqError(
            f"the logs' actions must be whole numbers, one a row, for {space}: make them again "
            "with action.ravel().astype(int)"
        )
    low, high = int(action.min()), int(action.max())
    if low < space.start or high >= space.start + space.n:
        raise HyqError(f"the logs have actions from {low} to {high}, outside {space}")


def _check_scale(name: str, column: Rows, space: gym.Space[Any]) -> None:
    """Refuse observations on another scale than the environment's: a network sees both."""
    assert isinstance(space, gym.spaces.Box)
    kinds = {np.dtype(column.dtype), np.dtype(space.dtype)}
    if np.dtype(np.uint8) in kinds and any(np.issubdtype(kind, np.floating) for kind in kinds):
        raise HyqError(
            f"the logs' {name} holds {column.dtype}, the environment shows {space.dtype}: bring "
            "the logs to the environment's type and scale"
        )
    low, high = (b.reshape(column.shape[1:]).astype(np.float64) for b in (space.low, space.high))
    if np.issubdtype(column.dtype, np.integer):
        type_range = np.iinfo(column.dtype)
        if (low <= type_range.min).all() and (high >= type_range.max).all():
            return  # no number of this type is outside, and images take long to decompress
    with np.errstate(over="ignore"):
        margin = TOLERANCE * (high - low) + ROUNDING * np.abs(high)
    for block in blocks(column, rows=1024):
        outside = (block < low - margin) | (block > high + margin)
        if outside.any():
            row, *entry = np.argwhere(outside)[0]
            at = tuple(int(index) for index in entry)
            where = f" in dimension {at[0] if len(at) == 1 else at}" if at else ""
            raise HyqError(
                f"the logs' {name} reaches {block[row][at]:g}{where}, where the environment has "
                f"{low[at]:g} to {high[at]:g}: bring the logs to the environment's scale, or "
                "correct the environment's observation_space"
            )
