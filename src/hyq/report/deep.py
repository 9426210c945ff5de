"""What a person sees of a deep run: a line while it learns, a table and a curve afterwards."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from hyq.report.runs import RunResult, write_figure
from hyq.runs.deep import DeepRun
from hyq.runs.trainings import Progress

HEADER = (
    f"{'steps':>10} {'steps/s':>8} {'return':>9} {'recent':>9} {'logs':>5} "
    f"{'TD logs/online':>15} {'Q promised/earned':>18}"
)


def watch_deep(progress: Iterator[Progress], spec: DeepRun, console: Console) -> None:
    """Show a run as it goes on: a line a record, and a bar of the whole."""
    config = spec.config
    if config.online_steps:
        watch_training(progress, HEADER, line, "online steps", config.online_steps, console)
    else:
        what, total = "updates on the logs", config.pretraining
        told = partial(line, counted="updates")
        watch_training(progress, HEADER, told, what, total, console, "updates")


def watch_training(
    progress: Iterator[Progress],
    header: str,
    line_of: Callable[[dict[str, Any], int], str],
    what: str,
    total: int,
    console: Console,
    counted: str = "online_steps",
) -> None:
    """Print a line for every record, given it and the steps before it, above a bar.

    The bar is full when the column `counted` of the records has reached `total`.
    """
    console.print(f"[dim]{header}[/]")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console) as bar:
        task = bar.add_task(what, total=total)
        before: int | None = None
        for update in progress:
            row = update.row
            if before is None:  # the steps of a run that goes on were not all made in this record
                before = 0 if row["iteration"] == 1 else row["online_steps"]
            bar.console.print(line_of(row, before), highlight=False)
            before = row["online_steps"]
            bar.update(task, completed=row[counted])


def line(row: dict[str, Any], steps_before: int, counted: str = "online_steps") -> str:
    """Say in one line what a record holds, beginning with the column `counted`."""
    td = f"{cell(row, 'td_offline')}/{cell(row, 'td_online')}"
    promise = f"{cell(row, 'start_q')}/{cell(row, 'start_return')}"
    return (
        f"{row[counted]:10,d} {speed(row, steps_before):>8} "
        f"{cell(row, 'eval_return'):>9} {cell(row, 'recent_return'):>9} "
        f"{cell(row, 'offline_share'):>5} {td:>15} {promise:>18}"
    )


def speed(row: dict[str, Any], steps_before: int) -> str:
    """Say how many steps a second a record took."""
    spent = sum(row["seconds"].values())
    done = row["online_steps"] - steps_before
    return f"{done / spent:,.0f}" if done > 0 and spent else "-"


def cell(row: dict[str, Any], name: str) -> str:
    """Show a number of a record in a few characters, or that there is none."""
    value = row.get(name)
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def deep_table(results: Sequence[RunResult]) -> Table:
    """Lay out one line a run; an environment that all share is named above them."""
    environments = sorted({result.spec["env"] for result in results})
    title = environments[0] if len(environments) == 1 else "Deep runs"
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 0, 0, 1))
    for name in ("algorithm", *(["environment"] if len(environments) > 1 else []), "data"):
        table.add_column(name, overflow="fold")
    for name in ("seed", "solved at", "return", "best", "steps", "sec"):
        table.add_column(name, justify="right")
    for result in results:
        spec, summary = result.spec, result.summary
        where = [spec["env"]] if len(environments) > 1 else []
        cells = [spec["algorithm"], *where, spec["data"] or "-", str(spec["seed"])]
        if summary is None:
            cells.append("not yet")
        else:
            cells += [
                "-" if summary["solved_at"] is None else f"{summary['solved_at']:,}",
                cell(summary, "eval_return"),
                cell(summary, "peak_return"),
                f"{summary['online_steps']:,}",
                f"{summary['wall_seconds']:,.0f}",
            ]
        table.add_row(*cells)
    return table


def draw_deep_curves(results: Sequence[RunResult], path: Path) -> None:
    """Draw the greedy return, and that of the newest training episodes, against online steps."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    environments = {result.spec["env"] for result in results}
    for number, result in enumerate(results):
        spec = result.spec
        told = [spec["algorithm"], spec["data"], spec["env"] if len(environments) > 1 else None]
        label: str | None = ", ".join([*filter(None, told), f"seed {spec['seed']}"])
        # A method that never acts is drawn against its updates.
        acts = any(row["online_steps"] for row in result.rows)
        steps_of = "online_steps" if acts else "updates"
        colour = f"C{number}"
        for key, style in (("eval_return", "-"), ("recent_return", ":")):
            points = [(row[steps_of], row[key]) for row in result.rows if key in row]
            if points:
                steps, values = np.array(points).T
                axes.plot(steps, values, style, color=colour, label=label, linewidth=1.6)
                label = None  # a run is named once, by the first of its curves
        threshold = spec["threshold"]
        if threshold is not None:
            axes.axhline(threshold, color="#888888", linestyle="--", linewidth=1)
    axes.set_title(", ".join(sorted(environments)), loc="left")
    axes.set_xlabel("online steps, or updates of a method that never acts")
    axes.set_ylabel("return\n(line: greedy policy, dots: newest episodes)")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:  # none before the first episode has ended
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    write_figure(figure, path)
