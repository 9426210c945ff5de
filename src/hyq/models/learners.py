"""Networks that learn by gradients.

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
from hyq.models.networks import Network, TorchNetwork

Precision = Literal["auto", "float32", "bfloat16"]
"""Arithmetic of the layers; auto takes bfloat16 where the processor has it."""


@dataclass(frozen=True)
class AdamSettings:
    """Adam as every method here uses it."""

    epsilon: float = 1e-8
    weight_decay: float = 0.0
    """Coefficient of the L2 penalty, whose gradient is added after the clipping."""
    max_gradient_norm: float = 10.0
    """Gradients that are longer are shortened to it."""

    def __post_init__(self) -> None:
        """Refuse what would turn steps around, or stop them."""
        if not (self.epsilon > 0 and self.weight_decay >= 0 and self.max_gradient_norm > 0):
            raise HyqError(
                "Adam's epsilon and max_gradient_norm must be positive and weight_decay not "
                f"negative, got {self.epsilon}, {self.max_gradient_norm} and {self.weight_decay}"
            )


BETAS = (0.9, 0.999)


class Learner(Protocol):
    """A network in training, with its target network and its optimiser."""

    @property
    def bfloat16(self) -> bool:
        """Whether its layers compute in bfloat16."""
        ...

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


def check_device(device: str) -> None:
    """Refuse a device that PyTorch does not have here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise HyqError(
            f"no device {device!r} here: choose cpu, or cuda where PyTorch finds a graphics card"
        ) from None


def has_bfloat16(device: str) -> bool:
    """Tell whether a device computes in bfloat16; emulated, it is tens of times slower."""
    if device.startswith("cuda"):
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    if device != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class VectorLearner:
    """ReLU layers with their gradient and Adam written out, on flat vectors of parameters.

    The heads lie one under the other in one last layer: V first where dueling, A, the extras.
    """

    bfloat16 = False

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
        check_device(device)
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
