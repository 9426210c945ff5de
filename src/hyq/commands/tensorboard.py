"""Records as TensorBoard event files."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hyq.core.errors import HyqError


class HasRow(Protocol):
    """A message of a run under way."""

    @property
    def row(self) -> dict[str, Any]:
        """The newest record."""
        ...


Message = TypeVar("Message", bound=HasRow)


def steps_per_second(row: Mapping[str, Any], steps_before: int) -> float | None:
    """Return the speed of a record, given the steps before it."""
    spent, done = sum(row["seconds"].values()), row["online_steps"] - steps_before
    return done / spent if done > 0 and spent else None


def with_steps_before(messages: Iterator[Message]) -> Iterator[tuple[Message, int]]:
    """Pair each message with the steps taken before its record.

    The first record of a resumed run does not tell how many of its steps were new.
    """
    before: int | None = None
    for message in messages:
        row = message.row
        if before is None:
            before = 0 if row["iteration"] == 1 else row["online_steps"]
        yield message, before
        before = row["online_steps"]


def check_tensorboard() -> None:
    """Raise where the package is missing, before anything is begun."""
    if importlib.util.find_spec("tensorboard") is None:
        raise HyqError("--tensorboard needs TensorBoard: pip install 'hyq[tensorboard]'")


def to_tensorboard(messages: Iterator[Message], directory: Path) -> Iterator[Message]:
    """Pass a run's messages on, writing every number of its records on the way."""
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (an optional package)

    with SummaryWriter(str(directory)) as writer:
        for message, before in with_steps_before(messages):
            row = message.row
            values = {k: v for k, v in row.items() if isinstance(v, int | float)}
            values |= {f"seconds/{part}": spent for part, spent in row["seconds"].items()}
            if (speed := steps_per_second(row, before)) is not None:
                values["steps_per_second"] = speed
            for name, value in values.items():
                writer.add_scalar(name, value, row["online_steps"] or row["updates"])
            yield message
