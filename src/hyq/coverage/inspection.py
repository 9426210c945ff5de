"""What an inspection finds: plain data, for a table, a page or a script."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hyq.core.errors import HyqError
from hyq.coverage.estimate import Interval
from hyq.coverage.features import FeatureKind
from hyq.coverage.scan import EpisodeLinks

UNSUPPORTED_LIMIT = 0.05
"""Above this share of unsupported visits a policy is not covered (1% is chance, of vectors)."""

ESCAPING_TIE = 0.05
"""Shares of unlogged next states closer than this count as equal."""

Severity = Literal["good", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One sentence about the data."""

    severity: Severity
    text: str


@dataclass(frozen=True)
class StepFacts:
    """What the data of one step is like."""

    rows: int
    mean_reward: float
    terminated: float
    action_entropy: float
    """Nats; NaN for vectors."""
    distinct: float
    """Share of different observations in a sample of the step's rows."""
    dimension: float
    """Directions that the sample's observations spread over."""
    unsupported: float
    """Share of the policy's visits without logged support; NaN without a policy."""
    condition: float
    """Relative condition number of the step; NaN without a policy."""
    escaping: float
    """Share of next observations unlike any that the next step logged."""


@dataclass(frozen=True)
class Comparator:
    """The policy that was asked about."""

    features: FeatureKind
    episodes: int
    mean_return: float
    mean_length: float
    """Steps of an episode: its root is C_pi of the policy's own data."""
    transfer: Interval
    condition: Interval
    outside: float
    """Share of the policy's visits outside the span of the data's features."""
    unsupported: float
    """Share of the policy's visits without logged support."""
    first_unsupported: int | None
    """First step at which more than a fifth of the visits has no support."""

    @property
    def covered(self) -> bool:
        """Whether the data supports the policy at all."""
        return self.unsupported <= UNSUPPORTED_LIMIT and math.isfinite(self.transfer.value)


@dataclass(frozen=True)
class Inspection:
    """Everything an inspection found."""

    path: Path
    provenance: dict[str, Any]
    rows: int
    bytes: int
    observation: str
    action: str
    actions: int
    """How many different discrete actions there are; 0 for vectors."""
    reward: tuple[float, float, float]
    """Smallest, mean and largest."""
    reward_sparsity: float
    """Share of transitions without reward."""
    duplicates: float
    episodes: EpisodeLinks
    steps: tuple[StepFacts, ...]
    comparator: Comparator | None
    findings: tuple[Finding, ...] = ()
    verdict: tuple[str, ...] = ()

    @property
    def escaping(self) -> float:
        """Share of next observations unlike any logged at the next step, over all steps.

        Ends of episodes are not counted: nothing is read there.
        """
        alive = [step.rows * (1.0 - step.terminated) for step in self.steps[:-1]]
        lost = sum(n * step.escaping for n, step in zip(alive, self.steps, strict=False))
        return float(lost / max(sum(alive), 1.0))


def easier(left: Inspection, right: Inspection) -> bool | None:
    """Say whether `left` is the better data for the policy both were inspected with; None: a tie.

    Data that covers the policy comes first, then the smaller C_pi. Where the intervals of C_pi
    overlap, the data that leads to fewer unlogged states does: regression targets read values
    there, and online samples have to correct them.
    """
    a, b = _comparators(left, right)
    if a.covered != b.covered:
        return a.covered
    if not a.covered:
        return None
    if not too_close(left, right):
        return a.transfer.value < b.transfer.value
    if abs(left.escaping - right.escaping) < ESCAPING_TIE:
        return None
    return left.escaping < right.escaping


def too_close(left: Inspection, right: Inspection) -> bool:
    """Say whether both cover the policy and C_pi does not tell which is better."""
    a, b = _comparators(left, right)
    apart = a.transfer.high < b.transfer.low or b.transfer.high < a.transfer.low
    return a.covered and b.covered and not apart


def _comparators(left: Inspection, right: Inspection) -> tuple[Comparator, Comparator]:
    if left.comparator is None or right.comparator is None:
        raise HyqError("to compare datasets, inspect both with the same policy")
    return left.comparator, right.comparator


def ranked(found: Sequence[Inspection]) -> list[Inspection]:
    """Sort datasets, the easiest first, so that none stands right behind a harder one.

    Overlaps of intervals are no order: of three, the first may tie with the second, the second
    with the third, and the first still be better than the third. So the values decide, and then
    neighbours change places where `easier` says so, which always comes to an end: each change
    leaves one pair less in the wrong order.
    """

    def difficulty(one: Inspection) -> tuple[bool, float, float]:
        if one.comparator is None:
            raise HyqError("to compare datasets, inspect all with the same policy")
        return not one.comparator.covered, one.comparator.transfer.value, one.escaping

    order = sorted(found, key=difficulty)
    i = 0
    while i + 1 < len(order):
        if easier(order[i + 1], order[i]):
            order[i], order[i + 1] = order[i + 1], order[i]
            i = max(i - 1, 0)
        else:
            i += 1
    return order
