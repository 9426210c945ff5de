"""The Montezuma comparison from its records: curves, table and page, finished or under way."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyq.commands.suites
import hyq.runs.montezuma_suite
from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.core.files import write_json
from hyq.experts.montezuma import Recording
from hyq.experts.montezuma_data import Recordings
from hyq.experts.montezuma_statistics import Journey, journey
from hyq.report.montezuma import Learned, MontezumaResult, learning_curves, table_rows
from hyq.report.runs import RunResult, write_figure
from hyq.runs.deep import DeepRun
from hyq.runs.film import Film
from hyq.runs.launch import Event, SuiteDirectory, execute
from hyq.runs.montezuma_suite import DATASETS, FILMS, films_to_make, read_datasets
from hyq.runs.rnd import RNDRun
from hyq.runs.runs import Run
from hyq.runs.suites import Suite, montezuma_suite
from tests.runs.test_film import expert_film, pixel_actor

STEPS = 20_000
SUITE = montezuma_suite(STEPS)


def rows(run: Run, level: float, reports: int = 2) -> list[dict[str, Any]]:
    """Return records of a run whose episodes earn 0 first and `level` at last."""
    if run.algorithm in ("bc", "cql"):
        return [row(1, 0, eval_return=level)]
    return [
        row(
            number,
            10_000 * number,
            recent_return=level * (number - 1),
            episodes=[[10_000 * number, level * (number - 1), 500]] * 100,
        )
        for number in range(1, reports + 1)
    ]


def row(number: int, steps: int, **more: Any) -> dict[str, Any]:
    return {"iteration": number, "online_steps": steps, "seconds": {"act": 5.0}, **more}


def write_run(directory: SuiteDirectory, run: Run, records: list[dict[str, Any]]) -> Path:
    path = directory.run_path(run)
    path.mkdir(parents=True)
    spec = {"algorithm": run.algorithm, "data": run.data, **asdict(run)}
    write_json(path / "manifest.json", {"experiment": "deep", "spec": spec})
    (path / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    levels = {"hyq": 3000.0, "dqfd": 400.0, "rnd": 100.0, "cql": 800.0, "bc": 2000.0}
    for run in SUITE.runs:
        level = levels[run.algorithm] + 100 * (run.seed - 100)
        records = rows(run, level, reports=1 if run.seed == 102 else 2)
        path = write_run(directory, run, records)
        if run.seed != 102:
            write_json(path / "summary.json", {"algorithm": run.algorithm})
    facts = {"episodes": 4, "transitions": 100, "mean_return": 2390.0, "room_shares": {"1": 1.0}}
    names = ("montezuma/easy", "montezuma/medium", "montezuma/hard", "expert")
    write_json(directory.path / DATASETS, dict.fromkeys(names, facts))
    expert_film().save(directory.path / FILMS / "hyq-hard")
    return directory.path


def test_the_suite_is_what_is_compared() -> None:
    assert {(run.algorithm, run.data) for run in SUITE.runs} == {
        *(
            (m, f"montezuma/{d}")
            for m in ("hyq", "dqfd", "cql", "bc")
            for d in ("easy", "medium", "hard")
        ),
        ("rnd", None),
    }
    seeds = [
        run.seed for run in SUITE.runs if (run.algorithm, run.data) == ("hyq", "montezuma/hard")
    ]
    assert seeds == [100, 101, 102]
    for run in montezuma_suite(3_000_000).runs:
        assert '"step_limit": 2000' in run.env_parameters  # type: ignore[union-attr]
        if isinstance(run, DeepRun) and run.config.online_steps:
            reports = run.config.online_steps // run.config.report_every
            assert reports // run.evaluate_every == 5


def test_curves_average_what_is_known(suite: Path) -> None:
    result = MontezumaResult.read(suite)
    hyq = next(
        one for one in result.learned if (one.algorithm, one.data) == ("hyq", "montezuma/hard")
    )
    low, mean, high = hyq.curve(np.array([0.0, 10_000.0, 20_000.0]))
    assert np.isnan([low[0], mean[0], high[0]]).all(), "no episode had ended yet"
    assert (low[1], mean[1], high[1]) == (0.0, 0.0, 0.0)
    # The third seed has not come so far.
    assert (low[2], mean[2], high[2]) == (3000.0, 3050.0, 3100.0)
    assert hyq.speed() == pytest.approx((20_000 + 20_000 + 10_000) / 25.0)
    assert hyq.steps() == 20_000


def test_the_table_says_what_the_records_say(suite: Path) -> None:
    lines = {line[:2]: line[2:] for line in table_rows(MontezumaResult.read(suite))}
    assert len(lines) == 13
    first, *_, last = lines
    assert (first, last) == (("Hy-Q", "hard"), ("RND", "none"))
    recent, spread, good, evaluated, filmed = lines["Hy-Q", "hard"][2:7]
    assert (recent, spread) == ("2,033", "0-3,100")
    assert good == "67%", "all of two seeds, none of the third"
    assert (evaluated, filmed) == ("-", "100")
    assert lines["BC", "hard"] == ("-", "1", "-", "-", "-", "2,000", "-", "-")


def test_the_share_of_good_episodes_is_of_the_newest_hundred() -> None:
    records = [row(1, 10, episodes=[[1, 0.0, 5]] * 500), row(2, 20, episodes=[[2, 2500.0, 5]] * 50)]
    one = Learned("hyq", "montezuma/hard", (RunResult({}, records, None),), None)
    assert one.good_share() == 0.5
    filmed = Learned("bc", "montezuma/hard", (RunResult({}, [row(1, 0)], None),), expert_film())
    assert filmed.good_share() == 0.0


def test_a_suite_under_way_gets_its_figures_and_page(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "suite", str(suite)]) == 0
    assert "Hy-Q" in capsys.readouterr().out
    for name in ("figure.png", "rnd.png", "rooms-data.png", "rooms-policies.png"):
        assert (suite / name).read_bytes().startswith(b"\x89PNG")
    for name in ("figure.svg", "rnd.svg"):
        assert "expert: 2,390" in (suite / name).read_text()
    page = (suite / "report.html").read_text()
    assert "{{" not in page
    assert "19 runs. 3 of them are under way" in page
    assert page.count('<img class="strip"') == page.count('<img class="clip"') == 1
    assert "http://" not in page.replace("http://www.w3.org", "")
    write_figure(learning_curves(MontezumaResult.read(suite)), suite / "again.svg")
    assert (suite / "again.svg").read_bytes() == (suite / "figure.svg").read_bytes()


def test_finished_runs_without_a_film_are_filmed_once(suite: Path) -> None:
    assert films_to_make(suite) == [], "no policy was kept"
    directory = SuiteDirectory(suite)
    for run in SUITE.runs:
        if (run.algorithm, run.data) in (("dqfd", "montezuma/hard"), ("hyq", "montezuma/hard")):
            pixel_actor().policy.save(directory.run_path(run) / "last")
    (film,) = films_to_make(suite)  # Hy-Q has its film already, and further seeds get none
    assert film.place == suite / FILMS / "dqfd-hard"
    assert film.run.name.endswith("s100")


def launch_here(directory: SuiteDirectory, todo: Sequence[Run], _: int) -> Iterator[Event]:
    """Run everything in this process: that workers do the same is tested elsewhere."""
    for run in todo:
        yield Event(run, execute(directory.path, run))


def test_one_command_runs_films_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = RNDRun(
        env="hyq/Montezuma-v0",
        preset="cpu",
        env_parameters='{"step_limit": 20, "num_threads": 1}',
        online_steps=64,
        normalisation_steps=0,
        lanes=2,
        rollout=16,
    )
    chosen = Suite("montezuma", "Tiny", (tiny,))
    monkeypatch.setattr(hyq.commands.suites, "montezuma_suite", lambda online_steps: chosen)
    monkeypatch.setattr(hyq.commands.suites, "launch", launch_here)
    monkeypatch.setattr(hyq.runs.montezuma_suite, "FILM_EPISODES", 2)
    out = SuiteDirectory.prepare(tmp_path / "suite", chosen).path
    write_json(out / DATASETS, {})
    assert main(["reproduce", "montezuma", "--workers", "1", "--out", str(out)]) == 0
    assert [take.length for take in Film.load(out / FILMS / "rnd").takes] == [20, 20]
    assert (out / FILMS / "rnd" / "strip.png").exists()
    assert "RND" in (out / "report.html").read_text()


def test_datasets_are_read_by_room(suite: Path) -> None:
    assert read_datasets(suite)["montezuma/hard"].room_shares == {1: 1.0}


def test_a_journey_is_how_far_a_recording_came() -> None:
    recording = Recordings.load().expert[0]
    start = Recording(recording.seed, recording.actions[:290])
    assert journey(start) == Journey(score=400, length=290, rooms=(1, 2, 6))


def test_a_suite_without_records_says_so(tmp_path: Path) -> None:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    with pytest.raises(HyqError, match="no records"):
        MontezumaResult.read(directory.path)
