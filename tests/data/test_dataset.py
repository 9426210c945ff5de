"""Offline data: checked, immutable, whole after a journey over the disk, and sorted by step."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import hyq
from hyq.core.errors import HyqError
from hyq.core.files import file_digest, write_json
from hyq.core.types import Array, Transitions
from hyq.data.columns import named
from hyq.data.dataset import Dataset, Episode
from hyq.data.fits import check_fits, same_provenance
from hyq.data.frames import PackedFrames

LENGTHS = (3, 1, 5)
KINDS = ("vectors", "images", "dictionary")
PROVENANCE = {"environment": "toy", "parameters": {"horizon": 3, "noise": 0.5}}


def observations(kind: str, count: int, rng: np.random.Generator) -> Any:
    vectors = rng.normal(size=(count, 4)).astype(np.float32)
    images = (rng.integers(0, 9, (count, 84, 84)) // 8).astype(np.uint8)
    both = {"position": vectors, "../camera": images}  # which is no name of a file
    return {"vectors": vectors, "images": images, "dictionary": both}[kind]


def episodes(kind: str = "vectors") -> list[Episode]:
    rng = np.random.default_rng(0)
    return [
        Episode(
            observations(kind, steps + 1, rng),
            rng.integers(0, 18, steps),
            rng.normal(size=steps).astype(np.float32),
            terminated=steps != 3,
            life_lost=None if steps == 1 else rng.random(steps) < 0.5,
            timestep=int(steps == 5),
        )
        for steps in LENGTHS
    ]


def columns(kind: str = "vectors") -> dict[str, Any]:
    """Return the columns of valid data, uncompressed and open for changes."""
    parts = episodes(kind)
    lost = [np.zeros(1, bool) if e.life_lost is None else e.life_lost for e in parts]
    seen: Any = [e.observation for e in parts]
    together = (
        {key: np.concatenate([one[key] for one in seen]) for key in seen[0]}
        if kind == "dictionary"
        else np.concatenate(seen)
    )
    return {
        "observation": together,
        "action": np.concatenate([e.action for e in parts]),
        "reward": np.concatenate([e.reward for e in parts]),
        "life_lost": np.concatenate(lost),
        "length": np.array(LENGTHS),
        "terminated": np.array([e.terminated for e in parts]),
        "timestep": np.array([e.timestep for e in parts]),
        "provenance": PROVENANCE,
    }


def assert_same(found: Any, wanted: Any) -> None:
    """Compare observations, which may be dictionaries."""
    left, right = named("", found), named("", wanted)
    assert left.keys() == dict(sorted(right.items())).keys()
    for key in left:
        np.testing.assert_array_equal(left[key], right[key])


# Episodes, there and back


@pytest.mark.parametrize("kind", KINDS)
def test_episodes_come_back_one_by_one(kind: str) -> None:
    together = Dataset.of(iter(episodes(kind)), {})
    assert (len(together), together.num_episodes, together.num_observations) == (9, 3, 12)
    for found, wanted in zip(together, episodes(kind), strict=True):
        assert_same(found.observation, wanted.observation)
        np.testing.assert_array_equal(found.action, wanted.action)
        np.testing.assert_array_equal(found.reward, wanted.reward)
        assert found.life_lost is not None
        lost = np.zeros(1, bool) if wanted.life_lost is None else wanted.life_lost
        np.testing.assert_array_equal(found.life_lost, lost)
        assert (found.terminated, found.timestep) == (wanted.terminated, wanted.timestep)
    totals = [episode.reward.astype(float).sum() for episode in episodes(kind)]
    np.testing.assert_allclose(together.returns(), totals)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same_to_the_bit(tmp_path: Path, kind: str) -> None:
    dataset = Dataset(**columns(kind))
    dataset.save(tmp_path / "d")
    loaded = Dataset.load(f"{tmp_path}/d/")
    for column in named("", loaded.observation).values():
        image = column.dtype == np.uint8
        assert isinstance(column, PackedFrames if image else np.memmap)
    assert loaded.digest() == dataset.digest() == Dataset.of(episodes(kind), {}).digest()
    assert loaded.provenance == PROVENANCE
    assert_same(next(iter(loaded)).observation, episodes(kind)[0].observation)
    loaded.save(tmp_path / "again")
    assert hyq.load(tmp_path / "again").digest() == dataset.digest()
    with pytest.raises(HyqError, match="exists already"):
        loaded.save(tmp_path / "d")


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    one, other = columns("dictionary"), columns("dictionary")
    other["observation"] = dict(reversed(other["observation"].items()))
    assert Dataset(**one).digest() == Dataset(**other).digest()


def test_images_are_small_on_disk(tmp_path: Path) -> None:
    Dataset(**columns("images")).save(tmp_path / "d")
    size = sum(file.stat().st_size for file in (tmp_path / "d").iterdir())
    assert size < columns("images")["observation"].nbytes / 4


@pytest.mark.parametrize("kind", KINDS)
def test_the_digest_tells_every_change(kind: str) -> None:
    before = Dataset(**columns(kind)).digest()
    for name in ("observation", "action", "reward", "life_lost", "terminated", "timestep"):
        changed = columns(kind)
        for column in named("", changed[name]).values():
            column[-1] = 1 - column[-1]  # type: ignore[index]
            break
        assert Dataset(**changed).digest() != before, name


def test_they_are_shown_in_one_line_and_can_be_compared() -> None:
    one, other = (Dataset(**columns()) for _ in range(2))
    assert repr(one) == (
        "Dataset(9 transitions, 3 episodes, observations (4,) float32, actions () int64)"
    )
    assert repr(next(iter(one))).startswith("Episode(3 transitions, truncated, ")
    both = repr(Dataset(**columns("dictionary")))
    assert "observations {../camera: (84, 84) uint8, position: (4,) float32}" in both
    assert one != other
    assert next(iter(one)) != next(iter(other))


def test_nothing_can_be_written_into_a_dataset() -> None:
    dataset = Dataset(**columns())
    with pytest.raises(ValueError, match="read-only"):
        next(iter(dataset)).reward[0] = 9.0
    with pytest.raises(ValueError, match="read-only"):
        dataset.by_step().at(0).reward[0] = 9.0


# What cannot be used


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("length", np.array([3, 1, 6]), "'observation' has 12 rows where the lengths say 13"),
        ("length", np.array([3, 0, 6]), "each with a transition"),
        ("length", np.array([], int), "empty"),
        ("action", np.zeros(9, bool), r"truth values: .*\.astype\(int\)"),
        ("reward", np.full(9, np.nan), "'reward' has NaN"),
        ("reward", np.zeros(8), "'reward' has 8 rows"),
        ("reward", np.zeros((9, 1)), r"'reward' must be a vector.*\.ravel\(\)"),
        ("observation", np.full((12, 4), np.inf), "'observation' has NaN or infinite"),
        ("observation", {"a": np.zeros(12), "b": np.zeros(3)}, "\"observation\\['b'\\]\" has 3"),
        ("life_lost", np.zeros(9, int), "'life_lost' must hold truth values"),
        ("terminated", np.zeros(3), "'terminated' must hold truth values"),
        ("terminated", np.zeros(2, bool), "'terminated' has 2 rows"),
        ("timestep", np.array([0, -1, 0]), "'timestep' must hold whole numbers"),
        ("timestep", np.zeros(3), "'timestep' must hold whole numbers"),
    ],
)
def test_malformed_data_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(HyqError, match=message):
        Dataset(**columns() | {name: value})


def test_an_episode_whose_columns_disagree_is_refused() -> None:
    whole = episodes()[0]
    seen: Any = whole.observation
    for wrong in (
        {"observation": seen[1:]},
        {"observation": {"a": seen, "b": seen[1:]}},
        {"reward": whole.reward[1:]},
        {"life_lost": np.zeros(2, bool)},
        {"observation": seen[:1], "action": whole.action[:0]},
    ):
        with pytest.raises(HyqError, match="one more observation"):
            dataclasses.replace(whole, **wrong)


def test_episodes_of_different_shapes_or_none_at_all_are_refused() -> None:
    first, second, _ = episodes("images")
    seen: Any = second.observation
    for narrow in (seen[:, :, :42], {"a": seen}):
        with pytest.raises(HyqError, match="one shape and type"):
            Dataset.of([first, dataclasses.replace(second, observation=narrow)], {})
    with pytest.raises(HyqError, match="one shape and type"):
        Dataset.of([first, dataclasses.replace(second, action=np.zeros((1, 2)))], {})
    with pytest.raises(HyqError, match="no episodes"):
        Dataset.of([], {})


@pytest.mark.parametrize(
    "name",
    ["observation-0.blob", "observation-0.size", "observation-0.shape", "observation-1", "reward"],
)
def test_an_altered_or_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    Dataset(**columns("dictionary")).save(tmp_path / "d")
    file = tmp_path / "d" / f"{name}.npy"
    content = file.read_bytes()
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        file.write_bytes(damaged)
        with pytest.raises(HyqError, match=rf"{name}\.npy was altered or cut short"):
            Dataset.load(tmp_path / "d")
    file.unlink()
    with pytest.raises(HyqError, match=rf"{name}\.npy is missing"):
        Dataset.load(tmp_path / "d")


def test_what_is_not_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HyqError, match="not a dataset directory"):
        Dataset.load(tmp_path / "nowhere")
    with pytest.raises(HyqError, match=r"holds no dataset: .*from_arrays"):
        Dataset.load(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(HyqError, match="not a hyq-dataset-2 dataset but other"):
        Dataset.load(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "hyq-dataset-2"}))
    with pytest.raises(HyqError, match="damaged: it has no 'sha256'"):
        Dataset.load(tmp_path)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    Dataset(**columns()).save(tmp_path / "d")
    np.save(tmp_path / "d" / "reward.npy", np.array([{"a": 1}] * 9, dtype=object))
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text())
    manifest["sha256"]["reward"] = file_digest(tmp_path / "d" / "reward.npy")
    write_json(tmp_path / "d" / "manifest.json", manifest)
    with pytest.raises(HyqError, match="not a plain NumPy array"):
        Dataset.load(tmp_path / "d")


# Rows in time order


def ordered(**changes: Any) -> dict[str, Any]:
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


def test_rows_in_time_order_are_cut_into_episodes() -> None:
    first, second = Dataset.from_arrays(**ordered())
    assert_same(first.observation, np.array([0, 1, 2, 3])[:, None])
    assert_same(second.observation, np.array([12, 13, 14])[:, None])
    assert (first.action.tolist(), second.action.tolist()) == ([0, 1, 0], [1, 1])
    assert (first.reward.tolist(), second.reward.tolist()) == ([0, 1, 2], [3, 4])
    assert (first.terminated, second.terminated) == (True, False)


def test_rows_of_dictionaries_in_time_order_are_cut_into_episodes() -> None:
    rows = ordered()
    seen, after = rows["observation"], rows["next_observation"]
    rows |= {"observation": {"a": seen, "b": -seen}, "next_observation": {"b": -after, "a": after}}
    first, second = Dataset.from_arrays(**rows)
    assert_same(first.observation, {"a": np.arange(4)[:, None], "b": -np.arange(4)[:, None]})
    assert_same(
        second.observation, {k: s * np.array([[12], [13], [14]]) for k, s in (("a", 1), ("b", -1))}
    )
    rows["next_observation"]["b"] = -after + np.eye(5)[:, [1]]
    with pytest.raises(HyqError, match="of row 1 is not 'observation' of row 2"):
        Dataset.from_arrays(**rows)


def test_rows_that_do_not_say_where_they_led_do_not_leak_across_a_cut() -> None:
    ends = {
        "terminated": np.array([0, 0, 1, 0, 0, 0, 0, 0]),
        "truncated": np.eye(8)[4] + np.eye(8)[5],
    }
    given: dict[str, Any] = {name: np.arange(8) for name in ("action", "reward")}
    seen = np.array([0, 1, 2, 10, 11, 20, 30, 31])[:, None]
    parts: Any = list(Dataset.from_arrays(seen, **given, next_observation=None, **ends))
    found = [(e.observation[:, 0].tolist(), e.action.tolist(), e.terminated) for e in parts]
    assert found == [
        ([0, 1, 2, 2], [0, 1, 2], True),
        ([10, 11], [3], False),
        ([30, 31], [6], False),  # the one before was cut off after a single row
    ]
    with pytest.raises(HyqError, match="there are no episodes"):
        Dataset.from_arrays(
            seen, **given, next_observation=None, terminated=np.zeros(8), truncated=np.ones(8)
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terminated": np.zeros(5)}, "row 2 is not 'observation' of row 3: .*leave out truncated"),
        ({"observation": ordered()["observation"][::-1]}, "out of order or lack ends"),
        ({"truncated": np.full(5, 2.0)}, "'truncated' must hold truth values"),
        ({"truncated": np.zeros((5, 1))}, "'truncated' must be a vector"),
        ({"truncated": np.zeros(4)}, "'truncated' has 4 rows"),
        ({"reward": np.zeros((5, 1))}, "'reward' must be a vector"),
        ({"reward": np.zeros(4)}, "'reward' has 4 rows"),
        ({"next_observation": np.zeros((5, 2))}, r"of shape \(2,\)"),
        ({"next_observation": {"a": np.zeros((5, 1))}}, r"of shape \{'a': \(1,\)\}"),
        ({"next_observation": np.full((5, 1), np.nan)}, "'next_observation' has NaN"),
        ({"reward": np.array([0, 0, 0, np.nan, 0])}, "in 1 of 5 rows, first in row 3"),
        ({"timestep": np.arange(5)}, "timestep is for rows in any order"),
    ],
)
def test_rows_that_make_no_episodes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HyqError, match=message) as refused:
        Dataset.from_arrays(**ordered(**changes))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_rows_are_refused(seed: int) -> None:
    rows = {name: column for name, column in ordered().items() if name != "next_observation"}
    order = np.random.default_rng(seed).permutation(5)
    while (order == np.arange(5)).all() or (order == [3, 4, 0, 1, 2]).all():
        order = np.roll(order, 1)
    shuffled = {name: column[order] for name, column in rows.items()}
    with pytest.raises(HyqError, match="out of order"):
        Dataset.from_arrays(**shuffled, next_observation=ordered()["next_observation"][order])


# Rows in any order


def unordered(rows: int = 6, **changes: Any) -> dict[str, Any]:
    seen = np.arange(2.0 * rows).reshape(rows, 2)
    return {
        "observation": seen,
        "action": np.arange(rows) % 2,
        "reward": np.linspace(0, 1, rows),
        "next_observation": seen + 100,
        "terminated": np.zeros(rows),
        "timestep": np.arange(rows) % 3,
    } | changes


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_without_order_keeps_its_own_next_observation(kind: str) -> None:
    rng = np.random.default_rng(1)
    rows = 3000  # more than are compressed at a time
    if kind != "vectors":
        rows = 1500
    time = rng.integers(4, size=rows)
    number = np.arange(rows, dtype=np.float32)
    base = np.zeros((rows, 32, 33), np.uint8)
    base[:, 0, 0], base[:, 0, 1] = np.divmod(np.arange(rows), 256)
    after = base.copy()
    after[:, 1, 1] = 7
    seen: Any = {"vectors": number, "images": base}.get(kind, {"a": number, "b": base})
    then: Any = {"vectors": number + 0.5, "images": after}.get(
        kind, {"a": number + 0.5, "b": after}
    )
    ended = rng.random(rows) < 0.3
    made = Dataset.from_arrays(seen, number[:, None], number, then, ended, timestep=time)
    order = np.argsort(time, kind="stable")
    assert (made.num_episodes, made.ordered) == (rows, False)
    np.testing.assert_array_equal(made.timestep, time[order])
    for episode, row in zip(made, order, strict=True):
        pick = {
            key: np.stack([one[row], named("", then)[key][row]])
            for key, one in named("", seen).items()
        }
        for key, column in named("", episode.observation).items():
            np.testing.assert_array_equal(column, pick[key])
        assert (episode.action[0, 0], episode.reward[0]) == (row, row)
        assert episode.terminated == ended[row]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_observation": np.zeros((6, 1))}, r"of shape \(1,\) where those of 'observation'"),
        ({"next_observation": None}, "rows in any order need next_observation"),
        ({"reward": np.zeros((6, 1))}, "'reward' must be a vector"),
        ({"terminated": np.zeros((6, 1))}, "'terminated' must be a vector"),
        ({"timestep": np.zeros((6, 1), int)}, "'timestep' must be a vector"),
        ({"timestep": np.zeros(6)}, "'timestep' must hold whole numbers, got float64"),
        ({"timestep": np.arange(6) - 1}, "'timestep' must hold whole numbers that count from 0"),
        ({"terminated": np.full(6, 0.5)}, "'terminated' must hold truth values"),
        ({"reward": np.zeros(5)}, "'reward' has 5 rows"),
        ({"terminated": np.zeros(7)}, "'terminated' has 7 rows"),
        ({"timestep": None, "action": np.zeros(7, int)}, "'action' has 7 rows"),
        ({"observation": {}}, "at least one key"),
        ({"observation": np.zeros((0, 40, 40), np.uint8)}, "the dataset is empty"),
        ({"action": np.zeros(6, bool)}, r"truth values: .*\.astype\(int\)"),
        ({"action": np.array(["a"] * 6)}, "'action' holds <U1: store plain numbers"),
        (
            {"timestep": np.arange(6)[::-1], "reward": np.array([0, 0, np.nan, 0, np.inf, 0])},
            "in 2 of 6 rows, first in row 2:",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HyqError, match=message) as refused:
        Dataset.from_arrays(**unordered(**changes))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("column", ["observation", "reward", "next_observation"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_a_number_is_refused_by_column_and_row(column: str, value: float) -> None:
    rows = unordered()
    rows[column][4] = value
    message = f"'{column}' has NaN or infinite entries in 1 of 6 rows, first in row 4:"
    with pytest.raises(HyqError, match=message):
        Dataset.from_arrays(**rows)


def test_what_was_given_stays_as_it_is() -> None:
    rows = unordered()
    Dataset.from_arrays(**rows)
    assert all(column.flags.writeable for column in rows.values())


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32])
def test_actions_may_be_numbers_of_any_shape(shape: tuple[int, ...], kind: Any) -> None:
    action = np.random.default_rng(0).normal(size=(6, *shape), scale=9).astype(kind)
    made = Dataset.from_arrays(**unordered(action=action, timestep=np.arange(6)))
    np.testing.assert_array_equal(made.action, action)
    assert made.action.dtype == kind


def test_flags_may_be_numbers() -> None:
    flags = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    made = Dataset.from_arrays(**unordered(terminated=flags, timestep=None))
    np.testing.assert_array_equal(made.by_step().transitions.discount, 1 - flags)


def test_transitions_with_a_discount_in_between_are_refused() -> None:
    zeros = np.zeros(3)
    rows = Transitions(zeros, zeros, zeros, np.array([0, 0.5, 1]), zeros)
    with pytest.raises(HyqError, match="0 where an episode terminated, 1 elsewhere"):
        Dataset.from_transitions(rows, np.zeros(3, int))


# By step


def naive(dataset: Dataset) -> list[tuple[Any, ...]]:
    """List (step, s, a, r, discount, s') by step, rows of one step in the order of the data."""
    rows = []
    for episode in dataset:
        seen: Any = episode.observation
        for t in range(len(episode.action)):
            ends = episode.terminated and t + 1 == len(episode.action)
            row = (seen[t], episode.action[t], episode.reward[t], 0.0 if ends else 1.0, seen[t + 1])
            rows.append((episode.timestep + t, *row))
    return sorted(rows, key=lambda row: row[0])


def random_episodes(seed: int, longest: int, images: bool) -> Dataset:
    rng = np.random.default_rng(seed)

    def one() -> Episode:
        steps = int(rng.integers(1, longest + 1))
        seen = observations("images" if images else "vectors", steps + 1, rng)
        start = int(rng.integers(4))
        ended = rng.random() < 0.5
        return Episode(
            seen, rng.normal(size=(steps, 2)), rng.normal(size=steps), ended, None, start
        )

    return Dataset.of([one() for _ in range(20)], {})


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("longest", [1, 7])
@pytest.mark.parametrize("seed", range(3))
def test_a_view_by_step_is_that_of_a_naive_twin(seed: int, longest: int, images: bool) -> None:
    dataset = random_episodes(seed, longest, images)
    view, wanted = dataset.by_step(), naive(dataset)
    assert (len(view), view.horizon) == (len(wanted), wanted[-1][0] + 1)

    def same(rows: Transitions, twin: list[tuple[Any, ...]]) -> None:
        assert len(rows) == len(twin)
        for i, (_, *parts) in enumerate(twin):
            for column, value in zip(vars(rows).values(), parts, strict=True):
                np.testing.assert_array_equal(column[i], value)

    same(view.transitions, wanted)
    np.testing.assert_array_equal(view.step, [row[0] for row in wanted])
    for h in range(view.horizon + 1):
        same(view.at(h), [row for row in wanted if row[0] == h])
    picked = np.random.default_rng(seed).integers(len(view), size=9)
    same(view.rows(picked), [wanted[i] for i in picked])
    same(view.rows(slice(3, 15, 4)), wanted[3:15:4])


def test_rows_sorted_by_step_are_not_copied(tmp_path: Path) -> None:
    made = Dataset.from_arrays(**unordered())
    made.save(tmp_path / "d")
    for dataset in (made, Dataset.load(tmp_path / "d")):
        view = dataset.by_step()
        assert isinstance(dataset.observation, np.ndarray)
        for rows in (view.transitions, view.at(1)):
            assert np.shares_memory(rows.observation, dataset.observation)
            assert np.shares_memory(rows.next_observation, dataset.observation)
            assert np.shares_memory(rows.reward, dataset.reward)
        np.testing.assert_array_equal(view.at(1).observation, [[2, 3], [8, 9]])
        np.testing.assert_array_equal(view.at(1).next_observation, [[102, 103], [108, 109]])


def test_dictionaries_have_no_view_by_step() -> None:
    with pytest.raises(HyqError, match=r"one array, not \{\.\./camera"):
        Dataset(**columns("dictionary")).by_step()


# Whether it fits


def test_provenance_names_the_parameter_that_differs() -> None:
    dataset = Dataset(**columns())
    same_provenance(dataset, PROVENANCE)
    other = {"environment": "toy", "parameters": {"horizon": 4, "noise": 0.5}}
    with pytest.raises(HyqError, match="its horizon is 3, this one's is 4"):
        same_provenance(dataset, other)


def acting(action: Array) -> Dataset:
    rows = unordered(len(action), action=action)
    return Dataset.from_arrays(**rows)


BOX = gym.spaces.Box(-np.inf, np.inf, (2,))
WHEEL = gym.spaces.Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32))


