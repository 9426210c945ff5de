"""Layers that leave the gradient in their weights to whoever has time for it.

On the way back through a network a layer waits for the gradient at its outputs, and the layer below
waits for the one at its inputs. Nobody waits for the gradient in the weights, which is half of the
work: it is a job for another thread (`hands.py`). A layer that is not being trained is PyTorch's.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hyq.models.hands import Job


class Destination:
    """Where the gradient in a layer's weights goes, and who is asked to compute it."""

    def __init__(self, later: Callable[[Job], None], weight: Tensor, bias: Tensor) -> None:
        """Take the room for the gradient, and what hands out jobs."""
        self.later, self.weight, self.bias = later, weight, bias
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Begin anew, at zero."""
        self.weight.zero_()
        self.bias.zero_()

    def add(self, weight: Tensor, bias: Tensor) -> None:
        """Take one of at most two parts: their sum is the same whichever comes first."""
        with self._lock:
            self.weight += weight
            self.bias += bias


class Convolution(nn.Conv2d):
    """A convolution without padding."""

    gradient_to: Destination | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of a batch of images."""
        return _forward(self, x, super().forward)

    def input_gradient(self, x: Tensor, at_outputs: Tensor) -> Tensor:
        """Return the gradient at the inputs."""
        return self._backward(x, at_outputs, True)[0]

    def weight_jobs(self, x: Tensor, at_outputs: Tensor, to: Destination) -> list[Job]:
        """Return what computes the gradients in weights and biases.

        The first layer comes last, when nobody has anything else to do: two may share it.
        """

        def gradient(rows: Tensor, slopes: Tensor) -> None:
            _, weight, bias = self._backward(rows, slopes, False)
            to.add(weight, bias)

        to.clear()
        if x.requires_grad:
            return [partial(gradient, x, at_outputs)]
        halves = zip(x.chunk(2), at_outputs.chunk(2), strict=True)
        return [partial(gradient, rows, slopes) for rows, slopes in halves]

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


class Dense(nn.Linear):
    """A linear map and a shift."""

    gradient_to: Destination | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of a batch of vectors."""
        return _forward(self, x, super().forward)

    def input_gradient(self, x: Tensor, at_outputs: Tensor) -> Tensor:
        """Return the gradient at the inputs."""
        return at_outputs @ self.weight

    def weight_jobs(self, x: Tensor, at_outputs: Tensor, to: Destination) -> list[Job]:
        """Return what computes the gradients in weights and biases."""

        def gradient() -> None:
            torch.mm(at_outputs.T, x, out=to.weight)
            torch.sum(at_outputs, 0, out=to.bias)

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
