"""What is in a dataset, found in one pass: the part of an inspection that needs no policy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hyq.core.types import Array, FloatArray, IntArray

_KEPT_HASHES = 1 << 21
_ACTIONS = 4096
"""Integer actions up to this are counted; larger ones are not actions of a discrete space."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(*columns: Array) -> IntArray:
    """Return a 64-bit hash of each row over several columns; equal rows have equal hashes.

    A row's bytes are read as 64-bit words, mixed, and multiplied by fixed odd numbers: no Python
    for each row.
    """
    total: IntArray = np.zeros(len(columns[0]), dtype=np.uint64)
    for salt, column in enumerate(columns):
        flat = np.ascontiguousarray(column).reshape(len(column), -1)
        data = flat.view(np.uint8).reshape(len(column), -1)
        short = -data.shape[1] % 8
        if short:
            data = np.pad(data, ((0, 0), (0, short)))
        words = data.view(np.uint64)
        odd = np.random.default_rng(salt).integers(1, 2**63, words.shape[1], dtype=np.uint64)
        total = _mixed(total * _ODD + _mixed(words) @ (odd * np.uint64(2) + np.uint64(1)))
    return total


def _mixed(words: IntArray) -> IntArray:
    """Spread the bits of each word over all of it, one to one.

    Those of round floating-point numbers are all at the upper end, where a product loses them.
    """
    mixed = words ^ (words >> np.uint64(32))
    mixed *= _ODD
    mixed ^= mixed >> np.uint64(29)
    return mixed


class DistinctCounter:
    """Counts rows and distinct rows from their hashes, in bounded memory.

    When there are too many it keeps only hashes whose last bits are zero: a random sample of the
    *distinct* rows with all their copies, which keeps the share of duplicates unbiased.
    """

    def __init__(self) -> None:
        """Keep everything at first."""
        self._level = 0
        self._parts: list[IntArray] = []
        self._kept = 0

    def add(self, hashes: IntArray) -> None:
        """Take the hashes of new rows."""
        kept = self._sample(hashes)
        self._parts.append(kept)
        self._kept += len(kept)
        while self._kept > _KEPT_HASHES:
            self._level += 1
            self._parts = [self._sample(np.concatenate(self._parts))]
            self._kept = len(self._parts[0])

    def _sample(self, hashes: IntArray) -> IntArray:
        if not self._level:
            return hashes
        mask = np.uint64((1 << self._level) - 1)
        kept: IntArray = hashes[(hashes & mask) == 0]
        return kept

    def duplicate_share(self) -> float:
        """Return the share of rows that repeat an earlier one."""
        hashes = np.concatenate(self._parts)
        return 1.0 - len(np.unique(hashes)) / max(len(hashes), 1)


@dataclass
class _Step:
    """The rows of the step being read, reduced to what the next step's link needs."""

    observation: list[IntArray] = field(default_factory=list)
    following: list[IntArray] = field(default_factory=list)
    reward: list[FloatArray] = field(default_factory=list)
    alive: list[Array] = field(default_factory=list)


@dataclass(frozen=True)
class Episodes:
    """How transitions hang together."""

    linked: float
    """Share of transitions after the first step whose predecessor is in the data.

    Where all are of the first step, 1 if every one ends its episode; otherwise they are parts of
    episodes whose order was not logged, and it is 0."""
    returns: FloatArray
    """Returns of the episodes that are there from the first step to their end."""
    continued_after_end: int
    """Terminated transitions (discount 0) that nevertheless have a successor."""
    cut: int
    """Transitions before the last step that neither terminated nor have a successor."""


class EpisodeLinker:
    """Links every step's next observations to the following step's observations, by hash.

    Data is sorted by step, so two steps at a time are enough, whatever the number of episodes.
    """

    def __init__(self) -> None:
        """Start before the first step."""
        self._h = 0
        self._rows = _Step()
        self._previous: tuple[IntArray, FloatArray, Array] | None = None
        self._returns: list[FloatArray] = []
        self._matched = self._expected = self._continued = self._cut = 0

    def add(
        self, h: int, observation: IntArray, following: IntArray, block: Mapping[str, Array]
    ) -> None:
        """Take rows of step `h`; steps must come in order."""
        while h > self._h:
            self._close()
        self._rows.observation.append(observation)
        self._rows.following.append(following)
        self._rows.reward.append(block["reward"].astype(np.float64))
        self._rows.alive.append(block["discount"] > 0)

    def finish(self) -> Episodes:
        """Close the last step and report."""
        self._close()
        assert self._previous is not None
        self._returns.append(self._previous[1])
        returns = np.concatenate(self._returns)
        linked = (
            self._matched / self._expected if self._expected else float(not self._previous[2].any())
        )
        return Episodes(linked, returns[~np.isnan(returns)], self._continued, self._cut)

    def _close(self) -> None:
        rows = self._rows
        self._rows, self._h = _Step(), self._h + 1
        none = np.zeros(0)
        observation = np.concatenate([*rows.observation, none.astype(np.uint64)])
        following = np.concatenate([*rows.following, none.astype(np.uint64)])
        reward = np.concatenate([*rows.reward, none])
        alive = np.concatenate([*rows.alive, none.astype(bool)])
        if self._previous is None:
            self._previous = (following, reward, alive)
            return
        source, total, was_alive = self._previous
        match = _predecessors(source, was_alive, observation)
        found = match >= 0
        self._expected += len(observation)
        self._matched += int(found.sum())
        continued = np.zeros(len(source), dtype=bool)
        continued[match[found]] = True
        self._continued += int((continued & ~was_alive).sum())
        self._cut += int((~continued & was_alive).sum())
        self._returns.append(total[~continued])
        so_far = np.full(len(observation), math.nan)
        so_far[found] = total[match[found]]
        self._previous = (following, so_far + reward, alive)


