"""How well logged data covers its best episodes, or a policy: C_pi over cells and actions.

Observations that look alike share a cell. With an indicator of each (cell, action) as features,
C_pi of a policy whose visits are distributed as d where the data's are as nu is

    C = sqrt(sum_x d(x)^2 / nu(x)),

which is 1 for data of the policy's own and sqrt(1 / p) for data of which only a share p is. Of a
policy with a function for each step, x also says the step, and the sum is over steps. A policy
whose network encodes observations gives the cells itself.

The policy is the one behind the best episodes, or one that has played. Visits come from two groups
of its episodes, which makes the square unbiased. The data they are compared with is without both
groups, or without two groups of as many of its own.

The sum can only be over the x that the data has. The share of visits that it leaves out is
`unseen`: an agent has to explore there. C is smallest for data of the policy's alone, but an agent
also has to find out, by steps of its own, that actions the data does not show are worse: their
share is `untried`. Both shares are of discounted visits, because an agent's episodes begin where
these begin, and reach later places only when it has learned the earlier ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from hyq.core.types import Columns, FloatArray, IntArray
from hyq.coverage.estimate import FOLDS, STUDENT, Interval, jackknife_std
from hyq.coverage.grid import Grid
from hyq.coverage.scan import row_hashes
from hyq.coverage.support import LEAST_INSIDE
from hyq.data.columns import named, over_columns
from hyq.data.dataset import Dataset

BLOCK_BYTES = 8 << 20
"""Observations that are read at a time."""
BEST_SHARE = 0.1
WELL, THIN = 3.0, 10.0
"""C_pi over that of the policy's own data: well covered up to, thinly up to."""
FEWEST_BEST = 3
"""Episodes that an estimate needs: two for the visits and one to compare them with."""
MOST_UNSEEN = 0.5
"""Share of unseen visits above which the rest says nothing about the whole."""
DISCOUNT = 0.99
"""What a visit counts for each step before it: the discount of deep Hy-Q unless it is set."""
MOST_ESCAPING = 0.1
ALIKE = 0.03
"""Shares of untried actions that differ by less do not tell datasets apart: on those that ship,
their standard errors are 0.002 to 0.013."""


@dataclass(frozen=True)
class Visits(Columns):
    """Transitions as the cells and actions that they visit, a number each."""

    pair: IntArray
    """(Cell, action)."""
    place: IntArray
    """The cell alone."""
    time: IntArray
    episode: IntArray
    """Of rows without order, their place among those of their step."""

    def __len__(self) -> int:
        return len(self.pair)


