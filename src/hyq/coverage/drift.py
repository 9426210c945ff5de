"""Does logged data agree with the live environment? A test with a stated false-alarm rate.

An environment cannot be put into a logged state, so rows are compared where both have been. A
nearest-neighbour clone of the logged behaviour acts for a few hundred steps. Each live row (s, a)
is matched with the nearest logged one that no other has taken, from a quarter of the episodes; the
others have taught a model of what follows (s, a). Where the environment is the one that was logged,
the model is as wrong about a live row as about its match: which of the two is live is a toss-up.
Rows of a stretch of live steps depend on one another, so the toss is for whole stretches.

Four parts are tested: how episodes start, the dynamics, the rewards, and the ends. Holm's method
over the parts keeps the chance of any false alarm at `ALPHA`, and a difference too small to matter
(`MARGIN`) is none, however sure it is. Matches are near, not equal, so the rate is also measured:
see results/drift.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import fisher_exact, mannwhitneyu

from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, IntArray
from hyq.coverage.nearby import MOST_ROWS, NEIGHBOURS, Flat, Rows, Space, rows_of, scale_of, stacked
from hyq.coverage.scan import is_index, row_hashes
from hyq.data.columns import over_columns
from hyq.data.dataset import Dataset, Episode

ALPHA = 0.02
"""Chance of an alarm where data and environment agree, over all parts."""
STEPS, RESETS = 800, 200
LONGEST, STRETCH = 100, 25
"""Steps of a live episode, so that there are several, and of a stretch."""
MARGIN = 0.3
"""Mean differences below this many typical errors are too small to matter."""
FEWEST_EPISODES, FEWEST_MATCHES, FEWEST_STRETCHES = 10, 50, 8
CLIP = 3.0
"""Typical errors that an error counts for at most: contacts and crashes have tails."""
ROUNDING, MINOR_REWARD = 3e-3, 0.02
"""Smallest errors that count, as shares of a number's spread and of the range of rewards."""
FLIPS = 9_999
REPEATED = 0.5
"""Share of different observations below which they are names of states, not points in space."""


@dataclass(frozen=True)
class Part:
    """One part of the test."""

    name: str
    p_value: float
    """NaN where it cannot be tested."""
    text: str


@dataclass(frozen=True)
class Drift:
    """What the test found."""

    parts: tuple[Part, ...]
    steps: int
    """Live steps taken."""
    matched: float
    """Share of them with a logged row nearby."""
    seen: Mapping[str, tuple[float, float]]
    """Smallest and largest value of each number of a live observation."""

    @property
    def alarms(self) -> tuple[Part, ...]:
        """The parts that disagree, by Holm's method."""
        tested = [part for part in self.parts if not math.isnan(part.p_value)]
        found: list[Part] = []
        for part in sorted(tested, key=lambda part: part.p_value):
            if part.p_value > ALPHA / (len(tested) - len(found)):
                break
            found.append(part)
        return tuple(found)


