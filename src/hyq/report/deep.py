"""What a person sees of a deep run: a line while it learns, a table and a curve afterwards."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from hyq.experiments.deep import DeepRun, Progress
from hyq.report.runs import RunResult, write_figure

HEADER = (
    f"{'steps':>10} {'steps/s':>8} {'return':>9} {'recent':>9} {'logs':>5} "
    f"{'TD logs/online':>15} {'Q promised/earned':>18}"
)


def watch_deep(progress: Iterator[Progress], spec: DeepRun, console: Console) -> None:
    """Show a run as it goes on: a line a record, and a bar of the whole."""
    config = spec.config
    console.print(f"[dim]{HEADER}[/]")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console) as bar:
        what = "online steps" if config.online_steps else "updates on the logs"
        task = bar.add_task(what, total=config.online_steps or config.pretraining)
        before = 0
        for update in progress:
            row = update.row
            bar.console.print(line(row, before), highlight=False)
            before = row["online_samples"]
            bar.update(task, completed=before or row["updates"])


def line(row: dict[str, Any], steps_before: int) -> str:
    """Say in one line what a record holds."""
    spent = sum(row["seconds"].values())
    done = row["online_samples"] - steps_before
    speed = f"{done / spent:,.0f}" if done > 0 and spent else "-"
    td = f"{_cell(row, 'td_offline')}/{_cell(row, 'td_online')}"
    promise = f"{_cell(row, 'start_q')}/{_cell(row, 'start_return')}"
    return (
        f"{row['online_samples']:10,d} {speed:>8} {_cell(row, 'eval_return'):>9} "
        f"{_cell(row, 'recent_return'):>9} {_cell(row, 'offline_share'):>5} "
        f"{td:>15} {promise:>18}"
    )


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def deep_table(results: Sequence[RunResult]) -> Table:
    """Lay out one line a run."""
    table = Table(title="Deep runs", title_justify="left", box=SIMPLE, padding=(0, 0, 0, 1))
    for name in ("method", "environment", "data"):
        table.add_column(name)
    for name in ("seed", "solved at", "return", "best", "steps", "sec"):
        table.add_column(name, justify="right")
    for result in results:
        spec, summary = result.spec, result.summary
        cells = [spec["method"], spec["env"], spec["data"] or "-", str(spec["seed"])]
        if summary is None:
            cells.append("not yet")
        else:
            cells += [
                "-" if summary["solved_at"] is None else f"{summary['solved_at']:,}",
                _cell(summary, "eval_return"),
                _cell(summary, "peak_return"),
                f"{summary['online_samples']:,}",
                f"{summary['wall_seconds']:,.0f}",
            ]
        table.add_row(*cells)
    return table


def draw_deep_curves(results: Sequence[RunResult], path: Path) -> None:
    """Draw the greedy return, and that of the newest training episodes, against online steps."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for number, result in enumerate(results):
        label = f"{result.spec['method']}, seed {result.spec['seed']}"
        colour = f"C{number}"
        for key, style, name in (("eval_return", "-", label), ("recent_return", ":", None)):
            points = [(row["online_samples"], row[key]) for row in result.rows if key in row]
            if points:
                steps, values = np.array(points).T
                axes.plot(steps, values, style, color=colour, label=name, linewidth=1.6)
        threshold = result.spec["threshold"]
        if threshold is not None:
            axes.axhline(threshold, color="#888888", linestyle="--", linewidth=1)
    axes.set_title(results[0].spec["env"], loc="left")
    axes.set_xlabel("online steps")
    axes.set_ylabel("return: greedy policy (line), newest episodes (dots)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    write_figure(figure, path)
