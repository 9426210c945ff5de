"""Records of runs and suites, written as a run writes them: reports need nothing else."""

import json
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hyq.core.files import write_json
from hyq.report.records import RunResult

Row = dict[str, Any]
MADE = {"command": ["hyq"], "commit": None, "versions": {"hyq": "0.1.0"}, "machine": "x86_64"}

ENDED = {"solved": False, "eval_return": 0.0, "online_steps": 0, "wall_seconds": 1.0}
"""What every summary has."""


def write_run(path: Path, run: RunResult) -> None:
    """Write a run's directory."""
    path.mkdir(parents=True)
    write_json(path / "manifest.json", {"experiment": run.experiment, "spec": run.spec})
    rows = [{"iteration": number, **row} for number, row in enumerate(run.rows, start=1)]
    (path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if run.summary is not None:
        write_json(path / "summary.json", {**ENDED, **run.summary})


def write_suite(
    path: Path,
    runs: Sequence[RunResult | None],
    name: str = "small",
    title: str = "A small suite",
    failures: Mapping[str, str] | None = None,
) -> Path:
    """Write a suite's directory; a run that is None has not begun."""
    ids = [f"run-{number}" for number in range(len(runs))]
    for run_id, run in zip(ids, runs, strict=True):
        if run is not None:
            write_run(path / "runs" / run_id, run)
    for run_id, error in (failures or {}).items():
        (path / "failures").mkdir(parents=True, exist_ok=True)
        (path / "failures" / f"{run_id}.txt").write_text(error)
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "suite.json", {"suite": name, "title": title, "runs": ids, **MADE})
    return path


class Page(HTMLParser):
    """Collects what a page refers to and says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text = ""
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data
