"""What is in a dataset, found in one pass: the part of an inspection that needs no policy."""

import math
from dataclasses import dataclass

import numpy as np

from hyq.core.types import Array, BoolArray, FloatArray, IntArray
from hyq.data.dataset import Dataset

_KEPT_HASHES = 1 << 21
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


@dataclass(frozen=True)
class EpisodeLinks:
    """How transitions hang together."""

    linked: float
    """Share of transitions after the first step whose predecessor is in the data.

    Where all are of the first step, 1 if every one ends its episode; otherwise they are parts of
    episodes whose order is not in the data, and it is 0."""
    returns: FloatArray
    """Returns of the episodes that are there from the first step to their end."""
    continued_after_end: int
    """Terminated transitions (discount 0) that nevertheless have a successor."""
    cut: int
    """Transitions before the last step that neither terminated nor have a successor."""

    @classmethod
    def known(cls, dataset: Dataset) -> "EpisodeLinks":
        """Describe episodes whose order is in the data."""
        last = dataset.timestep + dataset.length
        cut = int((~dataset.terminated & (last < last.max())).sum())
        whole = dataset.timestep == 0
        linked = 1.0 - float((~whole).sum() / max((len(dataset) - whole.sum()), 1))
        return cls(linked, dataset.returns()[whole], 0, cut)


class EpisodeLinker:
    """Links every step's next observations to the next step's observations, by hash.

    Steps come in order, so two at a time are enough, whatever the number of episodes.
    """

    def __init__(self) -> None:
        """Start before the first step."""
        self._previous: tuple[IntArray, FloatArray, BoolArray] | None = None
        self._returns: list[FloatArray] = []
        self._matched = self._expected = self._continued = self._cut = 0

    def add(
        self, observation: IntArray, after: IntArray, reward: FloatArray, alive: BoolArray
    ) -> None:
        """Take the rows of the next step, given the hashes of where they began and led to."""
        reward = reward.astype(np.float64)
        if self._previous is None:
            self._previous = (after, reward, alive)
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
        self._previous = (after, so_far + reward, alive)

    def finish(self) -> EpisodeLinks:
        """Report, after the last step."""
        assert self._previous is not None
        _, total, alive = self._previous
        returns = np.concatenate([*self._returns, total])
        linked = self._matched / self._expected if self._expected else float(not alive.any())
        return EpisodeLinks(linked, returns[~np.isnan(returns)], self._continued, self._cut)


def _predecessors(source: IntArray, alive: Array, observation: IntArray) -> IntArray:
    """Return, for each observation, the row whose next observation it is, or -1.

    Data usually keeps its episodes in order, which also tells apart observations that look alike;
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


def entropy(action: Array) -> float:
    """Return the entropy of discrete actions in nats; NaN for vectors."""
    if not is_index(action):
        return math.nan
    share = np.unique(action, return_counts=True)[1] / max(len(action), 1)
    return float(-(share * np.log(share)).sum())


def is_index(column: Array) -> bool:
    """Tell indices of states or actions from vectors."""
    return column.ndim == 1 and np.issubdtype(column.dtype, np.integer)


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
