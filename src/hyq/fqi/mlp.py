"""A plain neural network over vectors, with one output per action."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch.nn.functional import linear, mse_loss, relu

from hyq.core.errors import HyqError
from hyq.core.types import Array, FloatArray
from hyq.fqi.classes import DiscreteValueFunction, Regression

Layers = tuple[tuple[torch.Tensor, torch.Tensor], ...]
"""The (weight, bias) of each layer, inputs first."""


@dataclass(frozen=True, eq=False)
class MLPFunction(DiscreteValueFunction):
    """A fitted network, its values clipped to a range; without layers, the zero function."""

    layers: Layers
    actions: int
    value_range: tuple[float, float]

    def values(self, observation: Array) -> FloatArray:
        """Run the network and clip."""
        if not self.layers:
            return np.zeros((len(observation), self.actions), dtype=np.float32)
        with torch.inference_mode():
            output = _forward(self.layers, _inputs(observation))
            clipped: FloatArray = output.clamp(*self.value_range).numpy()
        return clipped

    def arrays(self) -> Mapping[str, Array]:
        """Return the range of values, then weights and biases, layer by layer."""
        named: dict[str, Array] = {"range": np.array(self.value_range)}
        for i, (weight, bias) in enumerate(self.layers):
            named |= {f"weight_{i}": weight.numpy(), f"bias_{i}": bias.numpy()}
        return named

    @classmethod
    def rebuild(cls, arrays: Mapping[str, Array]) -> "MLPFunction":
        """Undo `arrays`, where there are layers."""
        low, high = arrays["range"].tolist()
        layers = tuple(
            (torch.tensor(arrays[f"weight_{i}"]), torch.tensor(arrays[f"bias_{i}"]))
            for i in range(len(arrays) // 2)
        )
        return cls(layers, len(layers[-1][1]), (low, high))


@dataclass(frozen=True)
class MLPClass:
    """ReLU networks of one shape, fitted by minibatch Adam.

    A fit begins at `start`, or at random weights if that is the zero function, and ends with the
    learning rate at zero, so that what it returns is a minimiser and not a point on the way.
    """

    observation_dimension: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    batch_size: int = 128
    updates: int = 1000
    value_range: tuple[float, float] = (0.0, 1.0)
    """[0, V_max] of the paper's classes: values outside are clipped when read."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot fit anything."""
        if self.updates < 1 or self.batch_size < 1 or not self.learning_rate > 0:
            raise HyqError("updates, batch_size and learning_rate must be positive")
        if not self.value_range[0] <= 0.0 <= self.value_range[1]:
            raise HyqError(f"value_range must contain zero, got {self.value_range}")

    def zero(self) -> MLPFunction:
        """Return the zero function."""
        return MLPFunction((), self.actions, self.value_range)

    def fit(self, problem: Regression, start: MLPFunction, rng: np.random.Generator) -> MLPFunction:
        """Descend the weighted squared error.

        Rows are drawn in proportion to their weight, which makes the plain loss of a minibatch an
        unbiased estimate of the weighted one.
        """
        initial = start.layers or self._random_layers(rng)
        layers = tuple(
            (weight.clone().requires_grad_(), bias.clone().requires_grad_())
            for weight, bias in initial
        )
        inputs = _inputs(problem.observation)
        action = torch.as_tensor(problem.action, dtype=torch.int64)[:, None]
        target = torch.as_tensor(problem.target, dtype=torch.float32)[:, None]
        cumulative = np.cumsum(problem.weight)
        cumulative /= cumulative[-1]
        optimiser = torch.optim.Adam([p for layer in layers for p in layer], self.learning_rate)
        for update in range(self.updates):
            for group in optimiser.param_groups:
                group["lr"] = self.learning_rate * (1.0 - update / self.updates)
            draw = np.searchsorted(cumulative, rng.random(self.batch_size), side="right")
            rows = torch.from_numpy(draw)
            predicted = _forward(layers, inputs[rows]).gather(1, action[rows])
            optimiser.zero_grad()
            loss = mse_loss(predicted, target[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        fitted = tuple((weight.detach(), bias.detach()) for weight, bias in layers)
        return MLPFunction(fitted, self.actions, self.value_range)

    def rebuild(self, arrays: Mapping[str, Array]) -> MLPFunction:
        """Take weights and biases back."""
        return MLPFunction.rebuild(arrays) if "weight_0" in arrays else self.zero()

    def _random_layers(self, rng: np.random.Generator) -> Layers:
        """Draw weights and biases uniformly within 1/sqrt(inputs), PyTorch's own default."""
        sizes = (self.observation_dimension, *self.hidden, self.actions)

        def draw(bound: float, *shape: int) -> torch.Tensor:
            return torch.from_numpy(rng.uniform(-bound, bound, shape).astype(np.float32))

        return tuple((draw(n**-0.5, m, n), draw(n**-0.5, m)) for n, m in pairwise(sizes))


def _inputs(observation: Array) -> torch.Tensor:
    # A copy, because logged observations are read-only and torch insists on writable memory.
    return torch.from_numpy(np.array(observation, dtype=np.float32)).flatten(start_dim=1)


def _forward(layers: Layers, inputs: torch.Tensor) -> torch.Tensor:
    activation = inputs
    for weight, bias in layers[:-1]:
        activation = relu(linear(activation, weight, bias))
    weight, bias = layers[-1]
    return linear(activation, weight, bias)
