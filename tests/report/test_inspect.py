"""Inspection and evaluation: what the subcommands print and the pages they write."""

import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from hyq.commands.evaluate import evaluate
from hyq.commands.inspect import data_inspect, ranking
from hyq.commands.video import PlayIn
from hyq.core.errors import HyqError
from hyq.coverage.episodes import EpisodesInspection
from hyq.coverage.estimate import Interval
from hyq.coverage.inspect import inspect_dataset
from hyq.coverage.policy import save_policy
from hyq.data.columns import only_column
from hyq.data.dataset import Dataset, Episode
from hyq.envs.combination_lock import LockSpec
from hyq.experts.lock import lock_dataset
from hyq.runs import lock_coverage
from hyq.runs.video import Environment, play
from tests.coverage.test_cells import mixture, roaming
from tests.policies import constant_policy
from tests.report.suites import Page


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small lock's data and its optimal policy."""
    root = tmp_path_factory.mktemp("lock")
    spec = LockSpec(horizon=6)
    lock_dataset(spec, "trajectory", 6000).save(root / "data")
    save_policy(root / "policy", lock_coverage.optimal_policy(spec))
    return root


def test_inspect_prints_a_verdict_and_writes_one_file(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    data_inspect(str(lock / "data"), policy=lock / "policy", features="network", page=page)
    said = " ".join(capsys.readouterr().out.split())
    assert "COVERED" in said
    assert "6,000 in 6 steps" in said
    assert "relative condition number" in said
    read = Page(page.read_text())
    assert all(link.startswith("data:") for link in read.links)
    for word in ("COVERED", "duplicates", "escaping", "provenance: behaviour"):
        assert word in read.text


def test_inspect_without_a_policy(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_inspect(str(lock / "data"), page=tmp_path / "new" / "page.html")
    assert (tmp_path / "new" / "page.html").exists()
    assert "best tenth" in " ".join(capsys.readouterr().out.split())


def test_datasets_by_step_are_ranked_for_a_policy(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock_dataset(LockSpec(horizon=6), "occupancy", 6000).save(tmp_path / "occupancy")
    names = [str(tmp_path / "occupancy"), str(lock / "data")]
    with pytest.raises(HyqError, match="--policy"):
        data_inspect(*names, page=tmp_path / "page.html")
    page = tmp_path / "page.html"
    data_inspect(*names, policy=lock / "policy", features="network", page=page)
    said = "".join(capsys.readouterr().out.split())
    assert f"Easiestfirst:{lock / 'data'},then{tmp_path / 'occupancy'}(C_pitooclosetotell;" in said
    assert (tmp_path / "page-data.html").exists()
    assert (tmp_path / "page-occupancy.html").exists()


CLOSE = " (C_pi too close to tell; fewer next states of {} are unlogged)"


@pytest.mark.parametrize(
    ("escaping", "says"),
    [
        ((0.0, 0.0, 0.0), "a = b = c"),
        # a and b tie, but a leads to states that were not logged
        ((0.9, 0.0, 0.0), f"b, then a{CLOSE.format('b')}, then c"),
        ((0.0, 0.9, 0.0), f"a, then c, then b{CLOSE.format('c')}"),
        # each is easier than the next, and the last than the first
        ((0.9, 0.5, 0.0), f"b, then a{CLOSE.format('b')}, then c"),
    ],
)
def test_a_ranking_does_not_depend_on_the_order_in_which_datasets_are_named(
    lock: Path, escaping: tuple[float, ...], says: str
) -> None:
    found = inspect_dataset(lock / "data", policy=lock / "policy", features="network", episodes=20)
    intervals = (Interval(2, 1, 3), Interval(4, 2.5, 5.5), Interval(6, 5, 7))
    assert found.comparator is not None
    made = [
        replace(
            found,
            path=Path(name),
            comparator=replace(found.comparator, transfer=interval),
            steps=tuple(replace(step, escaping=share) for step in found.steps),
        )
        for name, interval, share in zip("abc", intervals, escaping, strict=True)
    ]
    for order in permutations(made):
        assert ranking(order) == says


def test_episodes_are_ranked_by_their_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, share in (("poor", 0.3), ("rich", 0.9)):
        mixture(share, seed=1).save(tmp_path / name)
    names = [str(tmp_path / "poor"), str(tmp_path / "rich")]
    page = tmp_path / "page.html"
    data_inspect(*names, page=page)
    said = "".join(capsys.readouterr().out.split())
    assert f"Easiestfirst:{tmp_path / 'rich'},then{tmp_path / 'poor'}." in said
    assert "onaverage:eachdatasetiscomparedwiththese." in said
    read = Page(page.read_text())
    assert all(link.startswith("data:") for link in read.links)
    for word in ("WELL COVERED", "C_pi", "4,000 in 100 episodes", "docs/theory.md"):
        assert word in read.text
    assert 'alt="Returns of the episodes, and C_pi"' in page.read_text()


def test_episodes_that_are_there_twice_are_counted_once() -> None:
    logs = mixture(0.5, seed=1)
    said = EpisodesInspection.of({"data": Dataset.of([*logs, *logs], {})}).verdict
    different = len({only_column(episode.observation).tobytes() for episode in logs})
    assert f"best of the {different} different episodes earn" in said[1]


def test_bounds_that_look_the_same_get_more_digits() -> None:
    logs = {name: mixture(share, seed=1) for name, share in (("poor", 0.3), ("rich", 0.9))}
    found = EpisodesInspection.of(logs)
    (step,) = found.comparisons
    close = replace(found, comparisons=[replace(step, factor=Interval(1.7, 1.6962, 1.7041))])
    assert "(1.696 to 1.704)" in close.verdict[-1]
    exact = replace(found, comparisons=[replace(step, factor=Interval(1.7, 1.7, 1.7))])
    assert "(1.7 to 1.7)" in exact.verdict[-1], "no digit tells these apart"


def test_a_smaller_c_pi_that_comes_later_is_explained() -> None:
    """What is visited and not in the data makes C_pi smaller, not the data better."""
    logs = {name: mixture(share, seed=1) for name, share in (("poor", 0.3), ("rich", 0.9))}
    found = EpisodesInspection.of(logs)
    rich, poor = found.coverage
    partly = replace(rich, unseen=0.25)
    said = replace(found, coverage=[poor, partly], comparisons=[]).verdict
    assert said[0] == "Easiest first: poor, then rich."
    assert said[-1] == "rich has a smaller C_pi, but it leaves out 25% of the visits."
    known = [replace(poor, untried=0.4), replace(rich, untried=0.7)]
    said = replace(found, coverage=known, comparisons=[]).verdict
    assert "70% of what could be done" in said[-1]
    assert "and 40% in poor: what is worse there, online steps must find out." in said[-1]


def test_episodes_that_never_meet_are_not_called_covered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        roaming(seed).save(tmp_path / str(seed))
    data_inspect(str(tmp_path / "1"), str(tmp_path / "2"), page=tmp_path / "new" / "page.html")
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("UNKNOWN. The best episodes hardly meet:") == 2
    for wrong in ("WELL COVERED", "nan", "Easiest first"):
        assert wrong not in said
    page = (tmp_path / "new" / "page.html").read_text()
    assert 'alt="Returns of the episodes"' in page, "there is no C_pi to draw"


def test_episodes_that_are_seen_in_part_are_graded_in_part() -> None:
    """Every fifth observation lies somewhere in eight dimensions where no other does."""
    whole = mixture(0.5, seed=1)
    rng = np.random.default_rng(0)
    alone = np.array(whole.observation)
    alone[::5] = rng.random((len(alone[::5]), 8))
    logs = {"data": replace(whole, observation=alone)}
    said = " ".join(EpisodesInspection.of(logs).verdict)
    assert "COVERED IN PART" in said
    assert "leaves them out" in said
    assert "WELL COVERED" not in said


def test_episodes_are_compared_with_a_deep_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    car = gym.make("MountainCar-v0").observation_space
    pushing = {name: constant_policy(a, car, 3) for name, a in (("left", 0), ("right", 2))}
    for name, pushes in pushing.items():
        played = play(pushes, Environment("MountainCar-v0"), 20, seed=1)
        Dataset.of([episode for _, episode in played], {}).save(tmp_path / name)
    pushing["left"].save(tmp_path / "policy")
    policy, page = tmp_path / "policy", tmp_path / "page.html"
    names = [str(tmp_path / "right"), str(tmp_path / "left")]
    data_inspect(*names, policy=policy, env="MountainCar-v0", episodes=20, page=page)
    said = "".join(capsys.readouterr().out.split())
    assert "In20episodesofitsownthepolicy" in said
    assert "earns-200onaverage" in said
    found = re.search(
        re.escape(names[1]) + r":WELLCOVERED.C_piisabout[0-9.]+\((.+?)to(.+?)\)", said
    )
    assert found, said
    assert float(found[1]) <= 1 <= float(found[2]), "the data is the policy's own"
    assert re.search(re.escape(names[0]) + r":NOTCOVERED.9[0-9]%ofthepolicy'svisitsarenot", said)
    assert "of the policy" in Page(page.read_text()).text
    for wrong, says in (
        ({"env": "CartPole-v1"}, "was trained on observations"),
        ({"env": "MountainCar-v0", "episodes": 2}, "at least 3"),
        ({"env": "MountainCar-v0", "features": "fourier"}, "by cells"),
    ):
        with pytest.raises(HyqError, match=says):
            data_inspect(names[0], policy=policy, page=page, **wrong)


def test_a_time_limit_that_was_logged_as_an_end_is_called_out() -> None:
    lengths = [50] * 5 + [12, 17]
    parts = [
        Episode(np.zeros((n + 1, 2), np.float32), np.zeros(n, int), np.zeros(n), True)
        for n in lengths
    ]
    (finding,) = EpisodesInspection.of({"data": Dataset.of(parts, {})}).findings
    assert "71% of the episodes are marked as terminated after exactly 50 steps" in finding.text
    right = [replace(part, terminated=len(part.action) < 50) for part in parts]
    assert EpisodesInspection.of({"data": Dataset.of(right, {})}).findings == []


def test_a_named_dataset_is_inspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_inspect("mountaincar/half", page=tmp_path / "page.html")
    said = " ".join(capsys.readouterr().out.split())
    assert "20,037 in 134 episodes" in said
    assert "mountaincar/half: WELL COVERED" in said


@pytest.mark.parametrize(
    ("names", "policy", "says"),
    [
        ([], None, "at least one"),
        (["nowhere"], None, "no dataset 'nowhere'"),
        (["nowhere"], Path("policy"), "no dataset 'nowhere'"),
        (["mountaincar/half", "mountaincar/half"], None, "once"),
        (["mountaincar/half"], Path("policy"), "no deep policy"),
        (["mountaincar/half", "{lock}/data"], None, "cannot be compared"),
    ],
)
def test_inspections_that_make_no_sense(
    names: list[str], policy: Path | None, says: str, lock: Path, tmp_path: Path
) -> None:
    given = [name.format(lock=lock) for name in names]
    with pytest.raises(HyqError, match=says):
        data_inspect(*given, policy=policy, page=tmp_path / "page.html")


def test_evaluate_prints_an_interval(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(lock / "policy", PlayIn(), data=lock / "data", features="network", replicates=5)
    said = " ".join(capsys.readouterr().out.split())
    assert "95% interval" in said
    assert "estimated return 1 95%" in said
    assert "not supported" not in said
    with pytest.raises(HyqError, match="no dataset"):
        evaluate(lock / "policy", PlayIn(), data=lock / "nothing")
