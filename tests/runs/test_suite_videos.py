"""Videos of a suite's policies: one of each algorithm and dataset, made once."""

from pathlib import Path

from hyq.core.files import write_json
from hyq.report.records import RunResult
from hyq.runs import runner
from hyq.runs.montezuma_suite import make_video, read_video, video_place, videos_to_make
from hyq.runs.spec import RunSpec
from hyq.runs.video import EPISODES
from tests.policies import pixel_policy
from tests.report.suites import write_suite
from tests.runs.test_video import expert_video

HARD = "montezuma/hard"


def test_finished_runs_without_a_video_get_one_once(tmp_path: Path) -> None:
    specs = [{"algorithm": name, "data": HARD} for name in ("hyq", "dqfd", "dqfd", "cql")]
    specs += [{"algorithm": "rnd"}]
    path = write_suite(tmp_path / "suite", [RunResult(spec, [], None) for spec in specs])
    assert videos_to_make(path) == {}, "none has finished"
    expert_video().save(video_place(path, "hyq", HARD))
    runs = [path / "runs" / f"run-{number}" for number in range(len(specs))]
    for run in (runs[0], runs[1], runs[2], runs[4]):
        pixel_policy().save(run / "last")
        write_json(run / "summary.json", {})
    # Hy-Q has its own already, a second seed of DQfD gets none, and CQL has not finished.
    places = [path / "videos" / name for name in ("dqfd-hard", "rnd")]
    assert videos_to_make(path) == {places[0]: runs[1], places[1]: runs[4]}


def test_a_video_is_of_the_run_s_environment(tmp_path: Path) -> None:
    settings = {
        "online_steps": 20,
        "learning_starts": 1000,
        "num_envs": 2,
        "fixed_epsilon_envs": 0,
        "buffer_size": 100,
        "report_every": 20,
    }
    spec = RunSpec(
        "hyq/Montezuma-v0",
        algorithm="dqn",
        preset="cpu-montezuma",
        settings=settings,
        evaluation_episodes=0,
        env_parameters={"step_limit": 20, "num_threads": 1},
    )
    list(runner.start(spec, tmp_path / "run"))
    done: list[tuple[int, int]] = []
    place = video_place(tmp_path, "dqn", None)
    make_video(tmp_path / "run", place, lambda number, all_: done.append((number, all_)))
    assert done == [(number, EPISODES) for number in range(1, EPISODES + 1)]
    made = read_video(tmp_path, "dqn", None)
    assert made is not None
    assert {episode.length for episode in made.episodes} == {20}
    assert made.about == {"policy": "last", "algorithm": "dqn", "data": None, "seed": 0}
    assert read_video(tmp_path, "hyq", HARD) is None
