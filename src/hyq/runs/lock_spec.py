"""Experiments as data: a frozen spec says everything a run depends on."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args

from hyq.core.errors import HyqError
from hyq.core.settings import check_range
from hyq.data.dataset import Dataset
from hyq.data.fits import check_fits, same_provenance
from hyq.data.mix import mixing_weights
from hyq.envs.combination_lock import CombinationLockVector, Emission, LockSpec
from hyq.experts.lock import LockData, lock_dataset, lock_provenance
from hyq.runs.spec import Spec, as_file_name, changed_fields

OFFLINE = ("bc", "cql", "cql-block", "offline-fqi")
ACTING = ("hyq", "hyq-adam", "online-only", "warm-start", "dqfd", "dqfd-block", "briee")
ALGORITHMS = (*OFFLINE, *ACTING)
WITH_DATA = tuple(name for name in ALGORITHMS if name not in ("online-only", "briee"))
USED_BY = {
    "m_on": ACTING,
    "online_budget": ACTING,
    "offline_share": ("hyq", "hyq-adam", "dqfd", "dqfd-block"),
    "data": WITH_DATA,
    "offline_samples": WITH_DATA,
}
"""Which algorithms use the options that not all of them use; to others they cannot be given."""


@dataclass(frozen=True)
class LockRun(Spec):
    """One run of one algorithm on one lock. Equal specs are the same run."""

    algorithm: str = "hyq"
    """What learns: see 'hyq algorithms'."""
    data: str = "occupancy"
    """Offline data: 'occupancy' or 'trajectory' (made from the seed), or a dataset's directory."""
    horizon: int = 100
    """H, the number of digits of the lock; the paper uses 100."""
    seed: int = 0
    """Chooses the lock, the data made for it, and every random number of the run."""
    offline_samples: int = 500_000
    """Transitions of offline data to make (a directory brings its own)."""
    m_on: int = 10
    """Online tuples collected for every step in every iteration."""
    iterations: int = 500
    """Give up after this many iterations ..."""
    online_budget: int = 25_000_000
    """... or when this many online samples are spent; the paper's figure ends at 25 million."""
    offline_share: float = 0.5
    """Weight of the offline data in every regression."""
    anti_reward_probability: float = 0.5
    """Chance that a fall pays 0.1: 0.5 as in the released setting, 1.0 as in the paper's text."""
    actions: int = 10
    """Number of actions."""
    noise: float = 0.1
    """Std of the observation noise."""
    emission: Emission = "shared"
    """One code of the latent states for all steps, as in the paper, another for every step, or the
    shared one seen through a fixed random network."""
    dense: bool = False
    """Pay for every good step instead of for falling."""
    variable_latent: bool = False
    """Redraw the latent state from its own noisy code after each observation."""
    evaluation_episodes: int = 200
    """Episodes of the greedy policy played after every iteration; they do not count as samples."""

    def __post_init__(self) -> None:
        for name in ("m_on", "evaluation_episodes", "iterations", "online_budget"):
            check_range(name, getattr(self, name), 1)
        check_range("seed", self.seed, 0)
        if self.offline_samples < self.horizon:
            raise HyqError(
                f"offline_samples must be at least the horizon, {self.horizon}, "
                f"got {self.offline_samples}"
            )
        idle = [
            name
            for name, users in USED_BY.items()
            if self.algorithm not in users and getattr(self, name) != getattr(LockRun, name)
        ]
        if self.algorithm in ALGORITHMS and idle:
            raise HyqError(f"{self.algorithm} does not use {', '.join(idle)}: leave it out")
        _ = self.lock
        mixing_weights(1, 1, self.offline_share)

    @property
    def lock(self) -> LockSpec:
        """The environment."""
        shared = {part.name for part in fields(LockSpec)} & vars(self).keys()
        return LockSpec(instance_seed=self.seed, **{name: getattr(self, name) for name in shared})

    @property
    def id(self) -> str:
        """A name that tells this run from others of a suite."""
        details = changed_fields(self, ("algorithm", "data", "horizon", "seed"))
        name = f"{self.algorithm}-{self.data}-h{self.horizon}{details}-s{self.seed}"
        return as_file_name(name)

    def dataset(self) -> Dataset:
        """Make or load the offline data, and see that it is of this lock."""
        if self.data in get_args(LockData):
            return lock_dataset(self.lock, self.data, self.offline_samples, self.seed)  # type: ignore[arg-type]
        if not Path(self.data).exists():
            raise HyqError(
                f"no dataset at {self.data!r}: give 'occupancy', 'trajectory' or a directory "
                "made by 'hyq data make lock'"
            )
        dataset = Dataset.load(Path(self.data))
        same_provenance(dataset, lock_provenance(self.lock))
        env = CombinationLockVector(1, **vars(self.lock))
        check_fits(dataset, env.single_observation_space, env.single_action_space)
        steps = dataset.by_step().horizon
        if steps != self.horizon:
            raise HyqError(f"the dataset has {steps} steps, the environment {self.horizon}")
        return dataset
