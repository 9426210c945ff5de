"""What an inspection by step finds: plain data, sentences about it, and a ranking."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.filesize import decimal

from hyq.core.errors import HyqError
from hyq.coverage.estimate import Interval
from hyq.coverage.features import FeatureKind
from hyq.coverage.scan import EpisodeLinks

UNSUPPORTED_LIMIT = 0.05
"""Above this share of unsupported visits a policy is not covered (1% is chance, of vectors)."""

ESCAPING_TIE = 0.05
"""Shares of unlogged next states closer than this count as equal."""

BEST_SHARE = 0.1
NEARLY_DETERMINISTIC = 0.1
"""Share of the largest possible entropy below which a step's actions say little about others."""
WELL, THIN = 3.0, 10.0
"""C_pi over that of the policy's own data: well covered up to, thinly up to."""

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
    """The policy that the data is compared with."""

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

    @property
    def policy(self) -> Comparator:
        """The policy that the data was compared with."""
        if self.comparator is None:
            raise HyqError("to compare datasets, inspect all with the same policy")
        return self.comparator

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong or worth knowing, the worst first."""
        order = ("error", "warning", "note", "good")
        notes = sorted(_findings(self), key=lambda note: order.index(note.severity))
        return tuple(notes or [Finding("good", "Nothing is wrong with the numbers themselves.")])

    @cached_property
    def verdict(self) -> tuple[str, ...]:
        """What Hy-Q can compete with, and which assumption is at risk."""
        lines = _about_policy(self.comparator) if self.comparator else _about_episodes(self)
        if self.episodes.continued_after_end:
            lines.insert(0, "First correct the errors below: they would be learned as facts.")
        return (
            *lines,
            "Data alone cannot show realizability and Bellman completeness (Assumption 1): the "
            "class you train must be able to express what the next step's values imply.",
        )

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
    a, b = left.policy, right.policy
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
    a, b = left.policy, right.policy
    apart = a.transfer.high < b.transfer.low or b.transfer.high < a.transfer.low
    return a.covered and b.covered and not apart


def ranked(found: Sequence[Inspection]) -> list[Inspection]:
    """Sort datasets, the easiest first, so that none stands right behind a harder one.

    Overlaps of intervals are no order: of three, the first may tie with the second, the second
    with the third, and the first still be better than the third. So the values decide, and then
    each dataset moves forward as long as it is easier than the one before it.
    """

    def difficulty(one: Inspection) -> tuple[bool, float, float]:
        return not one.policy.covered, one.policy.transfer.value, one.escaping

    order: list[Inspection] = []
    for one in sorted(found, key=difficulty):
        place = len(order)
        while place and easier(one, order[place - 1]):
            place -= 1
        order.insert(place, one)
    return order


def _findings(found: Inspection) -> list[Finding]:
    continued, cut = found.episodes.continued_after_end, found.episodes.cut
    steps = found.steps
    ended = [step.terminated for step in steps if step.rows]
    few = sum(step.rows < 50 for step in steps)
    same = NEARLY_DETERMINISTIC * math.log(max(found.actions, 2))
    fixed = sum(step.action_entropy < same for step in steps)
    tabular = found.observation.startswith("()")
    rewarded = 1 - found.reward_sparsity
    rules: list[tuple[bool, Severity, str]] = [
        (
            continued > 0,
            "error",
            f"{continued:,} transitions are marked as terminated (discount 0) but their episode "
            "continues: a time limit or a reset was logged as an end.",
        ),
        (
            found.episodes.linked > 0.9 and cut > 0,
            "note",
            f"{cut:,} transitions before the last step neither end nor continue: episodes were cut "
            "off, or rows are missing. Cut-off episodes must keep discount 1 (they do).",
        ),
        (
            not any(ended),
            "warning",
            "No transition is terminated. If episodes end by themselves, their last transition "
            "needs discount 0; otherwise values are bootstrapped past the end.",
        ),
        (
            min(ended) == 1.0 and len(steps) > 1,
            "error",
            "Every transition is terminated: discounts are wrong.",
        ),
        (rewarded == 0, "error", "No transition has a reward: there is nothing to learn."),
        (
            0 < rewarded < 0.01,
            "note",
            f"Rewards are sparse: {rewarded:.2%} of the transitions have one.",
        ),
        (
            found.duplicates > 0.01,
            "note" if tabular else "warning",
            f"{found.duplicates:.1%} of the transitions repeat an earlier one exactly. "
            + ("With few states that is expected." if tabular else "Was data merged twice?"),
        ),
        (
            found.escaping > 0.1,
            "warning",
            f"{found.escaping:.0%} of the next observations are unlike any that the next step "
            "logged: values there are guesses until online data corrects them.",
        ),
        (
            few > 0,
            "warning",
            f"{few} of {len(steps)} steps have fewer than 50 transitions.",
        ),
        (
            found.actions > 0 and fixed > 0,
            "note",
            f"At {fixed} of {len(steps)} steps nearly all logged actions are the same: only "
            "policies that take them are covered there.",
        ),
    ]
    return [Finding(severity, text) for holds, severity, text in rules if holds]


def grade(ratio: float) -> str:
    """Say in words how large C_pi is, given how many times that of the policy's own data."""
    if ratio > THIN:
        return "HARDLY COVERED"
    return "WELL COVERED" if ratio <= WELL else "COVERED, THINLY"


