"""`hyq data check`: what a dataset holds, what is wrong with it, what can be learned from it."""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from scipy.stats import entropy

from hyq.core.trees import space_tree, without_tuples
from hyq.core.types import BoolArray
from hyq.coverage.cells import (
    BEST_SHARE,
    MOST_UNSEEN,
    THIN,
    WELL,
    Best,
    CellCoverage,
    CellData,
    cell_coverage,
    ranked,
)
from hyq.coverage.drift import ALPHA, Drift
from hyq.coverage.grid import Grid
from hyq.coverage.scan import by_key, is_index, number_names
from hyq.coverage.support import LEAST_INSIDE, Support
from hyq.data.columns import Observation, blocks, described
from hyq.data.dataset import Dataset
from hyq.fqi.classes import GreedyPolicy

LIMIT_SHARE = 0.1
"""Share of episodes that end after the very same number of steps by a limit, hardly by chance."""
FEWEST_EPISODES = 20
SAME_ACTION = 0.1
"""Share of the largest possible entropy below which actions say little about others."""
MOST_NUMBERS = 64
"""Numbers of an observation whose ranges are found."""
APART = 0.1
"""Shares of a policy's time by which logs and play may differ."""

Severity = Literal["error", "warning", "note", "good"]
Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Finding:
    """One sentence about the data."""

    severity: Severity
    text: str


@dataclass(frozen=True)
class Check:
    """What was found in one dataset, and how it covers its best episodes or a policy."""

    name: str
    dataset: Dataset
    cells: CellData
    best: Best | None
    coverage: CellCoverage | None
    """None where neither the best episodes nor a policy are known."""
    meets_itself: bool = True
    """Whether a policy's own episodes would cover it: otherwise cells are too fine to tell."""
    policy: str | None = None
    support: Support | None = None
    """How far the logs alone speak for the policy."""
    env: str | None = None
    action_space: gym.Space[Any] | None = None
    misfit: str = ""
    """Why the data cannot be from the environment."""
    drift: Drift | None = None
    bounds: Ranges = field(default_factory=dict)
    """Of the environment's observations."""

    @cached_property
    def ranges(self) -> Ranges:
        """Smallest and largest value of each number of an observation that is no image."""
        return ranges(self.dataset.observation)

    @cached_property
    def taken(self) -> tuple[Any, Any]:
        """The different actions and how often each was taken; nothing where they are vectors."""
        if not is_index(self.dataset.action):
            return np.zeros(0), np.zeros(0)
        return np.unique(self.dataset.action, return_counts=True)

    @cached_property
    def known(self) -> bool:
        """Whether C_pi is known."""
        return self.coverage is not None and self.coverage.known and self.meets_itself

    @cached_property
    def findings(self) -> list[Finding]:
        """What is wrong or worth knowing, the worst first."""
        order = ("error", "warning", "note", "good")
        found = sorted(_findings(self), key=lambda one: order.index(one.severity))
        return found or [Finding("good", "Nothing is wrong with the numbers themselves.")]

    @cached_property
    def verdict(self) -> list[str]:
        """What can be learned from the data, for readers who have not read the paper; what next."""
        again = f"hyq data check {shlex.quote(self.name)}"
        wrong = [one for one in self.findings if one.severity == "error"]
        if wrong:
            count = "one thing" if len(wrong) == 1 else f"{len(wrong)} things"
            text = f"Not ready: {count} below must be mended first, or would be learned as fact."
            return [text, f"Then: {again}"]
        if self.policy:
            return [_about_policy(self), _next_command(self)]
        sentence, ready = _about_episodes(self)
        return [sentence, _next_command(self) if ready else f"Try: {again} --policy DIR"]


