"""Networks as PyTorch modules: convolutions or plain layers, dueling heads, input scaling.

A network of a user's own is a function of (observation_space, action_space) that returns a module;
`QNetwork` is what is built where none is given.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from hyq.core.errors import HyqError, in_one_line
from hyq.core.images import colours_last
from hyq.core.trees import Tree, flatten, leaves, space_tree, tree_map
from hyq.core.types import Array
from hyq.linear import Linear

NetworkFactory = Callable[[gym.Space[Any], gym.Space[Any]], nn.Module]
"""A function of (observation_space, action_space), where the spaces are as the network sees them:
frames stacked, tuples as dictionaries, actions counted from 0."""


@dataclass(frozen=True)
class Layers:
    """The layers of a network, from its input to its outputs."""

    convolutions: tuple[tuple[int, int, int], ...] = ()
    """(channels, kernel, stride) of each convolution, for images."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of the ReLU layers that every output shares."""
    dueling: bool = True
    """Q(s, a) = V(s) + A(s, a) - mean_b A(s, b), with one scalar V (Wang et al. 2016)."""
    stream_hidden: int = 0
    """Units of a ReLU layer of its own for each of V and A; 0 leaves both linear."""
    layer_norm: bool = False
    """Layer normalisation (Ba et al. 2016) of the hidden layers."""

    def __post_init__(self) -> None:
        sizes = [size for layer in self.convolutions for size in layer] + list(self.hidden)
        if any(size < 1 for size in sizes) or self.stream_hidden < 0:
            raise HyqError(f"every layer needs at least one unit, got {self}")


NATURE = Layers(((32, 8, 4), (64, 4, 2), (64, 3, 1)), hidden=(), stream_hidden=512)
"""Mnih et al. (2015) with the dueling streams of Wang et al. (2016)."""
SMALL = Layers(((32, 6, 3), (32, 3, 2)), hidden=(256,))
"""For 42x42 images on a CPU: a tenth of the arithmetic of `NATURE`."""
NORMALISED = Layers(((16, 6, 3), (32, 3, 2)), hidden=(256,), layer_norm=True)
"""For 42x42 images on a CPU, with 3/5 of the arithmetic of `SMALL`."""
NETWORKS: dict[str, Layers] = {
    "mlp": Layers(),
    "nature": NATURE,
    "small": SMALL,
    "normalised": NORMALISED,
    "unnormalised": replace(NORMALISED, layer_norm=False),
}
"""Layers by name."""
SMALLEST_SIDE = 20
"""Pixels; smaller arrays of bytes are treated as vectors."""
LEAST_STD = 20.0
"""Smallest standard deviation that a pixel is divided by, in 256 shades: pixels that hardly ever
change would otherwise drown all others when they do."""


def is_image(space: gym.Space[Any]) -> bool:
    """Tell images of bytes from anything else."""
    shape = space.shape or ()
    return space.dtype == np.uint8 and len(shape) >= 2 and min(_sides(shape)) >= SMALLEST_SIDE


def default_layers(observation_space: gym.Space[Any]) -> Layers:
    """Choose convolutions for images, by their size, and plain layers for everything else."""
    images = [space for space in leaves(space_tree(observation_space)) if is_image(space)]
    if not images:
        return NETWORKS["mlp"]
    return NATURE if min(min(_sides(space.shape)) for space in images) >= 64 else SMALL


