"""Saving and loading the state of any algorithm, atomically and without pickles.

What an iteration adds never changes afterwards, so each gets a file of its own; the rest is in
`state.safetensors`, which is replaced last and in one piece and says how many of the others count.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from hyq.algos.base import Algorithm, S, Snapshot
from hyq.core.errors import HyqError
from hyq.core.files import write_bytes
from hyq.core.types import Array


def save_state(directory: Path, snapshot: Snapshot, iteration: int, elapsed: float) -> None:
    """Write what the iteration added, then everything else."""
    directory.mkdir(exist_ok=True)
    if snapshot.appended:
        save_arrays(_addition(directory, iteration), snapshot.appended)
    progress = {"run.iteration": np.array(iteration), "run.elapsed": np.array(elapsed)}
    save_arrays(directory / "state.safetensors", {**snapshot.replaced, **progress})


def load_state(directory: Path, algorithm: Algorithm[S]) -> tuple[S, float] | None:
    """Return the newest state and the seconds it took, or None where none was saved."""
    path = directory / "state.safetensors"
    if not path.exists():
        return None
    replaced = load_arrays(path)
    iteration = int(replaced.pop("run.iteration"))
    elapsed = float(replaced.pop("run.elapsed"))
    additions = [_addition(directory, t) for t in range(1, iteration + 1)]
    if not any(addition.exists() for addition in additions):
        additions = []  # an offline method adds nothing
    return algorithm.restore(replaced, [load_arrays(addition) for addition in additions]), elapsed


def _addition(directory: Path, iteration: int) -> Path:
    return directory / f"added-{iteration:05d}.safetensors"


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write named arrays into one file, whole or not at all."""
    # A copy in C order, because `ascontiguousarray` would turn a scalar into a vector.
    write_bytes(path, save({name: array.copy(order="C") for name, array in arrays.items()}))


def load_arrays(path: Path) -> dict[str, Array]:
    """Read what `save_arrays` wrote."""
    try:
        return dict(load(path.read_bytes()))
    except (FileNotFoundError, SafetensorError):
        raise HyqError(
            f"checkpoint file {path} is missing or damaged: start the run anew elsewhere"
        ) from None
