"""The Montezuma suite: what it compares, what it records besides its runs, and its one command."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import hyq.commands.suites
from hyq.cli import main
from hyq.core.files import write_json
from hyq.experts.montezuma_data import SHIPPED, Recording, Recordings, journey
from hyq.runs.launch import Event, SuiteDirectory, execute
from hyq.runs.montezuma_suite import DATASETS, VIDEOS, read_datasets, write_datasets
from hyq.runs.spec import RunSpec
from hyq.runs.suites import (
    CONTINUOUS_UNDONE,
    SUITES_BY_STEPS,
    UNDONE,
    Run,
    Suite,
    ablation_suite,
    continuous_ablation_suite,
    montezuma_suite,
    montezuma_tuning_suite,
)
from hyq.runs.video import Video

SUITE = montezuma_suite(20_000)


def test_the_suite_is_what_is_compared() -> None:
    compared: dict[tuple[str, str | None], int] = {
        **{(m, "montezuma/hard"): 5 for m in ("hyq", "hyq+cql")},
        ("dqfd", "montezuma/hard"): 5 + 3,  # tuned, and as published
        **{(m, "montezuma/hard"): 3 for m in ("bc", "cql")},
        **{
            (m, f"montezuma/{d}"): 3
            for m in ("hyq", "dqfd", "bc", "cql")
            for d in ("easy", "medium")
        },
        ("rnd", None): 3,
    }
    runs = [run for run in SUITE.runs if isinstance(run, RunSpec)]
    assert Counter((run.algorithm, run.data) for run in runs) == compared
    tuned_on = {run.seed for run in montezuma_tuning_suite("full").runs}
    assert not tuned_on & {run.seed for run in SUITE.runs}
    for run in montezuma_suite(3_000_000).runs:
        assert isinstance(run, RunSpec)
        assert run.env_parameters["step_limit"] == 2000
        settings = run.configs.encoded()
        if run.algorithm != "rnd":
            counted = settings.get("updates") or settings["online_steps"]
            assert counted // settings["report_every"] == run.evaluate_every


def test_every_algorithm_gets_as_many_trials_of_one_length() -> None:
    runs = montezuma_tuning_suite("full").runs
    assert set(Counter(run.algorithm for run in runs).values()) == {4}
    updates, plain = set(), []
    for run in runs:
        assert isinstance(run, RunSpec)
        every = run.configs.encoded()
        if run.algorithm == "hyq":
            plain.append(every["cql_weight"])
        acted = every.get("online_steps", 0) // every.get("update_every", 1)
        updates.add(every.get("updates") or every["pretraining"] + acted)
    assert len(updates) == 1
    assert plain == [0.0] * 4, "plain Hy-Q has no penalty"


def launch_here(directory: SuiteDirectory, todo: Sequence[Run], _: object) -> Iterator[Event]:
    """Run everything in this process: that workers do the same is tested elsewhere."""
    for run in todo:
        execute(directory.path, run)
        yield Event(run, "finished")


def test_one_command_runs_records_videos_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = RunSpec(
        env="hyq/Montezuma-v0",
        algorithm="rnd",
        preset="cpu-montezuma",
        env_parameters={"step_limit": 20, "num_threads": 1},
        settings={
            "online_steps": 64,
            "normalisation_steps": 0,
            "num_envs": 2,
            "rollout_steps": 16,
        },
        evaluation_episodes=0,
    )
    chosen = Suite("montezuma", "Tiny", (tiny,))
    monkeypatch.setitem(SUITES_BY_STEPS, "montezuma", (lambda _: chosen, 64))
    monkeypatch.setattr(hyq.commands.suites, "launch", launch_here)
    out = SuiteDirectory.prepare(tmp_path / "suite", chosen).path
    write_json(out / DATASETS, {})
    assert main(["reproduce", "montezuma", "--workers", "1", "--out", str(out)]) == 0
    assert [episode.length for episode in Video.load(out / VIDEOS / "rnd").episodes] == [20] * 20
    assert (out / VIDEOS / "rnd" / "strip.png").exists()
    assert "RND" in (out / "report.html").read_text()


def test_a_journey_is_how_far_a_recording_came() -> None:
    recording = Recordings.load(SHIPPED["montezuma-planner"]).expert[0]
    start = Recording(recording.seed, recording.actions[:290])
    assert journey(start) == (400, 290, (1, 2, 6))


def test_the_datasets_are_played_once_and_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Recordings.load(SHIPPED["montezuma-planner"])
    expert = [
        Recording(one.seed, one.actions[:n])
        for one, n in zip(shipped.expert, (290, 40), strict=False)
    ]
    random = [Recording(one.seed, one.actions[:200]) for one in shipped.random[:1]]
    small = Recordings(expert, random, {"size": 300})
    monkeypatch.setattr(Recordings, "load", lambda: small)
    calls: list[tuple[int, int]] = []
    write_datasets(tmp_path, lambda done, total: calls.append((done, total)))
    # easy: 290 and 10; medium: 240 and 60 random; hard: 150 and 150 random; and both whole ones.
    assert calls == [(done, 7) for done in range(1, 8)]
    facts = read_datasets(tmp_path)
    assert list(facts) == ["montezuma/easy", "montezuma/medium", "montezuma/hard", "expert"]
    assert (facts["montezuma/easy"].episodes, facts["montezuma/easy"].transitions) == (2, 300)
    assert facts["expert"].mean_return == 200.0
    assert facts["expert"].room_shares == {1: 1.0, 2: 0.5, 6: 0.5}


@pytest.mark.parametrize(
    ("suite", "undone", "tasks"),
    [(ablation_suite, UNDONE, 1), (continuous_ablation_suite, CONTINUOUS_UNDONE, 2)],
)
def test_every_ablation_changes_what_it_says_and_nothing_else(
    suite: Callable[[str], Suite], undone: Sequence[Mapping[str, object]], tasks: int
) -> None:
    runs = [run for run in suite("full").runs if isinstance(run, RunSpec)]
    assert set(Counter(run.seed for run in runs).values()) == {len(undone) * tasks}
    for first in range(0, len(runs), len(undone)):
        usual = runs[first].configs.encoded()
        for run, changes in zip(runs[first:], undone, strict=False):
            found = run.configs.encoded()
            assert {name for name, value in found.items() if usual[name] != value} == set(changes)
