"""Named arrays in one file: written whole or not at all, checked when read, never unpickled."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from hyq.core.errors import HyqError
from hyq.core.files import read_bytes, write_bytes
from hyq.core.types import Array


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write arrays as safetensors with a SHA-256 over their contents, and return that."""
    # A copy in C order, because `ascontiguousarray` would turn a scalar into a vector.
    plain = {name: np.array(array, order="C") for name, array in arrays.items()}
    digest = arrays_digest(plain)
    write_bytes(path, save(plain, metadata={"sha256": digest}))
    return digest


def load_arrays(path: Path, digest: str | None = None) -> dict[str, Array]:
    """Read what `save_arrays` wrote; raise where a bit has changed, or it is another file's."""
    try:
        content = read_bytes(path)
        arrays = dict(load(content))
        length = int.from_bytes(content[:8], "little")
        recorded = json.loads(content[8 : 8 + length]).get("__metadata__", {}).get("sha256")
    except (
        *(HyqError, SafetensorError, RecursionError),
        *(LookupError, ValueError, AttributeError, TypeError),
    ):
        raise HyqError(f"{path} is missing or damaged: it cannot be read") from None
    if recorded != arrays_digest(arrays) or digest not in (None, recorded):
        raise HyqError(f"{path} is damaged: its content is not what was written")
    return arrays


def arrays_digest(arrays: Mapping[str, Array]) -> str:
    """Return a SHA-256 over names, types, shapes and contents."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
