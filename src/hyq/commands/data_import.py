"""Importing files as a dataset."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from hyq.commands.data import data_show
from hyq.core.errors import HyqError
from hyq.core.terminal import Terminal
from hyq.data.importing.assemble import Imported, Named, import_tables
from hyq.data.importing.order import Rules
from hyq.data.minari import import_minari, is_minari

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
        _show(
            import_tables(
                list(files),
                out=out,
                columns=columns,
                rules=rules,
                episodes_per_file=episodes_per_file,
            )
        )
    data_show(out)


def _show(made: Imported) -> None:
    """Print what each column was taken for, and what was wrong with the rows."""
    table = Table("taken for", "columns", title="columns", title_justify="left", show_header=False)
    for what, names in made.columns.described().items():
        table.add_row(what, names)
    console.print(table)
    for finding in made.findings:
        console.print(f"! {finding}")
