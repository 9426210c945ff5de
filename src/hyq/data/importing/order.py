"""From rows in any order to whole episodes: what is wrong is found, and mended by a named rule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.settings import check_choices
from hyq.core.types import Array, BoolArray, FloatArray, IntArray

GAP = 1.5
"""A gap is a step in time of more than so many usual ones."""
DOUBTFUL = 0.2
"""Share of broken steps beyond which the columns mean something else than they seem to."""
SHUFFLED = 0.6
"""Rows that follow one another are nearer than rows at random in more than this share of cases."""


@dataclass(frozen=True)
class Rules:
    """What to do about what is wrong with rows. None decides where there is no doubt, or raises."""

    gaps: Literal["split", "drop", "raise", "ignore"] | None = None
    """Steps missing within an episode: split it there, drop it, or let time only give the order."""
    jumps: Literal["split", "drop", "raise"] | None = None
    """Rows whose observation is not the next_observation of the row before them."""
    after_end: Literal["split", "drop", "raise"] = "split"
    """Episodes with rows after their end."""
    duplicates: Literal["drop", "first", "raise"] = "drop"
    """Rows of one episode and time: drop exact copies, or keep the first of any."""
    both_ends: Literal["terminated", "truncated", "raise"] | None = None
    """Rows that are both. None takes an old `done` as truncated, anything else as terminated."""
    open_ends: Literal["truncate", "terminate", "drop", "raise"] | None = None
    """Episodes whose last row is no end."""
    missing: Literal["raise", "drop"] = "raise"
    """Rows with a value missing."""
    order: Literal["check", "as-is"] = "check"
    """Whether rows that say neither episode nor time are tested for following one another."""

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class Finding:
    """Something that was wrong with the rows."""

    what: str
    count: int
    where: str
    """File and row of the first."""
    done: str
    """What was done about it."""

    def __str__(self) -> str:
        return f"{self.count:,} {self.what}, first in {self.where}: {self.done}"


@dataclass
class Log:
    """What of each row decides about order and wholeness, in the order of the files."""

    terminated: BoolArray
    truncated: BoolArray
    episode: IntArray | None
    """Numbered in ascending order."""
    time: Array | None
    continues: tuple[IntArray, IntArray] | None
    """Fingerprints of the observation and the next one, where rows have both."""
    dropped: BoolArray | None
    """Rows that are left out."""
    files: Sequence[str]
    ends: IntArray
    """How many rows there are up to the end of each file."""

    def where(self, row: int) -> str:
        """Say which row of which file it is, counted from 1 after any header."""
        file = int(np.searchsorted(self.ends, row, side="right"))
        return f"{self.files[file]} row {row - (self.ends[file - 1] if file else 0) + 1:,}"


@dataclass(frozen=True)
class Plan:
    """Where each row belongs."""

    slot: IntArray
    """The place of each row's observation, of all episodes laid end to end; -1 for none."""
    length: IntArray
    terminated: BoolArray
    timestep: IntArray
    findings: list[Finding] = field(default_factory=list)


