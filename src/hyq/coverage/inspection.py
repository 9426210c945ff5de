"""What an inspection finds: plain data, for a table, a page or a script."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hyq.coverage.estimate import Interval
from hyq.coverage.features import FeatureKind
from hyq.coverage.scan import Episodes

UNSUPPORTED_LIMIT = 0.05
"""Above this share of unsupported visits a policy is not covered (1% is what chance gives)."""

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


@dataclass(frozen=True)
class Comparator:
    """The policy that was asked about."""

    features: FeatureKind
    episodes: int
    mean_return: float
    transfer: Interval
    condition: Interval
    outside: float
    unsupported: float
    first_unsupported: int | None
    """First step at which more than a fifth of the visits has no support."""

    @property
    def difficulty(self) -> float:
        """What to rank datasets by: the condition number, infinite without support."""
        return math.inf if self.unsupported > UNSUPPORTED_LIMIT else self.condition.value


@dataclass(frozen=True)
class Inspection:
    """Everything an inspection found."""

    path: Path
    provenance: dict[str, Any]
    rows: int
    bytes: int
    observation: str
    action: str
    reward: tuple[float, float, float]
    """Smallest, mean and largest."""
    reward_sparsity: float
    """Share of transitions without reward."""
    duplicates: float
    broken: dict[str, int]
    altered: tuple[str, ...]
    episodes: Episodes
    steps: tuple[StepFacts, ...]
    comparator: Comparator | None
    findings: tuple[Finding, ...] = ()
    verdict: tuple[str, ...] = ()
