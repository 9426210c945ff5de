"""Networks that learn by gradients: what they are asked and told.

A learner is told the gradient of the loss *in its outputs* and does the rest: back-propagation,
clipping, Adam, the target network. Every objective here has that gradient in closed form, so one
objective serves both learners: `VectorLearner` (vector_learner.py), written out in NumPy because on
problems of the size of CartPole the calls of a framework cost five times the arithmetic, and
`TorchLearner` (torch_learner.py) for convolutions, bfloat16 and GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from hyq.core.errors import HyqError
from hyq.core.types import Array, FloatArray
from hyq.models.hands import Errand, Hands

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


@dataclass
class Question:
    """What a network says about observations."""

    observation: Array
    target: bool
    """Whether the target network is asked, or the one that learns."""
    order_only: bool = False
    """Whether the order of a row's Q-values is all that counts: they may be shifted together."""
    inputs: Any = None
    """The observations as the learner's layers want them, once they are."""
    answer: Errand[FloatArray] | None = None
    """Its outputs (rows, columns), once they are being computed."""


class Learner(Protocol):
    """A network in training, with its target network and its optimiser."""

    @property
    def bfloat16(self) -> bool:
        """Whether its layers compute in bfloat16."""
        ...

    @property
    def hands(self) -> Hands:
        """Who does the work; others may hand them jobs as well."""
        ...

    def outputs(self, observation: Array, order_only: bool = False) -> FloatArray:
        """Return the outputs (rows, columns) under the current parameters, as `Question` has it."""
        ...

    def ask(self, questions: Sequence[Question], *, ahead: bool = False) -> None:
        """Begin to answer questions; ahead of its step, only those to the target network."""
        ...

    def forward(
        self, observation: Array, questions: Sequence[Question] = ()
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the outputs, remembering what `step` needs, and the answers to questions."""
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
