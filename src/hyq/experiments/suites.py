"""Suites as data: each a named tuple of frozen specs with stable ids."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from hyq.core.errors import HyqError
from hyq.experiments.specs import LockRun
from hyq.experts.lock import LockData

Preset = Literal["full", "quick"]
OFFLINE_METHODS = ("bc", "cql", "offline-fqi")
"""Methods that never act: the paper draws them as dashed lines."""

FRESH_SEEDS = range(100, 105)
"""Seeds that no setting was ever tuned on."""
SLOWEST_FIRST = ("online-only", "cql", "dqfd")


@dataclass(frozen=True)
class Suite:
    """Runs that are compared with one another."""

    name: str
    title: str
    runs: tuple[LockRun, ...]

    def __post_init__(self) -> None:
        """Refuse two runs of one id, which would share a directory."""
        ids = [run.id for run in self.runs]
        if len(set(ids)) != len(ids):
            raise HyqError(f"suite {self.name!r} has runs of equal id")


def lock_suite(preset: Preset) -> Suite:
    """Compare every method on both datasets: the paper's figure for the combination lock."""
    if preset == "full":
        base, seeds = LockRun(), FRESH_SEEDS
    else:
        base, seeds = LockRun(horizon=20, offline_samples=100_000, online_budget=400_000), range(2)
    runs: list[LockRun] = []
    for seed in seeds:
        at = replace(base, seed=seed)
        # Without offline data the two datasets make no difference.
        runs.append(replace(at, method="online-only", m_on=50))
        for data in get_args(LockData):
            on = replace(at, data=data)
            runs.append(on)
            runs.append(replace(on, anti_reward_probability=1.0))
            runs += [replace(on, offline_share=share) for share in (0.1, 0.25, 0.75)]
            runs += [
                replace(on, method="bc", iterations=10),
                replace(on, method="cql", iterations=40),
                replace(on, method="offline-fqi", iterations=10),
                replace(on, method="warm-start", online_budget=min(1_000_000, on.online_budget)),
                replace(on, method="dqfd", online_budget=min(1_000_000, on.online_budget)),
            ]
    # The longest first, so that all cores end together.
    runs.sort(key=lambda run: SLOWEST_FIRST.index(run.method) if run.method in SLOWEST_FIRST else 9)
    return Suite("lock", f"The combination lock, H = {base.horizon}", tuple(runs))


def briee_suite(preset: Preset) -> Suite:
    """Compare Hy-Q with BRIEE, which learns without offline data, as the lock grows."""
    horizons, seeds = ((10, 25, 50), FRESH_SEEDS) if preset == "full" else ((6,), range(2))
    runs = []
    for horizon in horizons:
        for seed in seeds:
            at = LockRun(horizon=horizon, seed=seed, offline_samples=5000 * horizon)
            runs.append(replace(at, method="briee"))
            runs += [replace(at, data=data) for data in get_args(LockData)]
    return Suite("briee", "Hy-Q and BRIEE as the lock grows", tuple(runs))


SUITES: dict[str, Callable[[Preset], Suite]] = {"lock": lock_suite, "briee": briee_suite}
"""Every suite by name."""
