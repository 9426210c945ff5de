"""Trackers for real: what each stores is read again by its own library."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hyq.core.errors import HyqError
from hyq.runs.records import Progress
from hyq.trackers import MLflow, TensorBoard, WandB, numbers

ROWS: tuple[dict[str, Any], ...] = (
    {"iteration": 1, "online_steps": 100, "updates": 90, "td_online": 0.5, "eval_return": -200.0,
     "seconds": {"act": 0.25}, "episodes": [], "eval_returns": [-200.0]},
    {"iteration": 2, "online_steps": 200, "updates": 190, "td_online": 0.25, "eval_return": -120.0,
     "seconds": {"act": 0.5}, "episodes": [], "eval_returns": [-120.0]},
)  # fmt: skip
SUMMARY = {"solved": True, "algorithm": "hyq"}


def play(callback: Any) -> None:
    for row, summary in zip(ROWS, (None, SUMMARY), strict=True):
        callback(Progress(row, summary))


def test_numbers_of_a_record() -> None:
    found = numbers(ROWS[0])
    assert found == {
        "iteration": 1, "online_steps": 100, "updates": 90, "td_online": 0.5,
        "eval_return": -200.0, "seconds/act": 0.25,
    }  # fmt: skip


def test_tensorboard(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    play(TensorBoard(tmp_path))
    read = events.EventAccumulator(str(tmp_path)).Reload()
    points = [(event.step, event.value) for event in read.Scalars("eval_return")]
    assert points == [(100, -200.0), (200, -120.0)]


@pytest.mark.filterwarnings("ignore")  # of MLflow about its own file store
def test_mlflow_in_a_local_directory(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    callback = MLflow(tmp_path / "mlruns", parameters={"beta": 0.5})
    play(callback)
    MLflow(tmp_path / "mlruns")  # the experiment is there already
    client = mlflow.MlflowClient((tmp_path / "mlruns").as_uri())
    history = client.get_metric_history(callback.run_id, "eval_return")
    assert [(point.step, point.value) for point in history] == [(100, -200.0), (200, -120.0)]
    run = client.get_run(callback.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"beta": "0.5"}
    assert run.data.tags["solved"] == "True"


def log_entries(data: bytes, header: int = 7, block: int = 1 << 15) -> Iterator[bytes]:
    """Read a log in LevelDB's format, behind a header of its own: blocks of checked fragments."""
    at, whole = header, b""
    while at + 7 <= len(data):
        if block - at % block < 7:  # no fragment begins in the last bytes of a block
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole entry, or its last part
            yield whole
            whole = b""


@pytest.mark.filterwarnings("ignore")  # of Weights & Biases about itself
def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    record_type: Any = import_module("wandb.proto.wandb_internal_pb2").Record

    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    play(WandB(tmp_path / "logs", config={"beta": 0.5}))
    wandb.teardown()  # what happens when Python ends
    [stored] = tmp_path.rglob("*.wandb")
    points, steps = [], []
    for data in log_entries(stored.read_bytes()):
        record = record_type.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {(i.key or i.nested_key[0]): i.value_json for i in record.history.item}
            points.append(float(items["eval_return"]))
            steps.append(int(items["_step"]))
    assert (steps, points) == ([100, 200], [-200.0, -120.0])


@pytest.mark.parametrize(
    ("tracker", "extra"), [(TensorBoard, "tensorboard"), (MLflow, "mlflow"), (WandB, "wandb")]
)
def test_a_tracker_that_is_not_installed_says_what_to_type(
    tracker: Any, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(HyqError, match=rf"pip install 'hyq\[{extra}\]'"):
        tracker(tmp_path)
