"""Where commands print: what files and users name is shown as it is, and does nothing else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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

from hyq.core.errors import printable


class Terminal(Console):
    """A console to which no text is markup, and that no text can steer."""

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **how)

    def render_str(self, text: str, **how: Any) -> Text:
        """Show control characters as what they are."""
        return super().render_str(printable(text), **how)


class _Done(ProgressColumn):
    """What is done, and of how much where that is known."""

    def render(self, task: Task) -> Text:
        total = "" if task.total is None else f" of {task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{total}")


@contextmanager
def progress_bar(
    label: str, total: float | None = None, console: Console | None = None, shown: bool = True
) -> Iterator[Callable[..., None]]:
    """Show a bar; what it yields is called with what is done, and the total where that is new.

    By name it takes whatever `Progress.update` does. What is printed meanwhile stands above.
    """
    columns = TextColumn("{task.description}", markup=False), BarColumn(), _Done()
    times = TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, *times, console=console, disable=not shown) as bar:
        task = bar.add_task(label, total=total)

        def update(completed: float | None = None, total: float | None = None, **more: Any) -> None:
            bar.update(task, completed=completed, total=total, **more)

        yield update