class Arrangement:
    """Sorts rows and cuts them into episodes."""

    def __init__(self, log: Log, rules: Rules, with_next: bool, done_is_over: bool) -> None:
        self._log, self._rules, self._with_next = log, rules, with_next
        self._done_is_over = done_is_over
        self._findings: list[Finding] = []
        self._order: IntArray | None = None
        self._step = 1.0

    def plan(self, same: Callable[[IntArray, IntArray], BoolArray]) -> Plan:
        """Arrange the rows; `same` tells which of two rows are copies."""
        self._sort()
        self._drop_copies(same)
        terminated, over = self._ends()
        self._start = self._starts(over)
        self._cut, self._bad = np.zeros_like(over), np.zeros_like(over)
        """Rows before which episodes are split, and rows of episodes that are dropped."""
        after_end = np.append(False, ~self._start[1:] & over[:-1])
        self._split("rows after the end of their episode", after_end, self._rules.after_end)
        self._split_at_breaks()
        return self._laid_out(terminated, over)

    def _taken(self, column: Any) -> Any:
        return column if self._order is None else column[self._order]

    def _where(self, index: int) -> str:
        return self._log.where(index if self._order is None else int(self._order[index]))

    def _note(
        self, what: str, rows: BoolArray, done: str, rule: str | None = None, remedy: str = ""
    ) -> None:
        """Say what was wrong with rows and what was done about it, or raise if that is the rule."""
        if not rows.any():
            return
        count, where = int(rows.sum()), self._where(int(rows.argmax()))
        if rule == "raise":
            raise HyqError(f"{count:,} {what}, first in {where}: {remedy}")
        self._findings.append(Finding(what, count, where, done))

    def _sort(self) -> None:
        log = self._log
        if log.dropped is not None and log.dropped.any():
            self._note("rows with a value missing", log.dropped, "dropped (missing='drop')")
            self._order = np.flatnonzero(~log.dropped)
        if log.episode is None:  # time starts again in every episode, so rows stay where they are
            return
        keys = [self._taken(key) for key in (log.time, log.episode) if key is not None]
        if not _ascending(keys):
            order = np.lexsort(keys)
            self._order = order if self._order is None else self._order[order]

    def _drop_copies(self, same: Callable[[IntArray, IntArray], BoolArray]) -> None:
        log, rule = self._log, self._rules.duplicates
        if log.episode is None or log.time is None:
            return
        episode, time = self._taken(log.episode), self._taken(log.time)
        again = np.append(False, (episode[1:] == episode[:-1]) & (time[1:] == time[:-1]))
        if not again.any():
            return
        order = np.arange(len(log.time)) if self._order is None else self._order
        what = "rows have the episode and time of another"
        if rule == "drop":
            second = np.flatnonzero(again)
            other = _marked(len(again), second[~same(order[second - 1], order[second])])
            one = self._where(int(other.argmax()) - 1)
            remedy = (
                f"it contradicts {one}. Give each file's episodes ids of their own with "
                "episodes_per_file, or keep the first of each with duplicates='first'"
            )
            self._note(f"{what} and other contents", other, "", "raise", remedy)
        remedy = "remove them, or take duplicates='drop'"
        self._note(what, again, f"dropped (duplicates='{rule}')", rule, remedy)
        self._order = order[~again]

    def _ends(self) -> tuple[BoolArray, BoolArray]:
        """Tell which rows terminated an episode, and which ended one in either way."""
        terminated, truncated = self._taken(self._log.terminated), self._taken(self._log.truncated)
        both = terminated & truncated
        rule = self._rules.both_ends or ("truncated" if self._done_is_over else "terminated")
        self._note(
            "rows are both terminated and truncated",
            both,
            f"taken as {rule} (both_ends='{rule}')",
            rule,
            "correct them, or say what they are with both_ends",
        )
        over = terminated | truncated
        return (terminated & ~both if rule == "truncated" else terminated), over

    def _starts(self, over: BoolArray) -> BoolArray:
        """Tell which rows begin an episode, as far as the columns say so."""
        log = self._log
        if log.episode is not None:
            episode = self._taken(log.episode)
            return np.append(True, episode[1:] != episode[:-1])
        start = np.append(True, over[:-1])
        firsts = log.ends[:-1]
        start[firsts if self._order is None else np.searchsorted(self._order, firsts)] = True
        if log.time is not None:
            time = self._taken(log.time)
            start[1:] |= time[1:] <= time[:-1]
        return start

    def _split_at_breaks(self) -> None:
        """Find steps that are no steps."""
        log, jumps = self._log, self._rules.jumps
        inner = ~(self._start | self._cut)[1:]
        gap, jump = np.zeros_like(self._start), np.zeros_like(self._start)
        if log.time is not None:
            step = np.diff(self._taken(log.time))
            self._step = _usual(step, inner)
            gap[1:] = inner & (step > GAP * self._step)
        if log.continues is not None:
            here, there = (self._taken(one) for one in log.continues)
            jump[1:] = inner & ~gap[1:] & (there[:-1] != here[1:])
            unknown = log.time is None and log.episode is None
            if jumps is None and unknown and jump.sum() > (1 - DOUBTFUL) * inner.sum():
                jumps = "split"  # transitions in any order
        gaps, most = self._rules.gaps, DOUBTFUL * max(int(inner.sum()), 5)
        for what, rows, rule, meaning in (
            ("gaps in time", gap, gaps, "gaps='ignore' if time only gives the order"),
            (
                "rows do not continue the row before them",
                jump,
                jumps,
                "jumps='split' if rows need not follow one another",
            ),
        ):
            if rule is None and rows.sum() > most:
                remedy = f"these are too many to be mistakes, say what they are with {meaning}"
                self._note(what, rows, "", "raise", remedy)
            self._split(what, rows, rule or "split")

    def _split(self, what: str, rows: BoolArray, rule: str) -> None:
        """Split episodes before some rows, or drop them."""
        if rule == "ignore":
            return
        done = "episodes split there" if rule == "split" else "their episodes dropped"
        self._note(what, rows, done, rule, "correct them, or let episodes be split there")
        self._cut |= rows
        if rule == "drop":
            episode = np.cumsum(self._start)
            self._bad |= np.isin(episode, episode[rows])

    def _laid_out(self, terminated: BoolArray, over: BoolArray) -> Plan:
        start = self._start
        first = np.flatnonzero(start | self._cut)
        rows = np.diff(first, append=len(start))
        last = first + rows - 1
        ended, kept = terminated[last], ~self._bad[first]
        # Where an episode just stops, rather than being split.
        is_open = np.append(start[1:], True) & ~over & ~self._bad
        rule = self._rules.open_ends or ("truncate" if over.any() else "raise")
        self._note(
            "episodes stop without an end",
            is_open,
            f"open_ends='{rule}'",
            rule,
            "name the column that says how they end, or say it with open_ends ('truncate', "
            "'terminate' or 'drop')",
        )
        if rule == "terminate":
            ended |= is_open[last]
        if rule == "drop":
            kept &= ~is_open[last]
        # Where it is not known what a truncated episode led to, its last row only shows that.
        length = rows - (~ended & (not self._with_next))
        lonely = _marked(len(start), first[kept & (length == 0)])
        self._note("rows are followed by none and do not say where they led", lonely, "dropped")
        kept &= length > 0
        if not kept.any():
            raise HyqError("no transition is left: every row was dropped or leads nowhere")
        return Plan(
            self._slots(first, rows, kept, length),
            length[kept],
            ended[kept],
            self._timesteps(first)[kept],
            self._findings,
        )

    def _slots(
        self, first: IntArray, rows: IntArray, kept: BoolArray, length: IntArray
    ) -> IntArray:
        total = len(self._log.terminated)
        kind = np.int32 if total + len(first) < 2**31 else np.int64
        room = np.where(kept, length + 1, 0)
        shift = np.where(kept, np.cumsum(room) - room - first, 0)
        slot: IntArray = np.arange(rows.sum(), dtype=kind)
        slot += np.repeat(shift.astype(kind), rows)
        if not kept.all():
            slot[np.repeat(~kept, rows)] = -1
        if self._order is None:
            return slot
        placed: IntArray = np.full(total, -1, kind)
        placed[self._order] = slot
        return placed

    def _timesteps(self, first: IntArray) -> IntArray:
        """Return at which step of its episode each piece begins."""
        begins = np.flatnonzero(self._start)
        group = np.cumsum(self._start[first]) - 1
        if self._log.time is None:
            return first - begins[group]
        time = self._taken(self._log.time)
        base = time[begins]
        values, counts = np.unique(base, return_counts=True)
        common = values[counts.argmax()]
        if counts.max() > len(base) / 2 and common == values[0]:
            late = _marked(len(time), begins[base > common])
            self._note("episodes begin late", late, "kept, with the time they begin at")
            base = np.full_like(base, common)
        return np.rint((time[first] - base[group]) / self._step).astype(np.int64)


