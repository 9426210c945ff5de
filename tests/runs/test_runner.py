"""Deep runs: records, policies, resuming to the bit after any kill, and early errors."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.algorithms import PRESETS
from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.errors import HyqError
from hyq.core.files import write_json
from hyq.core.schedules import PiecewiseLinear
from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset, Episode
from hyq.policy import Policy
from hyq.runs import runner
from hyq.runs.checkpoint import TrainingCheckpoint
from hyq.runs.records import RunDirectory
from hyq.runs.runner import Objects
from hyq.runs.spec import RunSpec, as_file_name

SMALL: dict[str, Any] = {
    "online_steps": 240,
    "pretraining": 20,
    "num_envs": 2,
    "update_every": 4,
    "learning_starts": 40,
    "batch_size": 8,
    "hidden": (8,),
    "report_every": 60,
    "buffer_size": 120,  # the ring turns over, so checkpoints drop what it has overwritten
}


def cartpole_data(episodes: int = 10) -> Dataset:
    env, rng = gym.make("CartPole-v1"), np.random.default_rng(0)

    def one(seed: int) -> Episode:
        observation, action, over = [env.reset(seed=seed)[0]], [], False
        while not over:
            action.append(int(rng.integers(2)))
            seen, _, terminated, truncated, _ = env.step(action[-1])
            observation.append(seen)
            over = terminated or truncated
        reward = np.ones(len(action), np.float32)
        return Episode(np.stack(observation), np.array(action), reward, True)

    return Dataset.of((one(seed) for seed in range(episodes)), {"env": "CartPole-v1"})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "cartpole"
    cartpole_data().save(str(path))
    return str(path)


def spec_of(data: str | None, **changes: Any) -> RunSpec:
    parts = {"env": "CartPole-v1", "data": data, "seed": 3, "evaluation_episodes": 2}
    settings = {**SMALL, **changes.pop("settings", {})}
    return RunSpec(**{**parts, "settings": settings, **changes})


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in row.items() if key not in ("seconds", "wall_seconds", "chain")
    }


def results(path: Path) -> tuple[list[str], dict[str, Any], bytes, bytes]:
    """Everything that two equal runs must agree on, byte for byte."""
    run = RunDirectory.open(path)
    assert run.summary is not None
    lines = (path / "records.jsonl").read_text().splitlines()
    rows = [json.dumps(timeless(json.loads(line))) for line in lines]
    best, last = ((path / n / "weights.safetensors").read_bytes() for n in ("best", "last"))
    return rows, timeless(run.summary), best, last


@pytest.fixture(scope="module")
def undisturbed(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    list(runner.start(spec_of(data), out))
    return out


def test_a_run_writes_records_and_policies(undisturbed: Path, data: str) -> None:
    run = RunDirectory.open(undisturbed)
    rows, summary = run.rows, run.summary
    assert summary is not None
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["online_steps"] for row in rows] == [0, 60, 120, 180, 240]
    assert [row["updates"] for row in rows][:2] == [20, 25]
    assert rows[-1]["offline_share"] == pytest.approx(0.5)
    assert set(rows[-1]["seconds"]) == {"act", "learn", "wait and store"}
    returns = [row["eval_return"] for row in rows]
    assert summary["peak_return"] == max(returns)
    assert summary["eval_return"] == returns[-1]
    assert summary["online_steps"] == 240
    assert summary["updates"] == rows[-1]["updates"]
    assert (summary["solved"], summary["solved_at"], summary["threshold"]) == (False, None, None)
    assert (summary["algorithm"], summary["env"], summary["seed"]) == ("hyq", "CartPole-v1", 3)
    manifest = run.manifest
    assert manifest["dataset"]["provenance"] == {"env": "CartPole-v1"}
    assert manifest["dataset"]["sha256"] == cartpole_data().digest()
    assert manifest["settings"]["batch_size"] == 8
    assert manifest["settings"]["gamma"] == 0.99
    assert manifest["objects"] == {}
    assert RunSpec.decoded(manifest["spec"]) == spec_of(data)
    for name, score in (("best", max(returns)), ("last", returns[-1])):
        policy = Policy.load(undisturbed / name)
        assert policy.act(np.zeros(4, np.float32)) in (0, 1)
        assert policy.about["return"] == score
        assert policy.about["dataset"] == cartpole_data().digest()
    assert not (undisturbed / "checkpoint").exists()


def test_the_record_says_what_was_returned_lately(undisturbed: Path) -> None:
    rows = RunDirectory.open(undisturbed).rows
    returns: list[float] = []
    for row in rows:
        returns += [total for _, total, _ in row["episodes"]]
        if returns:
            assert row["recent_return"] == pytest.approx(np.mean(returns[-100:]))
    assert "recent_return" not in rows[0]


def test_the_recent_return_is_that_of_a_hundred_episodes() -> None:
    settings = {"num_envs": 2, "online_steps": 4000, "report_every": 1000, "learning_starts": 9999}
    spec = RunSpec("CartPole-v1", algorithm="dqn", evaluation_episodes=0, settings=settings)
    rows = [update.row for update in runner.start(spec)]
    returns = [total for row in rows for _, total, _ in row["episodes"]]
    assert len(returns) > 120
    assert rows[-1]["recent_return"] == pytest.approx(np.mean(returns[-100:]))


def test_without_a_directory_nothing_is_written(
    data: str, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    updates = list(runner.start(spec_of(data)))
    assert list(tmp_path.iterdir()) == []
    rows = [json.dumps(timeless(json.loads(json.dumps(update.row)))) for update in updates]
    assert rows == results(undisturbed)[0]
    assert [update.summary is None for update in updates] == [True] * 4 + [False]


def test_other_seeds_are_other_runs(data: str, undisturbed: Path, tmp_path: Path) -> None:
    list(runner.start(spec_of(data, seed=4), tmp_path / "run"))
    ours, others = results(tmp_path / "run"), results(undisturbed)
    assert ours[0][1:] != others[0][1:]
    assert ours[3] != others[3]


@pytest.mark.parametrize("stop_after", [1, 3, 4])
def test_stopped_at_a_report_and_resumed_equals_uninterrupted(
    data: str, undisturbed: Path, tmp_path: Path, stop_after: int
) -> None:
    out = tmp_path / "run"
    run = runner.start(spec_of(data), out, checkpoint_seconds=0)
    list(islice(run, stop_after))
    run.close()  # type: ignore[attr-defined]
    list(runner.resume(out))
    assert results(out) == results(undisturbed)


KILLED = """
import os, signal, sys
from pathlib import Path
from hyq.runs import runner
from tests.runs.test_runner import spec_of
data, out, how, stop = sys.argv[1:]
if how == "SIGKILL":
    for number, _ in enumerate(runner.start(spec_of(data), Path(out), checkpoint_seconds=0), 1):
        if number == int(stop):
            os.kill(os.getpid(), signal.SIGKILL)
