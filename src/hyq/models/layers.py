"""Layers whose way back is written out, so that whoever has time may do half of it.

On the way back through a network a layer waits for the gradient at its outputs, and the layer below
waits for the one at its inputs. Nobody waits for the gradient in the weights, which is half of the
work: it is a job for another thread (`hands.py`). PyTorch's own record of what to do on the way
back is not kept.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from hyq.models.hands import Job

Later = Callable[[Job], None]
"""What hands out jobs."""


class Layer(Protocol):
    """A map of a batch, and its way back."""

    def forward(self, x: Tensor, /) -> Tensor:
        """Return the outputs; `x` may be overwritten if it is not an input of other layers."""

    def back(self, x: Tensor, outputs: Tensor, at: Tensor, later: Later, below: bool) -> Tensor:
        """Return the gradient at the inputs `x`, given the one at the outputs.

        The gradient in the weights is left to others. If nobody `below` learns, anything will do.
        """


def walk(layers: Sequence[Layer], x: Tensor) -> list[Tensor]:
    """Go through layers, and return what enters each and, last, what leaves them."""
    entered = [x]
    for layer in layers:
        entered.append(layer.forward(entered[-1]))
    return entered


def walk_back(
    layers: Sequence[Layer], entered: Sequence[Tensor], at: Tensor, later: Later, below: bool
) -> Tensor:
    """Return the gradient at what entered the first layer, given the one at the outputs."""
    for k in reversed(range(len(layers))):
        at = layers[k].back(entered[k], entered[k + 1], at, later, below or k > 0)
    return at


class Gradient:
    """Room for the gradient in a layer's weights and biases, and the lengths of its rows."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """Take the room."""
        self.weight, self.bias = weight, bias
        self.lengths = torch.zeros(())
        """Of the gradient's rows, once it is all there."""

    def take(self, weight: Tensor, bias: Tensor) -> None:
        """Take the gradient from elsewhere."""
        self.weight.copy_(weight)
        self.bias.copy_(bias)
        self.measure()

    def measure(self) -> None:
        """Take the rows' lengths while they are at hand.

        Row by row, the rounding of bfloat16 averages out.
        """
        weight = self.weight
        self.lengths = weight if weight.ndim == 1 else torch.linalg.vector_norm(flat(weight), dim=1)


def length(gradients: Sequence[Gradient]) -> float:
    """Return the length of the gradients of several layers together."""
    parts = [part for gradient in gradients for part in (gradient.lengths, gradient.bias)]
    return float(torch.linalg.vector_norm(torch.cat(parts).float()))


class Convolution(nn.Conv2d):
    """A convolution without padding."""

    gradient: Gradient
    input_scale = 1.0
    """What the inputs ought to be multiplied by; the filters, far fewer numbers, are instead."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of a batch of images."""
        weight = self.weight if self.input_scale == 1.0 else self.weight * self.input_scale
        return conv2d(x, weight, self.bias, self.stride)

    def back(self, x: Tensor, outputs: Tensor, at: Tensor, later: Later, below: bool) -> Tensor:
        """Return the gradient at the inputs."""

        def gradient() -> None:
            _, weight, bias = self._backward(x, at, False)
            if self.input_scale != 1.0:
                weight *= self.input_scale
            self.gradient.take(weight, bias)

        later(gradient)
        return self._backward(x, at, True)[0] if below else at

    def _backward(self, x: Tensor, at: Tensor, inputs: bool) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward.default(
            at,
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


class Rectifier(nn.Module):
    """A ReLU, in place."""

    def forward(self, x: Tensor) -> Tensor:
        """Return what is positive."""
        return x.relu_()

    def back(self, x: Tensor, outputs: Tensor, at: Tensor, later: Later, below: bool) -> Tensor:
        """Let the gradient through where the outputs are positive."""
        let_through: Tensor = torch.ops.aten.threshold_backward.default(at, outputs, 0)
        return let_through


class Flat(nn.Module):
    """Images as vectors, in the order in which convolutions leave them: channels last."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a view, where PyTorch's own `Flatten` would have to copy."""
        return flat(x)

    def back(self, x: Tensor, outputs: Tensor, at: Tensor, later: Later, below: bool) -> Tensor:
        """Return images again."""
        if x.ndim != 4:
            return at.view(x.shape)
        rows, channels, height, width = x.shape
        return at.view(rows, height, width, channels).permute(0, 3, 1, 2)


def flat(images: Tensor) -> Tensor:
    """Return a vector for each image; what has no channels is only flattened."""
    return (images.permute(0, 2, 3, 1) if images.ndim == 4 else images).flatten(1)


class Dense(nn.Linear):
    """A linear map of vectors, or of images that are `Flat`, and a shift.

    For images the weights have the images' shape, and lie in memory as they do.
    """

    gradient: Gradient

    def __init__(self, inputs: tuple[int, ...], units: int) -> None:
        """Take vectors (features,) or images (channels, height, width)."""
        super().__init__(math.prod(inputs), units)
        if len(inputs) == 3:
            images = self.weight.detach().view(units, *inputs)
            self.weight = nn.Parameter(images.contiguous(memory_format=torch.channels_last))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of a batch of vectors.

        The weights come first in the product: of its two sides the second is rearranged before it
        is multiplied, and a batch is smaller. It took three quarters of the time of `linear`.
        """
        return torch.addmm(self.bias[:, None], flat(self.weight), x.T).T

    def back(self, x: Tensor, outputs: Tensor, at: Tensor, later: Later, below: bool) -> Tensor:
        """Return the gradient at the inputs."""

        def gradient() -> None:
            torch.mm(at.T, x, out=flat(self.gradient.weight))
            torch.sum(at, 0, out=self.gradient.bias)
            self.gradient.measure()

        later(gradient)
        return at @ flat(self.weight) if below else at


class Normalisation(nn.LayerNorm):
    """Layer normalisation, always in the precision of its own weights."""

    gradient: Gradient

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised rows, as precise as they came."""
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)

    def back(self, x: Tensor, outputs: Tensor, at: Tensor, later: Later, below: bool) -> Tensor:
        """Return the gradient at the inputs; that in the gains and shifts comes with it."""
        exact = x.to(self.weight.dtype)
        shape, parameters = self.normalized_shape, (self.weight, self.bias)
        _, mean, scale = torch.native_layer_norm(exact, shape, *parameters, self.eps)
        at_inputs, weight, bias = torch.ops.aten.native_layer_norm_backward.default(
            at.to(exact.dtype), exact, shape, mean, scale, *parameters, [True, True, True]
        )
        self.gradient.take(weight, bias)
        returned: Tensor = at_inputs.to(x.dtype)
        return returned
