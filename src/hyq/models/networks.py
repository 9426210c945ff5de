"""Q-networks and what goes into them: ReLU layers for vectors, convolutions for images.

A `Network` says what goes in, the layers, and what comes out; `TorchNetwork` is the same as a
PyTorch module. How they learn is in `vector_learner.py` and `torch_learner.py`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from hyq.core.errors import HyqError
from hyq.core.images import colours_last
from hyq.core.types import Array, FloatArray
from hyq.models.layers import Convolution, Dense, Flat, Layer, Normalisation, Rectifier, walk


@dataclass(frozen=True)
class NetworkSpec:
    """The layers of a network, from its input to its outputs."""

    convolutions: tuple[tuple[int, int, int], ...] = ()
    """(channels, kernel, stride) of each convolution; none for vectors."""
    hidden: tuple[int, ...] = (64, 64)
    """Units of the ReLU layers that every output shares."""
    dueling: bool = True
    """Q(s, a) = V(s) + A(s, a) - mean_b A(s, b), with one scalar V (Wang et al. 2016)."""
    stream_hidden: int = 0
    """Units of a ReLU layer of its own for each of V and A; 0 leaves both linear."""
    normalise: bool = False
    """Layer normalisation (Ba et al. 2016) of the shared layers that follow the convolutions."""

    def __post_init__(self) -> None:
        """Refuse layers without width."""
        sizes = [size for layer in self.convolutions for size in layer] + list(self.hidden)
        if any(size < 1 for size in sizes) or self.stream_hidden < 0:
            raise HyqError(f"every layer needs at least one unit, got {self}")


NATURE = NetworkSpec(((32, 8, 4), (64, 4, 2), (64, 3, 1)), hidden=(), stream_hidden=512)
"""The network of Mnih et al. (2015) with the dueling streams of Wang et al. (2016)."""
SMALL_CONVOLUTIONS = NetworkSpec(((32, 6, 3), (32, 3, 2)), hidden=(256,))
"""For 42x42 images on a CPU: a tenth of the arithmetic of `NATURE`."""
NORMALISED_CONVOLUTIONS = NetworkSpec(((16, 6, 3), (32, 3, 2)), hidden=(256,), normalise=True)
"""For 42x42 images on a CPU, with 3/5 of the arithmetic of `SMALL_CONVOLUTIONS`."""
NETWORKS = {
    "nature": NATURE,
    "small": SMALL_CONVOLUTIONS,
    "normalised": NORMALISED_CONVOLUTIONS,
    "unnormalised": replace(NORMALISED_CONVOLUTIONS, normalise=False),
}
"""Networks for images, by name."""


FAINTEST = np.float32(20.0)
"""Smallest standard deviation that pixels are divided by, in 256 shades."""


@dataclass(frozen=True)
class InputScaling:
    """The fixed affine map that brings observations near the unit range."""

    shift: FloatArray
    scale: FloatArray

    @classmethod
    def pixels(cls) -> "InputScaling":
        """Map bytes to [0, 1]."""
        return cls(np.zeros((), np.float32), np.array(1 / 255, np.float32))

    @classmethod
    def box(cls, low: Array, high: Array) -> "InputScaling":
        """Map a bounded box to [-1, 1]."""
        width = np.asarray(high, np.float64) - low
        # A feature that should never change is left as large as it is, in case it does.
        scale = np.divide(2.0, width, out=np.ones_like(width), where=width > 0)
        middle = np.asarray(low + width / 2, np.float32)
        return cls(middle, scale.astype(np.float32))

    @classmethod
    def standard(cls, sample: Array) -> "InputScaling":
        """Give every feature of a sample zero mean and, where it varies, unit variance."""
        deviation = sample.std(axis=0, dtype=np.float64)
        scale: FloatArray = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 1.0)
        mean = np.asarray(sample.mean(axis=0, dtype=np.float64), np.float32)
        return cls(mean, scale.astype(np.float32))

    @classmethod
    def standard_pixels(cls, sample: Array) -> "InputScaling":
        """Give every pixel of a sample zero mean and at most unit variance.

        What stays in sight is small, then, and what moves over it is large. Pixels that hardly
        ever change are scaled by `FAINTEST`, or they would drown all others when they do.
        """
        deviation = sample.std(axis=0, dtype=np.float32)
        mean = sample.mean(axis=0, dtype=np.float32)
        return cls(mean, 1 / np.maximum(deviation, FAINTEST))


@dataclass(frozen=True)
class Network:
    """A network's whole description: what goes in, the layers, and what comes out."""

    shape: tuple[int, ...]
    """Of one observation; images may have colours last, and stacked frames come first."""
    actions: int
    spec: NetworkSpec
    scaling: InputScaling
    extra_outputs: int = 0
    """Columns after the Q-values, for objectives that learn more than Q."""

    def __post_init__(self) -> None:
        """Refuse an image that its convolutions would shrink to nothing."""
        _ = self.features

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) for convolutions: each colour of each frame is a channel."""
        if len(self.shape) == 2:
            return (1, *self.shape)
        if len(self.shape) in (3, 4) and not self.colours_last:
            return math.prod(self.shape[:-2]), self.shape[-2], self.shape[-1]
        if self.colours_last and len(self.shape) in (3, 4):
            *frames, height, width, colours = self.shape
            return math.prod(frames) * colours, height, width
        raise HyqError(f"convolutions need images, got observations of shape {self.shape}")

    @property
    def colours_last(self) -> bool:
        """Whether the last axis holds the colours of a pixel."""
        return colours_last(self.shape)

    @property
    def sides(self) -> tuple[int, int]:
        """The axes of an image's height and width, counted from the last."""
        return (-3, -2) if self.colours_last else (-2, -1)

    @property
    def heads(self) -> tuple[int, ...]:
        """Widths of the outputs before they are combined: V where dueling, A, the extras."""
        values = (1, self.actions) if self.spec.dueling else (self.actions,)
        return values + ((self.extra_outputs,) if self.extra_outputs else ())

    @cached_property
    def mixing(self) -> FloatArray | None:
        """The matrix (outputs, heads) that makes outputs of the heads; none if they are the same.

        Dueling is linear in V and A, so it takes one product, and its way back another.
        """
        if not self.spec.dueling:
            return None
        mixing = np.eye(self.actions + self.extra_outputs, sum(self.heads), k=1, dtype=np.float32)
        q = mixing[: self.actions, : 1 + self.actions]
        q -= np.float32(1 / self.actions)
        q[:, 0] = 1.0
        return mixing

    def at_heads(self, gradient: FloatArray) -> FloatArray:
        """Return the gradient at the heads, side by side, given the one at the outputs."""
        return gradient if self.mixing is None else gradient @ self.mixing

    def module(self) -> "TorchNetwork":
        """Build the network in PyTorch, with weights yet to be set."""
        return TorchNetwork(self)

    def initial(self, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draw every weight and bias uniformly within 1/sqrt(fan-in), PyTorch's own default.

        Normalisation starts with gains of one and without shifts.
        """
        parameters: dict[str, FloatArray] = {}
        for layer, module in self.module().named_modules():
            if isinstance(module, nn.LayerNorm):
                parameters[f"{layer}.weight"] = np.ones(module.normalized_shape, np.float32)
                parameters[f"{layer}.bias"] = np.zeros(module.normalized_shape, np.float32)
            elif isinstance(module, nn.Linear | nn.Conv2d):
                bound = math.prod(module.weight.shape[1:]) ** -0.5
                for name, value in module.named_parameters():
                    draw = rng.uniform(-bound, bound, tuple(value.shape))
                    parameters[f"{layer}.{name}"] = draw.astype(np.float32)
        return parameters

    @property
    def pixels_together(self) -> int:
        """Count the neighbours in a row of an image that the first layer takes as one pixel.

        Where it moves on by whole groups of them nothing else changes, and groups that are as long
        as a machine's number are moved through memory in one go.
        """
        if not self.spec.convolutions:
            return 1
        _, kernel, stride = self.spec.convolutions[0]
        fits = kernel % stride == self.image_shape[2] % stride == 0
        return stride if fits and stride in NUMBERS else 1

    @property
    def features(self) -> tuple[int, ...]:
        """The shape of what comes to the first layer that is not a convolution."""
        if not self.spec.convolutions:
            return (math.prod(self.shape),)
        channels, *sides = self.image_shape
        for channels, kernel, stride in self.spec.convolutions:  # noqa: B007
            sides = [(side - kernel) // stride + 1 for side in sides]
        if min(sides) < 1:
            raise HyqError(f"images of {self.shape[1:]} are too small for {self.spec.convolutions}")
        return (channels, *sides)


NUMBERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By their bytes."""


class TorchNetwork(nn.Module):
    """The network as a PyTorch module."""

    def __init__(self, network: Network) -> None:
        """Lay out the layers; their weights are set by whoever builds it."""
        super().__init__()
        spec = network.spec
        layers: list[nn.Module] = []
        self.together = together = network.pixels_together
        before = network.image_shape[0] if spec.convolutions else 0
        for channels, kernel, stride in spec.convolutions:
            window, pace = (kernel, kernel // together), (stride, stride // together)
            layers += [
                Convolution(before * together, channels, window, pace),
                Rectifier(),
            ]
            before, together = channels, 1
        layers.append(Flat())
        inputs = network.features
        for units in spec.hidden:
            layers.append(Dense(inputs, units))
            if spec.normalise:
                layers.append(Normalisation(units))
            layers.append(Rectifier())
            inputs = (units,)
        self.body = nn.Sequential(*layers)
        self.heads = nn.ModuleList(
            nn.Sequential(
                Dense(inputs, spec.stream_hidden),
                Rectifier(),
                Dense((spec.stream_hidden,), n),
            )
            if spec.stream_hidden
            else Dense(inputs, n)
            for n in network.heads
        )
        self.body_layers = cast(list[Layer], layers)
        self.head_layers = [
            cast(list[Layer], list(head) if isinstance(head, nn.Sequential) else [head])
            for head in self.heads
        ]
        self.body_learns = bool(list(self.body.parameters()))
        self.dueling = network.mixing is not None
        if network.mixing is not None:
            self.register_buffer("mixing", torch.from_numpy(network.mixing), persistent=False)
        self.image_shape = network.image_shape if spec.convolutions else None
        self.colours_last = network.colours_last
        self.shifts = bool(network.scaling.shift.any())
        self.layers_scale = (
            bool(spec.convolutions) and not self.shifts and not network.scaling.scale.ndim
        )
        """Whether the first layer scales its filters, in place of all pixels."""
        if self.layers_scale:
            assert isinstance(layers[0], Convolution)
            layers[0].input_scale = float(network.scaling.scale)
        for name, values in (("shift", network.scaling.shift), ("scale", network.scaling.scale)):
            tensor = torch.from_numpy(values)
            if self.image_shape is not None and values.ndim:  # one for each pixel, of every frame
                tensor = self._as_image(tensor.expand(network.shape))
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the outputs of observations as the environment gives them."""
        return self.outputs_of(self.scaled(observation))

    def scaled(
        self, observation: torch.Tensor, precision: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Arrange and scale observations as the layers want them."""
        if self.image_shape is not None:
            observation = self._as_image(observation)
        if self.layers_scale:
            return observation.to(precision)  # bfloat16 holds a byte exactly
        scale = self.get_buffer("scale")
        observation = observation.to(scale.dtype)
        if self.shifts:
            observation = observation - self.get_buffer("shift")
        return (observation * scale).to(precision)

    def outputs_of(self, scaled: torch.Tensor, order_only: bool = False) -> torch.Tensor:
        """Return the outputs of observations that have been scaled; see `heads_for`."""
        features = walk(self.body_layers, scaled)[-1]
        return self.combined([walk(head, features)[-1] for head in self.heads_for(order_only)])

    def heads_for(self, order_only: bool) -> list[list[Layer]]:
        """Return the heads to ask. Where only the order of Q-values counts, V can be left out."""
        return self.head_layers[1:] if order_only and self.dueling else self.head_layers

    def combined(self, heads: list[torch.Tensor]) -> torch.Tensor:
        """Put together, in float32, what all heads say or all but V."""
        outputs = (torch.cat(heads, -1) if len(heads) > 1 else heads[0]).float()
        if self.dueling and len(heads) == len(self.head_layers):
            return outputs @ self.get_buffer("mixing").T
        return outputs

    def _as_image(self, observation: torch.Tensor) -> torch.Tensor:
        """Arrange frames, colours and pixels taken together as channels, which come last in memory.

        So arranged, one thread of a CPU went through the convolutions and back a third faster. To
        stack the channels of bytes takes half of the time of `contiguous`.
        """
        assert self.image_shape is not None
        if self.colours_last:
            observation = observation.movedim(-1, -3)
        image = observation.reshape(-1, *self.image_shape)
        if self.together == 1:
            arranged = torch.stack(image.unbind(1), -1)
        elif image.dtype == torch.uint8:
            numbers = image.contiguous().view(NUMBERS[self.together])
            arranged = torch.stack(numbers.unbind(1), -1).view(torch.uint8)
        else:
            groups = image.unflatten(-1, (-1, self.together))  # type: ignore[no-untyped-call]
            arranged = torch.stack(groups.unbind(1), -2).flatten(-2)
        return arranged.movedim(-1, 1)

    def set_parameters(self, parameters: Mapping[str, Array]) -> None:
        """Take weights from named arrays; names or shapes that do not match are refused."""
        self.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in parameters.items()})


