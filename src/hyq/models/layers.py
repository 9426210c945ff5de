"""Layers that leave the gradient in their weights to whoever has time for it.

On the way back through a network a layer waits for the gradient at its outputs, and the layer below
waits for the one at its inputs. Nobody waits for the gradient in the weights, which is half of the
work: it is a job for another thread (`hands.py`). A layer that is not being trained is PyTorch's.
"""

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from hyq.models.hands import Job


class Destination:
    """Where the gradient in a layer's weights goes, and who is asked to compute it."""

    def __init__(self, later: Callable[[Job], None], weight: Tensor, bias: Tensor) -> None:
        """Take the room for the gradient, and what hands out jobs."""
        self.later, self.weight, self.bias = later, weight, bias
        self.norm = torch.zeros(())
        """The length of the gradient, once it is all there."""
        self._missing = 0
        self._lock = threading.Lock()

    def expect(self, parts: int) -> None:
        """Begin anew, at zero."""
        self.weight.zero_()
        self.bias.zero_()
        self._missing = parts

    def add(self, weight: Tensor, bias: Tensor) -> None:
        """Take one of at most two parts: their sum is the same whichever comes first."""
        with self._lock:
            self.weight += weight
            self.bias += bias
            self._missing -= 1
            if not self._missing:
                self.measure()

    def measure(self) -> None:
        """Take the gradient's length while it is at hand.

        Row by row, the rounding of bfloat16 averages out.
        """
        rows = torch.linalg.vector_norm(flat(self.weight), dim=1)
        self.norm = torch.linalg.vector_norm(torch.cat((rows, self.bias)).float())


class Convolution(nn.Conv2d):
    """A convolution without padding."""

    gradient_to: Destination | None = None
    input_scale = 1.0
    """What the inputs ought to be multiplied by; the filters, far fewer numbers, are instead."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of a batch of images."""
        return _forward(self, x, self._outputs)

    def _outputs(self, x: Tensor) -> Tensor:
        weight = self.weight if self.input_scale == 1.0 else self.weight * self.input_scale
        return self._conv_forward(x, weight, self.bias)

    def input_gradient(self, x: Tensor, at_outputs: Tensor) -> Tensor:
        """Return the gradient at the inputs."""
        return self._backward(x, at_outputs, True)[0]

    def weight_jobs(self, x: Tensor, at_outputs: Tensor, to: Destination) -> list[Job]:
        """Return what computes the gradients in weights and biases.

        The first layer comes last, when nobody has anything else to do: two may share it.
        """

        def gradient(rows: Tensor, slopes: Tensor) -> None:
            _, weight, bias = self._backward(rows, slopes, False)
            to.add(weight * self.input_scale, bias)

        parts = 1 if x.requires_grad else 2
        pieces = list(zip(x.chunk(parts), at_outputs.chunk(parts), strict=True))
        to.expect(len(pieces))
        return [partial(gradient, rows, slopes) for rows, slopes in pieces]

    def _backward(self, x: Tensor, at_outputs: Tensor, inputs: bool) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            at_outputs,
            x,
            self.weight,
            [self.out_channels],
            self.stride,
            self.padding,
            self.dilation,
            False,  # not transposed
            [0, 0],
            self.groups,
            [inputs, not inputs, not inputs],
        )
        return found


class Flat(nn.Module):
    """Images as vectors, in the order in which convolutions leave them: channels last."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a view, where PyTorch's own `Flatten` would have to copy."""
        return flat(x)


def flat(images: Tensor) -> Tensor:
    """Return a vector for each image; what has no channels is only flattened."""
    return (images.permute(0, 2, 3, 1) if images.ndim == 4 else images).flatten(1)


class Dense(nn.Linear):
    """A linear map of vectors, or of images that are `Flat`, and a shift.

    For images the weights have the images' shape, and lie in memory as they do.
    """

    gradient_to: Destination | None = None

    def __init__(self, inputs: tuple[int, ...], units: int) -> None:
        """Take vectors (features,) or images (channels, height, width)."""
        super().__init__(math.prod(inputs), units)
        if len(inputs) == 3:
            images = self.weight.detach().view(units, *inputs)
            self.weight = nn.Parameter(images.contiguous(memory_format=torch.channels_last))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of a batch of vectors."""
        return _forward(self, x, self._outputs)

    def _outputs(self, x: Tensor) -> Tensor:
        return linear(x, flat(self.weight), self.bias)

    def input_gradient(self, x: Tensor, at_outputs: Tensor) -> Tensor:
        """Return the gradient at the inputs."""
        return at_outputs @ flat(self.weight)

    def weight_jobs(self, x: Tensor, at_outputs: Tensor, to: Destination) -> list[Job]:
        """Return what computes the gradients in weights and biases."""

        def gradient() -> None:
            torch.mm(at_outputs.T, x, out=flat(to.weight))
            torch.sum(at_outputs, 0, out=to.bias)
            to.measure()

        return [gradient]


class Normalisation(nn.LayerNorm):
    """Layer normalisation, always in the precision of its own weights."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised rows, as precise as they came."""
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


def _forward(layer: Convolution | Dense, x: Tensor, call: Callable[[Tensor], Tensor]) -> Tensor:
    """Call a layer; on the way back, its weights' gradient is left to others if it has any."""
    if layer.gradient_to is None or not torch.is_grad_enabled():
        return call(x)
    outputs: Tensor = _Apart.apply(x, layer.weight, layer, call)  # type: ignore[no-untyped-call]
    return outputs


class _Apart(torch.autograd.Function):
    """A layer's map, whose way back hands the gradient in the weights to somebody else.

    The weights are among its inputs only so that PyTorch finds something to learn.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        layer: Convolution | Dense,
        call: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        return call(x)

    @staticmethod
    def backward(ctx: Any, at_outputs: Tensor) -> tuple[Tensor | None, None, None, None]:
        (x,), layer = ctx.saved_tensors, ctx.layer
        to: Destination = layer.gradient_to
        for job in layer.weight_jobs(x, at_outputs, to):
            to.later(job)
        wanted = ctx.needs_input_grad[0]
        return layer.input_gradient(x, at_outputs) if wanted else None, None, None, None
