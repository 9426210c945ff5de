"""A network of plain ReLU layers that learns, written out in NumPy."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from hyq.core.types import Array, FloatArray
from hyq.models.hands import Hands
from hyq.models.learners import BETAS, AdamSettings, Question
from hyq.models.networks import Network


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
        self.hands = Hands(helped=False)  # the work is too small to share
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

    def outputs(self, observation: Array, order_only: bool = False) -> FloatArray:
        """Return the outputs (rows, columns) under the current parameters, exact in any case."""
        return self._forward(self._online_layers, observation)[0]

    def _forward(
        self, layers: list[tuple[FloatArray, FloatArray]], observation: Array
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the outputs and what entered each layer."""
        scaling, mixing = self._network.scaling, self._network.mixing
        x = (observation - scaling.shift) * scaling.scale
        entered = [x.reshape(len(x), -1).astype(np.float32, copy=False)]
        for weight, bias in layers[:-1]:
            x = entered[-1] @ weight.T
            x += bias
            entered.append(np.maximum(x, 0, out=x))
        weight, bias = layers[-1]
        outputs = entered[-1] @ weight.T
        outputs += bias
        if mixing is not None:
            outputs = outputs @ mixing.T
        return outputs, entered

    def ask(self, questions: Sequence[Question], *, ahead: bool = False) -> None:
        """Leave all questions to `forward`: the work is too small to share."""

    def forward(
        self, observation: Array, questions: Sequence[Question] = ()
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the outputs, remembering what `step` needs, and the answers to questions.

        All that goes through the same network goes together: a pass is more calls than arithmetic.
        """
        riding = [question.observation for question in questions if not question.target]
        together = np.concatenate((observation, *riding)) if riding else observation
        outputs, entered = self._forward(self._online_layers, together)
        self._entered = [rows[: len(observation)] for rows in entered]
        answers, start = [], len(observation)
        for question in questions:
            if question.target:
                answer, _ = self._forward(self._target_layers, question.observation)
            else:
                answer = outputs[start : (start := start + len(question.observation))]
            answers.append(answer)
        return outputs[: len(observation)], answers

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
        at, ones = self._network.at_heads(at_outputs), np.ones(len(at_outputs), np.float32)
        for k in reversed(range(len(self._entered))):
            to_weight, to_bias = self._gradient_layers[k]
            np.matmul(at.T, self._entered[k], out=to_weight)
            np.matmul(ones, at, out=to_bias)  # less than half the time of a sum
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