class InputScaling(nn.Module):
    """The fixed affine map that brings an observation near the unit range, saved with the rest."""

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Any = 0.0, scale: Any = 1.0) -> None:
        """Store shift and scale, each a number or one for every entry."""
        super().__init__()
        for name, value in (("shift", shift), ("scale", scale)):
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float32).clone())

    def forward(self, observation: Tensor) -> Tensor:
        """Return (observation - shift) * scale in single precision."""
        # In place, on a copy: every further array of this size costs more than the arithmetic.
        return observation.to(self.scale.dtype, copy=True).sub_(self.shift).mul_(self.scale)

    @classmethod
    def of_space(cls, space: gym.Space[Any]) -> "InputScaling":
        """Map bytes to [0, 1] and a bounded box of a sensible size to [-1, 1]."""
        if is_image(space):
            return cls(0.0, 1 / 255)
        if isinstance(space, gym.spaces.Box) and space.is_bounded():
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            if max(np.abs(low).max(), np.abs(high).max()) < 1e3:
                width = high - low
                # An entry that should never change keeps its size, in case it does.
                scale = np.divide(2.0, width, out=np.ones_like(width), where=width > 0)
                return cls(low + width / 2, scale)
        return cls(np.zeros(space.shape or ()), np.ones(space.shape or ()))

    @classmethod
    def of_data(cls, space: gym.Space[Any], sample: Array) -> "InputScaling":
        """Give every entry of a sample zero mean and unit variance, where it varies."""
        mean, std = sample.mean(axis=0, dtype=np.float64), sample.std(axis=0, dtype=np.float64)
        if is_image(space):
            return cls(mean, 1 / np.maximum(std, LEAST_STD))
        return cls(mean, np.where(std > 1e-6, 1 / np.maximum(std, 1e-6), 1.0))