else:
    from hyq.trainer import Trainer
    act = Trainer._act
    def counted(self):
        if self.online_steps == int(stop):
            os.kill(os.getpid(), signal.SIGTERM)
        return act(self)
    Trainer._act = counted
    list(runner.start(spec_of(data), Path(out)))
"""


@pytest.mark.parametrize(("how", "stop"), [("SIGKILL", 3), ("SIGTERM", 94)])
def test_killed_and_resumed_equals_uninterrupted(
    data: str, undisturbed: Path, tmp_path: Path, how: str, stop: int
) -> None:
    out = tmp_path / "killed"
    died = subprocess.run(
        [sys.executable, "-c", KILLED, data, str(out), how, str(stop)],
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
    )
    assert died.returncode == (-9 if how == "SIGKILL" else -2), died.stderr
    if how == "SIGTERM":
        assert "KeyboardInterrupt" in died.stderr
        assert len(RunDirectory.open(out).rows) == 2  # in the middle of a report
    assert (out / "checkpoint" / "state.safetensors").exists()
    list(runner.resume(out))
    assert results(out) == results(undisturbed)


def test_a_row_that_was_recorded_after_the_checkpoint_is_not_recorded_twice(
    data: str, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    run = runner.start(spec_of(data), out, checkpoint_seconds=0)
    list(islice(run, 2))
    run.close()  # type: ignore[attr-defined]
    checkpoint = out / "checkpoint"
    kept = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    run = runner.resume(out, checkpoint_seconds=1e9)
    list(islice(run, 2))
    run.close()  # type: ignore[attr-defined]
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == kept
    assert len(RunDirectory.open(out).rows) == 4
    with (out / "records.jsonl").open("a") as file:
        file.write('{"iteration": 5, "half')  # a kill in the middle of a line
    list(runner.resume(out))
    assert results(out) == results(undisturbed)


def test_signals_are_noted_and_then_as_before(data: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests run under nohup
    run = runner.start(spec_of(data))
    next(run)
    assert signal.getsignal(signal.SIGTERM) is not before
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        list(run)
    assert signal.getsignal(signal.SIGTERM) is before
    run = runner.start(spec_of(data))
    next(run)
    os.kill(os.getpid(), signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGHUP)  # a second one ends it at once
    run.close()  # type: ignore[attr-defined]
    assert signal.getsignal(signal.SIGTERM) is before


def stopped(data: str, out: Path, reports: int = 3, **changes: Any) -> None:
    run = runner.start(spec_of(data, **changes), out, checkpoint_seconds=0)
    list(islice(run, reports))
    run.close()  # type: ignore[attr-defined]


def test_a_finished_run_or_a_path_that_is_taken_raises(
    data: str, undisturbed: Path, tmp_path: Path
) -> None:
    with pytest.raises(HyqError, match=r"is finished: its result is in .*summary.json"):
        runner.resume(undisturbed)
    (tmp_path / "taken").mkdir()
    with pytest.raises(HyqError, match="exists already"):
        runner.start(spec_of(data), tmp_path / "taken")
    stopped(data, tmp_path / "unfinished", 1)
    with pytest.raises(HyqError, match=r"unfinished run: .*hyq resume"):
        runner.start(spec_of(data), tmp_path / "unfinished")
    with pytest.raises(HyqError, match="is not a run"):
        runner.resume(tmp_path / "taken")


def test_data_that_has_changed_raises(tmp_path: Path) -> None:
    where = tmp_path / "data"
    cartpole_data(4).save(str(where))
    stopped(str(where), tmp_path / "run", 1)
    for path in where.iterdir():
        path.unlink()
    where.rmdir()
    cartpole_data(5).save(str(where))
    with pytest.raises(HyqError, match=r"offline data of .* has changed"):
        runner.resume(tmp_path / "run")


def test_objects_are_given_again(data: str, tmp_path: Path) -> None:
    def network(observation_space: Any, action_space: Any) -> Any:
        import torch  # noqa: PLC0415 - as a user's module might

        return torch.nn.Linear(4, int(action_space.n))

    def share(batch_size: int, step: int, rng: np.random.Generator) -> int:
        return 3

    objects = Objects(
        env=lambda: gym.make("CartPole-v1"),
        dataset=cartpole_data(),
        network=network,
        offline_share=share,
    )
    spec = spec_of(None, env=None)
    list(runner.start(spec, tmp_path / "whole", objects))
    run = runner.start(spec, tmp_path / "run", objects, checkpoint_seconds=0)
    list(islice(run, 3))
    run.close()  # type: ignore[attr-defined]
    described = RunDirectory.open(tmp_path / "run").manifest["objects"]
    assert described.keys() == {"env", "data", "network", "offline_share"}
    assert described["network"].endswith("test_objects_are_given_again.<locals>.network")
    message = (
        r"its own data \(.*\), env \(.*\), network \(.*network\), offline_share \(.*\): resume it "
        r"with hyq.resume\(path, data=..., env=..., network=..., offline_share=...\)"
    )
    with pytest.raises(HyqError, match=message):
        runner.resume(tmp_path / "run")
    with pytest.raises(HyqError, match=r"its own data .*path, data=...\)"):
        runner.resume(tmp_path / "run", replace(objects, dataset=None))
    with pytest.raises(HyqError, match=r"offline data of .* has changed"):
        runner.resume(tmp_path / "run", replace(objects, dataset=cartpole_data(5)))
    list(runner.resume(tmp_path / "run", objects))
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_a_checkpoint_keeps_only_what_the_ring_still_holds(data: str, tmp_path: Path) -> None:
    stopped(data, tmp_path / "run", 4)
    parts = sorted((tmp_path / "run" / "checkpoint").glob("part-*"))
    assert 0 < len(parts) < 4
    assert parts[0].name != "part-00001.safetensors"


class Ring:
    """A buffer that counts and holds nothing."""

    num_envs, length = 2, 12

    def __init__(self) -> None:
        self.written = np.zeros(2, int)
        self.asked: list[list[int]] = []

    def export(self, since: Any) -> dict[str, Any]:
        self.asked.append(since.tolist())
        return {"first": since, "written": self.written.copy()}


def test_a_part_is_kept_while_any_environment_still_needs_it(tmp_path: Path) -> None:
    """Short episodes fill an environment's slots faster than long ones do."""
    ring = Ring()
    checkpoint = TrainingCheckpoint(tmp_path / "checkpoint")
    training = SimpleNamespace(buffer=ring, state=dict)
    for written in ([10, 2], [20, 4], [30, 6], [42, 14], [43, 15]):
        ring.written = np.array(written)
        checkpoint.save(training, {})
    kept = sorted(path.name for path in (tmp_path / "checkpoint").glob("part-*"))
    # The ring holds 31 to 42 and 3 to 14: of the first part nothing is left, and so on.
    assert kept == [f"part-0000{n}.safetensors" for n in (2, 3, 4, 5)]
    assert ring.asked == [[0, 0], [10, 2], [20, 4], [30, 6], [42, 14]]
    ring.written = np.array([60, 30])
    checkpoint.save(training, {})
    kept = sorted(path.name for path in (tmp_path / "checkpoint").glob("part-*"))
    assert kept == ["part-00006.safetensors"]


