"""The whole way from nothing to a dataset, for a target that is found in seconds."""

from pathlib import Path

import pytest

from hyq.commands.data_make import (
    data_make_montezuma,
    data_render_montezuma,
    data_show_montezuma,
)
from hyq.core.errors import HyqError
from hyq.core.files import file_digest
from hyq.data.dataset import Dataset


def make(out: Path) -> dict[str, str]:
    data_make_montezuma(out=out, size=40, search_seeds=(0,), target=100, budget=10_000)
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

    data_render_montezuma("hard", out=tmp_path / "hard", recordings=tmp_path / "made")
    assert len(Dataset.load(tmp_path / "hard")) == 40
    data_show_montezuma(recordings=tmp_path / "made")
    assert "lives lost" in capsys.readouterr().out


def test_mistakes_raise_before_anything_is_searched(tmp_path: Path) -> None:
    with pytest.raises(HyqError, match="exists already"):
        data_make_montezuma(out=tmp_path)
    with pytest.raises(HyqError, match="at least 2"):
        data_make_montezuma(out=tmp_path / "new", size=1)
    with pytest.raises(HyqError, match="a search seed"):
        data_make_montezuma(out=tmp_path / "new", target=0)