def _predecessors(source: IntArray, alive: Array, observation: IntArray) -> IntArray:
    """Return, for each observation, the row whose next observation it is, or -1.

    Logs usually keep their lanes in order, which also tells apart observations that look alike;
    otherwise only observations that occur once can be linked.
    """
    for rows in (np.arange(len(source)), np.flatnonzero(alive)):
        if len(rows) == len(observation) and (source[rows] == observation).mean() > 0.999:
            return np.where(source[rows] == observation, rows, -1)
    order = np.argsort(source, kind="stable")
    ranked = source[order]
    left = np.searchsorted(ranked, observation, "left")
    right = np.searchsorted(ranked, observation, "right")
    values, counts = np.unique(observation, return_counts=True)
    alone = counts[np.searchsorted(values, observation)] == 1
    once = (right - left == 1) & alone
    match = np.full(len(observation), -1)
    match[once] = order[left[once]]
    return match


@dataclass
class Tally:
    """Sums over all rows: rewards, actions, ends and broken numbers."""

    horizon: int
    rows: IntArray = field(init=False)
    reward_sum: FloatArray = field(init=False)
    rewarded: IntArray = field(init=False)
    ended: IntArray = field(init=False)
    actions: IntArray | None = None
    """Counts, shape (H, actions), for discrete actions."""
    reward_low: float = math.inf
    reward_high: float = -math.inf
    broken: dict[str, int] = field(default_factory=dict)
    """Rows with NaN or infinite entries, by column."""
    bad_discounts: int = 0

    def __post_init__(self) -> None:
        """Begin with zeros."""
        self.rows = np.zeros(self.horizon, dtype=np.int64)
        self.rewarded = np.zeros(self.horizon, dtype=np.int64)
        self.ended = np.zeros(self.horizon, dtype=np.int64)
        self.reward_sum = np.zeros(self.horizon)

    def add(self, block: Mapping[str, Array]) -> None:
        """Take a block of rows."""
        step, reward, action = block["step"], block["reward"], block["action"]
        for name, column in block.items():
            if np.issubdtype(column.dtype, np.floating):
                flat = column.reshape(len(column), -1)
                # A sum is finite only if all its terms are, and far cheaper to look at.
                suspects = ~np.isfinite(flat.sum(axis=1))
                if suspects.any():
                    wrong = int((~np.isfinite(flat[suspects])).any(axis=1).sum())
                    self.broken[name] = self.broken.get(name, 0) + wrong
        sound = np.nan_to_num(reward.astype(np.float64), posinf=0.0, neginf=0.0)
        self.rows += np.bincount(step, minlength=self.horizon)
        self.reward_sum += np.bincount(step, sound, self.horizon)
        self.rewarded += np.bincount(step[sound != 0], minlength=self.horizon)
        self.ended += np.bincount(step[block["discount"] == 0], minlength=self.horizon)
        self.reward_low = min(self.reward_low, float(sound.min()))
        self.reward_high = max(self.reward_high, float(sound.max()))
        self.bad_discounts += int(((block["discount"] < 0) | (block["discount"] > 1)).sum())
        if np.issubdtype(action.dtype, np.integer) and action.ndim == 1:
            self._count(step, action)

    def _count(self, step: IntArray, action: IntArray) -> None:
        size = min(max(int(action.max()) + 1, 1), _ACTIONS)
        if self.actions is None:
            self.actions = np.zeros((self.horizon, size), dtype=np.int64)
        size = max(size, self.actions.shape[1])
        self.actions = np.pad(self.actions, ((0, 0), (0, size - self.actions.shape[1])))
        inside = (action >= 0) & (action < size)
        cell = step[inside].astype(np.int64) * size + action[inside]
        self.actions += np.bincount(cell, minlength=self.horizon * size).reshape(-1, size)

    def action_entropy(self) -> FloatArray | None:
        """Return the entropy of the logged actions at each step, in nats."""
        if self.actions is None:
            return None
        share = self.actions / np.maximum(self.actions.sum(axis=1, keepdims=True), 1)
        logs = np.log(share, out=np.zeros_like(share), where=share > 0)
        entropy: FloatArray = -(share * logs).sum(axis=1)
        return entropy


def effective_dimension(rows: FloatArray) -> float:
    """Return how many directions a sample of observations spreads over: exp(spectral entropy)."""
    flat = rows.reshape(len(rows), -1).astype(np.float64)
    centred = flat - flat.mean(axis=0)
    # The two Gram matrices share their spectrum; take the smaller.
    gram = centred @ centred.T if len(flat) < flat.shape[1] else centred.T @ centred
    if not np.isfinite(gram).all():
        return math.nan
    values = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    if values.sum() <= 0:
        return 0.0
    share = values[values > 0] / values.sum()
    return float(np.exp(-(share * np.log(share)).sum()))