@pytest.mark.parametrize(
    ("action", "space", "message"),
    [
        (np.array([0, 1]), gym.spaces.Discrete(2), None),
        (np.array([5, 6]), gym.spaces.Discrete(2, start=5), None),
        (np.array([0, 1]), gym.spaces.Discrete(2, start=1), "actions from 0 to 1, outside Disc"),
        (np.array([0, 2]), gym.spaces.Discrete(2), "actions from 0 to 2, outside Discrete"),
        (np.array([-2, -1]), gym.spaces.Discrete(2, start=-2), None),
        (np.array([[0], [1]]), gym.spaces.Discrete(2), r"shape \(1,\).*\.ravel\(\)"),
        (np.array([0.0, 1.0]), gym.spaces.Discrete(2), "type float64, which are no actions"),
        (np.array([[0, 2], [1, 0]]), gym.spaces.MultiDiscrete([2, 3]), None),
        (np.array([[2, 0], [1, 0]]), gym.spaces.MultiDiscrete([2, 3]), "outside MultiDiscrete"),
        (np.array([0, 1]), gym.spaces.MultiDiscrete([2, 3]), r"shape \(\) and type int64"),
        (np.array([[-1.0, 0.0], [1.0, 1e9]]), WHEEL, None),
        (np.array([[-1.0, 0.0], [1.1, 0.0]]), WHEEL, "reaches 1.1 in dimension 0, .* -1 to 1:"),
        (np.array([[-1.0, 0.0], [1.0, -0.5]]), WHEEL, "reaches -0.5 in dimension 1"),
        (np.array([0.0, 1.0]), WHEEL, r"shape \(\), the environment's \(2,\)"),
        (np.array([0, 1]), gym.spaces.Text(3), "not supported"),
        (np.array([[-1.0], [1.0]]), gym.spaces.Box(-1, 2, (1,)), None),
        (np.array([[-1.0], [1.0]]), gym.spaces.Box(-2, 1, (1,)), None),
        (np.array([[-1.0], [1.0]]), gym.spaces.Box(-2, 2, (1,)), "fill -1 to 1 exactly"),
    ],
)
def test_actions_must_be_of_the_environment(
    action: Array, space: gym.Space[Any], message: str | None
) -> None:
    if message is None:
        check_fits(acting(action), BOX, space)
        return
    with pytest.raises(HyqError, match=message) as refused:
        check_fits(acting(action), BOX, space)
    assert "\n" not in str(refused.value)
    assert "int)" not in str(refused.value), "numbers are never to be rounded"
    assert ("ravel" in str(refused.value)) == ("ravel" in message)


