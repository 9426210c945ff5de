"""A network of any kind that learns in PyTorch, on any device, and on a CPU with two hands.

All parameters lie in one vector, and so do their gradient and Adam's moments. The layers see views
of it or, where they compute in bfloat16, of a rounded copy that every step renews.

On two threads a step shares out whole operations instead of letting both work on each: the
gradients in the weights beside the way back, and Adam's step in pieces. Questions are answered a
layer at a time, whenever there is time for it. See `hands.py` for why.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hyq.core.errors import HyqError
from hyq.core.memory import keep_freed_memory
from hyq.core.types import Array, FloatArray, below
from hyq.models.hands import Hands, Steps
from hyq.models.layers import (
    Convolution,
    Dense,
    Gradient,
    Normalisation,
    Rectifier,
    length,
    walk,
    walk_back,
)
from hyq.models.learners import BETAS, AdamSettings, Question
from hyq.models.networks import Network, TorchNetwork

PIECE = 2**18
"""Parameters that are stepped at a time: with many more of them, what a core has at hand is in
memory again before it is rounded; with fewer, the calls take longer than the arithmetic."""


def check_device(device: str) -> None:
    """Refuse a device that PyTorch does not have here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise HyqError(
            f"no device {device!r} here: choose cpu, or cuda where PyTorch finds a graphics card"
        ) from None


