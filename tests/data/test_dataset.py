"""Offline datasets: immutable, checked, addressed by step."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.files import file_digest
from hyq.core.types import Transitions
from hyq.data.dataset import Dataset, check_fits, same_provenance

PROVENANCE = {"environment": "toy", "parameters": {"horizon": 3, "noise": 0.5}}


def toy(rows: int = 6) -> tuple[Transitions, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    observation = np.arange(2.0 * rows).reshape(rows, 2)
    transitions = Transitions(
        observation, np.arange(rows) % 2, np.linspace(0, 1, rows), np.ones(rows), observation + 1
    )
    return transitions, np.sort(np.arange(rows) % 3)


def test_saved_and_loaded_is_the_same_to_the_bit(tmp_path: Path) -> None:
    dataset = Dataset(*toy(), PROVENANCE)
    dataset.save(tmp_path / "d")
    loaded = Dataset.load(tmp_path / "d")
    assert loaded.digest() == dataset.digest()
    assert loaded.provenance == PROVENANCE
    assert isinstance(loaded.transitions.observation, np.memmap)
    with pytest.raises(HyqError, match="exists already"):
        dataset.save(tmp_path / "d")


def test_a_path_may_be_text(tmp_path: Path) -> None:
    dataset = Dataset(*toy(), PROVENANCE)
    dataset.save(f"{tmp_path}/d/")
    assert Dataset.load(f"{tmp_path}/d/").digest() == dataset.digest()


def test_at_returns_exactly_the_rows_of_a_step() -> None:
    transitions, step = toy(7)
    dataset = Dataset(transitions, step, {})
    for h in range(3):
        np.testing.assert_array_equal(dataset.at(h).observation, transitions[step == h].observation)
    assert len(dataset.at(3)) == 0
    assert (len(dataset), dataset.horizon) == (7, 3)


def test_nothing_can_be_written_into_a_dataset() -> None:
    dataset = Dataset(*toy(), {})
    with pytest.raises(ValueError, match="read-only"):
        dataset.at(0).reward[0] = 9.0


def test_the_digest_tells_every_change() -> None:
    transitions, step = toy()
    before = Dataset(transitions, step, {}).digest()
    changed = transitions.reward.copy()
    changed[-1] += 1e-9
    other = Transitions(
        transitions.observation, transitions.action, changed, transitions.discount,
        transitions.next_observation,
    )  # fmt: skip
    assert Dataset(other, step, {}).digest() != before


@pytest.mark.parametrize("column", ["observation", "reward", "next_observation"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_a_number_is_refused_by_column(column: str, value: float) -> None:
    transitions, step = toy()
    getattr(transitions, column)[4] = value
    message = f"'{column}' has NaN or infinite entries in 1 of 6 rows, first in row 4:"
    with pytest.raises(HyqError, match=message):
        Dataset(transitions, step, {})


def test_malformed_data_is_refused() -> None:
    transitions, step = toy()
    with pytest.raises(HyqError, match="empty"):
        Dataset(transitions[:0], step[:0], {})
    for kind in (np.int64, np.uint8, np.uint64):  # differences of the latter never are negative
        with pytest.raises(HyqError, match="sorted by 'step'"):
            Dataset(transitions, step[::-1].astype(kind), {})
    with pytest.raises(HyqError, match="'step' has 5 rows where 'observation' has 6"):
        Dataset(transitions, step[:5], {})
    bad = Transitions(
        transitions.observation, transitions.action, transitions.reward,
        np.full(6, 2.0), transitions.next_observation,
    )  # fmt: skip
    with pytest.raises(HyqError, match="'discount' must lie"):
        Dataset(bad, step, {})


def arrays(**changes: Any) -> dict[str, Any]:
    rows, step = toy()
    columns = {name: getattr(rows, name) for name in ("observation", "action", "reward")}
    rest = {"next_observation": rows.next_observation, "terminated": np.zeros(6), "step": step}
    return columns | rest | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_observation": np.zeros((6, 1))}, r"of shape \(1,\) where those of 'observation'"),
        ({"reward": np.zeros((6, 1))}, "'reward' must be a vector"),
        ({"terminated": np.zeros((6, 1))}, "'terminated' must be a vector"),
        ({"step": np.zeros((6, 1), int)}, "'step' must be a vector"),
        ({"step": np.zeros(6)}, "'step' must hold whole numbers, got float64"),
        ({"terminated": np.full(6, 0.5)}, "'terminated' must hold truth values"),
        ({"reward": np.zeros(5)}, "'reward' has 5 rows"),
        ({"terminated": np.zeros(7)}, "'discount' has 7 rows"),
        ({"step": None, "action": np.zeros(7, int)}, "'action' has 7 rows"),
        ({"action": np.zeros(6, bool)}, r"truth values: .*\.astype\(int\)"),
        ({"action": np.zeros((6, 1), int)}, r"'action' must be a vector.*\.ravel\(\)"),
        (
            {"step": np.arange(6)[::-1], "reward": np.array([0, 0, np.nan, 0, np.inf, 0])},
            "in 2 of 6 rows, first in row 2:",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HyqError, match=message) as refused:
        Dataset.from_arrays(**arrays(**changes))
    assert "\n" not in str(refused.value)


def test_actions_may_be_points() -> None:
    for action in (np.zeros((6, 1)), np.zeros(6)):
        assert len(Dataset.from_arrays(**arrays(action=action))) == 6


def test_it_is_shown_in_one_line_and_can_be_compared() -> None:
    one, other = Dataset(*toy(), {}), Dataset(*toy(), {})
    assert repr(one) == "Dataset(6 transitions, 3 steps, observations (2,) float64)"
    assert one != other


def test_flags_may_be_numbers() -> None:
    flags = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    discount = Dataset.from_arrays(**arrays(terminated=flags)).transitions.discount
    np.testing.assert_array_equal(discount, 1 - flags)


def test_an_altered_or_cut_file_is_refused(tmp_path: Path) -> None:
    Dataset(*toy(), PROVENANCE).save(tmp_path / "d")
    reward = tmp_path / "d" / "reward.npy"
    content = reward.read_bytes()
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        reward.write_bytes(damaged)
        with pytest.raises(HyqError, match=r"reward\.npy was altered or cut short"):
            Dataset.load(tmp_path / "d")
    reward.unlink()
    with pytest.raises(HyqError, match=r"reward\.npy is missing"):
        Dataset.load(tmp_path / "d")


def test_what_is_not_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HyqError, match="not a dataset directory"):
        Dataset.load(tmp_path / "nowhere")
    with pytest.raises(HyqError, match=r"holds no saved logs: .*from_arrays"):
        Dataset.load(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(HyqError, match="not a hyq-dataset-1"):
        Dataset.load(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "hyq-dataset-1"}))
    with pytest.raises(HyqError, match="damaged: it has no 'sha256'"):
        Dataset.load(tmp_path)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    Dataset(*toy(), PROVENANCE).save(tmp_path / "d")
    np.save(tmp_path / "d" / "reward.npy", np.array([{"a": 1}] * 6, dtype=object))
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text())
    manifest["sha256"]["reward"] = file_digest(tmp_path / "d" / "reward.npy")
    (tmp_path / "d" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(HyqError, match="not a plain NumPy array"):
        Dataset.load(tmp_path / "d")


def test_provenance_names_the_parameter_that_differs() -> None:
    dataset = Dataset(*toy(), PROVENANCE)
    same_provenance(dataset, PROVENANCE)
    other = {"environment": "toy", "parameters": {"horizon": 4, "noise": 0.5}}
    with pytest.raises(HyqError, match="its horizon is 3, this one's is 4"):
        same_provenance(dataset, other)


def test_data_that_cannot_be_of_the_environment_is_refused() -> None:
    dataset = Dataset(*toy(), {})
    env = gym.make_vec("CartPole-v1", num_envs=1)
    with pytest.raises(HyqError, match="observations have shape"):
        check_fits(dataset, env, 3)
    env.single_observation_space = gym.spaces.Box(-1, 1, (2,))
    with pytest.raises(HyqError, match="3 steps, the environment 4"):
        check_fits(dataset, env, 4)
    env.single_action_space = gym.spaces.Discrete(1)
    with pytest.raises(HyqError, match="actions from 0 to 1"):
        check_fits(dataset, env, 3)
    env.close()
