"""Checks and evaluation: what the subcommands print and the pages they write."""

import re
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from hyq.commands.check import data_check
from hyq.commands.evaluate import evaluate
from hyq.commands.video import PlayIn
from hyq.core.errors import HyqError
from hyq.coverage.check import check_all
from hyq.coverage.policy import save_policy
from hyq.data.dataset import Dataset, Episode
from hyq.envs.combination_lock import LockSpec
from hyq.experts.lock import lock_dataset, optimal_policy
from hyq.report.check import check_panels, ranges_table
from hyq.runs.video import Environment, play
from tests.coverage.test_cells import driving, mixture
from tests.policies import constant_policy
from tests.report.suites import Page


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small lock's data and its optimal policy."""
    root = tmp_path_factory.mktemp("lock")
    spec = LockSpec(horizon=6)
    lock_dataset(spec, "trajectory", 6000).save(root / "data")
    save_policy(root / "policy", optimal_policy(spec))
    return root


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_a_check_prints_a_verdict_and_writes_one_file(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "page.html"
    data_check(str(lock / "data"), policy=lock / "policy", page=page)
    shown = said(capsys)
    assert "The data covers the policy" in shown
    assert "6,000 by step, of 6 steps" in shown
    assert "relative condition number" in shown
    read = Page(page.read_text())
    assert all(link.startswith("data:") for link in read.links)
    for word in ("The data covers", "The theory", "repeated", "provenance: behaviour"):
        assert word in read.text
    assert page.read_text().index('class="chart"') < page.read_text().index("<details>")


def test_datasets_by_step_are_ranked_for_a_policy(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock_dataset(LockSpec(horizon=6), "occupancy", 6000).save(tmp_path / "occupancy")
    names = [str(tmp_path / "occupancy"), str(lock / "data")]
    data_check(*names, policy=lock / "policy", page=tmp_path / "page.html")
    assert f"first:{names[1]},then{names[0]}." in said(capsys).replace(" ", "")
    assert "<h2>" + names[1] + "</h2>" in (tmp_path / "page.html").read_text()


def test_episodes_are_ranked_by_their_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, share in (("poor", 0.3), ("rich", 0.9)):
        mixture(share, seed=1).save(tmp_path / name)
    names = [str(tmp_path / "poor"), str(tmp_path / "rich")]
    page = tmp_path / "page.html"
    data_check(*names, page=page)
    shown = said(capsys)
    assert f"first:{names[1]},then{names[0]}." in shown.replace(" ", "")
    assert re.search(
        r"Good data: a policy about as good as their \d+ best episodes \(mean return 10, of ", shown
    )
    read = Page(page.read_text())
    for word in ("Good data", "C_pi", "4,000 in 100 episodes", "docs/notes/checking_data.md"):
        assert word in read.text


def test_data_is_compared_with_the_live_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    data_check("mountaincar/half", env="MountainCar-v0", page=page)
    shown = said(capsys)
    assert "Good data: a policy about as good as its best tenth of episodes" in shown
    assert "Try: hyq train --env MountainCar-v0 --data mountaincar/half --out runs/half" in shown
    assert "MountainCar-v0 agrees with the data in 800 live steps" in shown
    assert "20,037 in 134 episodes" in shown
    data_check("mountaincar/half", env="CartPole-v1", page=page)
    shown = said(capsys)
    assert "Not ready: one thing below" in shown
    assert "error the dataset's observation has shape (2,), the environment's (4,)" in shown


def test_a_deep_policy_is_compared_with_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    car = gym.make("MountainCar-v0").observation_space
    for name, action in (("left", 0), ("right", 2)):
        pushes = constant_policy(action, car, 3)
        episodes = play(pushes, Environment("MountainCar-v0"), 20, seed=1)
        Dataset.of([episode for _, episode in episodes], {}).save(tmp_path / name)
        pushes.save(tmp_path / f"{name}-policy")
    policy, page = tmp_path / "left-policy", tmp_path / "page.html"
    data_check(str(tmp_path / "left"), policy=policy, env="MountainCar-v0", episodes=20, page=page)
    shown = said(capsys)
    assert re.search(r"The data covers the policy \S+ well. When played it returns -200", shown)
    assert re.search(r"hyq evaluate \S+left-policy --data \S+left ", shown)
    found = re.search(r"C_pi [0-9.]+ \((.+?) to (.+?)\)", shown)
    assert found, shown
    assert 1 <= float(found[1]) <= float(found[2]) < 1.5, "the data is the policy's own"
    data_check(str(tmp_path / "right"), policy=policy, env="MountainCar-v0", page=page)
    assert "Cannot tell from this data the return of the policy" in said(capsys)
    for wrong, says in (
        ({"env": "CartPole-v1"}, "was trained on observations"),
        ({"env": "MountainCar-v0", "episodes": 2}, "at least 3"),
    ):
        with pytest.raises(HyqError, match=says):
            data_check("mountaincar/half", policy=policy, page=page, **wrong)


def test_what_is_evaluated_from_data_is_what_a_check_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyq.commands.evaluate.UPDATES", 2)
    car = gym.make("MountainCar-v0").observation_space
    constant_policy(0, car, 3).save(tmp_path / "policy")
    given = {"policy": tmp_path / "policy", "env": "MountainCar-v0", "episodes": 3}
    data_check("mountaincar/half", page=tmp_path / "page.html", **given)  # type: ignore[arg-type]
    checked = said(capsys)
    evaluate(tmp_path / "policy", PlayIn(), data=Path("mountaincar/half"), replicates=2)
    evaluated = said(capsys)
    for share in (r"acts as logged ([0-9.]+)%", r"stays where data is ([0-9.]+)%"):
        one, other = re.search(share, checked), re.search(share, evaluated)
        assert one is not None
        assert other is not None
        assert one[1] == other[1]
    assert "Cannot tell from this data" in checked
    assert "cannot tell from this data" in evaluated
    assert "interval" not in evaluated


def test_figures_of_all_kinds_of_data() -> None:
    def panels(data: Dataset) -> int:
        (found,) = check_all({"data": data}, bounds={"parity[0]": (0.0, 1.0)})
        drawn, ranges = check_panels(found), ranges_table(found)
        assert all(panel.curves for panel in drawn)
        return len(drawn) + (ranges is not None)

    vectors = driving(1, 0.5)
    images = [replace(e, observation=np.zeros((21, 84, 84), np.uint8)) for e in vectors]
    assert panels(vectors) == 5
    assert panels(Dataset.of(images, {})) == 4
    assert panels(lock_dataset(LockSpec(horizon=2), "occupancy", 100)) == 3
    assert (
        panels(Dataset.of([Episode(np.zeros(2), np.zeros(1, int), np.ones(1), True)] * 2, {})) > 0
    )


@pytest.mark.parametrize(
    ("names", "given", "says"),
    [
        ([], {}, "at least one"),
        (["nowhere"], {}, "no dataset 'nowhere'"),
        (["mountaincar/half", "mountaincar/half"], {}, "once"),
        (["mountaincar/half"], {"policy": Path("nowhere")}, "holds no policy"),
        (["mountaincar/half"], {"episodes": 5}, "without --policy"),
        (["mountaincar/half", "{lock}/data"], {}, "one shape"),
        (["{lock}/data"], {"env": "no/Env-v0"}, "no/Env-v0"),
    ],
)
def test_checks_that_make_no_sense(
    names: list[str], given: dict[str, object], says: str, lock: Path, tmp_path: Path
) -> None:
    named = [name.format(lock=lock) for name in names]
    with pytest.raises(HyqError, match=says):
        data_check(*named, page=tmp_path / "page.html", **given)  # type: ignore[arg-type]


def test_evaluate_prints_an_interval(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(lock / "policy", PlayIn(), data=lock / "data", replicates=5)
    shown = said(capsys)
    assert "95% interval" in shown
    assert "estimated return 1 95%" in shown
    assert "cannot tell" not in shown
    with pytest.raises(HyqError, match="no dataset"):
        evaluate(lock / "policy", PlayIn(), data=lock / "nothing")
