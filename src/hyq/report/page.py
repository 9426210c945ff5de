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
from hyq.report.suite import Line, SuiteResult

DIAGNOSTICS = {
    "iteration": "iteration",
    "online_samples": "online samples",
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


def write_page(result: SuiteResult, path: Path, rng: np.random.Generator) -> None:
    """Write the page; it needs no network and no other file."""
    template = (files("hyq.report") / "page.html").read_text()
    parts = {
        "TITLE": html.escape(result.title),
        "SUMMARY": _summary(result),
        "DATA": json.dumps(_chart(result)).replace("</", "<\\/"),
        "TABLE": _table(result, rng),
        "RUNS": "".join(_runs(line) for line in result.lines if line.is_main or line.finished),
        "FAILURES": failures_section(result.failures),
        "MADE": made_section(result.manifest),
    }
    for name, content in parts.items():
        template = template.replace(f"{{{{{name}}}}}", content)
    write_bytes(path, template.encode())


def _chart(result: SuiteResult) -> dict[str, Any]:
    grid = result.grid
    series = []
    for line in result.lines:
        if not line.finished:
            continue
        entry: dict[str, Any] = {
            "panel": panel_title(line.panel),
            "label": line.label,
            "colour": COLOURS.get(line.method, "#555555"),
            "shown": line.is_main,
        }
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
        if not line.finished:
            continue
        mean, low, high = line.interval(rng)
        solve = line.samples_to_solve
        cells = (
            line.panel,
            line.label,
            f"{solve.solved} / {solve.runs}",
            "-" if line.is_offline else str(solve),
            f"{mean:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{line.seconds:,.0f}",
        )
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    return "".join(rows)


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
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
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
