"""The subcommand that makes datasets of the lock, apart from those that do without PyTorch."""

from pathlib import Path

from hyq.commands.data import data_show
from hyq.commands.watch import progress_bar
from hyq.core.files import check_free
from hyq.envs.combination_lock import LockSpec
from hyq.experts.lock import LockData, lock_dataset


def data_make_lock(
    kind: LockData,
    *,
    out: Path,
    horizon: int = 100,
    size: int = 500_000,
    seed: int = 0,
    anti_reward_probability: float = 0.5,
) -> None:
    """Make one of the paper's offline datasets for the combination lock, on disk.

    Args:
        kind: Optimal occupancy (random actions) or optimal trajectory (nearly all good ones).
        out: New directory for the dataset; about 1 KB a transition at horizon 100.
        horizon: Number of digits of the lock.
        size: Number of transitions.
        seed: Chooses the lock and the data; a run needs the same seed to be on the same lock.
        anti_reward_probability: Chance that a fall pays 0.1.
    """
    check_free(out)  # before the data is made, which takes a while
    spec = LockSpec(
        horizon=horizon, anti_reward_probability=anti_reward_probability, instance_seed=seed
    )
    with progress_bar(f"optimal {kind} data", horizon) as update:
        lock_dataset(spec, kind, size, seed, lambda h: update(h + 1)).save(out)
    data_show(out)
