"""A plain neural network over vectors, with one output per action."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import softmax

from hyq.core.errors import HyqError
from hyq.core.seeding import torch_seed
from hyq.core.settings import check_choices, check_positive
from hyq.core.types import Array, FloatArray
from hyq.ensembles import Activation, Ensemble
from hyq.fqi.classes import DiscreteValueFunction, Regression
from hyq.losses import chosen, squared_loss

Layers = tuple[tuple[FloatArray, FloatArray], ...]
"""The (weight (inputs, outputs), bias) of each layer, inputs first."""


@dataclass(frozen=True, eq=False)
class MLPFunction(DiscreteValueFunction):
    """A fitted network, its values clipped to a range; in NumPy, quicker on a handful of rows."""

    layers: Layers
    value_range: tuple[float, float] = (-np.inf, np.inf)
    activation: Activation = "relu"

    def hidden(self, observation: Array) -> FloatArray:
        """Return the activations of the last hidden layer, which the values are linear in."""
        activation = observation.reshape(len(observation), -1).astype(np.float32, copy=False)
        for weight, bias in self.layers[:-1]:
            logits = activation @ weight + bias
            relu = self.activation == "relu"
            activation = np.maximum(logits, 0) if relu else softmax(logits, axis=-1)
        return activation

    def values(self, observation: Array) -> FloatArray:
        """Run the network and clip."""
        weight, bias = self.layers[-1]
        return np.clip(self.hidden(observation) @ weight + bias, *self.value_range)

    def arrays(self) -> Mapping[str, Array]:
        """Return the range of values and the activation, then weights and biases by layer."""
        named: dict[str, Array] = {"range": np.array(self.value_range)}
        if self.activation == "softmax":
            named["softmax"] = np.array(True)
        for i, (weight, bias) in enumerate(self.layers):
            named |= {f"kernel_{i}": weight, f"bias_{i}": bias}
        return named

    def with_arrays(self, arrays: Mapping[str, Array]) -> "MLPFunction":
        """Return the function with these parameters, of any shape."""
        low, high = arrays["range"].tolist()
        count = sum(name.startswith("kernel") for name in arrays)
        layers = tuple((arrays[f"kernel_{i}"], arrays[f"bias_{i}"]) for i in range(count))
        return MLPFunction(layers, (low, high), "softmax" if "softmax" in arrays else "relu")


@dataclass(frozen=True)
class MLPClass:
    """Networks of one shape, fitted by minibatch Adam.

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
    activation: Activation = "relu"
    """With "softmax" and one hidden layer of three units this is the paper's class for the lock."""

    def __post_init__(self) -> None:
        check_positive(self, "updates", "batch_size", "learning_rate")
        check_choices(self)
        if not self.value_range[0] <= 0.0 <= self.value_range[1]:
            raise HyqError(f"value_range must contain zero, got {self.value_range}")

    def zero(self) -> MLPFunction:
        """Return the zero function."""
        weight = np.zeros((self.observation_dimension, self.actions), np.float32)
        layer = weight, np.zeros(self.actions, np.float32)
        return MLPFunction((layer,), self.value_range, self.activation)

    def fit(self, problem: Regression) -> MLPFunction:
        """Descend the weighted squared error.

        Rows are drawn in proportion to their weight, which makes the plain loss of a minibatch an
        unbiased estimate of the weighted one.
        """
        rng, start = problem.streams.generator(), problem.start
        sizes = self.observation_dimension, self.hidden, self.actions
        with torch_seed(int(rng.integers(2**31))):
            network = Ensemble(1, *sizes, activation=self.activation)
        if isinstance(start, MLPFunction) and start.layers[-1][0].any():
            with torch.no_grad():
                for i, (weight, bias) in enumerate(start.layers):
                    network.weights[i].copy_(torch.tensor(weight))
                    network.biases[i].copy_(torch.tensor(bias))
        # A copy, because logged observations are read-only and torch insists on writable memory.
        inputs = torch.tensor(problem.rows.observation, dtype=torch.float32).flatten(start_dim=1)
        action = torch.as_tensor(problem.rows.action, dtype=torch.int64)
        target = torch.as_tensor(problem.target, dtype=torch.float32)
        cumulative = np.cumsum(problem.weight)
        cumulative /= cumulative[-1]
        optimizer = torch.optim.Adam(network.parameters(), self.learning_rate, fused=True)
        for update in range(self.updates):
            optimizer.param_groups[0]["lr"] = self.learning_rate * (1.0 - update / self.updates)
            draw = np.searchsorted(cumulative, rng.random(self.batch_size), side="right")
            rows = torch.from_numpy(draw)
            error = chosen(network(inputs[rows])[0], action[rows]) - target[rows]
            optimizer.zero_grad()
            squared_loss(error).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return member_functions(network, self.value_range)[0]


def member_functions(
    network: Ensemble, value_range: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[MLPFunction, ...]:
    """Return the members as they are now; later training does not change them."""
    weights, biases = (
        [parameter.detach().numpy().copy() for parameter in parameters]
        for parameters in (network.weights, network.biases)
    )
    return tuple(
        MLPFunction(
            tuple((w[i], b[i, 0]) for w, b in zip(weights, biases, strict=True)),
            value_range,
            network.activation,
        )
        for i in range(network.members)
    )