IMAGE = gym.spaces.Box(0, 255, (84, 84), np.uint8)
VECTOR = gym.spaces.Box(-9, 9, (4,), np.float32)


@pytest.mark.parametrize(
    ("kind", "space", "message"),
    [
        ("vectors", VECTOR, None),
        ("vectors", gym.spaces.Box(-9, 9, (1, 4), np.float32), None),
        ("vectors", gym.spaces.Box(-9, 9, (3,), np.float32), r"shape \(4,\), the environment's"),
        ("vectors", gym.spaces.Dict(a=VECTOR), "observations are one array"),
        ("dictionary", gym.spaces.Dict({"position": VECTOR, "../camera": IMAGE}), None),
        ("dictionary", gym.spaces.Dict(position=VECTOR), r"the keys \['../camera', 'position'\]"),
        ("dictionary", VECTOR, "observations are dictionaries"),
        (
            "dictionary",
            gym.spaces.Dict(
                {"position": gym.spaces.Box(5, 9, (4,), np.float32), "../camera": IMAGE}
            ),
            r"observation\['position'\] reaches .* in dimension 0, where .* has 5 to 9",
        ),
    ],
)
def test_observations_must_be_of_the_environment(
    kind: str, space: gym.Space[Any], message: str | None
) -> None:
    dataset, actions = Dataset(**columns(kind)), gym.spaces.Discrete(18)
    if message is None:
        check_fits(dataset, space, actions)
        return
    with pytest.raises(HyqError, match=message):
        check_fits(dataset, space, actions)


