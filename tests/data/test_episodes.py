"""Logged episodes: whole, checked, and the same after a journey over the disk."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyq
from hyq.core.errors import HyqError
from hyq.data.dataset import Dataset
from hyq.data.episodes import Episode, Episodes
from hyq.data.frames import PackedFrames
from hyq.data.logs import load_logs

LENGTHS = (3, 1, 5)


def logged(pixels: bool) -> list[Episode]:
    rng = np.random.default_rng(0)
    shape, dtype = ((84, 84), np.uint8) if pixels else ((4,), np.float32)
    return [
        Episode(
            (rng.integers(0, 9, (steps + 1, *shape)) // 8).astype(dtype),
            rng.integers(0, 18, steps),
            rng.normal(size=steps).astype(np.float32),
            terminated=steps != 3,
            life_lost=None if steps == 1 else rng.random(steps) < 0.5,
        )
        for steps in LENGTHS
    ]


def columns(pixels: bool = False) -> dict[str, Any]:
    """Return the columns of valid episodes, uncompressed and open for changes."""
    episodes = logged(pixels)
    lost = [np.zeros(1, bool) if e.life_lost is None else e.life_lost for e in episodes]
    return {
        "observation": np.concatenate([e.observation for e in episodes]),
        "action": np.concatenate([e.action for e in episodes]),
        "reward": np.concatenate([e.reward for e in episodes]),
        "life_lost": np.concatenate(lost),
        "length": np.array(LENGTHS),
        "terminated": np.array([e.terminated for e in episodes]),
        "provenance": {"environment": "toy"},
    }


@pytest.mark.parametrize("pixels", [False, True])
def test_episodes_come_back_one_by_one(pixels: bool) -> None:
    together = Episodes.of(iter(logged(pixels)), {})
    assert len(together) == sum(LENGTHS)
    for found, wanted in zip(together, logged(pixels), strict=True):
        np.testing.assert_array_equal(found.observation, wanted.observation)
        np.testing.assert_array_equal(found.action, wanted.action)
        np.testing.assert_array_equal(found.reward, wanted.reward)
        assert found.life_lost is not None
        lost = np.zeros(1, bool) if wanted.life_lost is None else wanted.life_lost
        np.testing.assert_array_equal(found.life_lost, lost)
        assert found.terminated == wanted.terminated


@pytest.mark.parametrize("pixels", [False, True])
def test_saved_and_loaded_is_the_same_to_the_bit(tmp_path: Path, pixels: bool) -> None:
    episodes = Episodes(**columns(pixels))
    episodes.save(tmp_path / "e")
    loaded = Episodes.load(tmp_path / "e")
    assert isinstance(loaded.observation, PackedFrames) == pixels
    assert loaded.digest() == episodes.digest() == Episodes.of(logged(pixels), {}).digest()
    assert loaded.provenance == {"environment": "toy"}
    loaded.save(tmp_path / "again")
    assert Episodes.load(tmp_path / "again").digest() == episodes.digest()
    with pytest.raises(HyqError, match="exists already"):
        loaded.save(tmp_path / "e")


@pytest.mark.parametrize("pixels", [False, True])
def test_a_path_may_be_text(tmp_path: Path, pixels: bool) -> None:
    episodes = Episodes(**columns(pixels))
    episodes.save(f"{tmp_path}/e/")
    assert Episodes.load(f"{tmp_path}/e/").digest() == episodes.digest()
    assert load_logs(f"{tmp_path}/e/").digest() == episodes.digest()


def test_images_are_small_on_disk(tmp_path: Path) -> None:
    Episodes(**columns(pixels=True)).save(tmp_path / "e")
    size = sum(file.stat().st_size for file in (tmp_path / "e").iterdir())
    assert size < columns(pixels=True)["observation"].nbytes / 4


@pytest.mark.parametrize("pixels", [False, True])
def test_the_digest_tells_every_change(pixels: bool) -> None:
    before = Episodes(**columns(pixels)).digest()
    for name in ("observation", "action", "reward", "life_lost", "terminated"):
        changed = columns(pixels)
        changed[name][-1] = 1 - changed[name][-1]
        assert Episodes(**changed).digest() != before, name


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("length", np.array([3, 1, 6]), "'observation' has 12 rows where the lengths say 13"),
        ("length", np.array([3, 0, 6]), "each must have a transition"),
        ("length", np.array([], int), "there must be an episode"),
        ("action", np.zeros(9), r"actions must be integers.*\.astype\(int\)"),
        ("action", np.zeros(9, bool), r"actions must be integers.*\.astype\(int\)"),
        ("action", np.zeros((9, 1), int), r"'action' must be a vector.*\.ravel\(\)"),
        ("action", np.zeros((9, 2), int), "'action' must be a vector"),
        ("reward", np.full(9, np.nan), "'reward' has NaN"),
        ("reward", np.zeros(8), "'reward' has 8 rows"),
        ("observation", np.full((12, 4), np.inf), "'observation' has NaN or infinite"),
        ("life_lost", np.zeros(9, int), "'life_lost' must hold truth values"),
        ("terminated", np.zeros(3), "'terminated' must hold truth values"),
        ("terminated", np.zeros(2, bool), "'terminated' has 2 rows"),
    ],
)
def test_malformed_episodes_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(HyqError, match=message):
        Episodes(**columns() | {name: value})


def test_they_are_shown_in_one_line_and_can_be_compared() -> None:
    one, other = (Episodes(**columns(False)) for _ in range(2))
    assert repr(one) == "Episodes(3 episodes, 9 transitions, observations (4,) float32)"
    assert repr(next(iter(one))).startswith("Episode(3 transitions, ")
    assert one != other
    assert next(iter(one)) != next(iter(other))


def test_an_episode_whose_columns_disagree_is_refused() -> None:
    whole = logged(pixels=False)[0]
    for wrong in (
        {"observation": whole.observation[1:]},
        {"reward": whole.reward[1:]},
        {"life_lost": np.zeros(2, bool)},
        {"observation": whole.observation[:1], "action": whole.action[:0]},
    ):
        with pytest.raises(HyqError, match="one more observation"):
            dataclasses.replace(whole, **wrong)


def test_episodes_of_different_shapes_or_none_at_all_are_refused() -> None:
    first, second, _ = logged(pixels=True)
    narrow = dataclasses.replace(second, observation=second.observation[:, :, :42])
    with pytest.raises(HyqError, match="one shape and type"):
        Episodes.of([first, narrow], {})
    with pytest.raises(HyqError, match="no episodes"):
        Episodes.of([], {})


def test_nothing_can_be_written_into_logged_episodes() -> None:
    episodes = Episodes(**columns())
    with pytest.raises(ValueError, match="read-only"):
        next(iter(episodes)).reward[0] = 9.0


@pytest.mark.parametrize("name", ["blob", "size", "shape", "reward"])
def test_an_altered_or_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    Episodes(**columns(pixels=True)).save(tmp_path / "e")
    file = tmp_path / "e" / f"{name}.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(HyqError, match=rf"{name}\.npy was altered"):
        Episodes.load(tmp_path / "e")
    file.unlink()
    with pytest.raises(HyqError, match=rf"{name}\.npy is missing"):
        Episodes.load(tmp_path / "e")


def test_the_two_kinds_of_logs_are_not_confused(tmp_path: Path) -> None:
    Episodes(**columns()).save(tmp_path / "e")
    with pytest.raises(HyqError, match=r"not a hyq-dataset-1 .* hyq\.Episodes\.load.*load_logs"):
        Dataset.load(tmp_path / "e")
    rows = Dataset.from_arrays(np.zeros((2, 1)), [0, 0], [0, 0], np.zeros((2, 1)), [0, 0])  # type: ignore[arg-type]
    rows.save(tmp_path / "d")
    with pytest.raises(HyqError, match=r"not a hyq-episodes-1 .* hyq\.Dataset\.load.*load_logs"):
        Episodes.load(tmp_path / "d")
    assert hyq.load_logs(tmp_path / "d").digest() == rows.digest()


def arrays(**changes: Any) -> dict[str, Any]:
    """Return rows of an episode of three steps and one of two, which was cut off."""
    seen = np.arange(5.0)[:, None] + np.array([0, 0, 0, 9, 9])[:, None]
    return {
        "observation": seen,
        "action": np.array([0, 1, 0, 1, 1]),
        "reward": np.arange(5.0),
        "next_observation": seen + 1,
        "terminated": np.array([0.0, 0.0, 1.0, 0.0, 0.0]),
        "truncated": np.zeros(5),
    } | changes


def test_rows_in_the_order_of_time_are_cut_into_episodes() -> None:
    first, second = Episodes.from_arrays(**arrays())
    np.testing.assert_array_equal(first.observation[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(second.observation[:, 0], [12, 13, 14])
    assert (first.terminated, second.terminated) == (True, False)


def test_rows_that_do_not_say_where_they_led_do_not_leak_across_a_cut() -> None:
    ends = {
        "terminated": np.array([0, 0, 1, 0, 0, 0, 0, 0]),
        "truncated": np.eye(8)[4] + np.eye(8)[5],
    }
    columns: dict[str, Any] = {name: np.arange(8) for name in ("action", "reward")}
    seen = np.array([0, 1, 2, 10, 11, 20, 30, 31])[:, None]
    episodes = list(Episodes.from_arrays(seen, **columns, next_observation=None, **ends))
    found = [(e.observation[:, 0].tolist(), e.action.tolist(), e.terminated) for e in episodes]
    assert found == [
        ([0, 1, 2, 2], [0, 1, 2], True),
        ([10, 11], [3], False),
        ([30, 31], [6], False),  # the one before was cut off after a single row
    ]
    with pytest.raises(HyqError, match="there are no episodes"):
        Episodes.from_arrays(
            seen, **columns, next_observation=None, terminated=np.zeros(8), truncated=np.ones(8)
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terminated": np.zeros(5)}, r"out of order or lack ends .*Dataset\.from_arrays"),
        ({"observation": arrays()["observation"][::-1]}, "out of order or lack ends"),
        ({"truncated": np.full(5, 2.0)}, "'truncated' must hold truth values"),
        ({"truncated": np.zeros((5, 1))}, "'truncated' must be a vector"),
        ({"truncated": np.zeros(4)}, "'truncated' has 4 rows"),
        ({"reward": np.zeros((5, 1))}, "'reward' must be a vector"),
        ({"reward": np.zeros(4)}, "'reward' has 4 rows"),
        ({"next_observation": np.zeros((5, 2))}, r"of shape \(2,\)"),
        ({"next_observation": np.full((5, 1), np.nan)}, "'next_observation' has NaN"),
        ({"reward": np.array([0, 0, 0, np.nan, 0])}, "in 1 of 5 rows, first in row 3"),
    ],
)
def test_rows_that_make_no_episodes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HyqError, match=message) as refused:
        Episodes.from_arrays(**arrays(**changes))
    assert "\n" not in str(refused.value)