@dataclass(frozen=True)
class CellData:
    """What one reading of a dataset finds."""

    name: str
    visits: Visits
    actions: IntArray
    """The different actions (or cells of actions) that were taken."""
    returns: FloatArray
    """Of each episode; nothing of rows without order."""
    keys: IntArray
    """What tells each episode from others, and finds it again in other datasets."""
    duplicates: float
    """Share of episodes that are copies of others; of rows, where they have no order."""
    escaping: float
    """Share of next observations in no cell that the next step logged, of rows without order."""

    @classmethod
    def of(
        cls,
        name: str,
        dataset: Dataset,
        grid: Grid,
        progress: Callable[[int], None] = lambda rows: None,
        played: bool = False,
    ) -> "CellData":
        """Read the rows once; where a policy has `played` them, copies count as different."""
        episode: IntArray = np.repeat(np.arange(dataset.num_episodes), dataset.length)
        first = np.cumsum(dataset.length) - dataset.length
        time: IntArray = np.arange(len(dataset)) + (dataset.timestep - first)[episode]
        place, content, led_to = np.zeros((3, len(dataset)), np.uint64)
        row_bytes = sum(column[:1].nbytes for column in named("", dataset.observation).values())
        at_once = max(1, min(BLOCK_BYTES // max(row_bytes, 1), 1 << 16))
        for start in range(0, len(dataset), at_once):
            part = slice(start, start + at_once)
            at = np.arange(len(dataset))[part] + episode[part]
            seen = over_columns(lambda column, at=at: column[at], dataset.observation)
            place[part] = grid.place(seen, time[part])
            content[part] = row_hashes(*map(np.asarray, named("", seen).values()))
            if not dataset.ordered:
                seen = over_columns(lambda column, at=at: column[at + 1], dataset.observation)
                led_to[part] = grid.place(seen, time[part] + 1)
            progress(len(at))
        action = grid.action(dataset.action)
        actions, pair = np.unique(action), row_hashes(place, action)
        rows = row_hashes(content, dataset.action, dataset.reward, time)
        escaping, returns, keys = 0.0, dataset.returns(), rows
        if played:
            keys = np.arange(len(returns))
        elif dataset.ordered:
            keys = np.add.reduceat(rows, first)
        else:
            inner = ~dataset.terminated & (time < time.max())  # at ends nothing is read
            there = np.isin(row_hashes(led_to, time + 1)[inner], row_hashes(place, time))
            escaping = 1.0 - float(there.mean()) if inner.any() else 0.0
            returns = returns[:0]
            episode = np.arange(len(time)) - np.searchsorted(time, time)
        duplicates = 1.0 - len(np.unique(keys)) / len(keys)
        visits = Visits(pair, place, time, episode)
        return cls(name, visits, actions, returns, keys, duplicates, escaping)


@dataclass(frozen=True)
class Best:
    """The best tenth of the different episodes of some datasets, or a policy's own episodes."""

    visits: Visits
    keys: IntArray
    """Of each episode."""
    actions: int
    """How many different actions any of the datasets took."""
    mean_return: float
    pooled: int
    """Different episodes that they were chosen from."""
    policy: str | None = None
    """Name of the policy that played them, if it is not the datasets' own best."""

    @classmethod
    def of(cls, datasets: Sequence[CellData]) -> "Best":
        """Choose them; episodes that are as good as the last of them are taken too, if not many."""
        keys, first = np.unique(np.concatenate([data.keys for data in datasets]), return_index=True)
        returns = np.concatenate([data.returns for data in datasets])[first]
        threshold = np.sort(returns)[-max(1, int(BEST_SHARE * len(returns)))]
        good = returns >= threshold
        if good.mean() > 2 * BEST_SHARE and (returns > threshold).any():
            good = returns > threshold  # most are as good as the last of them: few are better
        parts, offset = [], 0
        for data in datasets:
            number = np.arange(offset, offset + len(data.keys))
            rows = data.visits[np.isin(number, first[good])[data.visits.episode]]
            episode = np.searchsorted(keys[good], data.keys[rows.episode])
            parts.append(replace(rows, episode=episode))
            offset += len(data.keys)
        mean = float(returns[good].mean())
        return cls(Visits.concatenate(parts), keys[good], _actions(datasets), mean, len(keys))

    @classmethod
    def played(cls, own: CellData, datasets: Sequence[CellData]) -> "Best":
        """Take all the episodes that a policy has played, to compare datasets with them."""
        mean, count = float(own.returns.mean()), _actions([own, *datasets])
        return cls(own.visits, own.keys, count, mean, len(own.keys), own.name)


def _actions(datasets: Sequence[CellData]) -> int:
    return len(np.unique(np.concatenate([data.actions for data in datasets])))


@dataclass(frozen=True)
class CellCoverage:
    """How the data covers the best episodes, or a policy's."""

    name: str
    share: float
    """Of the data's transitions, those in the best episodes."""
    transfer: Interval
    """C over what other data has; NaN where the best episodes are too few to say."""
    own: float
    """C of the policy's own data."""
    condition: float
    """By step: the largest sum of d / nu of a step, the relative condition number."""
    unseen: float
    """Share of a best episode's discounted visits in a (cell, action) that no other data has."""
    untried: float
    """Share of all that could be done at these visits that no other data has tried."""
    over_time: FloatArray
    """Share of the visits at each step in pairs that other data has."""
    meets: bool
    """Whether the estimate stands without any one group of the best episodes."""

    @property
    def known(self) -> bool:
        """Whether the best episodes are enough, and meet often enough, for an estimate."""
        return self.meets and self.unseen <= MOST_UNSEEN

    @property
    def covered(self) -> bool:
        """Whether C speaks for (nearly) all that the best episodes visit."""
        return self.known and self.unseen <= 1 - LEAST_INSIDE

    @property
    def ratio(self) -> float:
        """How many times C of the policy's own data it is."""
        return self.transfer.value / self.own


def cell_coverage(data: CellData, best: Best, by_step: bool = False) -> CellCoverage:
    """Compare the data with the best episodes."""
    rows, visits, count = data.visits, best.visits, len(best.keys)
    mine = np.full(len(rows), -1)
    groups = min(FOLDS, count)
    if best.policy is None:  # whose own rows, by the group of their episode, are among the data's
        at = np.minimum(np.searchsorted(best.keys, data.keys), count - 1)
        mine = np.where(best.keys[at] == data.keys, at % groups, -1)[rows.episode]
    share = float((mine >= 0).mean())
    if count < FEWEST_BEST:
        nothing = Interval(math.nan, math.nan, math.nan)
        return CellCoverage(data.name, share, nothing, *(math.nan,) * 4, np.zeros(0), False)
    near = np.isin(rows.place, visits.place)
    pairs = np.concatenate([visits.pair, rows.pair[near]])
    names, example, numbered = np.unique(pairs, return_index=True, return_inverse=True)
    place = np.concatenate([visits.place, rows.place[near]])[example]
    wanted, there = np.split(numbered, [len(visits)])

    def counted(pair: IntArray, group: IntArray) -> FloatArray:
        """Count pairs of each group; a last row is for what is of none."""
        cells = (group % (groups + 1)) * len(names) + pair
        found = np.bincount(cells, minlength=(groups + 1) * len(names))
        return found.reshape(groups + 1, -1).astype(float)

    group, weight = visits.episode % groups, (1.0 if by_step else DISCOUNT) ** visits.time
    logged = counted(there, mine[near])
    tried = logged.sum(axis=0) - logged[:-1] > 0
    """Pairs in the data without each group of the best episodes."""
    met = tried[group, wanted]
    of_group = [group == g for g in range(groups)]
    unseen = np.mean([weight[g] @ ~met[g] / weight[g].sum() for g in of_group])
    untried = [
        _untried(visits.place[g], weight[g], best.actions, place[known])
        for g, known in zip(of_group, tried, strict=True)
    ]
    over_time = np.bincount(visits.time, met) / np.maximum(np.bincount(visits.time), 1)
    visited = counted(wanted, group)[:-1]
    visited /= (np.bincount(np.arange(count) % groups) if by_step else visited.sum(axis=1))[:, None]
    total = np.bincount(rows.time).max() if by_step else len(rows)
    # An estimate without each tenth of the data and of the visits shows how sure it is.
    fold = np.where(mine < 0, rows.episode % groups, mine)
    others = counted(there, np.where(mine < 0, fold, -1)[near])[:-1] / total
    sizes = [np.bincount(fold[part], minlength=groups) / total for part in (mine < 0, mine >= 0)]
    square, without = _squares(visited, others, logged[:-1] / total, *sizes)
    transfer = Interval.of(math.sqrt(square), STUDENT * jackknife_std(np.sqrt(without)))
    least = own = 1.0
    condition = 0.0
    if by_step:
        reached = np.bincount(visits.time) / count
        own, least = math.sqrt(reached.sum()), math.sqrt(np.square(reached * over_time).sum())
        ratio = np.where(met, 1 / np.maximum(others.sum(axis=0)[wanted], 1 / total), 0.0)
        condition = float(np.bincount(visits.time, ratio).max() / count)
    # Data of which a share is the best episodes has no larger C, and no data a smaller one.
    has_all = best.policy is None and np.isin(best.keys, data.keys).all()
    return CellCoverage(
        data.name,
        share,
        transfer.within(least, math.sqrt(1 / share) if has_all else math.inf),
        own,
        condition,
        float(unseen),
        float(np.mean(untried)),
        over_time,
        bool((without > 0).all()),
    )


def _squares(
    visits: FloatArray,
    others: FloatArray,
    good: FloatArray,
    of_others: FloatArray,
    of_good: FloatArray,
) -> tuple[float, FloatArray]:
    """Estimate C^2, also without each fold of everything; arguments have a row for each fold.

    `others` is the data but for the best episodes, `good` what the data has of these, and `of_...`
    how much of the data the folds are, of pairs that are not compared too. The estimate is a
    product over two other folds of visits, on data without the best episodes of both; the rest of
    these then weighs as much as all.
    """
    folds, whole = np.arange(len(visits)), float(of_others.sum() + of_good.sum())

    def without(out: int) -> float:
        kept = folds != out
        rest, size = others[kept].sum(axis=0), float(of_good[kept].sum())
        total, best = float(of_others[kept].sum()) + size, good[kept].sum(axis=0)
        total /= whole  # shares of the data become shares of what is left of it
        squares = []
        for a, b in combinations(np.flatnonzero(kept).tolist(), 2):
            left = size - float(of_good[a] + of_good[b])
            again = size / left if left > 1e-12 else 0.0
            nu = (rest + again * (best - good[a] - good[b])) / max(total, 1e-12)
            seen = nu > 1e-12
            squares.append((visits[a][seen] * visits[b][seen] / nu[seen]).sum())
        return float(np.mean(squares))

    return without(-1), np.array([without(int(fold)) for fold in folds])


def _untried(places: IntArray, weight: FloatArray, actions: int, tried: IntArray) -> float:
    """Return the share of all (place, action) not in the data, given the place of each that is."""
    cells, numbered = np.unique(places, return_inverse=True)
    times = np.bincount(numbered, weight)
    at = np.minimum(np.searchsorted(cells, tried), len(cells) - 1)
    missing = actions - np.bincount(at[cells[at] == tried], minlength=len(cells))
    return float(times @ missing / (times.sum() * actions))


def ranked(
    found: Sequence[CellCoverage], escaping: Mapping[str, float] | None = None
) -> list[CellCoverage]:
    """Sort datasets, the easiest first.

    Those that cover the best episodes, more than hardly, come first: by what they leave untried,
    and where that is alike, by C. A sum that leaves more out is smaller, so the others follow by
    what they leave out, and last those about which nothing can be said. Of transitions by step
    those that escape to states that were not logged come behind the others.
    """

    def difficulty(one: CellCoverage) -> tuple[float, ...]:
        if not one.known:
            return (math.inf,)
        return 0.0 if one.covered else one.unseen, astray(one), one.transfer.value

    def astray(one: CellCoverage) -> bool:
        return (escaping or {}).get(one.name, 0.0) > MOST_ESCAPING

    def well(one: CellCoverage) -> bool:
        return one.covered and one.ratio <= THIN and not astray(one)

    alike: list[list[CellCoverage]] = []
    for one in sorted(filter(well, found), key=lambda one: one.untried):
        if not alike or one.untried - alike[-1][0].untried >= ALIKE:
            alike.append([])
        alike[-1].append(one)
    order = [one for group in alike for one in sorted(group, key=difficulty)]
    return order + sorted((one for one in found if not well(one)), key=difficulty)