def test_a_half_written_checkpoint_is_not_looked_at(
    data: str, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    stopped(data, out)
    (out / "checkpoint" / ".state.safetensors.0.draft").write_bytes(b"half")
    (out / "checkpoint" / "part-00009.safetensors").write_bytes(b"half")
    run = runner.resume(out, checkpoint_seconds=0)
    next(run)
    run.close()  # type: ignore[attr-defined]
    assert not list((out / "checkpoint").glob(".*")), "what a kill left is swept up"
    assert not (out / "checkpoint" / "part-00009.safetensors").exists()
    list(runner.resume(out))
    assert results(out) == results(undisturbed)


def test_a_damaged_checkpoint_raises(data: str, tmp_path: Path) -> None:
    stopped(data, tmp_path / "run")
    state = tmp_path / "run" / "checkpoint" / "state.safetensors"
    whole = state.read_bytes()
    state.write_bytes(whole[:-100])
    with pytest.raises(HyqError, match="damaged"):
        list(runner.resume(tmp_path / "run"))
    state.write_bytes(whole)
    [part, *_] = (tmp_path / "run" / "checkpoint").glob("part-*")
    flipped = bytearray(part.read_bytes())
    flipped[-1] ^= 1
    part.write_bytes(flipped)
    with pytest.raises(HyqError, match="damaged"):
        list(runner.resume(tmp_path / "run"))


def test_moments_of_another_shape_raise(data: str, tmp_path: Path) -> None:
    """A fused optimiser takes shapes for granted, and would write into memory that is not its."""
    stopped(data, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint" / "state.safetensors"
    whole = load_arrays(path)
    names = [name for name in whole if ".optimizers." in name]
    assert {name.rpartition(".")[2] for name in names} == {"exp_avg", "exp_avg_sq", "step"}
    for name in names:
        array = whole[name]
        for other in (array[None], array.astype(np.float64), array.reshape(-1)[:1].reshape(())):
            if other.shape == array.shape and (other.dtype == array.dtype or array.ndim):
                continue  # moments are converted, as the type of the weights may be another
            save_arrays(path, {**whole, name: np.array(other)})
            with pytest.raises(HyqError, match="is of another configuration"):
                list(runner.resume(tmp_path / "run"))


def test_a_checkpoint_of_another_configuration_raises(data: str, tmp_path: Path) -> None:
    stopped(data, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["spec"]["settings"]["num_envs"] = 4
    write_json(path, manifest)
    with pytest.raises(HyqError, match=r"other settings .*\(num_envs\)"):
        list(runner.resume(tmp_path / "run"))
    manifest["settings"]["num_envs"] = 4
    write_json(path, manifest)
    with pytest.raises(HyqError, match="another configuration"):
        list(runner.resume(tmp_path / "run"))


def test_a_preset_that_has_changed_since_raises(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(data, tmp_path / "run", 1)
    monkeypatch.setitem(PRESETS, "default", {"gamma": 0.5})
    with pytest.raises(HyqError, match=r"other settings .*\(gamma\)"):
        runner.resume(tmp_path / "run")


def test_a_run_that_keeps_its_checkpoint(data: str, undisturbed: Path, tmp_path: Path) -> None:
    list(runner.start(spec_of(data), tmp_path / "run", keep_checkpoint=True))
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()
    assert results(tmp_path / "run") == results(undisturbed)


def test_elapsed_time_counts_from_the_beginning(data: str, tmp_path: Path) -> None:
    stopped(data, tmp_path / "run", 2)
    path = tmp_path / "run" / "checkpoint" / "state.safetensors"
    state = load_arrays(path)
    about = json.loads(state["about"].tobytes())
    assert about["reports"] == 2
    assert 0 < about["elapsed"] < 100
    state["about"] = np.frombuffer(json.dumps(about | {"elapsed": 1000.0}).encode(), np.uint8)
    save_arrays(path, state)
    *_, last = runner.resume(tmp_path / "run")
    assert last.summary is not None
    assert 1000.0 < last.summary["wall_seconds"] < 1100.0


# Evaluation


def test_evaluations_come_at_their_period_and_at_the_end(data: str) -> None:
    rows = [u.row for u in runner.start(spec_of(data, evaluate_every=2))]
    assert ["eval_return" in row for row in rows] == [False, True, False, True, True]
    rows = [u.row for u in runner.start(spec_of(data, evaluation_episodes=0))]
    assert not any("eval_return" in row for row in rows)


def test_evaluations_do_not_change_what_is_learned(data: str) -> None:
    runs = [list(runner.start(spec_of(data, evaluation_episodes=n))) for n in (0, 3)]
    losses = [[update.row["loss"] for update in run] for run in runs]
    assert losses[0] == losses[1]


def test_the_threshold_is_confirmed_and_can_end_the_run(data: str) -> None:
    easy = spec_of(data, threshold=5.0, stop_when_solved=True)
    last = list(runner.start(easy))[-1]
    assert last.summary is not None
    assert last.summary["solved"]
    assert last.summary["solved_at"] == 0, "the first evaluation is after pretraining"
    assert last.row["confirming_return"] >= 5.0
    on = list(runner.start(replace(easy, stop_when_solved=False)))
    assert len(on) == 5
    assert on[-1].summary is not None
    assert on[-1].summary["solved_at"] == 0
    assert "confirming_return" not in on[-1].row


@pytest.mark.parametrize(("fresh", "solved"), [(109.0, False), (110.0, True)])
def test_fresh_episodes_must_confirm_a_threshold(
    data: str, monkeypatch: pytest.MonkeyPatch, fresh: float, solved: bool
) -> None:
    asked: list[tuple[int, tuple[str | int, ...]]] = []

    def lucky(env: Any, act: Any, episodes: int, streams: Streams, config: Any) -> Any:
        asked.append((episodes, streams.prefix))
        return np.full(episodes, 110.0 if streams.prefix[0] == "evaluate" else fresh)

    monkeypatch.setattr(runner, "evaluate", lucky)
    last = list(runner.start(spec_of(data, threshold=110.0)))[-1]
    assert last.summary is not None
    assert last.summary["solved"] == solved
    assert asked[:3] == [(2, ("evaluate", 1)), (100, ("confirm", 1)), (2, ("evaluate", 2))]


def test_of_equal_policies_the_last_is_kept_as_the_best(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "evaluate", lambda *_: np.zeros(2))
    list(runner.start(spec_of(data), tmp_path / "equal"))
    _, _, best, last = results(tmp_path / "equal")
    assert best == last
    scores = iter([1.0, 5.0, 3.0, 2.0, 4.0])
    monkeypatch.setattr(runner, "evaluate", lambda *_: np.full(2, next(scores)))
    updates = list(runner.start(spec_of(data), tmp_path / "falling"))
    assert Policy.load(tmp_path / "falling" / "best").about["return"] == 5.0
    assert Policy.load(tmp_path / "falling" / "last").about["return"] == 4.0
    assert [update.policy.about["return"] for update in updates] == [1.0, 5.0, 5.0, 5.0, 5.0]


def test_random_actions_in_evaluations(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def looked_at(env: Any, act: Any, episodes: int, streams: Streams, config: Any) -> Any:
        seen = np.repeat(np.random.default_rng(0).normal(size=(1, 4)), 2000, axis=0)
        found.append(act(seen.astype(np.float32)))
        return np.zeros(episodes)

    monkeypatch.setattr(runner, "evaluate", looked_at)
    next(runner.start(spec_of(data)))
    next(runner.start(spec_of(data, evaluation_epsilon=0.5)))
    greedy, noisy = found
    assert len(set(greedy)) == 1
    assert abs((noisy != greedy[0]).mean() - 0.25) < 0.05


# Specs


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"env": "Pendulum-v1", "data": None, "algorithm": "dqn"}, "is for discrete actions"),
        ({"env": "MountainCar-v0"}, "shape"),
        ({"env": "NoSuchEnv-v0"}, "no environment"),
        ({"env": None}, "name an environment"),
        ({"env": "FrozenLake-v1", "data": None, "algorithm": "dqn"}, "must be arrays"),
        ({"data": None}, "learns from offline data"),
        ({"algorithm": "rnd"}, "rnd does not use offline data"),
        ({"data": "nowhere"}, "no dataset 'nowhere'"),
        ({"algorithm": "magic"}, "no algorithm 'magic'"),
        ({"preset": "magic"}, "no preset 'magic'"),
        ({"settings": {"beta": "1.5"}}, "within"),
        ({"settings": {"beta": "a lot"}}, "cannot read"),
        ({"settings": {"beta": "5:0.1, 3:0.2"}}, "increasing"),
        ({"settings": {"expectile": 0.5}}, "hyq does not use the setting 'expectile'"),
        ({"wrappers": ("nowhere:Nothing",)}, "no wrapper"),
        ({"seed": -1}, "must not be negative"),
        ({"evaluation_episodes": -1}, "must not be negative"),
        ({"evaluate_every": 0}, "nor the period 0"),
        ({"threshold": 1.0, "evaluation_episodes": 0}, "set evaluation_episodes too"),
        ({"stop_when_solved": True}, "needs a threshold"),
        ({"threshold": float("nan")}, "must be a number"),
        ({"evaluation_epsilon": 1.1}, "evaluation_epsilon must lie in"),
        ({"evaluation_epsilon": -0.1}, "evaluation_epsilon must lie in"),
        ({"settings": {"online_steps": 0, "pretraining": 0}}, "nothing to learn"),
    ],
)
def test_bad_input_raises_before_anything_is_written(
    data: str, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    if changes.get("algorithm") in ("dqn", "rnd"):
        changes = {**changes, "settings": {"num_envs": 2}}
        both: Any = {**vars(spec_of(data)), **changes}
    else:
        settings = {**SMALL, **changes.get("settings", {})}
        both = {"env": "CartPole-v1", "data": data, **changes, "settings": settings}
    with pytest.raises(HyqError, match=says) as raised:
        runner.start(RunSpec(**both), tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_processes_are_closed_where_the_data_does_not_fit(data: str) -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(HyqError, match="shape"):
        runner.start(spec_of(data, env="MountainCar-v0", processes=True))
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n_step_offline": 3}, "give n_step_offline=1, or whole episodes"),
        (
            {"frame_stack": 2, "truncation_terminates": True},
            "give truncation_terminates=False, frame_stack=1, or whole episodes",
        ),
    ],
)
def test_transitions_without_order_have_no_returns_and_no_stacks(
    settings: dict[str, Any], says: str
) -> None:
    rng = np.random.default_rng(0)
    seen = rng.uniform(-0.4, 0.4, (2, 50, 4)).astype(np.float32)
    unordered = Dataset.from_arrays(
        seen[0], rng.integers(2, size=50), np.ones(50), seen[1], np.zeros(50, bool)
    )
    objects = Objects(dataset=unordered)
    assert list(runner.start(spec_of(None), objects=objects))[-1].summary is not None
    with pytest.raises(HyqError, match=says):
        runner.start(spec_of(None, settings=settings), objects=objects)


def test_specs_come_back_from_json() -> None:
    spec = RunSpec(
        "CartPole-v1",
        None,
        "dqn",
        seed=7,
        settings={
            "epsilon": PiecewiseLinear(((0, 0.123456789), (1234567, 0.01))),
            "hidden": (8, 9),
            "gamma": 0.95,
        },
        wrappers=("some:Wrapper",),
        env_parameters={"max_episode_steps": 9},
        threshold=3.0,
    )
    again = RunSpec.decoded(json.loads(json.dumps(spec.encoded())))
    assert again == spec
    assert again.configs.encoded() == spec.configs.encoded()
    assert again.settings["epsilon"] == "0:0.123456789, 1234567.0:0.01"
    with pytest.raises(HyqError, match="has lanes, which this version of hyq does not know"):
        RunSpec.decoded({**spec.encoded(), "lanes": 3})


def test_equal_specs_have_equal_ids_and_others_do_not(data: str) -> None:
    spec = RunSpec("CartPole-v1", "a/b", settings={"batch_size": 8})
    changes: list[dict[str, Any]] = [
        {},
        {"seed": 4},
        {"algorithm": "dqfd"},
        {"data": "a/c"},
        {"env": "Acrobot-v1"},
        {"settings": {"batch_size": 9}},
        {"preset": "paper-montezuma"},
        {"env_parameters": {"a": 1}},
        {"processes": True},
    ]
    assert len({replace(spec, **change).id for change in changes}) == len(changes)
    assert spec.id == "hyq-CartPole-v1-a_b-batch_size=8-s0"
    assert replace(spec, evaluation_episodes=3).id == spec.id, "what is measured is no part of it"


def test_ids_stay_short_enough_for_a_directory_and_still_differ() -> None:
    one, other = as_file_name("a" * 300), as_file_name("a" * 301)
    assert one != other
    assert len(one) == len(other) == 200
    assert as_file_name("b" * 200) == "b" * 200
    assert as_file_name("a/b: c-d=e.f_g") == "a_b__c-d=e.f_g"
