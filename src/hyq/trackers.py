"""Callbacks that write the records of a run to TensorBoard, MLflow or Weights & Biases.

Each is given to `hyq.train(callbacks=[...])`, needs the extra of its name, and closes by itself
with the last record. Nothing is sent anywhere: MLflow writes files, Weights & Biases is offline.
"""

import importlib.util
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyq.core.errors import HyqError
from hyq.runs.records import Progress


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a record by name, the time spent in each part included."""
    found = {name: float(v) for name, v in row.items() if isinstance(v, int | float)}
    return found | {f"seconds/{part}": float(v) for part, v in row.get("seconds", {}).items()}


def counted(row: Mapping[str, Any]) -> int:
    """Return what the horizontal axis is: online steps, or updates where there are none."""
    return int(row["online_steps"] or row.get("updates", 0))


def check_installed(package: str, extra: str) -> None:
    """Raise where the package that a tracker writes with is missing."""
    if importlib.util.find_spec(package) is None:
        raise HyqError(f"this callback needs {package}: pip install 'hyq[{extra}]'")


class TensorBoard:
    """Write records as TensorBoard event files (extra `tensorboard`).

    Args:
        directory: Where the event files go; `tensorboard --logdir DIRECTORY` shows them.
    """

    def __init__(self, directory: Path | str) -> None:
        check_installed("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (an optional package)

        self._writer = SummaryWriter(str(directory))

    def __call__(self, progress: Progress) -> None:
        """Write one record; the last one closes the file."""
        for name, value in numbers(progress.row).items():
            self._writer.add_scalar(name, value, counted(progress.row))
        self._writer.flush()
        if progress.summary is not None:
            self._writer.close()


class MLflow:
    """Write records as metrics of an MLflow run in a local directory (extra `mlflow`).

    Args:
        directory: The file store, such as `mlruns`.
        experiment: Name of the experiment; it is made if it does not exist.
        parameters: What to keep as the run's parameters, such as the settings.
    """

    def __init__(
        self,
        directory: Path | str,
        experiment: str = "hyq",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        check_installed("mlflow", "mlflow")
        # MLflow raises for its file store, which needs no database, unless one says so.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient  # noqa: PLC0415 (an optional package)

        self._client = MlflowClient(Path(directory).resolve().as_uri())
        known = self._client.get_experiment_by_name(experiment)
        number = known.experiment_id if known else self._client.create_experiment(experiment)
        self.run_id: str = self._client.create_run(number).info.run_id
        """Identifier of the run in the store."""
        for name, value in (parameters or {}).items():
            self._client.log_param(self.run_id, name, value)

    def __call__(self, progress: Progress) -> None:
        """Write one record; the last one ends the run, with `solved` and the like as tags."""
        from mlflow.entities import Metric  # noqa: PLC0415 (an optional package)

        now, step = int(1000 * time.time()), counted(progress.row)
        found = numbers(progress.row).items()
        metrics = [Metric(name, value, now, step) for name, value in found]
        self._client.log_batch(self.run_id, metrics=metrics)
        if progress.summary is not None:
            for name, value in progress.summary.items():
                self._client.set_tag(self.run_id, name, value)
            self._client.set_terminated(self.run_id)


class WandB:
    """Write records as a Weights & Biases run, offline (extra `wandb`).

    Args:
        directory: Where the run's files go; `wandb sync` uploads them, should you want that.
        project: Name of the project.
        config: What to keep as the run's configuration, such as the settings.
    """

    def __init__(
        self,
        directory: Path | str,
        project: str = "hyq",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        check_installed("wandb", "wandb")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb  # noqa: PLC0415 (an optional package)

        Path(directory).mkdir(parents=True, exist_ok=True)
        quiet = wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True)
        self._run = wandb.init(
            project=project,
            dir=str(directory),
            config=dict(config or {}),
            mode="offline",
            reinit="create_new",
            settings=quiet,
        )

    def __call__(self, progress: Progress) -> None:
        """Write one record; the last one ends the run, with the result as its summary."""
        self._run.log(numbers(progress.row), step=counted(progress.row))
        if progress.summary is not None:
            self._run.summary.update(dict(progress.summary))
            self._run.finish()
