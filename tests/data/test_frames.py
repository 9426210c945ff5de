"""Observations by slot: nothing is lost, and images take little room."""

import numpy as np
import pytest
import zstandard

from hyq.core.errors import HyqError
from hyq.core.types import Array
from hyq.data.frames import CompressedFrames, PackedFrames, PlainFrames, frames_for

Kind = type[PlainFrames | CompressedFrames]


def images(count: int, seed: int = 0) -> Array:
    """Make pictures with a few filled squares, as games have."""
    rng = np.random.default_rng(seed)
    pictures = np.zeros((count, 84, 84), np.uint8)
    for picture in pictures:
        for x, y, side, shade in rng.integers(1, 64, (6, 4)):
            picture[x : x + side, y : y + side] = shade
    return pictures


@pytest.mark.parametrize("kind", [PlainFrames, CompressedFrames])
def test_what_is_put_is_got_in_any_order_and_shape(kind: Kind) -> None:
    seen = images(20)
    store = kind(30, (84, 84), np.uint8)
    slots = np.random.default_rng(1).permutation(30)[:20]
    store.put(slots, seen)
    rows = np.array([[3, 3, 0], [19, 7, 3]])
    np.testing.assert_array_equal(store.get(slots[rows]), seen[rows])
    store.put(slots[:2], seen[5:7])
    np.testing.assert_array_equal(store.get(slots[:3]), seen[[5, 6, 2]])


@pytest.mark.parametrize("kind", [PlainFrames, CompressedFrames])
def test_exported_and_loaded_is_the_same(kind: Kind) -> None:
    seen = images(6)
    store, copy = kind(8, (84, 84), np.uint8), kind(8, (84, 84), np.uint8)
    slots = np.array([5, 0, 7, 1, 2, 3])
    store.put(slots, seen)
    copy.load(slots[:4], store.export(slots[:4]))
    copy.load(slots[4:], store.export(slots[4:]))
    copy.load(slots[:0], store.export(slots[:0]))
    np.testing.assert_array_equal(copy.get(slots), seen)


def test_a_slot_asked_for_twice_is_decompressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CompressedFrames(4, (84, 84), np.uint8)
    store.put(np.arange(4), images(4))
    read: list[bytes] = []
    decompressor = zstandard.ZstdDecompressor()

    class Counting:
        def decompress(self, blob: bytes) -> bytes:
            read.append(blob)
            return decompressor.decompress(blob)

    monkeypatch.setattr(zstandard, "ZstdDecompressor", Counting)
    store.get(np.array([[1, 2, 1], [2, 1, 1]]))
    assert len(read) == 2


@pytest.mark.parametrize("kind", [PlainFrames, CompressedFrames])
def test_frames_of_another_size_are_refused_when_put(kind: Kind) -> None:
    with pytest.raises(ValueError, match=r"reshape|broadcast"):
        kind(2, (84, 84), np.uint8).put(np.arange(2), images(2)[:, :42])


def test_images_that_are_views_or_of_another_type_are_stored_right() -> None:
    store = CompressedFrames(2, (84, 42), np.uint8)
    seen = images(2)[:, :, ::2]
    store.put(np.arange(2), seen)
    np.testing.assert_array_equal(store.get(np.arange(2)), seen)
    store.put(np.arange(2), seen.astype(np.int64))
    np.testing.assert_array_equal(store.get(np.arange(2)), seen)


def test_images_are_compressed_and_vectors_are_not() -> None:
    assert isinstance(frames_for(2, (84, 84), np.uint8), CompressedFrames)
    assert isinstance(frames_for(2, (84, 84, 3), "uint8"), CompressedFrames)
    assert isinstance(frames_for(2, (42, 42), np.uint8), PlainFrames)
    assert isinstance(frames_for(2, (128,), np.uint8), PlainFrames)
    assert isinstance(frames_for(2, (84, 84), np.float32), PlainFrames)


def test_memory_is_counted() -> None:
    plain, compressed = PlainFrames(50, (84, 84), np.uint8), CompressedFrames(50, (84, 84), "u1")
    assert plain.nbytes == 50 * 84 * 84
    assert compressed.nbytes == 50 * 8
    compressed.put(np.arange(50), images(50))
    payload = int(compressed.export(np.arange(50))["size"].sum())
    assert payload + 50 * 40 < compressed.nbytes < plain.nbytes / 4


def test_packed_images_are_read_by_slice() -> None:
    seen = images(9)
    packed = PackedFrames.concatenate([PackedFrames.pack(seen[:4]), PackedFrames.pack(seen[4:])])
    assert (packed.shape, packed.dtype, len(packed)) == (seen.shape, seen.dtype, 9)
    assert len(packed.blob) < seen.nbytes / 4
    for rows in (slice(0, 9), slice(3, 6), slice(8, 20), slice(4, 4), slice(None, None, 2)):
        np.testing.assert_array_equal(packed[rows], seen[rows])


def test_packed_images_that_do_not_add_up_are_refused() -> None:
    packed = PackedFrames.pack(images(3))
    with pytest.raises(HyqError, match="do not add up"):
        PackedFrames(packed.blob[:-1], packed.size, (84, 84))
