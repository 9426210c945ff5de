"""An inspection of whole episodes: what each dataset covers, said in a verdict and in facts."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.stats import entropy

from hyq.coverage.cells import (
    Best,
    CellCoverage,
    CellData,
    Comparison,
    Grid,
    cell_coverage,
    ranked,
)
from hyq.coverage.inspection import Finding, grade, interval_text
from hyq.data.columns import described
from hyq.data.dataset import Dataset

LIMIT_SHARE = 0.1
"""Share of episodes that end after the very same number of steps by a limit, hardly by chance."""


@dataclass(frozen=True)
class EpisodesInspection:
    """What was found in some datasets of whole episodes."""

    datasets: dict[str, Dataset]
    cells: dict[str, CellData]
    best: Best
    coverage: list[CellCoverage]
    """The easiest dataset first."""
    comparisons: list[Comparison]
    meets_itself: bool = True
    """Whether a policy's own episodes would cover it: otherwise cells are too fine to tell."""

    @property
    def known(self) -> list[CellCoverage]:
        """Datasets whose coverage is known, the easiest first."""
        return [one for one in self.coverage if one.known and self.meets_itself]

    @classmethod
    def of(
        cls,
        datasets: dict[str, Dataset],
        progress: Callable[[int], None] = lambda rows: None,
        played: tuple[str, Dataset] | None = None,
    ) -> "EpisodesInspection":
        """Read the datasets once, and compare them with the best of all their episodes.

        Or with those that a policy, by its name, has `played`.
        """
        shared = Grid.of(list(datasets.values()))
        cells = {name: CellData.of(name, one, shared, progress) for name, one in datasets.items()}
        best, meets_itself = Best.of(list(cells.values())), True
        if played is not None:
            own = CellData.of(*played, shared, played=True)
            best = Best.played(own, list(cells.values()))
            meets_itself = cell_coverage(own, best).known
        order, steps = ranked([cell_coverage(one, best) for one in cells.values()])
        return cls(datasets, cells, best, order, steps, meets_itself)

    @cached_property
    def verdict(self) -> list[str]:
        """What Hy-Q can compete with given each dataset, and which of them is better."""
        best = self.best
        whose = "of all" if len(self.datasets) > 1 else "of the"
        who = f"The {len(best.visits)} best {whose} {best.pooled} different episodes earn"
        if best.policy is not None:
            who = f"In {len(best.visits)} episodes of its own the policy {best.policy} earns"
        which = "each dataset" if len(self.datasets) > 1 else "the dataset"
        lines = []
        if len(self.known) > 1:
            lines.append(
                "Easiest first: " + ", then ".join(one.name for one in self.coverage) + "."
            )
        lines += [f"{one.name}: {_grade(one, self)}" for one in self.coverage]
        lines.append(f"{who} {best.mean_return:,.4g} on average: {which} is compared with these.")
        lines += [
            f"{right.name} has a smaller C_pi, but {_drawback(right, left)}."
            for left, right in pairwise(self.known)
            if right.transfer.value < left.transfer.value
        ]
        for step in self.comparisons if self.known else ():
            doubt = "; the episodes are too few to be sure" if step.is_tie else ""
            factor, low, high = step.factor.shown(2)
            lines.append(
                f"For {step.worse} it asks for {factor} times the samples of {step.better} "
                f"({low} to {high}{doubt})."
            )
        return lines

    @cached_property
    def findings(self) -> list[Finding]:
        """What may have gone wrong when the data was logged."""
        notes = []
        for name, dataset in self.datasets.items():
            longest = int(dataset.length.max())
            at_limit = dataset.terminated & (dataset.length == longest)
            share = float(at_limit.mean())
            if at_limit.sum() > 1 and share > LIMIT_SHARE and len(np.unique(dataset.length)) > 1:
                text = (
                    f"{name}: {share:.0%} of the episodes are marked as terminated after exactly "
                    f"{longest:,} steps. If that is a time limit they were cut off, and their "
                    "value continues: log them as truncated."
                )
                notes.append(Finding("warning", text))
        return notes


