"""Stacks of equal networks trained together: one for every step of an episode, or one for all.

The parameters of a stack are one flat vector, so that its whole training state, moments of Adam and
target network included, is a few vectors of one length. Policies that change with the step are as
cheap as those that do not: a batched product runs all hundred networks of a long episode at once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.nn.functional import relu

from hyq.core.errors import HyqError
from hyq.core.types import Array, FloatArray
from hyq.fqi.classes import DiscreteValueFunction

_BETAS, _EPSILON = (0.9, 0.999), 1e-8
"""Adam's constants, at the values its authors gave them."""


@dataclass(frozen=True)
class Stack:
    """The shape of `members` ReLU networks; without hidden layers they are linear."""

    members: int
    inputs: int
    hidden: tuple[int, ...]
    outputs: int

    def __post_init__(self) -> None:
        """Refuse a network without width."""
        if min(self.members, *self._sizes) < 1:
            raise HyqError(f"every layer needs at least one unit, got hidden={self.hidden}")

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.inputs, *self.hidden, self.outputs)

    def initial(self, rng: np.random.Generator) -> torch.Tensor:
        """Draw weights and biases uniformly within 1/sqrt(inputs), PyTorch's own default."""
        parts = []
        for n, m in pairwise(self._sizes):
            for count in (self.members * n * m, self.members * m):
                parts.append(rng.uniform(-(n**-0.5), n**-0.5, count).astype(np.float32))
        return torch.from_numpy(np.concatenate(parts))

    def layers(self, parameters: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """View the flat vector as weights (members, n, m) and biases (members, 1, m)."""
        shapes = [
            shape
            for n, m in pairwise(self._sizes)
            for shape in ((self.members, n, m), (self.members, 1, m))
        ]
        views = torch.split(parameters, [math.prod(shape) for shape in shapes])
        arrays = [view.view(shape) for view, shape in zip(views, shapes, strict=True)]
        return list(zip(arrays[::2], arrays[1::2], strict=True))

    def __call__(self, parameters: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Run member i on `inputs[i]`: (members, n, inputs) to (members, n, outputs)."""
        *first, (weight, bias) = self.layers(parameters)
        activation = inputs.to(parameters.dtype)  # observations may be whole numbers
        for hidden_weight, hidden_bias in first:
            activation = relu(torch.baddbmm(hidden_bias, activation, hidden_weight))
        return torch.baddbmm(bias, activation, weight)

    def following(self, parameters: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Run member h + 1 on `inputs[h]`, where step h led to; a single member takes its own.

        What comes after the last step wraps around to the first member: the caller masks it.
        """
        return self(parameters, inputs.roll(1, 0)).roll(-1, 0)

    def functions(self, parameters: torch.Tensor, horizon: int) -> "tuple[StackMember, ...]":
        """Return f_0, ..., f_{H-1} as they are now; a single member serves every step."""
        layers = [(w.numpy(), b.numpy()) for w, b in self.layers(parameters.detach().clone())]
        members = tuple(
            StackMember(tuple((weight[i], bias[i, 0]) for weight, bias in layers))
            for i in range(self.members)
        )
        return members * (horizon // self.members)


@dataclass(frozen=True, eq=False)
class StackMember(DiscreteValueFunction):
    """One network of a stack, to act with: in NumPy, which is quicker on a handful of rows."""

    layers: tuple[tuple[FloatArray, FloatArray], ...]
    """The (weight, bias) of each layer, inputs first."""

    def values(self, observation: Array) -> FloatArray:
        """Return the outputs for each row."""
        *first, (weight, bias) = self.layers
        activation = observation.reshape(len(observation), -1).astype(np.float32, copy=False)
        for hidden_weight, hidden_bias in first:
            activation = np.maximum(activation @ hidden_weight + hidden_bias, 0)
        output: FloatArray = activation @ weight + bias
        return output

    def arrays(self) -> Mapping[str, Array]:
        """Return weights and biases, layer by layer."""
        named: dict[str, Array] = {}
        for i, (weight, bias) in enumerate(self.layers):
            named |= {f"stack_weight_{i}": weight, f"stack_bias_{i}": bias}
        return named

    @classmethod
    def rebuild(cls, arrays: Mapping[str, Array]) -> "StackMember":
        """Undo `arrays`."""
        return cls(
            tuple(
                (arrays[f"stack_weight_{i}"], arrays[f"stack_bias_{i}"])
                for i in range(len(arrays) // 2)
            )
        )


@dataclass
class Adam:
    """The moving averages of Adam (Kingma and Ba 2015, Algorithm 1) for one flat vector."""

    first: torch.Tensor
    second: torch.Tensor
    updates: int = 0

    @classmethod
    def fresh(cls, parameters: torch.Tensor) -> "Adam":
        """Start from zero moments."""
        return cls(torch.zeros_like(parameters), torch.zeros_like(parameters))

    def descend(self, parameters: torch.Tensor, loss: torch.Tensor, learning_rate: float) -> None:
        """Take one step down the gradient of `loss`, in place."""
        [gradient] = torch.autograd.grad(loss, [parameters])
        self.updates += 1
        with torch.no_grad():
            self.first.lerp_(gradient, 1 - _BETAS[0])
            self.second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
            scale = (self.second / (1 - _BETAS[1] ** self.updates)).sqrt_().add_(_EPSILON)
            rate = learning_rate / (1 - _BETAS[0] ** self.updates)
            parameters.addcdiv_(self.first, scale, value=-rate)

    def copy(self) -> "Adam":
        """Return moments that further steps leave alone."""
        return Adam(self.first.clone(), self.second.clone(), self.updates)

    def arrays(self) -> dict[str, Array]:
        """Return the moments and the count."""
        return {
            "first": self.first.numpy(),
            "second": self.second.numpy(),
            "updates": np.array(self.updates),
        }

    @classmethod
    def rebuild(cls, arrays: Mapping[str, Array]) -> "Adam":
        """Undo `arrays`."""
        first, second = torch.tensor(arrays["first"]), torch.tensor(arrays["second"])
        return cls(first, second, int(arrays["updates"]))


def as_tensor(array: Array) -> torch.Tensor:
    """Wrap a fresh array: floats in single precision, integers as they are indexed with."""
    kind = torch.float32 if np.issubdtype(array.dtype, np.floating) else torch.int64
    return torch.as_tensor(array).to(kind)


def action_count(space: gym.Space[Any]) -> int:
    """Return how many actions there are, counted from 0 as functions of all actions have it."""
    if not isinstance(space, gym.spaces.Discrete) or space.start != 0:
        raise HyqError(f"actions must be Discrete(n), counted from 0, not {space}")
    return int(space.n)
