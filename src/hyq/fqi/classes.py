"""What Hy-Q needs of a function class: values, a maximum over actions, and least squares.

To add a class, write one file with two pieces: a `ValueFunction` (one fitted f_h) and a
`FunctionClass` (the set F_h, able to return its zero element and its least-squares minimiser).
The algorithms know nothing else, so a class may enumerate actions, solve a linear program, or
maximise in closed form.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self, TypeVar

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
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
            one.name: getattr(self, one.name)
            for one in fields(self)  # type: ignore[arg-type]
            if isinstance(getattr(self, one.name), np.ndarray)
        }

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        """Return the function of the same class that has the parameters `arrays`."""
        return replace(self, **arrays)  # type: ignore[type-var]


F = TypeVar("F", bound=ValueFunction)
F_co = TypeVar("F_co", bound=ValueFunction, covariant=True)


@dataclass(frozen=True)
class Regression:
    """A weighted least-squares problem: the rows of one step h, offline first, then online."""

    rows: Transitions
    target: FloatArray
    weight: FloatArray
    """Non-negative, summing to one; carries the offline/online proportion."""
    next_function: ValueFunction | None = None
    """The f_{h+1} of the targets, for a class that fits a model and plans; None at the end."""
    start: ValueFunction | None = None
    """Where an iterative oracle may begin; exact ones ignore it."""
    streams: Streams = field(default_factory=lambda: Streams(0))
    """Random numbers for an oracle that needs some."""


class FunctionClass(Protocol[F_co]):
    """A set F_h of value functions with a least-squares oracle (Algorithm 1, equation 3)."""

    def zero(self) -> F_co:
        """Return f^1 = 0, what the algorithm starts from."""
        ...

    def fit(self, problem: Regression) -> F_co:
        """Return the minimiser of the weighted squared error over the class."""
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