def _about_policy(policy: Comparator) -> list[str]:
    who = f"this policy, which earns {policy.mean_return:.3g}"
    if not policy.covered:
        why = f"{policy.unsupported:.0%} of its visits have no logged pair nearby"
        if policy.first_unsupported is not None:
            why += f", most of them from step {policy.first_unsupported} on"
        if policy.unsupported <= UNSUPPORTED_LIMIT:
            why = f"{policy.outside:.0%} of its visits lie outside the span of the logged features"
        return [
            f"NOT COVERED. Nothing guarantees that Hy-Q matches {who}: {why}.",
            "At risk: a finite transfer coefficient C_pi. Log more like this policy, or expect the "
            "online steps to do the exploring.",
        ]
    c, own = policy.transfer, math.sqrt(policy.mean_length)
    estimate = "C_pi is about {} ({} to {})".format(*c.shown(3))
    estimate += f"; the policy's own data would have {own:.3g}"
    if c.high > 2 * c.value:
        return [
            f"UNSURE. {estimate}. The interval is wide because some actions have too few rows a "
            "step for so many features: log more, or for vectors choose fewer (--features network "
            "or fourier).",
        ]
    ratio = c.value / own
    factor = f"about {max(ratio, 1.0) ** 2:.2g} times the samples of such data"
    if ratio > THIN:
        return [
            f"{grade(ratio)}. {estimate}: the guarantee for {who}, needs {factor}.",
            "At risk: a transfer coefficient C_pi small enough to matter.",
        ]
    price = "" if ratio <= WELL else f", for {factor}"
    return [f"{grade(ratio)}. Hy-Q can compete with {who}{price}. {estimate}."]


def _about_episodes(found: Inspection) -> list[str]:
    returns = np.sort(found.episodes.returns)
    best = returns[-max(1, int(BEST_SHARE * len(returns))) :] if len(returns) else returns
    if len(found.steps) == 1 and found.episodes.linked < 0.9:
        return [
            "The rows carry no order: all are of step 0, yet their episodes continue. So the "
            "returns of episodes are unknown. Give the timestep of each row, or whole episodes "
            "(truncated)."
        ]
    if found.episodes.linked < 0.9 or len(returns) < 10:
        return [
            "The transitions are not linked into episodes, so their returns are unknown. Name a "
            "policy (--policy) to learn whether this data covers it."
        ]
    if math.isclose(best.mean(), returns.mean()):
        return [
            f"The {len(returns):,} logged episodes all earn {returns.mean():.3g}, so none says "
            "what to compete with. Name a policy (--policy) to learn whether this data covers it."
        ]
    bound = math.sqrt(len(found.steps) / BEST_SHARE)
    return [
        f"The best tenth of the {len(returns):,} logged episodes earns {best.mean():.3g} on "
        f"average (all: {returns.mean():.3g}). If one policy played them, a tenth of the data is "
        f"its own: its density ratio is <= 10, C_pi <= {bound:.3g}, and Hy-Q can compete with it. "
        "The same holds for acting like them where start and transitions are deterministic.",
        "Elsewhere the best episodes may owe their return to luck, and acting like them may lead "
        "where little was logged; name a policy (--policy) to measure.",
    ]


def facts(found: Inspection) -> dict[str, str]:
    """Return what holds for the whole dataset, as text."""
    returns = found.episodes.returns
    shown = {
        "transitions": f"{found.rows:,} in {len(found.steps)} steps, {decimal(found.bytes)}",
        "observations": found.observation,
        "actions": found.action,
        "reward": f"{found.reward[0]:.3g} to {found.reward[2]:.3g}, mean {found.reward[1]:.3g}",
        "without reward": f"{found.reward_sparsity:.2%}",
        "duplicates": f"{found.duplicates:.2%}",
        "linked into episodes": f"{found.episodes.linked:.1%}",
        "lead to unlogged states": f"{found.escaping:.1%}",
    }
    if found.episodes.linked > 0.9 and len(returns):
        quantiles = np.quantile(returns, [0, 0.5, 0.9, 1])
        shown["episode returns"] = (
            "{:,} episodes: min {:.3g}, median {:.3g}, best tenth above {:.3g}, max {:.3g}".format(
                len(returns), *quantiles
            )
        )
    policy = found.comparator
    if policy is not None:
        shown |= {
            "policy earns": f"{policy.mean_return:.4g} on {policy.episodes} episodes",
            "relative condition number": f"{interval_text(policy.condition)} ({policy.features})",
            "transfer coefficient": interval_text(policy.transfer),
            "visits without support": f"{policy.unsupported:.1%} (of vectors, 1% is chance)",
            "visits outside the span": f"{policy.outside:.1%}",
        }
    return shown


def interval_text(value: Interval, digits: int = 4) -> str:
    """Show a coverage number with its interval."""
    if math.isinf(value.value):
        return "infinite: not covered"
    return "{}, 95% {} to {}".format(*value.shown(digits))
