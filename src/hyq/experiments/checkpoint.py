"""Saving and loading the whole state of Hy-Q, atomically and without pickles.

Online batches never change once collected, so each iteration adds one file; `state.safetensors`,
replaced last and in one piece, says how many of them count.
"""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from hyq.algos.hyq_fqi import HyQState
from hyq.core.errors import HyqError
from hyq.core.files import write_bytes
from hyq.core.types import Array, Transitions
from hyq.data.online import OnlineStore, pack, unpack
from hyq.models.base import F, FunctionClass


def save_state(directory: Path, state: HyQState[Any], elapsed: float) -> None:
    """Write the newest online batch and everything else of `state`."""
    directory.mkdir(exist_ok=True)
    rows, counts = pack(state.online.batches[-1])
    batch = {name: np.ascontiguousarray(column) for name, column in vars(rows).items()}
    write_bytes(_batch_path(directory, state.iteration), save(batch | {"counts": counts}))
    tensors: dict[str, Array] = {
        f"{h}.{name}": np.ascontiguousarray(array)
        for h, function in enumerate(state.functions)
        for name, array in function.arrays().items()
    }
    tensors["iteration"] = np.array(state.iteration)
    tensors["online_samples"] = np.array(state.online_samples)
    tensors["elapsed"] = np.array(elapsed)
    write_bytes(directory / "state.safetensors", save(tensors))


def load_state(
    directory: Path, family: FunctionClass[F], horizon: int
) -> tuple[HyQState[F], float] | None:
    """Return the newest state and the seconds it took, or None where none was saved."""
    path = directory / "state.safetensors"
    if not path.exists():
        return None
    tensors = _read(path)
    functions = []
    for h in range(horizon):
        prefix = f"{h}."
        arrays = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
        if not arrays:
            raise HyqError(f"{path} is of another run: it has no function for step {h}")
        functions.append(family.rebuild(arrays))
    iteration = int(tensors["iteration"])
    batches = []
    for t in range(1, iteration + 1):
        columns = _read(_batch_path(directory, t))
        counts = columns.pop("counts")
        batches.append(unpack(Transitions(**columns), counts.tolist()))
    state = HyQState(
        iteration, tuple(functions), OnlineStore(batches), int(tensors["online_samples"])
    )
    return state, float(tensors["elapsed"])


def _batch_path(directory: Path, iteration: int) -> Path:
    return directory / f"online-{iteration:04d}.safetensors"


def _read(path: Path) -> dict[str, Array]:
    try:
        return dict(load(path.read_bytes()))
    except (FileNotFoundError, SafetensorError):
        raise HyqError(
            f"checkpoint file {path} is missing or damaged: start the run anew elsewhere"
        ) from None