def _drawback(one: CellCoverage, other: CellCoverage) -> str:
    """Say what puts a dataset behind another one in spite of its C."""
    if not one.covered:
        return f"it leaves out {one.unseen:.0%} of the visits"
    return (
        f"{one.untried:.0%} of what could be done at these visits was never tried in it, and "
        f"{other.untried:.0%} in {other.name}: what is worse there, online steps must find out"
    )


def _grade(one: CellCoverage, found: EpisodesInspection) -> str:
    """Say how one dataset covers the best episodes or the policy, as far as it tells."""
    if math.isnan(one.unseen):
        return "UNKNOWN. There are too few good episodes to compare it with."
    missing = f"{one.unseen:.0%} of a best episode's visits are in no other data"
    like, whose = "the best", "the best episodes'"
    if found.best.policy is not None:
        missing = f"{one.unseen:.0%} of the policy's visits are not in the data"
        like, whose = "its own", "the policy's"
    remedy = f"Log more episodes like {like}, or expect the online steps to do the exploring"
    if not found.meets_itself:
        return "UNKNOWN. Even the policy's own episodes hardly meet one another: play more of them."
    if not one.known and found.best.policy is not None:
        return f"NOT COVERED. {missing}: nothing is guaranteed there. {remedy}."
    if not one.known:
        return f"UNKNOWN. The best episodes hardly meet: {missing}. {remedy}."
    value = one.transfer
    estimate = "about {} ({} to {})".format(*value.shown(3))
    if not one.covered:
        return (
            f"COVERED IN PART. {missing}: nothing is guaranteed there, and C_pi, which is "
            f"{estimate} for the rest, leaves them out. {remedy}."
        )
    return (
        f"{grade(value.value)}. C_pi is {estimate}; {whose} own data would have 1, so the bound "
        f"asks for about {value.value**2:.2g} times the samples of such data."
    )


def facts(name: str, found: EpisodesInspection) -> dict[str, str]:
    """Return what holds for one dataset, as text."""
    dataset, cells = found.datasets[name], found.cells[name]
    coverage = next(one for one in found.coverage if one.name == name)
    low, middle, high = np.quantile(cells.returns, [0, 0.5, 1])
    taken = np.unique(dataset.action, axis=0, return_counts=True)[1]
    cells_visited = np.unique(np.concatenate(cells.places), return_counts=True)[1]
    shown = {
        "transitions": f"{len(dataset):,} in {len(dataset.length):,} episodes",
        "observations": described(dataset.observation),
        "actions": f"{len(taken):,} different, {entropy(taken, base=2):.2f} bits",
        "episode returns": f"{low:,.4g} to {high:,.4g}, median {middle:,.4g}, "
        f"mean {cells.returns.mean():,.4g}",
        "episode lengths": f"{dataset.length.min():,} to {dataset.length.max():,}, "
        f"mean {dataset.length.mean():,.0f}",
        "ended by themselves": f"{dataset.terminated.mean():.0%} of the episodes",
        "without reward": f"{(dataset.reward == 0).mean():.2%} of the transitions",
        "cells of observations": f"{len(cells_visited):,}, "
        f"{cells_visited.max() / cells_visited.sum():.1%} in the fullest",
        "copies of other episodes": f"{1 - len(set(cells.keys)) / len(cells.keys):.1%} of them",
    }
    if found.best.policy is None:
        shown["in the best episodes"] = f"{coverage.share:.1%} of the transitions"
    if coverage.known and found.meets_itself:
        shown["C_pi"] = interval_text(coverage.transfer, 3)
    if not math.isnan(coverage.unseen):
        fact, whose = "never seen elsewhere", "a best episode's"
        if found.best.policy is not None:
            fact, whose = "not in the data", "the policy's"
        shown[fact] = f"{coverage.unseen:.1%} of {whose} visits, later ones counting less"
    if not math.isnan(coverage.untried):
        shown["never tried there"] = f"{coverage.untried:.0%} of all actions at these visits"
    return shown
