"""Whether offline data can have come from an environment: shapes, actions, scale, provenance."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError, MisfitError
from hyq.core.trees import without_tuples
from hyq.core.types import Array
from hyq.data.columns import Column, blocks, named
from hyq.data.dataset import Dataset

TOLERANCE = 0.25
"""Share of a bounded width by which observations may leave it: environments do not all keep to
their bounds. What is bounded on one side only has no width, and is not checked."""
_REMEDY = "give data of this environment, or wrap it as it was when the data was made"
ROUNDING = 1e-6
"""Relative: single precision does not hold a bound to the last digit."""


def check_fits(
    dataset: Dataset, observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> None:
    """Raise for data whose observations or actions cannot have come from these spaces."""
    space, found = without_tuples(observation_space), dataset.observation
    spaces: Any = space.spaces if isinstance(space, gym.spaces.Dict) else space
    if _kind(found) != _kind(spaces):
        raise MisfitError(
            f"the dataset's observations are {_kind(found)}, the environment's {_kind(spaces)}",
            _REMEDY,
        )
    parts: dict[str, Any] = named("observation", spaces)
    for name, column in named("observation", found).items():
        _check_observation(name, column, parts[name])
    _check_action(dataset.action, action_space)


def _kind(observation: Any) -> str:
    if isinstance(observation, Mapping):
        return f"dictionaries with the keys {sorted(observation)}"
    return "one array"


def same_provenance(dataset: Dataset, expected: Mapping[str, Any]) -> None:
    """Raise for a dataset that says it came from another environment than `expected`."""
    found = _leaves(dataset.provenance)
    for key, value in _leaves(expected).items():
        if found.get(key) != value:
            raise HyqError(
                f"the dataset is of another environment: its {key} is {found.get(key)!r}, "
                f"this one's is {value!r}"
            )


def _leaves(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings into one, keyed by the innermost names."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _leaves(value) if isinstance(value, Mapping) else {key: value}
    return flat


def _check_observation(name: str, column: Column, space: gym.Space[Any]) -> None:
    shape = column.shape[1:]
    if space.shape not in (shape, (1, *shape)):  # environments may show images as stacks of one
        raise MisfitError(
            f"the dataset's {name} has shape {shape}, the environment's {space.shape}",
            _REMEDY,
        )
    if isinstance(space, gym.spaces.Box):
        _check_scale(name, column, space)
    elif isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        for block in blocks(column):
            _check_whole(name, block, space)


def _check_action(action: Array, space: gym.Space[Any]) -> None:
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        if not np.issubdtype(action.dtype, np.integer) or action.shape[1:] != space.shape:
            remedy = ": give it .ravel()" if action.shape[1:] == (1,) and not space.shape else ""
            raise HyqError(
                f"the dataset's actions have shape {action.shape[1:]} and type {action.dtype}, "
                f"which are no actions of {space}{remedy}"
            )
        for block in blocks(action):
            _check_whole("action", block, space)
    elif isinstance(space, gym.spaces.Box):
        if action.shape[1:] != space.shape:
            raise HyqError(
                f"the dataset's actions have shape {action.shape[1:]}, the environment's "
                f"{space.shape}"
            )
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        remedy = "bring the actions to the environment's scale"
        margin = ROUNDING * np.abs(low), ROUNDING * np.abs(high)
        _check_within("action", action, (low, high), margin, remedy)
        _check_not_scaled(action, low, high)
    else:
        raise HyqError(f"actions of {space} are not supported: wrap it as Discrete or Box")


def _check_not_scaled(action: Array, low: Array, high: Array) -> None:
    """Raise for actions that fill [-1, 1] exactly where the environment takes a wider range."""
    least, most = action.min(axis=0), action.max(axis=0)
    fills = np.allclose(least, -1.0, atol=ROUNDING) and np.allclose(most, 1.0, atol=ROUNDING)
    if fills and (low < -1).all() and (high > 1).all():
        raise HyqError(
            f"the dataset's actions fill -1 to 1 exactly, where the environment takes {low.min():g}"
            f" to {high.max():g}: they seem to be scaled, so bring them to the environment's range"
        )


def _check_whole(
    name: str, column: Array, space: gym.spaces.Discrete | gym.spaces.MultiDiscrete
) -> None:
    """Raise for numbers outside those that a space counts."""
    many = space.n if isinstance(space, gym.spaces.Discrete) else space.nvec
    if ((column < space.start) | (column >= space.start + many)).any():
        raise HyqError(
            f"the dataset has {name}s from {column.min()} to {column.max()}, outside {space}"
        )


def _check_scale(name: str, column: Column, space: gym.spaces.Box) -> None:
    """Raise for observations on another scale than the environment's: a network sees both."""
    kinds = {np.dtype(column.dtype), np.dtype(space.dtype)}
    if np.dtype(np.uint8) in kinds and any(np.issubdtype(kind, np.floating) for kind in kinds):
        raise HyqError(
            f"the dataset's {name} holds {column.dtype}, the environment shows {space.dtype}: "
            "bring the data to the environment's type and scale"
        )
    low, high = (b.reshape(column.shape[1:]).astype(np.float64) for b in (space.low, space.high))
    if np.issubdtype(column.dtype, np.integer):
        type_range = np.iinfo(column.dtype)
        if (low <= type_range.min).all() and (high >= type_range.max).all():
            return  # no number of this type is outside, and images take long to decompress
    with np.errstate(over="ignore"):
        margin = TOLERANCE * (high - low) + ROUNDING * np.abs(high)
    remedy = (
        "bring the data to the environment's scale, or correct the environment's observation_space"
    )
    _check_within(name, column, (low, high), (margin, margin), remedy)


def _check_within(
    name: str, column: Column, bounds: tuple[Array, Array], margin: tuple[Array, Array], remedy: str
) -> None:
    """Raise for a number that is beyond bounds by more than a margin."""
    low, high = bounds
    for block in blocks(column, rows=1024):
        outside = (block < low - margin[0]) | (block > high + margin[1])
        if outside.any():
            row, *entry = np.argwhere(outside)[0].tolist()
            at = tuple(entry)
            where = f" in dimension {at[0] if len(at) == 1 else at}" if at else ""
            has = "takes" if name == "action" else "has"
            raise HyqError(
                f"the dataset's {name} reaches {block[row][at]:g}{where}, where the environment "
                f"{has} {low[at]:g} to {high[at]:g}: {remedy}"
            )