def check_all(
    datasets: Mapping[str, Dataset],
    *,
    played: tuple[str, Dataset] | None = None,
    by_step: GreedyPolicy | None = None,
    progress: Callable[[int], None] = lambda rows: None,
    **known: Any,
) -> list[Check]:
    """Check datasets, the easiest to learn from first, against the best of all their episodes.

    Or against those that a policy, by its name, has `played`; `by_step` is one with a function for
    each step. What else is `known` goes into every check.
    """
    shared = Grid.of(list(datasets.values()), by_step)
    cells = {name: CellData.of(name, one, shared, progress) for name, one in datasets.items()}
    best, meets_itself = None, True
    if played is not None:
        own = CellData.of(*played, shared, played=True)
        best = Best.played(own, list(cells.values()))
        meets_itself = cell_coverage(own, best, by_step is not None).known
    elif all(one.ordered for one in datasets.values()):
        best = Best.of(list(cells.values()))
    covered: dict[str, CellCoverage] = {}
    if best is not None:
        found = [cell_coverage(one, best, by_step is not None) for one in cells.values()]
        escaping = {name: one.escaping for name, one in cells.items()}
        covered = {one.name: one for one in ranked(found, escaping)}
    return [
        Check(name, datasets[name], cells[name], best, covered.get(name), meets_itself, **known)
        for name in covered or datasets
    ]


def ranges(observation: Observation) -> Ranges:
    """Return the smallest and largest value of each number of an observation that is no image."""
    found: dict[str, tuple[float, float]] = {}
    for name, column in by_key(observation).items():
        shape = column.shape[1:]
        if (column.dtype == np.uint8 and len(shape) > 1) or math.prod(shape) > MOST_NUMBERS:
            continue
        parts = [(block.min(axis=0), block.max(axis=0)) for block in blocks(column)]
        low, high = np.min([p[0] for p in parts], axis=0), np.max([p[1] for p in parts], axis=0)
        found |= _by_number(name, low, high)
    return found


def bounds_of(space: gym.Space[Any]) -> Ranges:
    """Return the bounds that a space declares, of each number that has both."""
    found: dict[str, tuple[float, float]] = {}
    for name, part in by_key(space_tree(without_tuples(space))).items():
        if isinstance(part, gym.spaces.Box) and part.low.size <= MOST_NUMBERS:
            found |= _by_number(name, part.low, part.high)
    largest = np.finfo(np.float32).max / 2
    return {name: pair for name, pair in found.items() if max(map(abs, pair)) < largest}


def _by_number(name: str, low: Any, high: Any) -> dict[str, tuple[float, float]]:
    low, high = np.asarray(low, float), np.asarray(high, float)
    pairs = zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)
    return dict(zip(number_names(name, low.shape), pairs, strict=True))


def _findings(check: Check) -> list[Finding]:
    dataset, cells, (_, counts) = check.dataset, check.cells, check.taken
    reward, ended, length = dataset.reward, dataset.terminated, dataset.length
    longest, rewarded = int(length.max()), 1 - float((reward == 0).mean())
    at_limit: BoolArray = ended & (length == longest)
    fixed = [name for name, (low, high) in check.ranges.items() if low == high]
    few_actions = len(counts) and entropy(counts) < SAME_ACTION * math.log(max(len(counts), 2))
    limited = at_limit.mean() > LIMIT_SHARE and at_limit.sum() > 1
    kind = "episodes" if dataset.ordered else "transitions"
    few_states = all(c.dtype.kind in "iu" for c in by_key(dataset.observation).values())
    rules: list[tuple[Any, Severity, str]] = [
        (check.misfit, "error", f"{check.misfit}."),
        (rewarded == 0, "error", "No transition has a reward: there is nothing to learn."),
        (
            dataset.ordered and limited and len(np.unique(length)) > 1,
            "warning",
            f"{at_limit.mean():.0%} of the episodes are marked as terminated after exactly "
            f"{longest:,} steps. If that is a time limit they were cut off, and their value "
            "continues: log them as truncated.",
        ),
        (
            not ended.any(),
            "note" if dataset.ordered else "warning",
            "No episode ended by itself. If some do, mark their last transition as terminated: "
            "otherwise values are bootstrapped past the end.",
        ),
        (
            0 < rewarded < 0.01,
            "note",
            f"Rewards are sparse: {rewarded:.2%} of the transitions have one.",
        ),
        (
            cells.duplicates > 0.01,
            "note" if few_states else "warning",
            f"{cells.duplicates:.1%} of the {kind} repeat an earlier one exactly. "
            + ("With few states that is expected." if few_states else "Was data merged twice?"),
        ),
        (
            cells.escaping > 0.1,
            "warning",
            f"{cells.escaping:.0%} of the next observations are unlike any that the next step "
            "logged: values there are guesses until online data corrects them.",
        ),
        (
            fixed,
            "note",
            f"{len(fixed)} of {len(check.ranges)} numbers of the observation never change: "
            f"{', '.join(fixed[:4])}{', ...' if len(fixed) > 4 else ''}.",
        ),
        (
            few_actions,
            "note",
            "Nearly all logged actions are the same: what others lead to, only online steps show.",
        ),
        *_from_environment(check),
    ]
    return [Finding(severity, text) for holds, severity, text in rules if holds]


