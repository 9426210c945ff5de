"""The paper's figure: learning curves with bands, offline methods as dashed lines."""

from pathlib import Path
from typing import get_args

import numpy as np
from matplotlib.figure import Figure

from hyq.experts.lock import LockData
from hyq.report.runs import write_figure
from hyq.report.suite import SuiteResult

COLOURS = {
    "hyq": "#1f6f8b",
    "bc": "#8d99ae",
    "cql": "#e09f3e",
    "offline-fqi": "#6a994e",
    "online-only": "#9a031e",
    "warm-start": "#7b2cbf",
    "dqfd": "#d1495b",
    "briee": "#333333",
    "dqn": "#9a031e",
    "offline": "#6a994e",
    "iql": "#7b2cbf",
    "rnd": "#7b2cbf",
}


def draw_suite(result: SuiteResult, path: Path) -> None:
    """Draw median return with 20th/80th percentiles against online samples, a panel a setting."""
    panels, grid = result.panels, result.grid
    figure = Figure(figsize=(5.2 * len(panels), 4.6), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=result.shares_scale, squeeze=False)[0]
    for axes, panel in zip(all_axes, panels, strict=True):
        for line in result.lines:
            if line.panel != panel or not line.is_main or not line.finished:
                continue
            colour = COLOURS.get(line.algorithm, "#555555")
            if line.is_offline:
                value = float(np.median(line.returns))
                axes.axhline(value, color=colour, linestyle="--", linewidth=1.5, label=line.label)
            else:
                low, middle, high = line.band(grid)
                axes.plot(grid, middle, color=colour, linewidth=2, label=line.label)
                axes.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.set_xscale("log")
        axes.set_xlim(grid[0], grid[-1])
        if result.on_lock:
            axes.set_ylim(-0.03, 1.08)
        axes.set_title(panel_title(panel), loc="left")
        axes.set_xlabel("online samples, roll-ins included" if result.on_lock else "online steps")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].set_ylabel("return of the policy")
    handles = {
        label: handle
        for axes in all_axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    figure.suptitle(result.title, x=0.01, ha="left")
    write_figure(figure, path)


def panel_title(panel: str) -> str:
    """Say in full what a panel shows."""
    return f"optimal {panel} data" if panel in get_args(LockData) else panel
