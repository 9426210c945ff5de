"""The subcommand that measures the paper's theorem."""

from pathlib import Path

from rich.console import Console

from hyq.commands.watch import progress_bar
from hyq.report.theory import report_theory
from hyq.runs import lock_coverage, theory


def reproduce_theory(*, out: Path = Path("results/theory"), quick: bool = False) -> None:
    """Measure Theorem 1 and Corollary 1: what is lost against T, C_pi, d and H, beside the bounds.

    Args:
        out: New directory for the records, the figure and the page.
        quick: Seconds instead of minutes, for a look.
    """
    for name, stage in (("theorem", theory.start), ("lock data", lock_coverage.start)):
        with progress_bar(name) as update:
            for done, total in stage(out, quick):
                update(done, total)
    report_theory(out, Console())
