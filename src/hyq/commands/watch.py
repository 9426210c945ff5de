"""What the terminal shows while a run trains: a line a record, and a progress bar."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from hyq.commands.tensorboard import HasRow, steps_per_second, with_steps_before
from hyq.report.tables import number

Columns = Sequence[tuple[str, int, Sequence[str]]]
"""Title, width, and the names of the values that are shown, separated by a slash."""
RETURNS: Columns = (("eval", 9, ("eval_return",)), ("recent", 9, ("recent_return",)))
HYBRID: Columns = (
    *RETURNS,
    ("offline", 7, ("offline_share",)),
    ("TD offline/online", 17, ("td_offline", "td_online")),
    ("value/return", 14, ("start_q", "start_return")),
)
RND: Columns = (
    *RETURNS,
    ("pred. error", 11, ("prediction_error",)),
    ("values ext/int", 17, ("value_extrinsic", "value_intrinsic")),
    ("entropy", 8, ("entropy",)),
)
LOCK: Columns = (
    ("eval", 7, ("eval_return",)),
    ("depth", 6, ("depth",)),
    ("residual off/on", 17, ("offline_residual", "online_residual")),
    ("offline", 8, ("realised_offline_share",)),
)
FORMER_NAMES = {"prediction_error": "novelty"}
"""Names that values had in records made earlier."""


def columns_of(algorithm: str, experiment: str = "train") -> Columns:
    """Choose what is shown of a run."""
    if experiment == "lock":
        return LOCK
    return RND if algorithm == "rnd" else HYBRID


def header(columns: Columns, counter: str = "online_steps") -> str:
    """Return the titles above the lines."""
    titles = (f"{title:>{width}}" for title, width, _ in columns)
    return f"{counter.replace('_', ' '):>12} {'steps/s':>8} {' '.join(titles)}"


def line(
    row: Mapping[str, Any], steps_before: int, columns: Columns, counter: str = "online_steps"
) -> str:
    """Show a record in one line, beginning with the value of `counter`."""
    speed = steps_per_second(row, steps_before)
    values = ("/".join(_value(row, name) for name in names) for _, _, names in columns)
    cells = (f"{value:>{width}}" for value, (_, width, _) in zip(values, columns, strict=True))
    return f"{row[counter]:12,d} {'-' if speed is None else f'{speed:,.0f}':>8} {' '.join(cells)}"


def _value(row: Mapping[str, Any], name: str) -> str:
    return number(row.get(name, row.get(FORMER_NAMES.get(name, name))))


def watch(
    messages: Iterator[HasRow],
    console: Console,
    columns: Columns = HYBRID,
    total: int | None = None,
    counter: str = "online_steps",
) -> None:
    """Print a line for every record above a bar, which is full when `counter` reaches `total`."""
    console.print(f"[dim]{header(columns, counter)}[/]")
    parts = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}" + ("" if total is None else " of {task.total:,.0f}")),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*parts, console=console) as bar:
        task = bar.add_task(counter.replace("_", " "), total=total)
        for message, before in with_steps_before(messages):
            text = line(message.row, before, columns, counter)
            bar.console.print(text, highlight=False, soft_wrap=True)
            bar.update(task, completed=message.row[counter])
