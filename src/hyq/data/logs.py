"""Logged data for the deep methods: transitions without order, or whole episodes."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.files import read_json
from hyq.core.types import Array
from hyq.data.dataset import Dataset
from hyq.data.episodes import FORMAT, Episodes

Logs = Dataset | Episodes


def load_logs(path: Path | str) -> Logs:
    """Open the logs in a directory, of either kind."""
    directory = Path(path)
    if not directory.is_dir():
        raise HyqError(f"{directory} is not a dataset directory: give the directory that was saved")
    if read_json(directory / "manifest.json").get("format") == FORMAT:
        return Episodes.load(directory)
    return Dataset.load(directory)


def check_logs(logs: Logs, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
    """Refuse logs whose observations or actions cannot have come from the environment."""
    rows = logs if isinstance(logs, Episodes) else logs.transitions
    shape, expected = rows.observation.shape[1:], env.single_observation_space.shape
    if expected not in (shape, (1, *shape)):  # lanes of pictures may show stacks of one
        raise HyqError(f"the logs' observations have shape {shape}, the environment's {expected}")
    action: Array = rows.action
    space = env.single_action_space
    assert isinstance(space, gym.spaces.Discrete)
    if not np.issubdtype(action.dtype, np.integer) or action.ndim != 1:
        raise HyqError(f"the logs' actions must be whole numbers, one a row, for {space}")
    low, high = int(action.min()), int(action.max())
    if low < space.start or high >= space.start + space.n:
        raise HyqError(f"the logs have actions from {low} to {high}, outside {space}")