def _marked(count: int, rows: IntArray) -> BoolArray:
    """Return truth values that are true for some rows."""
    marked = np.zeros(count, np.bool_)
    marked[rows] = True
    return marked


def _ascending(keys: Sequence[Array]) -> bool:
    """Tell whether rows are sorted by the last key, and where it is equal by the first."""
    *minor, major = keys
    step = major[1:] >= major[:-1]
    if minor:
        step &= (minor[0][1:] >= minor[0][:-1]) | (major[1:] != major[:-1])
    return bool(step.all())


def _usual(step: Array, inner: BoolArray) -> float:
    """Return the usual step in time within episodes; of whole numbers the most frequent."""
    every = max(1, len(step) // 1_000_000)
    some = step[::every][inner[::every]]
    some = some[some > 0]
    if not len(some):
        return 1.0
    if some.dtype.kind in "iu":
        values, counts = np.unique(some, return_counts=True)
        if counts.max() > len(some) / 2:
            return float(values[counts.argmax()])
    return float(np.median(some))


def doubt(rows: FloatArray, start: BoolArray) -> str | None:
    """Say why rows may not follow one another, from their observations and where episodes begin.

    Rows in time are nearer to the row before them than to one at random, and none but an episode's
    first jumps into the midst of the first observations.
    """
    spread = rows.std(axis=0)
    scaled = rows / np.where(spread > 0, spread, 1.0)
    other = np.random.default_rng(0).permutation(len(rows) - 1)
    step = np.square(scaled[1:] - scaled[:-1]).mean(axis=1)
    chance = np.square(scaled[1:] - scaled[other]).mean(axis=1)
    inner = ~start[1:]
    if inner.sum() < 20:
        return None
    nearer = (step < chance)[inner].mean() + 0.5 * (step == chance)[inner].mean()
    if nearer < SHUFFLED:
        return f"rows are nearer to the row before than to one at random in {nearer:.0%} of cases"
    firsts = rows[start]
    if len(firsts) >= 5:
        first = ((rows >= firsts.min(axis=0)) & (rows <= firsts.max(axis=0))).all(axis=1)
        far = step > 4 * np.quantile(step[inner], 0.95)
        again = inner & far & first[1:] & ~first[:-1]
        if again.any():
            return f"{again.sum():,} rows look like the first of an episode, but follow no end"
    return None
