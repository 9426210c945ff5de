"""What a person sees of random network distillation while it learns: a line a record."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from hyq.report.deep import cell, speed, watch_training
from hyq.runs.rnd import RNDRun
from hyq.runs.trainings import Progress

HEADER = (
    f"{'steps':>10} {'steps/s':>8} {'return':>9} {'recent':>9} {'novelty':>8} "
    f"{'values ext/int':>17} {'entropy':>8}"
)


def watch_rnd(progress: Iterator[Progress], spec: RNDRun, console: Console) -> None:
    """Show a run as it goes on: a line a record, and a bar of the whole."""
    watch_training(progress, HEADER, line, "online steps", spec.config.online_steps, console)


def line(row: dict[str, Any], steps_before: int) -> str:
    """Say in one line what a record holds."""
    values = f"{cell(row, 'value_extrinsic')}/{cell(row, 'value_intrinsic')}"
    return (
        f"{row['online_steps']:10,d} {speed(row, steps_before):>8} "
        f"{cell(row, 'eval_return'):>9} {cell(row, 'recent_return'):>9} "
        f"{cell(row, 'novelty'):>8} {values:>17} {cell(row, 'entropy'):>8}"
    )
