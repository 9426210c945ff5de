"""The little image processing that agents and videos need."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from hyq.core.errors import HyqError
from hyq.core.types import Array


def colours_last(shape: tuple[int, ...]) -> bool:
    """Tell whether the last axis of images holds the colours of a pixel, not a row of pixels."""
    return len(shape) >= 3 and shape[-1] in (1, 3, 4)


def downsample(images: Array, factor: int) -> Array:
    """Average blocks of `factor` x `factor` pixels of byte images.

    Their shape is (..., height, width), or (..., height, width, colours) with 1, 3 or 4 colours.
    """
    if factor == 1:
        return images
    if images.dtype != np.uint8:
        raise HyqError(
            f"only images of bytes can be downsampled, not {images.dtype}: set downsample to 1"
        )
    colours = images.shape[-1:] if colours_last(images.shape) else ()
    *leading, height, width = images.shape[: images.ndim - len(colours)]
    if height % factor or width % factor:
        raise HyqError(f"images of {height}x{width} cannot be downsampled by {factor}")
    area = factor * factor
    # A block of white pixels must fit, and half a block more to round.
    enough = np.uint16 if area * 255 + area // 2 < 2**16 else np.uint32
    total = np.zeros((*leading, height // factor, width // factor, *colours), enough)
    every_colour = (slice(None),) * len(colours)
    for row in range(factor):
        for column in range(factor):
            pixels = slice(row, None, factor), slice(column, None, factor)
            chosen: tuple[Any, ...] = (..., *pixels, *every_colour)
            total += images[chosen]
    return ((total + area // 2) // area).astype(np.uint8)


def encode_gif(images: Sequence[Array], seconds: Sequence[float]) -> bytes:
    """Encode images as a GIF that repeats; games have few colours, so one palette serves all."""
    sample = np.concatenate(images[:: max(1, len(images) // 32)])
    palette = Image.fromarray(sample).quantize(255, dither=Image.Dither.NONE)
    first, *rest = (
        Image.fromarray(one).quantize(palette=palette, dither=Image.Dither.NONE) for one in images
    )
    buffer = BytesIO()
    pauses = [round(1000 * pause) for pause in seconds]
    how = {"save_all": True, "append_images": rest, "loop": 0, "optimize": False}
    first.save(buffer, "GIF", duration=pauses, **how)
    return buffer.getvalue()
