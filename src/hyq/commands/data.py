"""The verbs of datasets on disk: make them, list them, look into them."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table

from hyq.core.types import Transitions
from hyq.data.episodes import Episodes
from hyq.envs.combination_lock import LockSpec
from hyq.experiments.deep_data import dataset_names, named_logs
from hyq.experts.lock import LockData, lock_dataset

console = Console()


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
    spec = LockSpec(
        horizon=horizon, anti_reward_probability=anti_reward_probability, instance_seed=seed
    )
    with Bar(console=console) as bar:
        task = bar.add_task(f"optimal {kind} data", total=horizon)
        made = lock_dataset(spec, kind, size, seed, lambda h: bar.update(task, completed=h + 1))
        made.save(out)
    data_show(out)


def data_show(path: Annotated[Path, tyro.conf.Positional]) -> None:
    """Check a dataset against its hashes and print what is in it.

    Args:
        path: The dataset's directory, or a name of 'hyq data list'.
    """
    logs = named_logs(str(path), seed=0)
    if isinstance(logs, Episodes):
        rows: Episodes | Transitions = logs
        ended, kind = logs.terminated, {"episodes": f"{len(logs.length):,}"}
    else:
        rows = logs.transitions
        ended, kind = rows.discount == 0, {"steps": str(logs.horizon)}
    table = Table(title=str(path), title_justify="left", show_header=False)
    for name, value in {
        "transitions": f"{len(logs):,}",
        **kind,
        "observation": f"{rows.observation.shape[1:]} {rows.observation.dtype}",
        "mean reward": f"{float(rows.reward.mean()):.4f}",
        "terminated": f"{float(ended.mean()):.2%}",
        **logs.provenance,
        "sha256": logs.digest(),
    }.items():
        table.add_row(name, str(value))
    console.print(table)


def data_list() -> None:
    """List the datasets that have a name, for 'hyq run deep --data'."""
    for name in dataset_names():
        console.print(f"  {name}", highlight=False)
