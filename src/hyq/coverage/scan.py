"""What is in a dataset: hashes of rows, episodes put together again, spread and support."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import entropy

from hyq.core.types import Array, BoolArray, FloatArray, IntArray
from hyq.data.dataset import Dataset
from hyq.data.steps import StepView

QUANTILE = 0.99
_ODD = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(*columns: Array) -> IntArray:
    """Return a 64-bit hash of each row over several columns; equal rows have equal hashes.

    A row's bytes are read as 64-bit words, mixed, and multiplied by fixed odd numbers: no Python
    for each row.
    """
    total: IntArray = np.zeros(len(columns[0]), dtype=np.uint64)
    for salt, column in enumerate(columns if len(total) else ()):
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

    @classmethod
    def found(cls, view: StepView, seen: IntArray, after: IntArray) -> "EpisodeLinks":
        """Link next observations to those of the next step, given the hashes of both."""
        bounds = np.searchsorted(view.step, np.arange(view.horizon + 1)).tolist()
        alive = view.discount > 0
        total = view.reward[: bounds[1]].astype(np.float64)
        returns = []
        matched = continued_after_end = cut = 0
        for h in range(1, view.horizon):
            before, now = slice(*bounds[h - 1 : h + 1]), slice(*bounds[h : h + 2])
            match = _predecessors(after[before], alive[before], seen[now])
            linked = match >= 0
            matched += int(linked.sum())
            continued = np.zeros(len(total), dtype=bool)
            continued[match[linked]] = True
            continued_after_end += int((continued & ~alive[before]).sum())
            cut += int((~continued & alive[before]).sum())
            returns.append(total[~continued])
            so_far = np.full(len(match), math.nan)
            so_far[linked] = total[match[linked]]
            total = so_far + view.reward[now]
        every = np.concatenate([*returns, total])
        later = len(view) - bounds[1]
        share = matched / later if later else float(not alive.any())
        return cls(share, every[~np.isnan(every)], continued_after_end, cut)


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


def action_entropy(action: Array) -> float:
    """Return the entropy of discrete actions in nats; NaN for vectors, or without any."""
    if not is_index(action) or not len(action):
        return math.nan
    return float(entropy(np.unique(action, return_counts=True)[1]))


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
    return float(np.exp(entropy(values))) if values.sum() > 0 else 0.0


def unsupported(logged: Array, logged_group: IntArray, there: Array, group: IntArray) -> BoolArray:
    """Say of each visit whether its nearest logged pair of the same group is unusually far.

    Unusual is further than 99% of logged pairs are from their own nearest neighbour in their group.
    A visit whose group was never logged has no support at all.
    """
    data, points = (np.asarray(x.reshape(len(x), -1), dtype=np.float32) for x in (logged, there))
    own = np.full(len(data), np.nan)
    nearest = np.full(len(points), np.inf)
    for g in np.unique(logged_group):
        rows, mine = np.flatnonzero(logged_group == g), np.flatnonzero(group == g)
        if len(mine):
            nearest[mine] = _distances(points[mine], data[rows]).min(axis=1)
        if len(rows) > 1:
            between = _distances(data[rows], data[rows])
            np.fill_diagonal(between, np.inf)
            own[rows] = between.min(axis=1)
    known = own[~np.isnan(own)]
    # Distances between equal points are rounding errors of the squares they come from.
    rounding = 1e-3 * float(np.sqrt(np.square(data).sum(axis=1).mean()))
    return nearest > max(float(np.quantile(known, QUANTILE)) if len(known) else 0.0, rounding)


def _distances(left: FloatArray, right: FloatArray) -> FloatArray:
    return torch.cdist(torch.from_numpy(left), torch.from_numpy(right)).numpy()
