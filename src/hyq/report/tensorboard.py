"""Records as TensorBoard event files, for those who watch their runs there."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from hyq.core.errors import HyqError
from hyq.experiments.trainings import Progress


def check_tensorboard() -> None:
    """Refuse where the package is missing, before anything is begun."""
    if importlib.util.find_spec("tensorboard") is None:
        raise HyqError("--tensorboard needs TensorBoard: pip install 'hyq[tensorboard]'")


def to_tensorboard(progress: Iterator[Progress], directory: Path) -> Iterator[Progress]:
    """Pass a run's progress on, writing every number of it down on the way."""
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (an optional package)

    with SummaryWriter(str(directory)) as writer:
        for update in progress:
            step = update.row["online_samples"] or update.row["updates"]
            for name, value in update.row.items():
                if isinstance(value, float):
                    writer.add_scalar(name, value, step)
            yield update
