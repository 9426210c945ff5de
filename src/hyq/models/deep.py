"""Q-networks that learn by gradients: ReLU layers for vectors, convolutions for images.

A learner is told the gradient of the loss *in its outputs* and does the rest: back-propagation,
clipping, Adam, the target network. Every objective here has that gradient in closed form, so one
objective serves both learners: `VectorLearner`, written out in NumPy because on problems of the
size of CartPole the calls of a framework cost five times the arithmetic, and `TorchLearner` for
convolutions, bfloat16 and GPUs.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import nn

from hyq.core.errors import HyqError
from hyq.core.memory import keep_freed_memory
from hyq.core.types import Array, FloatArray, below

Precision = Literal["auto", "float32", "bfloat16"]
"""Arithmetic of the layers; auto takes bfloat16 where the processor has it."""


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
    def box(cls, low: FloatArray, high: FloatArray) -> "InputScaling":
        """Map a bounded box to [-1, 1]."""
        width = np.maximum(high.astype(np.float64) - low, 1e-8)
        middle = low + width / 2
        return cls(middle.astype(np.float32), (2 / width).astype(np.float32))

    @classmethod
    def standard(cls, sample: Array) -> "InputScaling":
        """Give every feature of a sample zero mean and, where it varies, unit variance."""
        deviation = sample.std(axis=0, dtype=np.float64)
        scale: FloatArray = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 1.0)
        mean = sample.mean(axis=0, dtype=np.float64)
        return cls(mean.astype(np.float32), scale.astype(np.float32))

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
        if self.spec.convolutions:
            self._flat_size()

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
        return len(self.shape) >= 3 and self.shape[-1] in (1, 3, 4)

    @property
    def heads(self) -> tuple[int, ...]:
        """Widths of the outputs before they are combined: V where dueling, A, the extras."""
        values = (1, self.actions) if self.spec.dueling else (self.actions,)
        return values + ((self.extra_outputs,) if self.extra_outputs else ())

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

    def _flat_size(self) -> int:
        """Count the features that leave the convolutions."""
        channels, *sides = self.image_shape
        for channels, kernel, stride in self.spec.convolutions:  # noqa: B007
            sides = [(side - kernel) // stride + 1 for side in sides]
        if min(sides) < 1:
            raise HyqError(f"images of {self.shape[1:]} are too small for {self.spec.convolutions}")
        return channels * math.prod(sides)


class TorchNetwork(nn.Module):
    """The network as a PyTorch module."""

    def __init__(self, network: Network) -> None:
        """Lay out the layers; their weights are set by whoever builds it."""
        super().__init__()
        spec = network.spec
        layers: list[nn.Module] = []
        inputs = network.image_shape[0] if spec.convolutions else math.prod(network.shape)
        for channels, kernel, stride in spec.convolutions:
            layers += [nn.Conv2d(inputs, channels, kernel, stride), nn.ReLU()]
            inputs = channels
        layers.append(nn.Flatten())
        if spec.convolutions:
            inputs = network._flat_size()
        for units in spec.hidden:
            layers.append(nn.Linear(inputs, units))
            if spec.normalise:
                layers.append(nn.LayerNorm(units))
            layers.append(nn.ReLU())
            inputs = units
        self.body = nn.Sequential(*layers)
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Linear(inputs, spec.stream_hidden), nn.ReLU(), nn.Linear(spec.stream_hidden, n)
            )
            if spec.stream_hidden
            else nn.Linear(inputs, n)
            for n in network.heads
        )
        self.dueling = spec.dueling
        self.image_shape = network.image_shape if spec.convolutions else None
        self.colours_last = network.colours_last
        self.shifts = bool(network.scaling.shift.any())
        for name, values in (("shift", network.scaling.shift), ("scale", network.scaling.scale)):
            tensor = torch.from_numpy(values)
            if self.image_shape is not None and values.ndim:  # one for each pixel
                tensor = self._as_image(tensor)
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the outputs of observations as the environment gives them."""
        return self.outputs_of(self.scaled(observation))

    def scaled(self, observation: torch.Tensor) -> torch.Tensor:
        """Arrange and scale observations as the layers want them."""
        scale = self.get_buffer("scale")
        observation = observation.to(scale.dtype)
        if self.image_shape is not None:
            observation = self._as_image(observation)
        if self.shifts:
            observation = observation - self.get_buffer("shift")
        return observation * scale

    def outputs_of(self, scaled: torch.Tensor) -> torch.Tensor:
        """Return the outputs of observations that have been scaled."""
        features = self.body(scaled)
        outputs = [head(features) for head in self.heads]
        if self.dueling:
            value, advantage = outputs[:2]
            outputs[:2] = [value + advantage - advantage.mean(-1, keepdim=True)]
        return torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]

    def _as_image(self, observation: torch.Tensor) -> torch.Tensor:
        """Arrange frames and colours as channels, which come last in memory.

        So arranged, one thread of a CPU went through the convolutions and back a third faster.
        """
        assert self.image_shape is not None
        if self.colours_last:
            observation = observation.movedim(-1, -3)
        image = observation.reshape(-1, *self.image_shape)
        return image.contiguous(memory_format=torch.channels_last)

    def set_parameters(self, parameters: Mapping[str, Array]) -> None:
        """Take weights from named arrays; names or shapes that do not match are refused."""
        self.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in parameters.items()})