def test_parts_of_a_tuple_are_keyed_by_their_numbers() -> None:
    seen = {"0": np.zeros((4, 2)), "1": np.array([0, 1, 2, 2])}
    dataset = Dataset.of([Episode(seen, np.zeros(3, int), np.zeros(3), True)], {})
    tuples = gym.spaces.Tuple((BOX, gym.spaces.Discrete(3)))
    check_fits(dataset, tuples, gym.spaces.Discrete(1))
    narrow = gym.spaces.Tuple((BOX, gym.spaces.Discrete(2)))
    with pytest.raises(HyqError, match=r"observation\['1'\]s from 0 to 2, outside Discrete"):
        check_fits(dataset, narrow, gym.spaces.Discrete(1))


def test_some_rows_of_unordered_data_are_those_of_all() -> None:
    seen = np.arange(12.0).reshape(6, 2)
    data = Dataset.from_arrays(seen, np.arange(6), np.arange(6), seen + 100, np.zeros(6))
    view = data.by_step()
    for where in (slice(1, 5), slice(0, 6, 2), slice(3, None), np.array([4, 0])):
        found = view.rows(where)
        np.testing.assert_array_equal(found.observation, seen[where])
        np.testing.assert_array_equal(found.next_observation, seen[where] + 100)
        np.testing.assert_array_equal(found.action, np.arange(6)[where])


