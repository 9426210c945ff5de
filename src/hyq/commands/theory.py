"""The subcommand that measures the paper's theorem."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from hyq.report.theory import report_theory
from hyq.runs import lock_coverage, theory


def reproduce_theory(*, out: Path = Path("results/theory"), quick: bool = False) -> None:
    """Measure Theorem 1 and Corollary 1: what is lost against T, C_pi, d and H, beside the bounds.

    Args:
        out: New directory for the records, the figure and the page.
        quick: Seconds instead of minutes, for a look.
    """
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        for name, stage in (("theorem", theory.start), ("lock data", lock_coverage.start)):
            task = bar.add_task(name)
            for done, total in stage(out, quick):
                bar.update(task, completed=done, total=total)
    report_theory(out, Console())
