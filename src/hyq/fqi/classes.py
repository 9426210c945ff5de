"""What Hy-Q needs of a function class: values, a maximum over actions, and least squares.

To add a class, write one file with two pieces: a `ValueFunction` (one fitted f_h) and a
`FunctionClass` (the set F_h, able to return its zero element and its least-squares minimiser).
The algorithms know nothing else, so a class may enumerate actions, solve a linear program, or
maximise in closed form.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, Self, TypeVar

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array, FloatArray, Transitions


class ValueFunction(ABC):
    """One element f_h of a function class, a dataclass. Immutable: a fit returns a new one."""

    @abstractmethod
    def at(self, observation: Array, action: Array) -> FloatArray:
        """Return f_h(s, a) for each row."""

    @abstractmethod
    def greedy(self, observation: Array) -> Array:
        """Return argmax_a f_h(s, a) for each row."""

    def best(self, observation: Array) -> FloatArray:
        """Return max_a f_h(s, a) for each row."""
        return self.at(observation, self.greedy(observation))

    def arrays(self) -> Mapping[str, Array]:
        """Return the parameters, all fields that are arrays, by name."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)  # type: ignore[arg-type]
            if field.init and isinstance(getattr(self, field.name), np.ndarray)
        }

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        """Return the function of the same class that has the parameters `arrays`."""
        return replace(self, **arrays)  # type: ignore[type-var]


@dataclass(frozen=True)
class Regression:
    """A weighted least-squares problem: the rows of one step h, offline first, then online."""

    observation: Array
    action: Array
    target: FloatArray
    weight: FloatArray
    """Non-negative, summing to one; carries the offline/online proportion."""
    rows: Transitions | None = None
    """What the targets were made of, for a class that fits a model and plans in it ..."""
    next_function: "ValueFunction | None" = None
    """... with this f_{h+1}; None at the last step."""

    @property
    def data(self) -> tuple[Transitions, FloatArray]:
        """The transitions and their weights."""
        if self.rows is None:
            raise ValueError("this regression has no transitions to fit a model to")
        return self.rows, self.weight


F = TypeVar("F", bound=ValueFunction)


class FunctionClass(Protocol[F]):
    """A set F_h of value functions with a least-squares oracle (Algorithm 1, equation 3)."""

    def zero(self) -> F:
        """Return f^1 = 0, what the algorithm starts from."""
        ...

    def fit(self, problem: Regression, start: F, rng: np.random.Generator) -> F:
        """Return the minimiser of the weighted squared error over the class.

        `start` is where an iterative oracle may begin; exact oracles ignore it.
        """
        ...


class DiscreteValueFunction(ValueFunction):
    """A `ValueFunction` over actions 0, ..., A - 1 that can afford to enumerate them."""

    @abstractmethod
    def values(self, observation: Array) -> FloatArray:
        """Return f_h(s, .) for each row, shape (n, A)."""

    def at(self, observation: Array, action: Array) -> FloatArray:
        """Return f_h(s, a) for each row."""
        return self.values(observation)[np.arange(len(action)), action]

    def best(self, observation: Array) -> FloatArray:
        """Return max_a f_h(s, a) for each row."""
        return self.values(observation).max(axis=1)

    def greedy(self, observation: Array) -> Array:
        """Return argmax_a f_h(s, a) for each row; the lowest action wins ties."""
        return self.values(observation).argmax(axis=1)


@dataclass(frozen=True)
class GreedyPolicy:
    """pi^f, which takes argmax_a f_h(s, a) at step h."""

    functions: Sequence[ValueFunction]
    """f_0, ..., f_{H-1}."""

    def __call__(self, h: int, observation: Array) -> Array:
        """Return an action for each row."""
        return self.functions[h].greedy(observation)

    @property
    def horizon(self) -> int:
        """The number of steps the policy knows."""
        return len(self.functions)


def num_actions(space: gym.Space[Any]) -> int:
    """Return how many actions there are, counted from 0 as functions of all actions have it."""
    if not isinstance(space, gym.spaces.Discrete) or space.start != 0:
        raise HyqError(f"actions must be Discrete(n), counted from 0, not {space}")
    return int(space.n)
