"""The subcommands for datasets on disk: import, make, export, list and show them."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.core.files import check_free
from hyq.core.terminal import Terminal
from hyq.data.columns import described
from hyq.data.importing.assemble import Named, import_tables
from hyq.data.importing.order import Rules
from hyq.data.minari import export_minari, import_minari, is_minari
from hyq.data.spaces import spaces_of
from hyq.envs.make import env_factory
from hyq.envs.spaces import space_from_json
from hyq.runs.named_data import described_names, load, make_scripted

console = Terminal()


def data_import(
    files: Annotated[tuple[str, ...], tyro.conf.Positional],
    columns: tyro.conf.OmitArgPrefixes[Named] = Named(),
    rules: tyro.conf.OmitArgPrefixes[Rules] = Rules(),
    *,
    out: Path,
    episodes_per_file: bool = False,
) -> None:
    """Make a dataset of files: CSV, Parquet, JSON lines, NPZ, HDF5, or a Minari dataset.

    Columns are found by their names, and rows sorted by episode and time; the files may be larger
    than memory. See docs/your_data.md.

    Args:
        files: Files, folders or patterns; or the id or directory of one Minari dataset.
        columns: Columns that are not found by their name.
        rules: What to do about what is wrong with rows.
        out: New directory for the dataset.
        episodes_per_file: Each file numbers its episodes anew.
    """
    if len(files) == 1 and is_minari(files[0]):
        if (columns, rules, episodes_per_file) != (Named(), Rules(), False):
            raise HyqError(f"{files[0]} has no columns to choose from: leave the options out")
        import_minari(files[0]).save(out)
    else:
        made = import_tables(
            list(files), out=out, columns=columns, rules=rules, episodes_per_file=episodes_per_file
        )
        taken = Table(title="columns", title_justify="left", show_header=False)
        for what, names in made.columns.described().items():
            taken.add_row(what, names)
        console.print(taken)
        for finding in made.findings:
            console.print(f"! {finding}")
    data_show(out)


def data_make(name: Annotated[str, tyro.conf.Positional], *, out: Path, seed: int = 0) -> None:
    """Record one of the scripted datasets of 'hyq data list' on disk, from a seed.

    Args:
        name: Name of the dataset, such as mountaincar/half: its problem and its random share.
        out: New directory for the dataset.
        seed: Chooses the episodes; the same seed gives the same data, to the bit.
    """
    check_free(out)  # before the data is made, which takes a while
    make_scripted(name, seed).save(out)
    data_show(out)


def data_export(
    name: Annotated[str, tyro.conf.Positional], *, dataset_id: str, env: str | None = None
) -> None:
    """Export a dataset to Minari, without loss.

    Args:
        name: Directory of a dataset, or a name of 'hyq data list'.
        dataset_id: Its name in Minari, such as lab/lander-v0.
        env: Environment whose spaces are written; without one those that the data carries, or that
            its values show.
    """
    dataset = load(name)
    if env is None:
        spaces = spaces_of(dataset)
    else:
        with closing(env_factory(env)()) as made:
            spaces = made.observation_space, made.action_space
    export_minari(dataset, dataset_id, *spaces)
    console.print(f"exported: minari.load_dataset({dataset_id!r})")


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


def data_show(path: Annotated[Path, tyro.conf.Positional]) -> None:
    """Check a dataset against its hashes and print what is in it.

    Args:
        path: The dataset's directory, or a name of 'hyq data list'.
    """
    dataset = load(path)
    first, last = dataset.timestep, dataset.timestep + dataset.length
    about = {name: one for name, one in dataset.provenance.items() if name != "imported"}
    for name in about.keys() & {"observation_space", "action_space"}:
        about[name] = space_from_json(about[name])
    table = Table("", "", title=str(path), title_justify="left", show_header=False)
    table.columns[1].overflow = "fold"  # a hash is shown whole
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
