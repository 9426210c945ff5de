"""One self-contained HTML page of a suite: figure, table, diagnostics, and how it was made."""

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.files import write_bytes
from hyq.report.figure import COLOURS, panel_title
from hyq.report.suite import (
    FEWEST_FOR_INTERVAL,
    PEAK_METHODS,
    Line,
    SuiteResult,
    line_cells,
    method_name,
)

DIAGNOSTICS = {
    "iteration": "iteration",
    "online_steps": "online samples",
    "eval_return": "return",
    "depth": "depth",
    "recent_return": "newest episodes",
    "td_offline": "TD error, logs",
    "td_online": "TD error, online",
    "offline_share": "share of logs",
    "start_q": "promised",
    "start_return": "earned",
    "offline_residual": "residual offline",
    "online_residual": "residual online",
    "realised_offline_share": "offline share",
}
ROWS_SHOWN = 8
OFFLINE_DASHES = "6 4"
ABLATION_COLOURS = ("#0a9396", "#7f4f24", "#023e8a", "#c51bc5", "#6b7000")
ABLATION_DASHES = ("2 3", "10 3 2 3", "4 2", "14 3")
"""Ablations of one method differ by these, cycled through separately."""


def write_page(result: SuiteResult, path: Path, rng: np.random.Generator) -> None:
    """Write the page; it needs no network and no other file."""
    template = (files("hyq.report") / "page.html").read_text()
    parts = {
        "TITLE": html.escape(result.title),
        "SUMMARY": _summary(result),
        "DATA": json.dumps(_chart(result)).replace("</", "<\\/"),
        "TABLE": _table(result, rng),
        "NOTES": _notes(result),
        "RUNS": "".join(_runs(line) for line in result.lines if line.is_main or line.finished),
        "FAILURES": failures_section(result.failures),
        "MADE": made_section(result.manifest),
    }
    for name, content in parts.items():
        template = template.replace(f"{{{{{name}}}}}", content)
    write_bytes(path, template.encode())


def _chart(result: SuiteResult) -> dict[str, Any]:
    grid = result.grid
    ablations = list(dict.fromkeys(line.label for line in result.lines if not line.is_main))
    series = []
    for line in result.lines:
        if not line.finished:
            continue
        entry: dict[str, Any] = {
            "panel": panel_title(line.panel),
            "label": line.label,
            "colour": COLOURS.get(line.algorithm, "#555555"),
            "dashes": OFFLINE_DASHES if line.is_offline else "",
            "shown": line.is_main,
        }
        if not line.is_main:
            number = ablations.index(line.label)
            entry["colour"] = ABLATION_COLOURS[number % len(ABLATION_COLOURS)]
            entry["dashes"] = ABLATION_DASHES[number % len(ABLATION_DASHES)]
        if line.is_offline:
            entry["level"] = float(np.median(line.returns))
        else:
            band = np.stack(line.band(grid)).round(4)
            known = ~np.isnan(band[0])  # up to where the first run ended unsolved
            entry["low"], entry["middle"], entry["high"] = band[:, known].tolist()
        series.append(entry)
    return {
        "panels": [panel_title(panel) for panel in result.panels],
        "ranges": {panel_title(panel): result.value_range(panel) for panel in result.panels},
        "grid": grid.round(1).tolist(),
        "series": series,
    }


def _summary(result: SuiteResult) -> str:
    finished = sum(len(line.finished) for line in result.lines if line.is_main)
    text = f"{len(result.manifest['runs'])} runs; {finished} replicates in the figure."
    if result.missing:
        text += f" {result.missing} runs are still to come."
    if result.failures:
        text += f" <b>{len(result.failures)} runs failed</b>: see below."
    return f"<p>{text}</p>"


def failures_section(failures: Mapping[str, str]) -> str:
    """Show the errors of runs by their ids; nothing where none failed."""
    failed = "".join(
        f"<li><b>{html.escape(name)}</b><pre>{html.escape(error[-600:])}</pre></li>"
        for name, error in failures.items()
    )
    return f"<h2>Failed</h2><ul>{failed}</ul>" if failed else ""


def _table(result: SuiteResult, rng: np.random.Generator) -> str:
    rows = []
    for line in result.lines:
        if line.finished:
            cells = map(html.escape, line_cells(line, rng))
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "".join(rows)


def _notes(result: SuiteResult) -> str:
    """Say how to read the table, as far as it applies to what is in it."""
    finished = [line for line in result.lines if line.finished]
    notes = [
        f"{method_name(method)} is judged by the peak of its curve, as in the paper, which "
        "flatters it."
        for method in PEAK_METHODS
        if any(line.algorithm == method for line in finished)
    ]
    if any(len(line.returns) < FEWEST_FOR_INTERVAL for line in finished):
        notes.append(f"Fewer than {FEWEST_FOR_INTERVAL} replicates have no interval.")
    return " ".join(notes)


def _runs(line: Line) -> str:
    parts = []
    for run in line.runs:
        shown = [name for name in DIAGNOSTICS if any(name in row for row in run.rows)]
        picked = np.unique(np.linspace(0, len(run.rows) - 1, ROWS_SHOWN).astype(int))
        head = "".join(f"<th>{DIAGNOSTICS[name]}</th>" for name in shown)
        cells = (
            "".join(f"<td>{_number(run.rows[i].get(name))}</td>" for name in shown)
            for i in picked
            if run.rows
        )
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        state = "under way"
        if run.summary is not None:
            state = "solved" if run.summary["solved"] else "not solved"
        parts.append(
            f"<h4>seed {run.spec['seed']}: {state}</h4>"
            '<div class="scroll"><table>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )
    name = html.escape(f"{line.panel} · {line.label}")
    return f"<details><summary>{name}</summary>{''.join(parts)}</details>"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def made_section(manifest: Mapping[str, Any]) -> str:
    """Say what a suite was made with."""
    versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
    facts = {
        "command": " ".join(manifest["command"]),
        "commit": manifest["commit"] or "not from a git checkout",
        "versions": versions,
        "machine": manifest["machine"],
    }
    return "".join(
        f"<dt>{name}</dt><dd><code>{html.escape(text)}</code></dd>" for name, text in facts.items()
    )
