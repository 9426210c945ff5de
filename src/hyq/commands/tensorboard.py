"""Records as TensorBoard event files."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hyq.core.errors import HyqError
from hyq.runs.records import Progress

Message = TypeVar("Message", bound=Progress)


def with_speed(messages: Iterator[Message]) -> Iterator[tuple[Message, float | None]]:
    """Pair each message with the steps per second of its record.

    How many steps of a resumed run's first record are new is not known, nor then its speed.
    """
    before: int | None = None
    for message in messages:
        row = message.row
        if before is None:
            before = 0 if row["iteration"] == 1 else row["online_steps"]
        yield message, _speed(row, row["online_steps"] - before)
        before = row["online_steps"]


def _speed(row: Mapping[str, Any], steps: int) -> float | None:
    spent = sum(row["seconds"].values())
    return steps / spent if steps > 0 and spent else None


def check_tensorboard() -> None:
    """Raise where the package is missing, before anything is begun."""
    if importlib.util.find_spec("tensorboard") is None:
        raise HyqError("--tensorboard needs TensorBoard: pip install 'hyq[tensorboard]'")


def to_tensorboard(messages: Iterator[Message], directory: Path) -> Iterator[Message]:
    """Pass a run's messages on, writing every number of its records on the way."""
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (an optional package)

    with SummaryWriter(str(directory)) as writer:
        for message, speed in with_speed(messages):
            row = message.row
            values = {k: v for k, v in row.items() if isinstance(v, int | float)}
            values |= {f"seconds/{part}": spent for part, spent in row["seconds"].items()}
            if speed is not None:
                values["steps_per_second"] = speed
            for name, value in values.items():
                writer.add_scalar(name, value, row["online_steps"] or row["updates"])
            yield message
