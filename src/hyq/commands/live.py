"""The subcommand that shows runs in a browser while they are under way, from the records alone."""

import time
from collections.abc import Callable
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from hyq.core.errors import HyqError
from hyq.core.terminal import Terminal
from hyq.report.compare import compare_sections, compared, environment_lines
from hyq.report.html import Section, page
from hyq.report.records import RunResult, find_runs
from hyq.report.tables import TextTable, number
from hyq.runs.records import RECORDS

HERE = "127.0.0.1"
QUIET = 60.0
"""Seconds beyond its usual time after which a run without a new record may have stopped."""
console = Terminal()


def watch_runs(
    path: Annotated[Path, tyro.conf.Positional] = Path("runs"),
    *,
    port: int = 8050,
    every: int = 5,
) -> None:
    """Show runs in the browser while they are under way, from their records alone.

    Nothing is written, and runs do not notice. Only this machine can open the page. End it with
    Ctrl-C.

    Args:
        path: Directory of a run, or of whatever holds runs; new ones appear by themselves.
        port: Of the page's address; 0 takes one that is free.
        every: Seconds between two looks at the records.
    """
    if not path.is_dir():
        raise HyqError(f"{path} is no directory")
    if every < 1:
        raise HyqError(f"every must be at least 1, got {every}")
    with serve(lambda: live_page(path, every), port) as server:
        console.print(f"open http://{HERE}:{server.server_port}   (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print("no longer watched; the runs are as they were")


def serve(content: Callable[[], str], port: int) -> ThreadingHTTPServer:
    """Return a server of one page, on this machine alone."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page elsewhere may have its name point here: its requests bear that name.
            host = self.headers.get("Host", "").rpartition(":")[0]
            found = self.path == "/" and host in (HERE, "localhost")
            body = content().encode() if found else b"there is only one page here: /"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: the terminal is for people."""

    return ThreadingHTTPServer((HERE, port), Handler)


def live_page(path: Path, every: int) -> str:
    """Return the page, of the records as they are now."""
    runs: dict[Path, RunResult] = {}
    broken = []
    for one in find_runs([path]) if any(path.rglob("manifest.json")) else []:
        try:
            runs[one] = _read(one, *_stamp(one))
        except (HyqError, OSError) as error:
            broken.append(f"{one}: {error}")
    begun = [run for run in runs.values() if run.rows]
    title, ages = f"Runs in {path}", {one: _age(one) for one in runs}
    if not begun:
        return page(title, ["No run has a record yet.", *broken], [], refresh=every)
    active = [age for one, age in ages.items() if runs[one].summary is None]
    newest = f"; the newest record is {_ago(min(active))} old" if active else ""
    said = f"{len(active)} of {len(runs)} runs are under way{newest}."
    table = Section("Where they are", table=_progress(path, runs, ages))
    return page(
        title,
        [said, *compared(environment_lines(begun)), *broken],
        [*compare_sections(begun)[:1], table],
        refresh=every,
    )


def _stamp(place: Path) -> tuple[int, int, bool]:
    records = place / RECORDS
    found = records.stat() if records.exists() else place.stat()
    return found.st_mtime_ns, found.st_size, (place / "summary.json").exists()


@lru_cache(maxsize=1000)
def _read(place: Path, _modified: int, _size: int, _ended: bool) -> RunResult:
    """Read a run; one that has not changed is not read again."""
    return RunResult.read(place)


def _age(place: Path) -> float:
    return max(0.0, time.time() - _stamp(place)[0] / 1e9)


def _ago(seconds: float) -> str:
    units = ((86400, "days"), (3600, "h"), (60, "min"))
    for size, name in units:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def _last(values: list[float]) -> float | None:
    return values[-1] if values else None


def _progress(path: Path, runs: dict[Path, RunResult], ages: dict[Path, float]) -> TextTable:
    rows = []
    for place, run in sorted(runs.items(), key=lambda one: ages[one[0]]):
        last = run.rows[-1] if run.rows else {}
        spent = [sum(row["seconds"].values()) for row in run.rows if "seconds" in row]
        state = "finished" if run.summary is not None else "under way"
        if run.summary is None and ages[place] > 5 * float(np.median(spent or [0])) + QUIET:
            state = f"no record for {_ago(ages[place])}"
        counter = "online_steps" if run.acts or not run.setting("updates") else "updates"
        budget = run.setting(counter)
        total = f" of {budget:,}" if isinstance(budget, int) else ""
        steps = last.get("online_steps", 0)
        rows.append(
            (
                str(place.relative_to(path)) if place != path else place.name,
                state,
                f"{last.get(counter, 0):,}{total}",
                number(_last(run.points("eval_return", "iteration")[1])),
                number(last.get("recent_return")),
                f"{steps / sum(spent):,.0f}" if steps and sum(spent) else "-",
                _ago(ages[place]),
            )
        )
    columns = ("run", "state", "steps", "evaluated", "recent", "steps/s", "last record")
    return TextTable(columns, rows, left=2)
