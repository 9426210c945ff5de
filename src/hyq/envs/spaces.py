"""Spaces as JSON, so that policies and data carry what they are for."""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.trees import without_tuples

MOST_ENTRIES = 1 << 24
"""Numbers in one observation, above which a description is taken to be damaged."""


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """Describe a space; bounds that are the same everywhere are one number."""
    space = without_tuples(space)
    if isinstance(space, gym.spaces.Box):
        bounds = {name: _bound(getattr(space, name)) for name in ("low", "high")}
        return {"type": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist()}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, gym.spaces.Dict):
        parts = {name: space_to_json(part) for name, part in space.spaces.items()}
        return {"type": "Dict", "spaces": parts}
    raise HyqError(f"{space} cannot be described: use Box, Discrete or dictionaries of them")


def space_from_json(about: Mapping[str, Any]) -> gym.Space[Any]:
    """Undo `space_to_json`; raise for what it cannot have written."""
    try:
        kind = about["type"]
        if kind == "Box":
            shape, dtype = _shape(about["shape"]), np.dtype(about["dtype"])
            low, high = (np.broadcast_to(_number(about[n]), shape) for n in ("low", "high"))
            return gym.spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype.type)
        if kind == "Discrete":
            return gym.spaces.Discrete(about["n"], start=about["start"])
        if kind == "MultiDiscrete":
            return gym.spaces.MultiDiscrete(np.array(about["nvec"]))
        if kind == "MultiBinary":
            return gym.spaces.MultiBinary(_shape(about["shape"]))
        if kind == "Dict":
            parts = {name: space_from_json(part) for name, part in about["spaces"].items()}
            return gym.spaces.Dict(parts)
    except HyqError:
        raise
    except Exception as error:  # Gymnasium and NumPy raise in many ways
        raise HyqError(f"the description of a space is damaged: {error!r}") from None
    raise HyqError(f"no kind of space {kind!r}: the description is damaged")


def _shape(about: Any) -> tuple[int, ...]:
    shape = tuple(int(size) for size in about)
    if min(shape, default=1) < 0 or len(shape) > 8 or math.prod(shape) > MOST_ENTRIES:
        raise HyqError(f"no observation has the shape {about}: the description is damaged")
    return shape


def _bound(bound: Any) -> Any:
    values = np.asarray(bound, np.float64)
    same = (values == values.flat[0]).all()
    return _as_json(float(values.flat[0]) if same else values.tolist())


def _as_json(values: Any) -> Any:
    """Write infinities, which JSON has not, as text."""
    if isinstance(values, list):
        return [_as_json(part) for part in values]
    return values if np.isfinite(values) else ("inf" if values > 0 else "-inf")


def _number(bound: Any) -> Any:
    if isinstance(bound, list):
        return np.array([_number(part) for part in bound], np.float64)
    return float(bound)