def _from_environment(check: Check) -> Iterator[tuple[Any, Severity, str]]:
    """Say what the environment shows otherwise, and what a policy does in it."""
    drift, support, coverage = check.drift, check.support, check.coverage
    if drift is not None:
        for part in drift.alarms:
            text = f"{check.env} differs from the data in its {part.name}: {part.text} (a false "
            yield True, "error", f"{text}alarm in {ALPHA:.0%} of such checks)."
        unknown = [part.name for part in drift.parts if math.isnan(part.p_value)]
        text = f"Whether {check.env} agrees in its {' and '.join(unknown)} is unknown: "
        yield unknown, "note", text + "too little of the data is near what the environment shows."
        agrees = not drift.alarms and len(unknown) < len(drift.parts)
        yield agrees, "good", f"{check.env} agrees with the data in {drift.steps:,} live steps."
    space = check.action_space
    if isinstance(space, gym.spaces.Discrete) and len(check.taken[0]):
        never = int(space.n) - len(check.taken[0])
        yield never > 0, "note", f"{never} of {space.n} actions were never taken."
    if support is not None and coverage is not None and not math.isnan(coverage.unseen):
        played = 1 - coverage.unseen
        apart = abs(support.inside - played) > APART
        text = (
            f"By the logs alone the policy stays where data is {support.inside:.0%} of its time, "
            f"when it plays {played:.0%}: trust the play."
        )
        yield apart and check.meets_itself, "warning", text


def _about_episodes(check: Check) -> tuple[str, bool]:
    """Say what can be learned from a dataset, and whether training is what comes next."""
    returns, coverage, best = check.cells.returns, check.coverage, check.best
    if coverage is None or best is None:
        text = "its rows are single steps, without episodes. Compare it with a policy"
        return f"Cannot tell how good this data is: {text}.", False
    count, mean = f"{len(returns):,} episodes", f"{returns.mean():,.4g}"
    if math.isclose(returns.min(), returns.max()):
        return f"Nothing tells good from bad: all {count} return {mean}. Online steps must.", True
    share = len(best.keys) / best.pooled
    whose = "its" if best.pooled == len(np.unique(check.cells.keys)) else "their"
    whose += (
        " best tenth of" if BEST_SHARE / 2 < share <= 2 * BEST_SHARE else f" {len(best.keys)} best"
    )
    goal = f"{whose} episodes (mean return {best.mean_return:,.4g}, of all {mean})"
    cells = f"{coverage.unseen:.0%} of what {goal} do is in no other episode"
    if math.isnan(coverage.unseen):
        text = f"Cannot tell: too few of {count} are better than the others"
    elif not check.known:
        few = len(returns) < FEWEST_EPISODES
        text = f"Cannot tell: {f'{count} are too few' if few else cells}"
    elif not coverage.covered:
        text = f"Useful in part: {cells}"
    elif coverage.ratio > THIN:
        text = f"Hardly enough: too little of the data is like {goal}"
    else:
        good = f"a policy about as good as {goal} can be learned"
        if coverage.ratio > WELL:
            good += f", but needs about {coverage.ratio**2:.2g} times as much data as they alone"
        return f"{'Good' if coverage.ratio <= WELL else 'Thin'} data: {good}.", True
    return f"{text}. Online steps must explore.", True


def _about_policy(check: Check) -> str:
    """Say whether the data covers a policy; the logs alone decide, where they can."""
    support, coverage, best = check.support, check.coverage, check.best
    played = f" When played it returns {best.mean_return:,.4g}." if best is not None else ""
    who = f"the policy {check.policy}"
    if support is not None and support.inside < LEAST_INSIDE:
        lost = f"{1 - support.inside:.0%} of its time it would be where nothing like it was logged"
        return f"Cannot tell from this data the return of {who}: {lost}.{played}"
    if coverage is None:
        inside = 1.0 if support is None else support.inside
        return f"The data covers {who}: {inside:.0%} of its time it stays where data is."
    if not check.meets_itself:
        return f"Cannot tell: even the own episodes of {who} hardly meet: play more.{played}"
    if not coverage.covered:
        how = "does not cover" if coverage.unseen > MOST_UNSEEN else "covers only in part"
        missing = f"{coverage.unseen:.0%} of what it does is not in the data"
        return f"The data {how} {who}: {missing}, and online steps must explore there.{played}"
    how = "well" if coverage.ratio <= WELL else "thinly" if coverage.ratio <= THIN else "hardly"
    return f"The data covers {who} {how}.{played}"