SMALLEST_SIDE = 20
"""Pixels; smaller arrays of bytes are taken for vectors."""


def suitable_network(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NetworkSpec:
    """Choose convolutions for images and plain layers for everything else."""
    smallest = smallest_side(shape, dtype)
    if smallest >= 64:
        return NATURE
    if smallest >= SMALLEST_SIDE:
        return SMALL_CONVOLUTIONS
    return NetworkSpec(hidden=(128, 128))


def smallest_side(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the smaller side of byte images, 0 of anything else."""
    if dtype != np.uint8 or len(shape) < 2:
        return 0
    return min(shape[-3:-1] if colours_last(shape) else shape[-2:])


def suitable_scaling(
    space: gym.Space[Any],
    logged: Callable[[int], Array] | None,
    *,
    standardise_pixels: bool = False,
) -> InputScaling:
    """Scale images to [0, 1]; standardise vectors by the logs, or by the space's bounds.

    `logged` returns about so many observations of the logs, where there are any.
    """
    assert isinstance(space, gym.spaces.Box)
    if smallest_side(space.shape, space.dtype) >= SMALLEST_SIDE:
        if standardise_pixels and logged is not None:
            return InputScaling.standard_pixels(logged(5000))
        return InputScaling.pixels()
    if logged is not None:
        # Many, but no more numbers than fit into memory where each observation has thousands.
        return InputScaling.standard(logged(min(100_000, 20_000_000 // math.prod(space.shape) + 1)))
    if space.is_bounded() and np.abs([space.low, space.high]).max() < 1e3:
        return InputScaling.box(space.low, space.high)
    shape = space.shape
    return InputScaling(np.zeros(shape, np.float32), np.ones(shape, np.float32))
