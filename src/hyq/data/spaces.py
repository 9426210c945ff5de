"""The spaces of an environment that is not there, as its data tells them."""

from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.trees import Tree
from hyq.data.columns import Column, over_columns
from hyq.data.dataset import Dataset
from hyq.envs.spaces import space_from_json


def spaces_of(dataset: Dataset) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the spaces of observations and actions: as the data carries them, or from its values.

    Continuous actions then reach as far as those in the data, and discrete ones to the largest.
    """
    about = dataset.provenance
    if "observation_space" in about and "action_space" in about:
        return space_from_json(about["observation_space"]), space_from_json(about["action_space"])
    return _seen(over_columns(_observations, dataset.observation)), _actions(dataset)


def _observations(column: Column) -> gym.Space[Any]:
    shape, kind = column.shape[1:], np.dtype(column.dtype)
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        return gym.spaces.Box(bounds.min, bounds.max, shape, kind.type)
    return gym.spaces.Box(-np.inf, np.inf, shape, np.float32)


def _seen(tree: Tree) -> gym.Space[Any]:
    return gym.spaces.Dict(tree) if isinstance(tree, dict) else tree


def _actions(dataset: Dataset) -> gym.Space[Any]:
    action = dataset.action
    if action.dtype.kind in "iu":
        named = dataset.provenance.get("imported", {}).get("actions")
        most = len(named) - 1 if named else int(action.max())
        first = min(int(action.min()), 0)
        return gym.spaces.Discrete(most + 1 - first, start=first)
    low, high = action.min(axis=0), action.max(axis=0)
    if (low >= -1).all() and (high <= 1).all():
        low, high = -np.ones_like(low), np.ones_like(high)
    wider = np.where(low < high, 0.0, 1.0)  # where it never changes
    return gym.spaces.Box(
        (low - wider).astype(np.float32), (high + wider).astype(np.float32), dtype=np.float32
    )
