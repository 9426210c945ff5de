"""The little image processing that the learners need."""

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array


def shrink(images: Array, factor: int) -> Array:
    """Average blocks of `factor` x `factor` pixels of byte images (..., height, width)."""
    if factor == 1:
        return images
    *leading, height, width = images.shape
    if height % factor or width % factor:
        raise HyqError(f"images of {height}x{width} cannot be shrunk by {factor}")
    total = np.zeros((*leading, height // factor, width // factor), np.uint16)
    for row in range(factor):
        for column in range(factor):
            total += images[..., row::factor, column::factor]
    area = factor * factor
    return ((total + area // 2) // area).astype(np.uint8)
