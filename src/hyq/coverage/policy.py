"""Saved policies: the greedy policy of f_0, ..., f_{H-1}, whatever class they belong to.

A policy's directory is that of any run (`final.safetensors`, or its checkpoint while it runs),
or one that `save_policy` wrote. The names of a function's arrays say which class it is of.

A deep policy is one network for all steps, of episodes of any length. What is measured here goes by
step; such a policy is evaluated by `coverage.deep_fqe`, or played.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.errors import HyqError
from hyq.core.files import new_directory, raising_damage
from hyq.core.trees import flatten, subtree
from hyq.core.types import Array
from hyq.fqi.block import BlockFunction
from hyq.fqi.classes import GreedyPolicy, ValueFunction
from hyq.fqi.linear import LinearFunction
from hyq.fqi.mlp import MLPFunction
from hyq.fqi.tabular import TabularFunction
from hyq.policy import DESCRIPTION

DEEP_PLACES = (".", "best", "last")
"""Where a deep policy, or a run that trains one, has its description."""
PLACES = ("final.safetensors", "checkpoint/state.safetensors", "state.safetensors")


def save_policy(directory: Path, functions: Sequence[ValueFunction]) -> None:
    """Write functions into a new directory that `load_policy` reads."""
    with new_directory(directory) as draft:
        arrays = flatten({h: function.arrays() for h, function in enumerate(functions)})
        save_arrays(draft / PLACES[0], arrays)


def holds_deep_policy(directory: Path) -> bool:
    """Tell a deep policy, or a run that trains one, from a policy by step."""
    return any((directory / place / DESCRIPTION).is_file() for place in DEEP_PLACES)


def policy_file(directory: Path) -> Path:
    """Return the file of the newest functions in a run's or a policy's directory."""
    path = next((directory / p for p in PLACES if (directory / p).is_file()), None)
    if path is None:
        raise HyqError(f"{directory} holds no policy: give the directory of a run that has begun")
    return path


def load_policy(directory: Path) -> GreedyPolicy:
    """Read the newest functions in a run's or a policy's directory."""
    if holds_deep_policy(directory):
        raise HyqError(
            f"{directory} holds a deep policy, which has no function for each step: evaluate it "
            "on whole episodes, or let it play, with 'hyq evaluate'"
        )
    path = policy_file(directory)
    arrays = load_arrays(path)
    # A value range may have no end on one side; nothing else may.
    numbers = [a for n, a in arrays.items() if a.dtype.kind == "f" and not n.endswith(".range")]
    if not all(np.isfinite(array).all() for array in numbers):
        raise HyqError(f"{path} has values that are not finite")
    steps = {int(name.split(".")[0]) for name in arrays if name.split(".")[0].isdigit()}
    if not steps or steps != set(range(len(steps))):
        raise HyqError(f"{path} has no function for every step: it is not a policy of this kind")
    with raising_damage(path):
        functions = tuple(_rebuild(subtree(str(h), arrays), path) for h in sorted(steps))
    return GreedyPolicy(functions)


def _rebuild(arrays: Mapping[str, Array], path: Path) -> ValueFunction:
    names = set(arrays)
    if names == {"encoder", "bias", "head", "hard"}:
        encoding = arrays["encoder"], arrays["bias"], arrays["head"]
        latents, _ = encoding[2].shape
        if encoding[0].shape[1:] != (latents,) or encoding[1].shape != (latents,):
            raise ValueError("shapes that do not fit one another")
        return BlockFunction(*encoding, "hard" if arrays["hard"].all() else "soft")
    if names == {"table"} and arrays["table"].ndim == 2:
        return TabularFunction(arrays["table"])
    if names == {"weights"} and arrays["weights"].ndim == 1:
        return LinearFunction(arrays["weights"])
    if "kernel_0" in names:
        return MLPFunction(()).with_arrays(arrays)
    raise HyqError(f"{path} holds functions of an unknown class, with {sorted(names)}")
