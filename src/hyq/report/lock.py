"""What a person looks at after runs on the lock: a table and a learning curve."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.table import Table

from hyq.report.runs import RunResult, write_figure
from hyq.report.suite import method_name

COLOURS = {"occupancy": "#1f6f8b", "trajectory": "#d1495b"}
OTHER_COLOUR = "#555555"
STYLES = ("-", "--", ":", "-.")
"""One for each method."""


def result_table(results: Sequence[RunResult]) -> Table:
    """Lay out one line a run."""
    table = Table(
        title="The combination lock", title_justify="left", box=SIMPLE, padding=(0, 0, 0, 1)
    )
    table.add_column("algorithm")
    table.add_column("data")
    for name in ("H", "seed", "solved", "return", "online", "offline", "iter", "sec"):
        table.add_column(name, justify="right")
    for result in results:
        spec, summary = result.spec, result.summary
        anti = spec["anti_reward_probability"]
        cells = [
            spec["algorithm"],
            spec["data"] if anti == 0.5 else f"{spec['data']}, anti-reward {anti:g}",
            str(spec["horizon"]),
            str(spec["seed"]),
        ]
        if summary is None:
            cells += ["not yet"]
        else:
            cells += [
                "[green]yes[/]" if summary["solved"] else "[red]no[/]",
                f"{summary['eval_return']:.3f}",
                f"{summary['online_steps']:,}",
                f"{summary['offline_samples']:,}",
                str(summary["iterations"]),
                f"{summary['wall_seconds']:.1f}",
            ]
        table.add_row(*cells)
    return table


def draw_learning_curves(results: Sequence[RunResult], path: Path) -> None:
    """Draw return against online samples, one line a run."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    labelled: set[str] = set()
    methods = list(dict.fromkeys(result.spec["algorithm"] for result in results))
    for result in results:
        data, method = result.spec["data"], result.spec["algorithm"]
        label = f"{method_name(method)}, {f'optimal {data} data' if data in COLOURS else data}"
        axes.plot(
            [0, *(row["online_steps"] for row in result.rows)],
            [0, *(row["eval_return"] for row in result.rows)],
            color=COLOURS.get(data, OTHER_COLOUR),
            linestyle=STYLES[methods.index(method) % len(STYLES)],
            drawstyle="steps-post",
            marker="o",
            markersize=3.5,
            linewidth=1.6,
            alpha=0.85,
            label=None if label in labelled else label,
        )
        labelled.add(label)
    axes.axhline(1.0, color="#888888", linestyle=":", linewidth=1)
    axes.text(
        0.995,
        1.01,
        "optimal policy",
        transform=axes.get_yaxis_transform(),
        ha="right",
        va="bottom",
        color="#666666",
    )
    horizons = sorted({result.spec["horizon"] for result in results})
    axes.set_title(f"The combination lock, H = {', '.join(map(str, horizons))}", loc="left")
    axes.set_xlabel("online samples (every environment transition, roll-ins included)")
    axes.set_ylabel("greedy return")
    axes.set_ylim(-0.03, 1.1)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,g}k" if value else "0")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    write_figure(figure, path)