class TorchLearner:
    """Any network, on any device, in float32 or with layers that compute in bfloat16."""

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
        self.bfloat16, self.hands = bfloat16, Hands(helped=device == "cpu")
        self._network, self._adam, self._device = network, adam, device
        self._precision = torch.bfloat16 if bfloat16 else torch.float32
        self._shapes = {name: value.shape for name, value in initial.items()}
        size = sum(math.prod(shape) for shape in self._shapes.values())
        self._online, self._target, self._mean, self._square = (
            torch.zeros(size, device=device) for _ in range(4)
        )
        # Without rounding these two are the parameters themselves.
        self._rounded = self._online.to(self._precision)
        self._rounded_target = self._target.to(self._precision)
        self._gradient = torch.zeros_like(self._rounded)
        vectors = (self._online, self._gradient, self._mean, self._square, self._rounded)
        at_a_time = PIECE if device == "cpu" else size  # a graphics card has enough to do at once
        self._steps = torch.zeros((), device=device)
        self._pieces = [
            _Piece(*parts)
            for parts in zip(*(torch.split(vector, at_a_time) for vector in vectors), strict=True)
        ]
        self._learning = self._module(self._online, self._rounded)
        self._settled = self._module(self._target, self._rounded_target)
        self._gradients = self._room_for_gradients()
        self._entered: list[Tensor] = []
        """What entered each layer of the body, and what left it, in the last `forward`."""
        self._entered_heads: list[list[Tensor]] = []
        self._ahead: Sequence[Question] = ()
        """Questions of a step yet to come, which the target network is answering."""
        self._fill(self._online, initial)
        self._rounded.copy_(self._online)
        self.synchronise_target()

    def _views(self, vector: Tensor) -> dict[str, Tensor]:
        """View a vector as parameters by name; of filters, channels come last in memory."""
        views, start = {}, 0
        for name, shape in self._shapes.items():
            part = vector[start : (start := start + math.prod(shape))]
            if len(shape) == 4:
                filters, channels, *sides = shape
                views[name] = part.view(filters, *sides, channels).permute(0, 3, 1, 2)
            else:
                views[name] = part.view(shape)
        return views

    def _module(self, exact: Tensor, rounded: Tensor) -> TorchNetwork:
        """Build the network on vectors of parameters; normalisation computes with exact ones."""
        module = self._network.module().to(self._device)
        values, precise = self._views(rounded), self._views(exact)
        for name, layer in _with_weights(module):
            source = precise if isinstance(layer, Normalisation) else values
            layer.weight = nn.Parameter(source[f"{name}.weight"], requires_grad=False)
            layer.bias = nn.Parameter(source[f"{name}.bias"], requires_grad=False)
        return module

    def _room_for_gradients(self) -> list[Gradient]:
        """Tell the layers that learn where their gradients go."""
        room, gradients = self._views(self._gradient), []
        for name, layer in _with_weights(self._learning):
            layer.gradient = Gradient(room[f"{name}.weight"], room[f"{name}.bias"])
            gradients.append(layer.gradient)
        return gradients

    def _scaled(self, observation: Array) -> Tensor:
        rows = torch.from_numpy(observation).to(self._device)
        return self._learning.scaled(rows, self._precision)

    def outputs(self, observation: Array, order_only: bool = False) -> FloatArray:
        """Return the outputs (rows, columns) under the current parameters, as `Question` has it."""
        with self.hands:
            return _array(self._learning.outputs_of(self._scaled(observation), order_only))

    def ask(self, questions: Sequence[Question], *, ahead: bool = False) -> None:
        """Begin to answer questions; ahead of its step, only those to the target network."""
        if ahead:
            self._ahead = questions
        for question in questions:
            if question.answer is None and (question.target or not ahead):
                question.answer = self.hands.errand(self._answer(question, questions))

    def _answer(self, question: Question, questions: Sequence[Question]) -> Steps[FloatArray]:
        """Answer one of several questions, a layer at a time."""
        if question.inputs is None:
            inputs = self._scaled(question.observation)
            for other in questions:
                if other.observation is question.observation:
                    other.inputs = inputs
            yield
        module = self._settled if question.target else self._learning
        features: Tensor = question.inputs
        for layer in module.body_layers:
            features = layer.forward(features)
            if isinstance(layer, Rectifier):  # with it, a layer is done
                yield
        heads = []
        for head in module.heads_for(question.order_only):
            heads.append(walk(head, features)[-1])
            yield
        return _array(module.combined(heads))

    def forward(
        self, observation: Array, questions: Sequence[Question] = ()
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the outputs, remembering what `step` needs, and the answers to questions."""
        self.ask(questions)
        if self._ahead is questions:
            self._ahead = ()
        with self.hands:
            module = self._learning
            self._entered = walk(module.body_layers, self._scaled(observation))
            self._entered_heads = [walk(head, self._entered[-1]) for head in module.head_layers]
            outputs = module.combined([entered[-1] for entered in self._entered_heads])
        return _array(outputs), [q.answer.result() for q in questions if q.answer]

    def step(self, gradient: FloatArray, learning_rate: float) -> float:
        """Take one step of Adam, given the gradient of the loss in the outputs of `forward`."""
        with self.hands as later:
            with self.hands:
                self._walk_back(gradient)
            norm = length(self._gradients)
            limit = self._adam.max_gradient_norm
            shortened = limit / norm if norm > limit else 1.0
            self._steps += 1
            for piece in self._pieces:
                later(partial(self._step_piece, piece, shortened, learning_rate))
        return norm

    def _walk_back(self, gradient: FloatArray) -> None:
        """Fill the gradient in the parameters from that in the outputs of `forward`."""
        module, later = self._learning, self.hands.later
        at_heads = torch.from_numpy(self._network.at_heads(gradient))
        parts = torch.split(
            at_heads.to(self._device, self._precision), list(self._network.heads), dim=1
        )
        at_features = [
            walk_back(layers, entered, at, later, below=module.body_learns)
            for layers, entered, at in zip(
                module.head_layers, self._entered_heads, parts, strict=True
            )
        ]
        if module.body_learns:
            at = sum(at_features[1:], start=at_features[0])
            walk_back(module.body_layers, self._entered, at, later, below=False)
        self._entered, self._entered_heads = [], []

    def _step_piece(self, piece: "_Piece", shortened: float, learning_rate: float) -> None:
        """Take Adam's step on a piece of the parameters, and round it while it is at hand."""
        torch._fused_adam_(  # what PyTorch's optimiser calls, without its checks of every piece
            [piece.weight],
            [piece.gradient.float()],
            [piece.mean],
            [piece.square],
            [],
            [self._steps],
            lr=learning_rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=self._adam.weight_decay,
            eps=self._adam.epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=torch.tensor(1 / shortened, device=self._device) if shortened < 1 else None,
        )
        if self.bfloat16:
            piece.rounded.copy_(piece.weight)

    def synchronise_target(self) -> None:
        """Copy the parameters to the target network, and ask it again what it is being asked."""
        for question in self._ahead:
            if question.target and question.answer is not None:
                question.answer.give_up()
                question.answer = None
        self._target.copy_(self._online)
        self._rounded_target.copy_(self._rounded)
        self.ask(self._ahead, ahead=True)

    def parameters(self) -> dict[str, Array]:
        """Copy the parameters out, by name."""
        return {name: _copied(view) for name, view in self._views(self._online).items()}

    def arrays(self) -> dict[str, Array]:
        """Copy the whole state out: parameters, target, moments, number of steps."""
        arrays = {
            f"{prefix}.{name}": _copied(view)
            for prefix, vector in self._state.items()
            for name, view in self._views(vector).items()
        }
        return {**arrays, "steps": np.array(int(self._steps))}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take a state that `arrays` gave."""
        for prefix, vector in self._state.items():
            self._fill(vector, below(prefix, arrays))
        self._steps.fill_(int(arrays["steps"]))
        self._rounded.copy_(self._online)
        self._rounded_target.copy_(self._target)

    @property
    def _state(self) -> dict[str, Tensor]:
        return {
            "online": self._online,
            "target": self._target,
            "mean": self._mean,
            "square": self._square,
        }

    def _fill(self, vector: Tensor, parameters: Mapping[str, Array]) -> None:
        """Fill a vector from named arrays; names or shapes that do not match are refused."""
        if {name: np.shape(value) for name, value in parameters.items()} != self._shapes:
            raise HyqError("these are the weights of another network, or of another version of hyq")
        views = self._views(vector)
        for name, value in parameters.items():
            views[name].copy_(torch.from_numpy(np.array(value)))


def _with_weights(module: TorchNetwork) -> list[tuple[str, Convolution | Dense | Normalisation]]:
    return [
        (name, layer)
        for name, layer in module.named_modules()
        if isinstance(layer, Convolution | Dense | Normalisation)
    ]


class _Piece(NamedTuple):
    """A piece of the parameters, and of all that a step needs of it."""

    weight: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor
    rounded: Tensor


def _array(tensor: Tensor) -> FloatArray:
    return tensor.detach().float().cpu().numpy()


def _copied(tensor: Tensor) -> Array:
    return tensor.cpu().numpy().copy()
