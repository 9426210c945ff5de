"""The subcommands of datasets on disk: list them, look into them."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from hyq.core.types import Transitions
from hyq.data.episodes import Episodes
from hyq.runs.deep_data import described_names, named_logs

console = Console()


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
    table = Table.grid(padding=(0, 2))
    table.add_row("", *(f"[bold]{title}[/]" for title in ("name", "environment", "transitions")))
    for name, about in described_names().items():
        table.add_row("", name, about.env, f"{about.transitions:,}")
        for wrapper in about.wrappers:
            table.add_row("", "", f"  in {wrapper}")
    console.print(table, highlight=False)
