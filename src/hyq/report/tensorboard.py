"""Records as TensorBoard event files, for those who watch their runs there."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hyq.core.errors import HyqError
from hyq.runs.trainings import Progress


def check_tensorboard() -> None:
    """Refuse where the package is missing, before anything is begun."""
    if importlib.util.find_spec("tensorboard") is None:
        raise HyqError("--tensorboard needs TensorBoard: pip install 'hyq[tensorboard]'")


def to_tensorboard(progress: Iterator[Progress], directory: Path) -> Iterator[Progress]:
    """Pass a run's progress on, writing every number of it down on the way."""
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (an optional package)

    with SummaryWriter(str(directory)) as writer:
        before: int | None = None
        for update in progress:
            row = update.row
            if before is None:  # the steps of a run that goes on were not all made in this record
                before = 0 if row["iteration"] == 1 else row["online_steps"]
            for name, value in _numbers(row, before):
                writer.add_scalar(name, value, row["online_steps"] or row["updates"])
            before = row["online_steps"]
            yield update


def _numbers(row: Mapping[str, Any], steps_before: int) -> Iterator[tuple[str, float]]:
    """List what a record holds: its numbers, the seconds of each part, and the speed."""
    for name, value in row.items():
        if isinstance(value, int | float):
            yield name, value
    for part, spent in row["seconds"].items():
        yield f"seconds/{part}", spent
    done, total = row["online_steps"] - steps_before, sum(row["seconds"].values())
    if done > 0 and total:
        yield "steps_per_second", done / total