@pytest.mark.parametrize(("value", "fits"), [(4.9, True), (5.1, False), (-0.9, True)])
def test_observations_may_leave_their_bounds_by_a_quarter_of_the_width(
    value: float, fits: bool
) -> None:
    seen = np.full((3, 1), value, np.float32)
    data = Dataset.from_arrays(seen, np.zeros(3, int), np.zeros(3), seen, np.zeros(3))
    spaces = gym.spaces.Box(0, 4, (1,), np.float32), gym.spaces.Discrete(1)
    if fits:
        check_fits(data, *spaces)
    else:
        with pytest.raises(HyqError, match="reaches"):
            check_fits(data, *spaces)


@pytest.mark.parametrize("keys", [1.5, "x", [["a"]], {"a": 1}, ["a", "b"]])
def test_keys_that_are_no_names_of_columns_are_damage(tmp_path: Path, keys: Any) -> None:
    seen = np.zeros((2, 3), np.float32)
    Dataset.of([Episode(seen, np.zeros(1, int), np.ones(1), True)], {}).save(tmp_path / "data")
    path = tmp_path / "data" / "manifest.json"
    write_json(path, {**json.loads(path.read_text()), "observation_keys": keys})
    with pytest.raises(HyqError):
        Dataset.load(tmp_path / "data")