def drift_test(
    dataset: Dataset, make: Callable[[], gym.Env[Any, Any]], *, steps: int = STEPS, seed: int = 0
) -> Drift:
    """Act `steps` in the environment and compare what follows with what was logged."""
    if dataset.num_episodes < FEWEST_EPISODES:
        text = f"cannot tell: there are fewer than {FEWEST_EPISODES} logged episodes"
        names = ("starts", "dynamics", "rewards", "ends")
        return Drift(tuple(Part(name, math.nan, text) for name in names), 0, 0.0, {})
    streams = Streams(seed).below("drift")
    flat = Flat.of(dataset, streams.generator("project"))
    order = streams.generator("split").permutation(dataset.num_episodes)
    quarter = len(order) // 4
    taught, held = (rows_of(dataset, flat, part) for part in (order[quarter:], order[:quarter]))
    env = make()
    try:
        seeds = [streams.integer("reset", number) for number in range(RESETS)]
        starts = np.concatenate([flat(stacked([env.reset(seed=s)[0]])) for s in seeds])
        limit = _limit(env)
        # An environment that does not declare its limit shows it, if an episode lasts that long.
        longest = LONGEST if limit else max(LONGEST, int(dataset.length.max()))
        played = list(_act(env, taught, flat, steps, longest, streams))
    finally:
        env.close()
    limit = limit or next((len(e.action) for e, truncated in played if truncated), None)
    episodes = Dataset.of([episode for episode, _ in played], {})
    live = rows_of(episodes, flat, np.arange(episodes.num_episodes))
    pairs = _Pairs.of(taught, held, live, streams.generator("match"))
    first = np.flatnonzero(dataset.timestep == 0)
    first = (np.cumsum(dataset.length + 1) - dataset.length - 1)[first[: MOST_ROWS // 10]]
    logged_starts = flat(over_columns(lambda column: column[first], dataset.observation))
    parts = (
        _same_starts(logged_starts, starts, flat.names),
        pairs.same_outcomes() if pairs.outcome is not None else pairs.same("dynamics", flat.names),
        pairs.same("rewards", ["the reward"]),
        _same_ends(dataset, limit, pairs),
    )
    states = np.concatenate([live.state, live.after])
    ranges = zip(states.min(axis=0).tolist(), states.max(axis=0).tolist(), strict=True)
    seen = dict(zip(flat.names, ranges, strict=True))
    return Drift(parts, len(live.reward), len(pairs.stretch) / len(live.reward), seen)


def _act(
    env: gym.Env[Any, Any], logged: Rows, flat: Flat, steps: int, longest: int, streams: Streams
) -> Iterator[tuple[Episode, bool]]:
    """Act as one of the nearest logged rows did; yield episodes, and whether each was truncated."""
    rng, scale = streams.generator("act"), scale_of(logged.state)
    tree = cKDTree(logged.state / scale)
    number = taken = 0
    while taken < steps:
        seen = [env.reset(seed=streams.integer("live", number))[0]]
        actions: list[Array] = []
        rewards: list[float] = []
        terminated = truncated = False
        most = min(LONGEST if number else longest, steps - taken)
        while not (terminated or truncated) and len(actions) < most:
            here = flat(stacked(seen[-1:]))[0] / scale
            near = tree.query(here, k=range(1, 1 + min(NEIGHBOURS, len(logged.action))))[1]
            action = logged.action[rng.choice(near)]
            observation, reward, terminated, truncated, _ = env.step(
                int(action) if is_index(logged.action) else action
            )
            seen.append(observation)
            actions.append(action)
            rewards.append(float(reward))
        taken, number = taken + len(actions), number + 1
        episode = Episode(stacked(seen), np.array(actions), np.array(rewards), bool(terminated))
        yield episode, truncated and not terminated


def _limit(env: Any) -> int | None:
    """Return the time limit that an environment declares."""
    declared = getattr(env.spec, "max_episode_steps", None)
    found = declared or getattr(env.unwrapped, "max_steps", None)
    return int(found) if isinstance(found, int | np.integer) else None


@dataclass(frozen=True)
class _Pairs:
    """Live rows and their matches, in the order of the former."""

    errors: Mapping[str, tuple[FloatArray, FloatArray]]
    """How wrong the model is about both, in typical errors, for each part that it predicts."""
    outcome: IntArray | None
    """Where observations are names of states: what live rows, then matches, led to from where."""
    stretch: IntArray
    """The stretch of live steps that each pair is of."""
    rng: np.random.Generator

    @classmethod
    def of(cls, taught: Rows, held: Rows, live: Rows, rng: np.random.Generator) -> "_Pairs":
        some = row_hashes(taught.state[: MOST_ROWS // 4])
        named = len(np.unique(some)) < REPEATED * len(some)
        space = Space.of(taught, named)
        mine, match = space.matched(held, live, rng)
        if len(mine) < FEWEST_MATCHES:
            return cls({}, None, mine, rng)
        rows = Rows.concatenate([live[mine], held[match]])
        when = live.episode[mine] * len(live.step) + live.step[mine] // STRETCH
        _, stretch = np.unique(when, return_inverse=True)

        def errors(of: Callable[[Rows], Any], least: float = 0.0) -> tuple[Any, Any]:
            """Compare with the model, in errors that are usual where a row is."""
            target, found = (of(r).reshape(len(r.reward), -1).astype(float) for r in (taught, rows))
            expected, spread = space.predicted(target, rows)
            size = np.maximum(target.std(axis=0), 1e-3 * np.abs(target).max(axis=0))
            error = (found - expected) / np.maximum(
                spread, np.maximum(ROUNDING * size, least) + 1e-9
            )
            typical = np.maximum(np.median(np.abs(error[len(mine) :]), axis=0), 1.0)
            scaled = np.clip(error / typical, -CLIP, CLIP)
            return scaled[: len(mine)], scaled[len(mine) :]

        found = {
            "rewards": errors(lambda r: r.reward, MINOR_REWARD * float(np.ptp(taught.reward))),
            "ends": errors(lambda r: r.terminated),
        }
        if not named:
            found["dynamics"] = errors(lambda r: r.after - r.state)
            return cls(found, None, stretch, rng)
        outcome, known = (row_hashes(r.state, r.action, r.after) for r in (rows, taught))
        outcome = np.where(np.isin(outcome, known), outcome, 0)  # all that is new counts together
        return cls(found, outcome, stretch, rng)

    @property
    def few(self) -> bool:
        """Whether there are too few of them to tell."""
        stretches = len(np.unique(self.stretch))
        return len(self.stretch) < FEWEST_MATCHES or stretches < FEWEST_STRETCHES

    def same(self, name: str, columns: Sequence[str]) -> Part:
        """Test whether live rows are as wrong as their matches, up or down, and in size."""
        if self.few:
            return _unknown(name)
        live, match = self.errors[name]
        difference = np.concatenate([live - match, np.abs(live) - np.abs(match)], axis=1)
        mean = np.abs(difference.mean(axis=0))
        if (mean < MARGIN).all():
            return Part(name, 1.0, "agree")
        total = np.zeros((self.stretch.max() + 1, difference.shape[1]))
        np.add.at(total, self.stretch, difference)
        spread = np.sqrt(np.square(total).sum(axis=0)) + 1e-12
        chance = (np.abs(self._tosses(FLIPS, total)) / spread).max(axis=1)
        found = np.where(mean < MARGIN, 0.0, np.abs(total.sum(axis=0)) / spread)
        worst = int(found.argmax())
        p_value = (1 + int((chance >= found[worst]).sum())) / (1 + FLIPS)
        column = columns[worst % len(columns)]
        return Part(name, p_value, f"{column} differs most, by {mean[worst]:.2g} typical errors")

    def same_outcomes(self) -> Part:
        """Test whether states lead where they led, by the chi-squared distance of histograms."""
        if self.few or self.outcome is None:
            return _unknown("dynamics")
        kinds, kind = np.unique(self.outcome, return_inverse=True)
        live, match = np.split(kind, 2)
        total = np.zeros((self.stretch.max() + 1, len(kinds)))
        np.add.at(total, (self.stretch, live), 1.0)
        np.add.at(total, (self.stretch, match), -1.0)
        weight = 1.0 / np.bincount(kind)
        chance = np.square(self._tosses(FLIPS // 10, total)) @ weight
        found = float(np.square(total.sum(axis=0)) @ weight)
        p_value = (1 + int((chance >= found - 1e-9).sum())) / (1 + len(chance))
        other = int((live != match).sum())
        return Part("dynamics", p_value, f"{other:,} of {len(live):,} rows led elsewhere")

    def _tosses(self, count: int, total: FloatArray) -> FloatArray:
        """Add up the stretches with random signs: live rows and matches of each are swapped."""
        signs: FloatArray = self.rng.choice([-1.0, 1.0], size=(count, len(total)))
        return signs @ total


def _unknown(name: str) -> Part:
    return Part(name, math.nan, "cannot tell: too few live steps came near logged ones")


def _same_starts(logged: FloatArray, live: FloatArray, names: Sequence[str]) -> Part:
    """Compare first observations number by number: their ranks, and those of their spread."""
    if len(logged) < FEWEST_EPISODES:
        return Part("starts", math.nan, "cannot tell: too few logged episodes start at a reset")
    found = []
    for name, a, b in zip(names, np.round(logged, 6).T, np.round(live, 6).T, strict=True):
        middle = np.median(b)
        if not np.allclose([*a, *b], middle, rtol=1e-5, atol=1e-6):
            apart = np.abs(a - middle), np.abs(b - middle)
            found += [(float(mannwhitneyu(*two).pvalue), name) for two in ((a, b), apart)]
    least, name = min(found, default=(1.0, ""))
    p_value = min(1.0, least * len(found)) if found else 1.0
    return Part("starts", p_value, f"{name} differs most" if p_value < ALPHA else "agree")


def _same_ends(dataset: Dataset, limit: int | None, pairs: _Pairs) -> Part:
    """Compare where episodes end, and look for time limits that were logged as ends."""
    where = pairs.same("ends", ["where episodes end"])
    if limit is None:
        return where
    reached, over = dataset.timestep + dataset.length, dataset.terminated
    first = limit - max(10, limit // 10)
    at_limit, ended = reached >= limit, int(((reached == limit) & over).sum())
    before = int(((reached >= first) & (reached < limit) & over).sum())
    steps = int(np.clip(np.minimum(reached, limit - 1) - first + 1, 0, None).sum())
    table = [[ended, int(at_limit.sum()) - ended], [before, max(steps - before, 0)]]
    p_value = float(fisher_exact(table, alternative="greater").pvalue)
    if math.isnan(where.p_value):
        where = Part("ends", 1.0, "agree as far as the time limit is concerned")
    if p_value >= where.p_value:
        return Part("ends", min(1.0, 2 * where.p_value), where.text)
    text = (
        f"{ended:,} episodes are logged as terminated after exactly {limit:,} steps, where the "
        "environment truncates: their value continues"
    )
    return Part("ends", min(1.0, 2 * p_value), text if 2 * p_value < ALPHA else "agree")
