"""The subcommands for datasets on disk: list them, look into them."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from hyq.core.terminal import Terminal
from hyq.data.columns import described
from hyq.envs.spaces import space_from_json
from hyq.runs.named_data import described_names, load

console = Terminal()


def data_show(path: Annotated[Path, tyro.conf.Positional]) -> None:
    """Check a dataset against its hashes and print what is in it.

    Args:
        path: The dataset's directory, or a name of 'hyq data list'.
    """
    dataset = load(path)
    first, last = dataset.timestep, dataset.timestep + dataset.length
    table = Table("", "", title=str(path), title_justify="left", show_header=False)
    table.columns[1].overflow = "fold"  # a hash is shown whole
    about = {name: one for name, one in dataset.provenance.items() if name != "imported"}
    for name in ("observation_space", "action_space"):
        if name in about:
            about[name] = space_from_json(about[name])
    for name, value in {
        "transitions": f"{len(dataset):,}",
        "episodes": f"{dataset.num_episodes:,}",
        "steps": f"{int(first.min())} to {int(last.max()) - 1}",
        "observation": described(dataset.observation),
        "action": described(dataset.action),
        "mean reward": f"{float(dataset.reward.mean()):.4f}",
        "terminated": f"{float(dataset.terminated.mean()):.2%} of the episodes",
        **about,
        "sha256": dataset.digest(),
    }.items():
        table.add_row(name, str(value))
    console.print(table)


def data_list() -> None:
    """List the datasets that have a name, for the --data of 'hyq train'."""
    table = Table.grid(padding=(0, 2))
    table.add_row("", *("name", "environment", "transitions"), style="bold")
    for name, about in described_names().items():
        table.add_row("", name, about.env, f"{about.transitions:,}")
        for wrapper in about.wrappers:
            table.add_row("", "", f"  in {wrapper}")
    # Rows stay whole where the terminal is narrow, so that other programs can read them.
    Terminal(width=max(console.width, 100)).print(table)
