"""The whole way from nothing to a dataset, for a target that is found in seconds."""

from pathlib import Path

import numpy as np
import pytest

from hyq.core.arrays import save_arrays
from hyq.core.errors import HyqError
from hyq.core.files import file_digest
from hyq.data.dataset import Dataset
from hyq.experts.montezuma_data import Recording, render
from recordings.montezuma import __main__ as command
from recordings.montezuma.planning import Route
from recordings.montezuma.record import record_expert, record_random, recorded_paths
from recordings.montezuma.statistics import conditional_entropy, statistics


def make(out: Path) -> dict[str, str]:
    command.make(out=out, size=40, search_seeds=(0,), target=100, budget=10_000)
    return {file.name: file_digest(file) for file in sorted(out.iterdir())}


def test_data_is_made_from_nothing_and_an_interrupted_making_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(tmp_path / "made")
    assert list(made) == ["manifest.json", "recordings.npz"]
    (episode,) = (tmp_path / "made.recording").glob("expert-*/*.safetensors")

    # As after a kill in the middle of the first episode: the path is kept, the episode is not.
    episode.unlink()
    (tmp_path / "made.recording").rename(tmp_path / "again.recording")
    capsys.readouterr()
    assert make(tmp_path / "again") == made
    assert "seed 0" not in capsys.readouterr().out

    command.render("hard", out=tmp_path / "hard", recordings=tmp_path / "made")
    assert len(Dataset.load(tmp_path / "hard")) == 40
    command.show(recordings=tmp_path / "made")
    assert "lives lost" in capsys.readouterr().out


def test_mistakes_raise_before_anything_is_searched(tmp_path: Path) -> None:
    with pytest.raises(HyqError, match="exists already"):
        command.make(out=tmp_path)
    with pytest.raises(HyqError, match="at least 2"):
        command.make(out=tmp_path / "new", size=1)
    with pytest.raises(HyqError, match="a search seed"):
        command.make(out=tmp_path / "new", target=0)


def test_a_random_game_ends_by_itself_and_loses_every_life() -> None:
    (recording,) = record_random(1, seed=0)
    (episode,) = render([recording])
    assert episode.terminated
    assert episode.life_lost is not None
    assert episode.life_lost.sum() == 6
    found = statistics([recording])
    assert found.lives_lost.tolist() == [6]
    assert found.terminated.tolist() == [True]


def test_a_recording_resumes_where_it_stopped(tmp_path: Path) -> None:
    # A route that ends with its first points makes episodes short enough for a test.
    path = recorded_paths()[0]
    route = Route(type(path)(path.actions[:20], 0))
    route.score = 1
    kept = tmp_path / "00000.safetensors"
    expected = Recording(7, np.array([1, 2, 3], np.uint8))
    numbers = {"seed": np.array(expected.seed), "score": np.array(5)}
    save_arrays(kept, {"actions": expected.actions, **numbers})
    ((found, score),) = record_expert([route], size=3, seed=0, directory=tmp_path)
    assert (found.seed, found.actions.tolist(), score) == (7, [1, 2, 3], 5)


def test_entropy_is_zero_where_the_place_decides() -> None:
    places = [(1, 0, 0), (1, 0, 1)] * 8
    assert conditional_entropy(places, [3, 4] * 8) == pytest.approx(0.0)
    assert conditional_entropy(places, [3, 3, 4, 4] * 4) == pytest.approx(1.0)