def input_scaling(
    observation_space: gym.Space[Any],
    sample: Callable[[int], Tree] | None = None,
    *,
    standardise_pixels: bool = False,
) -> dict[str, InputScaling]:
    """Choose the scaling of every leaf of an observation, by its path.

    Vectors are standardised by data where there is some (`sample` returns about so many
    observations), else scaled by the bounds of their space. Images are mapped to [0, 1], or
    standardised pixel by pixel where that is requested.
    """
    spaces = _named(space_tree(observation_space))
    chosen = {name: InputScaling.of_space(space) for name, space in spaces.items()}
    learned = [n for n, space in spaces.items() if standardise_pixels or not is_image(space)]
    if sample is None or not learned:
        return chosen
    # Many, but no more numbers than fit into memory where an observation has thousands.
    entries = sum(math.prod(space.shape or ()) for space in spaces.values())
    rows = _named(sample(min(100_000, 20_000_000 // entries + 1)))
    return chosen | {name: InputScaling.of_data(spaces[name], rows[name]) for name in learned}


class Encoder(nn.Module):
    """Features of an observation: images through convolutions, everything else as it is."""

    def __init__(
        self,
        observation_space: gym.Space[Any],
        layers: Layers,
        scaling: Mapping[str, InputScaling],
    ) -> None:
        """Lay out the layers for every leaf of the space, then the hidden ones for all of them."""
        super().__init__()
        spaces = _named(space_tree(observation_space))
        # Module names may hold no dots, and leaves in a dictionary are named by paths.
        self._paths, self.layers = list(spaces), layers
        self.scalings = nn.ModuleList(scaling[path] for path in spaces)
        self.branches = nn.ModuleList()
        width = 0
        for space in spaces.values():
            branch, size = _branch(space, layers)
            self.branches.append(branch)
            width += size
        hidden: list[nn.Module] = []
        for units in layers.hidden:
            hidden.append(Linear(width, units))
            if layers.layer_norm:
                hidden.append(nn.LayerNorm(units))
            hidden.append(nn.ReLU())
            width = units
        self.hidden = nn.Sequential(*hidden)
        self.width = width

    def forward(self, observation: Tree) -> Tensor:
        """Return features of shape (B, width)."""
        flat = _named(observation)
        parts = [
            branch(scale(flat[path]))
            for path, scale, branch in zip(self._paths, self.scalings, self.branches, strict=True)
        ]
        return self.hidden(parts[0] if len(parts) == 1 else torch.cat(parts, -1))


class SameInBothModes(nn.Module):
    """A module whose layers behave alike when training and not."""

    def train(self, mode: bool = True) -> Self:
        """Set the mode; none of the layers is visited, because agents change it at every step."""
        self.training = mode
        return self


class QNetwork(SameInBothModes):
    """One value for each action: forward(observation) -> (B, outputs)."""

    def __init__(self, encoder: Encoder, layers: Layers, outputs: int) -> None:
        """Put a head, or the two streams of a dueling network, on an encoder."""
        super().__init__()
        self.encoder, self.layers = encoder, layers
        self.advantage = head(encoder.width, layers.stream_hidden, outputs)
        self.value = head(encoder.width, layers.stream_hidden, 1) if layers.dueling else None

    def forward(self, observation: Tree) -> Tensor:
        """Return the value of every action."""
        features = self.encoder(observation)
        advantage: Tensor = self.advantage(features)
        if self.value is None:
            return advantage
        value: Tensor = self.value(features)
        return value + advantage - advantage.mean(-1, keepdim=True)


class ActorCritic(nn.Module):
    """A policy and a number of values on a shared encoder, with orthogonal first weights."""

    def __init__(
        self, observation_space: gym.Space[Any], layers: Layers, actions: int, values: int
    ) -> None:
        """Draw the weights: those of the outputs are small, so that the policy starts uniform."""
        super().__init__()
        encoder = Encoder(observation_space, layers, input_scaling(observation_space))
        self.policy = QNetwork(encoder, replace(layers, dueling=False), actions)
        self.value = head(encoder.width, layers.stream_hidden, values)
        orthogonal_(self)
        for outputs in (self.policy.advantage, self.value):
            *_, last = (layer for layer in outputs.modules() if isinstance(layer, nn.Linear))
            nn.init.orthogonal_(last.weight, 0.01)

    def forward(self, observation: Tree) -> tuple[Tensor, Tensor]:
        """Return logits (B, actions) and values (B, values)."""
        features = self.policy.encoder(observation)
        return self.policy.advantage(features), self.value(features)


def orthogonal_(module: nn.Module) -> None:
    """Draw orthogonal weights (Saxe et al. 2014), scaled for ReLU layers; biases are zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)


@dataclass(frozen=True)
class EncoderConfig:
    """Which layers see the observation, where the user gives no network."""

    network: str = "auto"
    """auto: by the observations. mlp; nature: Mnih et al. (2015); small, normalised, unnormalised:
    three kinds for images of 42x42."""
    hidden: tuple[int, ...] | None = None
    """Units of the hidden layers; the network's own by default."""
    standardise_pixels: bool = False
    """Scale each pixel by its mean and std in the data, not all alike: where images mostly stay
    the same, what moves then stands out."""

    def __post_init__(self) -> None:
        if self.network not in ("auto", *NETWORKS):
            raise HyqError(f"no network {self.network!r}: choose from auto, {', '.join(NETWORKS)}")
        Layers(hidden=self.hidden or ())

    def layers(self, observation_space: gym.Space[Any]) -> Layers:
        """Return the layers for a space."""
        named = NETWORKS.get(self.network) or default_layers(observation_space)
        return named if self.hidden is None else replace(named, hidden=self.hidden)


@dataclass(frozen=True)
class NetworkConfig(EncoderConfig):
    """Which network learns, where the user gives none."""

    dueling: bool | None = None
    """Override the network's dueling head; None keeps it."""

    def layers(self, observation_space: gym.Space[Any]) -> Layers:
        """Return the layers for a space."""
        named = super().layers(observation_space)
        return named if self.dueling is None else replace(named, dueling=self.dueling)


class EncoderFactory:
    """Builds encoders for one agent, all of them scaled by one sample of data if there is one."""

    def __init__(
        self, config: EncoderConfig, space: gym.Space[Any], sample: Callable[[int], Tree] | None
    ) -> None:
        """Choose the layers; the scaling is worked out when it is first needed."""
        self.space, self.layers = space, config.layers(space)
        self._config, self._sample = config, sample

    @cached_property
    def _scalings(self) -> dict[str, InputScaling]:
        pixels = self._config.standardise_pixels
        return input_scaling(self.space, self._sample, standardise_pixels=pixels)

    def __call__(self, layers: Layers | None = None) -> Encoder:
        """Build a new encoder."""
        fresh = {n: InputScaling(s.shift, s.scale) for n, s in self._scalings.items()}
        return Encoder(self.space, layers or self.layers, fresh)

    def q_network(self, outputs: int) -> "QNetwork":
        """Build a network of so many values."""
        return QNetwork(self(), self.layers, outputs)


def num_actions(space: gym.Space[Any]) -> int:
    """Return how many actions a discrete space has."""
    if not isinstance(space, gym.spaces.Discrete):
        raise HyqError(f"this algorithm needs discrete actions, the environment has {space}")
    return int(space.n)


class Autocast(nn.Module):
    """A network whose layers compute in bfloat16 while its inputs and outputs are float32.

    Its parameters had better be in bfloat16 too: converted in every pass, they take longer than
    the layers.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, observation: Tree) -> Tensor:
        """Return the module's outputs in float32."""
        device = next(leaves(observation)).device.type
        with torch.autocast(device, dtype=torch.bfloat16):
            outputs: Tensor = self.module(observation)
        return outputs.float()


def check_network(network: nn.Module, space: gym.Space[Any], outputs: int, device: str) -> None:
    """Raise unless a network's outputs for two made-up observations have their shape."""
    found = tried(network, (made_up_rows(space, device),), f"observations of {space}")
    if not isinstance(found, Tensor) or found.shape != (2, outputs):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise HyqError(
            f"the network must return a tensor (batch, {outputs}), for 2 rows it gave {shape}"
        )


def made_up_rows(space: gym.Space[Any], device: str) -> Tree:
    """Return two observations of nothing but zeros."""
    return tree_map(
        lambda part: torch.as_tensor(np.zeros((2, *part.shape), part.dtype)).to(device),
        space_tree(space),
    )


def tried(network: nn.Module, inputs: tuple[Tree, ...], what: str) -> Any:
    """Return what a network makes of inputs; raise in one line where it cannot read them."""
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            return network(*inputs)
    except Exception as error:
        raise HyqError(f"the network cannot read {what}: {in_one_line(error)}") from error
    finally:
        network.train(was_training)


def leaf_paths(space: gym.Space[Any]) -> list[str]:
    """Return the paths of a space's leaves, in the order of the encoder's branches."""
    return list(_named(space_tree(space)))


def _named(tree: Tree) -> dict[str, Any]:
    """Name the leaves by their paths; a tree that is one leaf has the empty path."""
    return flatten(tree) if isinstance(tree, Mapping) else {"": tree}


def _branch(space: gym.Space[Any], layers: Layers) -> tuple[nn.Module, int]:
    """Return the layers of one leaf, and how many features they make of it."""
    shape = space.shape or ()
    if not (is_image(space) and layers.convolutions):
        return nn.Flatten(), math.prod(shape)
    last, sides = colours_last(shape), list(_sides(shape))
    channels = math.prod(shape) // math.prod(sides)
    parts: list[nn.Module] = [ChannelsFirst(last, channels)]
    for out, kernel, stride in layers.convolutions:
        parts += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
        channels, sides = out, [(side - kernel) // stride + 1 for side in sides]
    if min(sides) < 1:
        raise HyqError(f"images of {shape} are too small for convolutions {layers.convolutions}")
    return nn.Sequential(*parts, nn.Flatten()), channels * math.prod(sides)


class ChannelsFirst(nn.Module):
    """Arrange frames and colours as the channels of one image."""

    def __init__(self, colours_last: bool, channels: int) -> None:
        super().__init__()
        self._last, self._channels = colours_last, channels

    def forward(self, images: Tensor) -> Tensor:
        """Return images of shape (B, channels, height, width)."""
        if self._last:
            images = images.movedim(-1, -3)
        return images.reshape(-1, self._channels, *images.shape[-2:])


def _sides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the height and width of an image."""
    return shape[-3:-1] if colours_last(shape) else shape[-2:]


def head(width: int, hidden: int, outputs: int) -> nn.Module:
    """Return a linear map to the outputs, after a ReLU layer of its own if `hidden` has units."""
    if not hidden:
        return Linear(width, outputs)
    return nn.Sequential(Linear(width, hidden), nn.ReLU(), Linear(hidden, outputs))
