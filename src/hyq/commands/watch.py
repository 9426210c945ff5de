"""What is shown of work under way: bars, a line a record of a run, and TensorBoard's events."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from hyq.core.errors import HyqError
from hyq.report.tables import number
from hyq.runs import records

Message = TypeVar("Message", bound=records.Progress)
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


class _Done(ProgressColumn):
    """What is done, and of how much where that is known."""

    def render(self, task: Task) -> Text:
        total = "" if task.total is None else f" of {task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{total}")


@contextmanager
def progress_bar(
    label: str, total: float | None = None, console: Console | None = None
) -> Iterator[Callable[..., None]]:
    """Show a bar; what it yields is called with what is done, and the total where that is new.

    By name it takes whatever `Progress.update` does. What is printed meanwhile stands above.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), _Done())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(label, total=total)

        def update(completed: float | None = None, total: float | None = None, **more: Any) -> None:
            bar.update(task, completed=completed, total=total, **more)

        yield update


def header(columns: Columns, counter: str = "online_steps") -> str:
    """Return the titles above the lines."""
    titles = (f"{title:>{width}}" for title, width, _ in columns)
    return f"{counter.replace('_', ' '):>12} {'steps/s':>8} {' '.join(titles)}"


def line(
    row: Mapping[str, Any], speed: float | None, columns: Columns, counter: str = "online_steps"
) -> str:
    """Show a record in one line, beginning with the value of `counter`."""
    values = ("/".join(number(row.get(name)) for name in names) for _, _, names in columns)
    cells = (f"{value:>{width}}" for value, (_, width, _) in zip(values, columns, strict=True))
    return f"{row[counter]:12,d} {'-' if speed is None else f'{speed:,.0f}':>8} {' '.join(cells)}"


def watch(
    messages: Iterator[records.Progress],
    console: Console,
    columns: Columns = HYBRID,
    total: int | None = None,
    counter: str = "online_steps",
) -> None:
    """Print a line for every record above a bar, which is full when `counter` reaches `total`."""
    console.print(header(columns, counter), style="dim")
    with progress_bar(counter.replace("_", " "), total, console) as update:
        for message, speed in _with_speed(messages):
            text = line(message.row, speed, columns, counter)
            console.print(text, soft_wrap=True)
            update(message.row[counter])


def _with_speed(messages: Iterator[Message]) -> Iterator[tuple[Message, float | None]]:
    """Pair each message with the steps per second of its record.

    How many steps of a resumed run's first record are new is not known, nor then its speed.
    """
    before: int | None = None
    for message in messages:
        row = message.row
        if before is None:
            before = 0 if row["iteration"] == 1 else row["online_steps"]
        steps, spent = row["online_steps"] - before, sum(row["seconds"].values())
        yield message, steps / spent if steps > 0 and spent else None
        before = row["online_steps"]


def check_tensorboard() -> None:
    """Raise where the package is missing, before anything is begun."""
    if importlib.util.find_spec("tensorboard") is None:
        raise HyqError("--tensorboard needs TensorBoard: pip install 'hyq[tensorboard]'")


def to_tensorboard(messages: Iterator[Message], directory: Path) -> Iterator[Message]:
    """Pass a run's messages on, writing every number of its records on the way."""
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (an optional package)

    with SummaryWriter(str(directory)) as writer:
        for message, speed in _with_speed(messages):
            row = message.row
            values = {k: v for k, v in row.items() if isinstance(v, int | float)}
            values |= {f"seconds/{part}": spent for part, spent in row["seconds"].items()}
            if speed is not None:
                values["steps_per_second"] = speed
            for name, value in values.items():
                writer.add_scalar(name, value, row["online_steps"] or row["updates"])
            yield message
