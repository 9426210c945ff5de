"""What is shown of a run under way: a line a record above a bar."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from hyq.core.terminal import progress_bar
from hyq.report.tables import number
from hyq.runs.records import Progress
from hyq.runs.spec import RunSpec

Columns = Sequence[tuple[str, int, Sequence[str]]]
"""Title, width, and the names of the values that are shown, separated by a slash."""
Tracker = Callable[[Progress], None]
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


def header(columns: Columns, counter: str = "online_steps") -> str:
    """Return the titles above the lines."""
    titles = (f"{title:>{width}}" for title, width, _ in columns)
    return f"{counter.replace('_', ' '):>12} {'steps/s':>8} {' '.join(titles)}"


def line(
    row: Mapping[str, Any], speed: float | None, columns: Columns, counter: str = "online_steps"
) -> str:
    """Show a record in one line, beginning with the value of `counter`."""
    cells = []
    for _, width, names in columns:
        values = "/".join(number(row.get(name)) for name in names)
        cells.append(f"{values:>{width}}")
    return f"{row[counter]:12,d} {'-' if speed is None else f'{speed:,.0f}':>8} {' '.join(cells)}"


def watch(
    messages: Iterator[Progress],
    console: Console,
    columns: Columns = LOCK,
    total: int | None = None,
    counter: str = "online_steps",
    tracker: Tracker | None = None,
) -> None:
    """Print a line for every record above a bar, which is full when `counter` reaches `total`."""
    console.print(header(columns, counter), style="dim")
    with progress_bar(counter.replace("_", " "), total, console) as update:
        for message, speed in _with_speed(messages):
            text = line(message.row, speed, columns, counter)
            console.print(text, soft_wrap=True)
            update(message.row[counter])
            if tracker is not None:
                speeds = {} if speed is None else {"steps_per_second": speed}
                tracker(replace(message, row=message.row | speeds))


def watch_deep(
    messages: Iterator[Progress], spec: RunSpec, console: Console, tracker: Tracker | None = None
) -> None:
    """Watch a deep run, and let a tracker see its records too."""
    counter, total = spec.length
    columns = RND if spec.algorithm == "rnd" else HYBRID
    watch(messages, console, columns, total, counter, tracker)


def _with_speed(messages: Iterator[Progress]) -> Iterator[tuple[Progress, float | None]]:
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