def _next_command(check: Check) -> str:
    """Return the command to type next."""
    name, about, support = check.name, check.dataset.provenance, check.support
    if check.policy:
        by_step = check.coverage is not None and check.coverage.condition > 0
        on_data = by_step if support is None else support.inside >= LEAST_INSIDE
        words = ["hyq", "evaluate", check.policy, *(["--data", name] if on_data else [])]
        return f"Try: {shlex.join(words)}"
    env = check.env or about.get("env")
    if env is None:
        return f"Try, with the id of its environment: hyq data check {shlex.quote(name)} --env ID"
    wrappers = (about.get("wrappers") or ()) if about.get("env") == env else ()
    words = ["hyq", "train", "--env", env, *(["--wrappers", *wrappers] if wrappers else [])]
    return f"Try: {shlex.join([*words, '--data', name, '--out', f'runs/{Path(name).name}'])}"


def facts(check: Check) -> dict[str, str]:
    """Return what holds for a dataset, as text."""
    dataset, returns, (actions, counts) = check.dataset, check.cells.returns, check.taken
    reward, length = dataset.reward, dataset.length
    shown = {
        "transitions": f"{len(dataset):,} in {len(length):,} episodes"
        if dataset.ordered
        else f"{len(dataset):,} by step, of {int(dataset.timestep.max()) + 1:,} steps",
        "observations": described(dataset.observation),
        "actions": f"{len(actions):,} different, {entropy(counts, base=2):.2f} bits"
        if len(actions)
        else f"vectors {described(dataset.action)}",
        "reward": f"{reward.min():.3g} to {reward.max():.3g}, mean {reward.mean():.3g}, "
        f"{(reward == 0).mean():.2%} without",
    }
    if len(returns):
        low, middle, top, high = np.quantile(returns, [0, 0.5, 0.9, 1])
        shown["episode returns"] = (
            f"{low:,.4g} to {high:,.4g}, median {middle:,.4g}, best tenth above {top:,.4g}"
        )
    if dataset.ordered:
        shown["episode lengths"] = (
            f"{length.min():,} to {length.max():,}, mean {length.mean():,.0f}"
        )
        shown["ended by themselves"] = f"{dataset.terminated.mean():.0%} of the episodes"
    else:
        shown["lead to unlogged states"] = f"{check.cells.escaping:.1%}"
    shown["repeated"] = f"{check.cells.duplicates:.1%}"
    if check.support is not None:
        shown["the policy acts as logged"] = f"{check.support.agreement:.1%} of the transitions"
        shown["and stays where data is"] = f"{check.support.inside:.1%} of its time"
    return shown


def theory(check: Check) -> dict[str, str]:
    """Return the paper's numbers, as text; nothing where none is known."""
    coverage, best = check.coverage, check.best
    if coverage is None or best is None or math.isnan(coverage.unseen):
        return {}
    whose = f"the {len(best.keys)} best of {best.pooled} different episodes"
    shown = {"C_pi is of": whose if best.policy is None else f"the policy {best.policy}"}
    shown["C_pi"] = "not known: too much of what they do is not in the data"
    if check.known:
        shown["C_pi"] = f"{coverage.transfer.text()}; own data would have {coverage.own:.3g}"
        if not coverage.covered:
            shown["C_pi"] += "; what is not in the data it leaves out"
    if coverage.condition:
        shown["relative condition number"] = f"{coverage.condition:.3g}"
    if best.policy is None:
        shown["in the best episodes"] = f"{coverage.share:.1%} of the transitions"
    shown["in no other data"] = f"{coverage.unseen:.1%} of the visits, later ones counting less"
    shown["never tried there"] = f"{coverage.untried:.0%} of all actions at these visits"
    return shown
