"""Data of robot arms and mazes: reproducible to the bit, with its spaces, of the shares it says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hyq.cli import main
from hyq.data.dataset import Dataset
from hyq.data.fits import check_fits
from hyq.envs.spaces import space_from_json
from hyq.experts.control import next_cell
from hyq.experts.scripted import PROBLEMS, scripted_dataset
from tests.envs.test_control import CONTROL, made

LIGHT = [name for name in CONTROL if name != "ogbench-scene"]
"""Of OGBench one: its model is compiled for seconds whenever data is made."""


@pytest.mark.parametrize("name", LIGHT)
def test_data_is_the_same_every_time_and_fits_its_environment(name: str) -> None:
    data = scripted_dataset(name, 0.5, 0, transitions=160)
    assert data.digest() == scripted_dataset(name, 0.5, 0, transitions=160).digest()
    env = made(name)
    check_fits(data, env.observation_space, env.action_space)
    assert space_from_json(data.provenance["observation_space"]) == env.observation_space
    assert space_from_json(data.provenance["action_space"]) == env.action_space
    assert env.spec is not None
    assert data.provenance["max_episode_steps"] == env.spec.max_episode_steps
    np.testing.assert_array_equal(data.returns(), -(data.length - data.terminated))
    # Experts come first and mostly succeed; random play fills the second half.
    assert data.terminated[:3].any()
    assert not data.terminated[-1]


def test_another_seed_gives_other_data_and_noise_more_than_one_path() -> None:
    one, other = (scripted_dataset("pointmaze-umaze", 0.0, seed, 200) for seed in (0, 1))
    assert one.digest() != other.digest()
    actions = [episode.action for episode in one]
    assert len(actions) > 1
    assert np.abs(actions[0][:20] - actions[1][:20]).mean() > 0.1


def test_the_command_makes_a_dataset_and_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(PROBLEMS["pointmaze-umaze"], transitions=300)
    monkeypatch.setitem(PROBLEMS, "pointmaze-umaze", short)
    out = tmp_path / "maze"
    assert main(["data", "make", "pointmaze-umaze/random80", "--out", str(out), "--seed", "3"]) == 0
    data = Dataset.load(out)
    assert data.digest() == scripted_dataset("pointmaze-umaze", 0.8, 3).digest()
    shown = capsys.readouterr().out
    assert data.digest()[:40] in shown  # the rest is on the next line
    assert "Box(-1.0, 1.0, (2,), float32)" in shown
    assert main(["data", "make", "pointmaze-umaze/best", "--out", str(tmp_path / "x")]) == 2
    assert "a quality of expert, random20, half, random80" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("here", "goal", "expected"),
    [
        ((1, 1), (3, 1), (1, 2)),  # along the arm of the U, away from the goal below
        ((1, 3), (3, 1), (2, 3)),
        ((3, 2), (3, 1), (3, 1)),
    ],
)
def test_the_way_through_the_u_maze(
    here: tuple[int, int], goal: tuple[int, int], expected: tuple[int, int]
) -> None:
    cells = [[1, 1, 1, 1, 1], [1, 0, 0, 0, 1], [1, 1, 1, 0, 1], [1, 0, 0, 0, 1], [1, 1, 1, 1, 1]]
    assert next_cell(cells, here, goal) == expected
