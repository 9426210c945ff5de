"""What the comparisons with peers share: programs run in interleaved rounds, medians, a table.

A program is a command that prints one line of JSON: steps a second, updates and their time, seconds
and processor seconds of its window.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

JAX_PEERS = ("sbx_dqn", "sbx_sac")
"""Peers without PyTorch, which cannot be given another precision from outside."""

console = Console(width=100)


@dataclass(frozen=True)
class Program:
    """One program of the comparison: what it computes and the command that times it."""

    name: str
    command: tuple[str, ...]
    problem: str
    precision: str
    threads: int
    busy: bool = False

    def run(self) -> dict[str, Any]:
        """Run the command, beside a busy process or alone, and read its line."""
        # Should this program be killed, the busy process still ends by itself.
        loop = "import time; end = time.time() + 600\nwhile time.time() < end: sum(range(1000))"
        beside = [subprocess.Popen([sys.executable, "-c", loop])] if self.busy else []
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        environment.pop("GOMP_SPINCOUNT", None)  # hyq sets it for itself, its peers do not
        try:
            done = subprocess.run(
                self.command, capture_output=True, text=True, check=False, env=environment
            )
        finally:
            for process in beside:
                process.terminate()
                process.wait()
        if done.returncode:
            return {"error": " ".join(done.stderr.strip().splitlines()[-1:])}
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def compare(chosen: list[Program], rounds: int) -> list[dict[str, Any]]:
    """Run every program in turn, several times over, and return the median of each."""
    runs: dict[Program, list[dict[str, Any]]] = {program: [] for program in chosen}
    for number, program in itertools.product(range(rounds), chosen):
        result = program.run()
        words = [program.name, program.problem, program.precision, f"{program.threads} threads"]
        words += ["beside a busy process"] * program.busy
        found = result.get("error") or f"{result['steps_per_second']:,.0f} steps/s"
        console.print(f"round {number + 1}: {', '.join(words)}: {found}", markup=False)
        if "error" not in result:
            runs[program].append(result)
    return [
        {
            **{key: value for key, value in vars(program).items() if key != "command"},
            "steps_per_second": statistics.median(r["steps_per_second"] for r in results),
            "updates_per_second": statistics.median(r["updates"] / r["seconds"] for r in results),
            "update_ms": statistics.median(r["update_ms"] for r in results),
            "cpu_ms_per_update": statistics.median(
                1000 * r["cpu_seconds"] / r["updates"] for r in results
            ),
            "rounds": [r["steps_per_second"] for r in results],
            "cores": [r["cpu_seconds"] / r["seconds"] for r in results],  # low where others ran
        }
        for program, results in runs.items()
        if results
    ]


def show(
    rows: list[dict[str, Any]], title: str, kind: Callable[[dict[str, Any]], Hashable]
) -> None:
    """Add to each row its ratios to the fastest peers of the same kind, and print a table."""
    table = Table("program", title=title, title_justify="left")
    ratios = ("over_peer", "over_pytorch_peer", "busy_share")
    for name in ("threads", "steps/s", "update ms", "cpu ms", *ratios):
        table.add_column(name.replace("_", " "), justify="right")
    for row in sorted(rows, key=lambda row: -row["steps_per_second"]):
        if row["busy"]:
            continue
        alike = [r for r in rows if "hyq" not in r["name"] and kind(r) == kind(row)]
        with_torch = [r for r in alike if r["name"].split()[0] not in JAX_PEERS]
        for name, rivals in (("over_peer", alike), ("over_pytorch_peer", with_torch)):
            if rivals:
                fastest = max(r["steps_per_second"] for r in rivals)
                row[name] = row["steps_per_second"] / fastest
        for other in rows:
            if other["busy"] and all(other[key] == row[key] for key in ("name", "threads")):
                row["busy_share"] = other["steps_per_second"] / row["steps_per_second"]
        speeds = [f"{row['steps_per_second']:,.0f}", f"{row['update_ms']:.2f}"]
        speeds.append(f"{row['cpu_ms_per_update']:.1f}")
        shares = (f"{row[name]:.2f}" if name in row else "" for name in ratios)
        table.add_row(row["name"], str(row["threads"]), *speeds, *shares)
    console.print(table)
