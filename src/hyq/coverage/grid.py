"""What observations and actions count as alike: cells of images, whole numbers and vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array, IntArray
from hyq.coverage.nearby import scale_of
from hyq.coverage.scan import as_rows, is_index, row_hashes
from hyq.data.columns import Column, Observation, described, named
from hyq.data.dataset import Dataset
from hyq.fqi.block import BlockFunction
from hyq.fqi.classes import GreedyPolicy

BLOCKS = 12
"""An image is averaged to about so many blocks a side ..."""
SHADES = 8
"""... and its bytes to so many shades, much as Go-Explore does."""
CELLS, ACTION_CELLS = 256, 16
"""Cells of observations, and of actions, that are vectors."""
ROWS_OF_CELL, FEWEST_CELLS = 100, 16
"""Of little data fewer: so many rows have a cell of observations."""
PILOT_ROWS = 20_000

Cells = Callable[[Any], IntArray]
"""Gives every row the number of its cell."""


@dataclass(frozen=True)
class Grid:
    """What observations and actions count as alike, the same for all datasets that are compared."""

    place: Callable[[Any, IntArray], IntArray]
    """Of observations and the steps that they are of."""
    action: Cells

    @classmethod
    def of(cls, datasets: Sequence[Dataset], policy: GreedyPolicy | None = None) -> "Grid":
        """Choose cells for datasets of one kind; of a policy by step, for each step."""
        kinds = {(one.action.shape[1:], one.action.dtype.kind) for one in datasets}
        if len(kinds) != 1 or len({described(one.observation) for one in datasets}) != 1:
            raise HyqError(
                "datasets can be compared when their observations and actions are of one shape "
                "and type"
            )
        near = _place(datasets, max(sum(map(len, datasets)) // ROWS_OF_CELL, FEWEST_CELLS))

        def place(observation: Observation, time: IntArray) -> IntArray:
            code = _code(policy, observation, time) if policy else None
            found = near(observation) if code is None else code
            return row_hashes(found, time) if policy else found

        if is_index(datasets[0].action):
            return cls(place, lambda action: action.astype(np.int64))
        near_action = _regions([[one.action] for one in datasets], ACTION_CELLS, ACTION_CELLS)
        return cls(place, lambda action: near_action([action]))


def _code(policy: GreedyPolicy, observation: Any, time: IntArray) -> IntArray | None:
    """Return what a policy's encoders make of observations, where it has any."""
    if not all(isinstance(function, BlockFunction) for function in policy.functions):
        return None
    found = np.zeros(len(time), np.int64)
    for h in np.unique(time).tolist():
        function = policy.functions[h] if h < policy.horizon else policy.functions[-1]
        assert isinstance(function, BlockFunction)
        mine = np.flatnonzero(time == h)
        found[mine] = function.latent(observation[mine])
    return found


def _place(datasets: Sequence[Dataset], regions: int) -> Cells:
    """Make cells for observations: of images blocks, of whole numbers themselves, else regions."""
    columns = named("", datasets[0].observation)
    images = [n for n, c in columns.items() if c.dtype == np.uint8 and len(c.shape) > 2]
    exact = [n for n, c in columns.items() if not c.shape[1:] and c.dtype.kind in "iu"]
    vectors = [name for name in columns if name not in (*images, *exact)]
    parts = [named("", one.observation) for one in datasets]
    near = _regions([[p[n] for n in vectors] for p in parts], CELLS, regions) if vectors else None

    def place(observation: Observation) -> IntArray:
        parts = named("", observation)
        found = [_image_cells(np.asarray(parts[name])) for name in images]
        found += [np.asarray(parts[name], np.int64) for name in exact]
        return row_hashes(*found, *([near([parts[n] for n in vectors])] if near else []))

    return place


def _regions(
    datasets: Sequence[Sequence[Column]], most: int, regions: int
) -> Callable[[Sequence[Column]], IntArray]:
    """Make a cell of each row, if at most so many differ, or else regions around rows drawn.

    A row is in the region of the nearest: regions are small where there is much data, and there are
    not more of them in more dimensions. Some rows from all over each dataset decide.
    """
    pilots = []
    for columns in datasets:
        every = max(1, len(columns[0]) * len(datasets) // PILOT_ROWS)
        pilots.append(as_rows(*(column[::every] for column in columns), dtype=np.float32))
    pilot = np.concatenate(pilots)
    mean, scale = pilot.mean(axis=0), scale_of(pilot)
    centres = np.unique(pilot, axis=0)
    if len(centres) > most:
        drawn = np.random.default_rng(0).permutation(len(pilot))[: min(regions, most)]
        centres = np.unique(pilot[drawn], axis=0)
    centres = (centres - mean) / scale
    length = np.square(centres).sum(axis=1)

    def cells(columns: Sequence[Column]) -> IntArray:
        rows = as_rows(*columns, dtype=np.float32)
        return (length - 2 * ((rows - mean) / scale) @ centres.T).argmin(axis=1)

    return cells


def _image_cells(images: Array) -> IntArray:
    if images.shape[-1] in (1, 3, 4) and images.ndim > 3:
        images = np.moveaxis(images, -1, 1)
    images = images.reshape(len(images), -1, *images.shape[-2:])
    height, width = images.shape[-2:]
    if min(height, width) >= 2 * BLOCKS:
        # Symbols on a small grid are cells already; larger images are averaged.
        side = min(height, width) // BLOCKS
        rows, columns = height // side, width // side
        inside = images[..., : rows * side, : columns * side]
        blocks = inside.reshape(*inside.shape[:2], rows, side, columns, side)
        images = (blocks.mean(axis=(3, 5), dtype=np.float32) // (256 // SHADES)).astype(np.uint8)
    return row_hashes(images)
