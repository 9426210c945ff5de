"""The subcommands for the paper's combination lock: its data, and runs on it."""

from pathlib import Path

import tyro

from hyq.commands.data import data_show
from hyq.commands.report import report
from hyq.commands.watch import watch
from hyq.core.files import check_free
from hyq.core.terminal import Terminal, progress_bar
from hyq.envs.combination_lock import Emission, LockSpec
from hyq.experts.lock import LockData, lock_dataset
from hyq.runs import lock
from hyq.runs.lock_spec import LockRun


def run_lock(spec: tyro.conf.OmitArgPrefixes[LockRun], *, out: Path) -> None:
    """Train V-type Hy-Q, or a baseline, on the combination lock.

    Args:
        spec: What to run.
        out: New directory for the records, the learning curve and the checkpoints.
    """
    watch(lock.start(spec, out), Terminal())
    report(out, figure=out / "curve.png")


def data_make_lock(
    kind: LockData,
    *,
    out: Path,
    horizon: int = 100,
    size: int = 500_000,
    seed: int = 0,
    anti_reward_probability: float = 0.5,
    emission: Emission = "shared",
) -> None:
    """Make one of the paper's offline datasets for the combination lock, on disk.

    Args:
        kind: Optimal occupancy (random actions) or optimal trajectory (nearly all good ones).
        out: New directory for the dataset; about 1 KB a transition at horizon 100.
        horizon: Number of digits of the lock.
        size: Number of transitions.
        seed: Chooses the lock and the data; a run needs the same seed to be on the same lock.
        anti_reward_probability: Chance that a fall pays 0.1.
        emission: How observations show latent states: see 'hyq run lock'.
    """
    check_free(out)  # before the data is made, which takes a while
    spec = LockSpec(
        horizon=horizon,
        anti_reward_probability=anti_reward_probability,
        emission=emission,
        instance_seed=seed,
    )
    with progress_bar(f"optimal {kind} data", horizon) as update:
        lock_dataset(spec, kind, size, seed, lambda h: update(h + 1)).save(out)
    data_show(out)
