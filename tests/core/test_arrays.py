"""Named arrays on disk: every bit is checked, and nothing else is read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from hyq.core.arrays import arrays_digest, load_arrays, save_arrays
from hyq.core.errors import HyqError

ARRAYS: dict[str, Any] = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(6).reshape(2, 3).T,
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3), np.uint8),
    "truth": np.array([True, False]),
}


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "arrays.safetensors"
    digest = save_arrays(path, ARRAYS)
    for found in (load_arrays(path), load_arrays(path, digest)):
        assert found.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
            assert found[name].shape == array.shape
    assert digest == arrays_digest(ARRAYS)
    assert [file.name for file in tmp_path.iterdir()] == ["arrays.safetensors"]


def test_any_flipped_bit_raises(tmp_path: Path) -> None:
    path = tmp_path / "arrays.safetensors"
    save_arrays(path, {"a": np.arange(3.0), "b": np.ones(2, np.int32)})
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(HyqError, match="damaged"):
            load_arrays(path)
    for damaged in (b"", b"nothing", whole[:-1], whole + b"x", whole[:40]):
        path.write_bytes(damaged)
        with pytest.raises(HyqError, match="missing or damaged"):
            load_arrays(path)
    path.unlink()
    with pytest.raises(HyqError, match="missing or damaged"):
        load_arrays(path)


def test_another_files_content_raises(tmp_path: Path) -> None:
    one = save_arrays(tmp_path / "one", {"a": np.zeros(2)})
    other = save_arrays(tmp_path / "other", {"a": np.ones(2)})
    assert one != other
    with pytest.raises(HyqError, match="not what was written"):
        load_arrays(tmp_path / "other", one)
    (tmp_path / "bare").write_bytes(save({"a": np.zeros(2)}))
    with pytest.raises(HyqError, match="not what was written"):
        load_arrays(tmp_path / "bare")


def test_the_digest_is_of_names_types_shapes_and_contents() -> None:
    base: dict[str, Any] = {"a": np.zeros(4, np.float32), "b": np.ones(2)}
    changes: list[dict[str, Any]] = [
        {"a": np.zeros((2, 2), np.float32)},
        {"a": np.zeros(4, np.int32)},
        {"a": np.array([0, 0, 0, 1], np.float32)},
        {"c": np.ones(2)},
    ]
    digests = {arrays_digest({**base, **change}) for change in ({}, *changes)}
    assert len(digests) == 5
    assert arrays_digest(dict(reversed(base.items()))) == arrays_digest(base)
