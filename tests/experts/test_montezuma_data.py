import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.files import file_digest, read_json, write_json
from hyq.data.columns import only_column
from hyq.data.dataset import Dataset
from hyq.data.minari import export_minari
from hyq.envs.montezuma import Montezuma
from hyq.experts.montezuma_data import (
    EXPERT_PERCENT,
    SHIPPED,
    Recording,
    Recordings,
    first,
    load,
    render,
)
from hyq.experts.montezuma_data import SIZE as SHIPPED_SIZE
from recordings.montezuma.record import finish, record_random, recorded_paths, save

SIZE = 60


def small(directory: Path) -> Path:
    """Make recordings of 60 transitions: the beginnings of shipped episodes, and random ones."""
    shipped = Recordings.load()
    expert = [Recording(one.seed, one.actions[:40]) for one in shipped.expert[:2]]
    made = finish(expert, list(record_random(30, 1)), {"size": SIZE, "seed": 1})
    save(made, recorded_paths(), directory)
    return directory


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("montezuma") / "recordings")


def test_rendering_shows_what_the_environment_shows() -> None:
    recording = first(Recordings.load().random, 150)[0]
    (episode,) = render([recording])
    images = only_column(episode.observation)
    env = Montezuma(stack=1)
    observation, info = env.reset(seed=recording.seed)
    for t, action in enumerate(recording.actions):
        np.testing.assert_array_equal(images[t], observation[0])
        lives = info["lives"]
        observation, reward, terminated, _, info = env.step(action)
        assert episode.reward[t] == reward
        assert episode.life_lost is not None
        assert episode.life_lost[t] == (info["lives"] < lives)
    np.testing.assert_array_equal(images[-1], observation[0])
    assert episode.terminated == terminated


def test_a_dataset_has_its_exact_shares(recordings: Path) -> None:
    source = Recordings.load(recordings)
    for kind, expert in zip(EXPERT_PERCENT, (60, 48, 30), strict=True):
        parts = source.dataset(kind)
        seeds = {one.seed for one in source.expert}
        assert sum(len(one.actions) for one in parts) == SIZE
        assert sum(len(one.actions) for one in parts if one.seed in seeds) == expert


def kept(cache: Path) -> list[Path]:
    return [path for path in (cache / "montezuma").iterdir() if path.is_dir()]


def test_load_renders_once_and_then_reads_the_cache(recordings: Path, tmp_path: Path) -> None:
    rendered = load("montezuma/hard", recordings, tmp_path)
    assert isinstance(rendered, Dataset)
    assert len(rendered) == SIZE
    assert not rendered.terminated.any()
    (place,) = kept(tmp_path)
    before = place.stat().st_mtime_ns
    assert load("montezuma/hard", recordings, tmp_path).digest() == rendered.digest()
    assert place.stat().st_mtime_ns == before


def test_of_two_first_users_one_renders_and_the_other_waits(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    render, rendered = Recordings.render, []

    def slowly(*args: Any) -> Dataset:
        rendered.append(args)
        time.sleep(0.3)
        return render(*args)

    monkeypatch.setattr(Recordings, "render", slowly)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(load, "montezuma/hard", recordings, tmp_path) for _ in range(2)]
        first_user, second_user = (one.result(60).digest() for one in both)
    assert first_user == second_user
    assert len(rendered) == 1


def test_data_that_somebody_else_kept_meanwhile_is_taken(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Dataset.save

    def too_late(episodes: Dataset, path: Path) -> None:
        save(episodes, path)
        save(episodes, path)

    monkeypatch.setattr(Dataset, "save", too_late)
    assert len(load("montezuma/hard", recordings, tmp_path)) == SIZE


def test_the_cache_is_where_the_variable_says(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYQ_CACHE", str(tmp_path / "elsewhere"))
    load("montezuma/easy", recordings)
    assert (tmp_path / "elsewhere" / "montezuma").is_dir()


def test_altered_recordings_raise(recordings: Path, tmp_path: Path) -> None:
    file = recordings / "recordings.npz"
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_bytes((recordings / "manifest.json").read_bytes())
    (broken / "recordings.npz").write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(HyqError, match="was altered"):
        Recordings.load(broken)


def test_pictures_that_came_out_different_raise(recordings: Path, tmp_path: Path) -> None:
    source = Recordings.load(recordings)
    changed = source.expert[0].actions.copy()
    changed[3] = 12
    other = [Recording(source.expert[0].seed, changed), *source.expert[1:]]
    manifest = {name: value for name, value in source.manifest.items() if name != "recordings"}
    save(Recordings(other, source.random, manifest), recorded_paths(), tmp_path / "other")
    with pytest.raises(HyqError, match=r"came out different with ale-py 0\.12"):
        load("montezuma/easy", tmp_path / "other", tmp_path / "cache")
    assert kept(tmp_path / "cache") == []


def test_two_processes_make_the_same_bytes(recordings: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from tests.experts.test_montezuma_data import small; "
        f"small(Path({str(tmp_path / 'again')!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in ("recordings.npz", "manifest.json"):
        assert file_digest(tmp_path / "again" / name) == file_digest(recordings / name)


@pytest.mark.parametrize("directory", SHIPPED.values(), ids=list(SHIPPED))
def test_the_shipped_recordings_are_complete(directory: Path) -> None:
    shipped = Recordings.load(directory)
    assert shipped.manifest["size"] == SHIPPED_SIZE
    for kind in EXPERT_PERCENT:
        assert sum(len(one.actions) for one in shipped.dataset(kind)) == SHIPPED_SIZE
    assert sum(file.stat().st_size for file in directory.iterdir()) < 500_000


def test_unknown_names_and_foreign_directories_raise(tmp_path: Path) -> None:
    with pytest.raises(HyqError, match="no dataset 'montezuma/simple'"):
        load("montezuma/simple")
    write_json(tmp_path / "manifest.json", {"format": "other"})
    assert read_json(tmp_path / "manifest.json")
    with pytest.raises(HyqError, match="does not hold"):
        Recordings.load(tmp_path)


def test_too_few_transitions_raise() -> None:
    with pytest.raises(HyqError, match="2 transitions too short"):
        first([Recording(0, np.zeros(3, np.uint8))], 5)


def test_export_to_minari_loses_nothing(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    episodes = Recordings.load(recordings).render("hard")
    images, actions = gym.spaces.Box(0, 255, (84, 84), np.uint8), gym.spaces.Discrete(18)
    exported = export_minari(episodes, "hyq/test-v0", images, actions)
    for one, found in zip(episodes, exported.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(one.observation, found.observations)
        np.testing.assert_array_equal(one.action, found.actions)
        np.testing.assert_array_equal(one.reward, found.rewards)
        np.testing.assert_array_equal(one.life_lost, found.infos["life_lost"][1:])
        assert bool(found.terminations[-1]) == one.terminated
        assert bool(found.truncations[-1]) != one.terminated
    with pytest.raises(HyqError, match="outside Discrete"):
        export_minari(episodes, "hyq/other-v0", images, gym.spaces.Discrete(2, start=1))
    with pytest.raises(HyqError, match="Minari cannot take"):
        export_minari(episodes, "hyq/test-v0", images, actions)