@dataclass(frozen=True)
class AdamSettings:
    """Adam as every method here uses it."""

    epsilon: float = 1e-8
    weight_decay: float = 0.0
    """Coefficient of the L2 penalty, whose gradient is added after the clipping."""
    max_gradient_norm: float = 10.0


BETAS = (0.9, 0.999)


class Learner(Protocol):
    """A network in training, with its target network and its optimiser."""

    def outputs(self, observation: Array) -> FloatArray:
        """Return the outputs (rows, columns) under the current parameters."""
        ...

    def target_outputs(self, observation: Array) -> FloatArray:
        """Return the outputs under the target parameters."""
        ...

    def both_outputs(self, observation: Array) -> tuple[FloatArray, FloatArray]:
        """Return the outputs under the current and under the target parameters."""
        ...

    def forward(self, observation: Array) -> FloatArray:
        """Return the outputs and remember what `step` needs to go back through them."""
        ...

    def step(self, gradient: FloatArray, learning_rate: float) -> float:
        """Take one step of Adam, given the gradient of the loss in the outputs of `forward`.

        Returns the norm of the gradient in the parameters, before clipping.
        """
        ...

    def synchronise_target(self) -> None:
        """Copy the parameters to the target network."""
        ...

    def parameters(self) -> dict[str, Array]:
        """Copy the parameters out, by name."""
        ...

    def arrays(self) -> dict[str, Array]:
        """Copy the whole state out: parameters, target, moments, number of steps."""
        ...

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take a state that `arrays` gave."""
        ...


def make_learner(
    network: Network,
    rng: np.random.Generator,
    adam: AdamSettings,
    *,
    device: str = "cpu",
    precision: Precision = "auto",
) -> Learner:
    """Choose the learner that is fastest for a network on a device."""
    spec = network.spec
    plain = not (spec.convolutions or spec.stream_hidden or spec.normalise)
    if plain and device == "cpu" and precision != "bfloat16":
        return VectorLearner(network, network.initial(rng), adam)
    bfloat16 = precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))
    return TorchLearner(network, network.initial(rng), adam, device, bfloat16)


def has_bfloat16(device: str) -> bool:
    """Tell whether a device computes in bfloat16; emulated, it is tens of times slower."""
    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported()
    return device == "cpu" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class VectorLearner:
    """ReLU layers with their gradient and Adam written out, on flat vectors of parameters.

    The heads lie one under the other in one last layer: V first where dueling, A, the extras.
    """

    def __init__(
        self, network: Network, initial: Mapping[str, FloatArray], adam: AdamSettings
    ) -> None:
        """Start from named initial weights."""
        self._network, self._adam = network, adam
        heads = [name for name in initial if name.startswith("heads.")]
        names = [name for name in initial if name not in heads]
        names += [name for kind in ("weight", "bias") for name in heads if name.endswith(kind)]
        self._names = list(initial)
        self._shapes = {name: initial[name].shape for name in names}
        self._online = np.concatenate([initial[name].ravel() for name in names])
        self._target = self._online.copy()
        self._gradient = np.zeros_like(self._online)
        self._moments = np.zeros((2, self._online.size), np.float32)
        self._steps = 0
        self._entered: list[FloatArray] = []
        self._online_layers = self._layers(self._online)
        self._target_layers = self._layers(self._target)
        self._gradient_layers = self._layers(self._gradient)

    def _layers(self, flat: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """View a flat vector as the (weight, bias) pairs of the layers."""
        network = self._network
        sizes = (math.prod(network.shape), *network.spec.hidden, sum(network.heads))
        pairs, start = [], 0
        for inputs, units in pairwise(sizes):
            weight = flat[start : (start := start + inputs * units)].reshape(units, inputs)
            pairs.append((weight, flat[start : (start := start + units)]))
        return pairs

    def outputs(self, observation: Array) -> FloatArray:
        """Return the outputs (rows, columns) under the current parameters."""
        return self._forward(self._online_layers, observation)[0]

    def target_outputs(self, observation: Array) -> FloatArray:
        """Return the outputs under the target parameters."""
        return self._forward(self._target_layers, observation)[0]

    def both_outputs(self, observation: Array) -> tuple[FloatArray, FloatArray]:
        """Return the outputs under the current and under the target parameters."""
        return self.outputs(observation), self.target_outputs(observation)

    def _forward(
        self, layers: list[tuple[FloatArray, FloatArray]], observation: Array
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the outputs and what entered each layer."""
        scaling, actions = self._network.scaling, self._network.actions
        x = (observation - scaling.shift) * scaling.scale
        entered = [x.reshape(len(x), -1).astype(np.float32, copy=False)]
        for weight, bias in layers[:-1]:
            x = entered[-1] @ weight.T
            x += bias
            entered.append(np.maximum(x, 0, out=x))
        weight, bias = layers[-1]
        outputs = entered[-1] @ weight.T
        outputs += bias
        if self._network.spec.dueling:
            value, outputs = outputs[:, :1], outputs[:, 1:]
            advantage = outputs[:, :actions]
            advantage += value - advantage.sum(axis=1, keepdims=True) / actions
        return outputs, entered

    def forward(self, observation: Array) -> FloatArray:
        """Return the outputs and remember what `step` needs to go back through them."""
        outputs, self._entered = self._forward(self._online_layers, observation)
        return outputs

    def step(self, gradient: FloatArray, learning_rate: float) -> float:
        """Take one step of Adam, given the gradient of the loss in the outputs of `forward`."""
        self._backward(gradient)
        adam, step = self._adam, self._gradient
        norm = math.sqrt(float(np.dot(step, step)))
        if norm > adam.max_gradient_norm:
            step *= np.float32(adam.max_gradient_norm / norm)
        if adam.weight_decay:
            step += adam.weight_decay * self._online
        self._steps += 1
        (b1, b2), (mean, square) = BETAS, self._moments
        mean *= b1
        mean += (1 - b1) * step
        step *= step
        square *= b2
        square += (1 - b2) * step
        np.sqrt(square, out=step)
        step *= 1 / math.sqrt(1 - b2**self._steps)
        step += adam.epsilon
        np.divide(mean, step, out=step)
        step *= learning_rate / (1 - b1**self._steps)
        self._online -= step
        return norm

    def _backward(self, at_outputs: FloatArray) -> None:
        """Fill the flat gradient from the gradient at the outputs."""
        at = at_outputs
        if self._network.spec.dueling:
            actions = self._network.actions
            total = at_outputs[:, :actions].sum(axis=1, keepdims=True)
            at = np.concatenate((total, at_outputs), axis=1)
            at[:, 1 : 1 + actions] -= total / actions
        for k in reversed(range(len(self._entered))):
            to_weight, to_bias = self._gradient_layers[k]
            np.matmul(at.T, self._entered[k], out=to_weight)
            at.sum(axis=0, out=to_bias)
            if k:
                at = at @ self._online_layers[k][0]
                at *= self._entered[k] > 0

    def synchronise_target(self) -> None:
        """Copy the parameters to the target network."""
        self._target[:] = self._online

    def parameters(self) -> dict[str, Array]:
        """Copy the parameters out, by name."""
        out, start = {}, 0
        for name, shape in self._shapes.items():
            flat = self._online[start : (start := start + math.prod(shape))]
            out[name] = flat.reshape(shape).copy()
        return {name: out[name] for name in self._names}

    def arrays(self) -> dict[str, Array]:
        """Copy the whole state out: parameters, target, moments, number of steps."""
        return {
            "online": self._online.copy(),
            "target": self._target.copy(),
            "moments": self._moments.copy(),
            "steps": np.array(self._steps),
        }

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take a state that `arrays` gave."""
        self._online[:] = arrays["online"]
        self._target[:] = arrays["target"]
        self._moments[:] = arrays["moments"]
        self._steps = int(arrays["steps"])


class TorchLearner:
    """Any network, on any device, in float32 or with bfloat16 arithmetic."""

    def __init__(
        self,
        network: Network,
        initial: Mapping[str, FloatArray],
        adam: AdamSettings,
        device: str,
        bfloat16: bool,
    ) -> None:
        """Start from named initial weights."""
        if device == "cpu":
            keep_freed_memory()
        self._online = network.module()
        self._online.set_parameters(initial)
        self._online.to(device)
        self._online.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._target = copy.deepcopy(self._online).requires_grad_(False)
        self._device, self.bfloat16 = device, bfloat16
        self._max_norm = adam.max_gradient_norm
        self._outputs = torch.empty(0)
        self._weights = list(self._online.parameters())
        self._target_weights = list(self._target.parameters())
        self._optimiser = torch.optim.Adam(
            self._weights, eps=adam.epsilon, weight_decay=adam.weight_decay, betas=BETAS, fused=True
        )

    def _scaled(self, observation: Array) -> torch.Tensor:
        return self._online.scaled(torch.from_numpy(observation).to(self._device))

    def _outputs_of(self, module: TorchNetwork, scaled: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self._device.split(":")[0], torch.bfloat16, enabled=self.bfloat16):
            return module.outputs_of(scaled).float()

    @torch.inference_mode()
    def outputs(self, observation: Array) -> FloatArray:
        """Return the outputs (rows, columns) under the current parameters."""
        return self._outputs_of(self._online, self._scaled(observation)).cpu().numpy()

    @torch.inference_mode()
    def target_outputs(self, observation: Array) -> FloatArray:
        """Return the outputs under the target parameters."""
        return self._outputs_of(self._target, self._scaled(observation)).cpu().numpy()

    @torch.inference_mode()
    def both_outputs(self, observation: Array) -> tuple[FloatArray, FloatArray]:
        """Return the outputs under the current and under the target parameters.

        Images are scaled once for both, which saves a twentieth of an update.
        """
        scaled = self._scaled(observation)
        online, target = (self._outputs_of(m, scaled) for m in (self._online, self._target))
        return online.cpu().numpy(), target.cpu().numpy()

    def forward(self, observation: Array) -> FloatArray:
        """Return the outputs and remember what `step` needs to go back through them."""
        self._outputs = self._outputs_of(self._online, self._scaled(observation))
        return self._outputs.detach().cpu().numpy()

    def step(self, gradient: FloatArray, learning_rate: float) -> float:
        """Take one step of Adam, given the gradient of the loss in the outputs of `forward`."""
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(self._outputs, torch.from_numpy(gradient).to(self._device))
        norm = nn.utils.clip_grad_norm_(self._weights, self._max_norm)
        self._optimiser.param_groups[0]["lr"] = learning_rate
        self._optimiser.step()
        return float(norm)

    def synchronise_target(self) -> None:
        """Copy the parameters to the target network."""
        with torch.no_grad():
            for target, weight in zip(self._target_weights, self._weights, strict=True):
                target.copy_(weight)

    def parameters(self) -> dict[str, Array]:
        """Copy the parameters out, by name."""
        return {k: v.detach().cpu().numpy().copy() for k, v in self._online.named_parameters()}

    def arrays(self) -> dict[str, Array]:
        """Copy the whole state out: parameters, target, moments, number of steps."""
        modules = {"online": self._online, "target": self._target}
        arrays: dict[str, Array] = {
            f"{prefix}.{name}": value.detach().cpu().numpy().copy()
            for prefix, module in modules.items()
            for name, value in module.named_parameters()
        }
        for k, moments in self._optimiser.state_dict()["state"].items():
            arrays |= {f"adam.{k}.{n}": v.cpu().numpy().copy() for n, v in moments.items()}
        return arrays

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take a state that `arrays` gave."""
        for prefix, module in (("online", self._online), ("target", self._target)):
            module.set_parameters(below(prefix, arrays))
        state: dict[int, dict[str, Any]] = {}
        for name, value in below("adam", arrays).items():
            k, moment = name.split(".")
            saved = torch.from_numpy(np.array(value))
            # The fused optimiser goes through memory: moments must lie there as weights do.
            alike = saved if moment == "step" else torch.empty_like(self._weights[int(k)])
            state.setdefault(int(k), {})[moment] = alike.copy_(saved)
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": state, "param_groups": groups})
