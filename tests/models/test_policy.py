"""Policies that are kept: saved, loaded, exported, and the same ever after."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from hyq.core.errors import HyqError
from hyq.core.types import Array
from hyq.models.networks import SMALL_CONVOLUTIONS, InputScaling, Network, NetworkSpec
from hyq.models.policy import DeepPolicy


def vector_policy(**changes: int) -> DeepPolicy:
    scaling = InputScaling(np.array([1.0, 2.0], np.float32), np.array([3.0, 0.5], np.float32))
    network = Network((2,), 3, NetworkSpec(hidden=(16,)), scaling, changes.pop("extra", 0))
    return DeepPolicy(network, network.initial(np.random.default_rng(0)), **changes)


def pixel_policy(shape: tuple[int, ...] = (4, 42, 42)) -> DeepPolicy:
    network = Network(shape, 18, SMALL_CONVOLUTIONS, InputScaling.pixels())
    return DeepPolicy(network, network.initial(np.random.default_rng(1)), shrink_by=2)


def test_one_observation_gives_a_number_and_a_batch_an_array() -> None:
    policy = vector_policy(first_action=5)
    rows = np.random.default_rng(2).normal(size=(40, 2)).astype(np.float32)
    actions = policy.act(rows)
    assert actions.shape == (40,)
    assert set(actions) <= {5, 6, 7}
    assert len(set(actions)) > 1
    assert [policy.act(row) for row in rows] == actions.tolist()


def test_the_scores_may_be_other_outputs_than_the_first() -> None:
    first, later = vector_policy(extra=4), vector_policy(extra=4, first_score=4)
    rows = np.random.default_rng(2).normal(size=(200, 2)).astype(np.float32)
    assert (first.act(rows) != later.act(rows)).any()


@pytest.mark.parametrize("policy", [vector_policy(first_action=1), pixel_policy()])
def test_saved_and_loaded_acts_the_same(tmp_path: Path, policy: DeepPolicy) -> None:
    policy.save(tmp_path / "policy")
    policy.save(tmp_path / "policy")  # a newer one may take its place
    loaded = DeepPolicy.load(tmp_path / "policy")
    rng = np.random.default_rng(3)
    if policy.shrink_by == 1:
        rows: Array = rng.normal(size=(50, 2)).astype(np.float32)
    else:
        rows = rng.integers(256, size=(5, 4, 84, 84), dtype=np.uint8)
    assert (loaded.act(rows) == policy.act(rows)).all()
    assert loaded.network.spec == policy.network.spec


def test_a_directory_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(HyqError, match="something else"):
        vector_policy().save(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_save_that_was_killed_half_way_is_made_good(tmp_path: Path) -> None:
    for name in ("weights.safetensors", ".policy.json.0.draft"):
        (tmp_path / name).write_bytes(b"half")
    vector_policy().save(tmp_path)
    assert DeepPolicy.load(tmp_path).network.shape == vector_policy().network.shape


def test_a_file_is_not_taken_for_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(HyqError, match="is a file"):
        vector_policy().save(tmp_path / "file")


def test_damage_is_noticed(tmp_path: Path) -> None:
    vector_policy().save(tmp_path / "policy")
    (tmp_path / "policy" / "weights.safetensors").write_bytes(b"nothing")
    with pytest.raises(HyqError, match="damaged"):
        DeepPolicy.load(tmp_path / "policy")
    with pytest.raises(HyqError, match="expected observations"):
        vector_policy().act(np.zeros(3, np.float32))


def test_a_player_keeps_frames_that_the_environment_overwrites() -> None:
    player = pixel_policy((3, 1, 42, 42)).player()
    frame = np.zeros((1, 84, 84), np.uint8)
    for time in range(3):
        frame[:] = time
        seen = player.see(frame)
    assert seen[:, 0, 0, 0].tolist() == [0, 1, 2]


def test_a_player_stacks_frames_as_in_training() -> None:
    """From the lanes of the game, a stack of the newest frames; an episode's first is repeated."""
    policy = pixel_policy((3, 1, 42, 42))
    rng = np.random.default_rng(5)
    frames = rng.integers(256, size=(2, 4, 1, 84, 84), dtype=np.uint8)
    player = policy.player()
    for episode in frames:
        player.reset()
        for time, frame in enumerate(episode):
            stack = episode[[max(0, time - back) for back in (2, 1, 0)]]
            np.testing.assert_array_equal(player.see(frame), stack)
            assert policy.stack_of(frame.shape) == 3
    player.reset()
    assert player.act(frames[0, 0]) == policy.act(frames[0, [0, 0, 0]])
    assert player.act(frames[0, 1]) == policy.act(frames[0, [0, 0, 1]])


def test_an_environment_may_stack_its_frames_itself() -> None:
    policy = pixel_policy((3, 1, 42, 42))
    stacks = np.random.default_rng(6).integers(256, size=(5, 3, 84, 84), dtype=np.uint8)
    np.testing.assert_array_equal(policy.scores(stacks), policy.scores(stacks[:, :, None]))
    assert policy.player().act(stacks[0]) == policy.act(stacks)[0]
    rows = np.random.default_rng(2).normal(size=(2, 2)).astype(np.float32)
    player = vector_policy().player()
    assert [player.act(row) for row in rows] == vector_policy().act(rows).tolist()


def test_what_does_not_fit_is_told_the_shape_before_shrinking() -> None:
    policy = pixel_policy((3, 1, 42, 42))
    small = np.zeros((3, 1, 42, 42), np.uint8)
    with pytest.raises(HyqError, match=r"expected observations of \(3, 1, 84, 84\).*player"):
        policy.act(small)
    with pytest.raises(HyqError, match=r"or frames \(1, 84, 84\) to be stacked"):
        policy.player().act(small[0])
    message = r"was trained on observations \(2,\), this environment shows \(4,\)"
    with pytest.raises(HyqError, match=message):
        vector_policy().player().act(np.zeros(4, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_a_number_has_no_action(value: float) -> None:
    rows = np.zeros((3, 2), np.float32)
    rows[1, 1] = value
    for seen in (rows, rows[1]):
        with pytest.raises(HyqError, match="NaN or infinite"):
            vector_policy().act(seen)


def test_a_run_is_not_taken_for_its_policy(tmp_path: Path) -> None:
    vector_policy().save(tmp_path / "best")
    with pytest.raises(HyqError, match=f"is a run, not a policy: load {tmp_path}/best$"):
        DeepPolicy.load(tmp_path)


def onnx_answers(policy: DeepPolicy, path: Path, rows: Array) -> tuple[Array, Array]:
    policy.export_onnx(path)
    session = onnxruntime.InferenceSession(str(path))
    scores, action = session.run(["scores", "action"], {"observation": rows.astype(np.float32)})
    return scores, action


@pytest.mark.parametrize("count", [1, 7])
def test_onnx_gives_the_same_actions_for_any_number_of_rows(tmp_path: Path, count: int) -> None:
    policy = vector_policy(extra=4, first_score=4, first_action=5)
    rows = np.random.default_rng(count).normal(size=(count, 2)).astype(np.float32)
    scores, action = onnx_answers(policy, tmp_path / "policy.onnx", rows)
    assert scores.shape == (count, 3)
    assert (action == policy.act(rows)).all()


def test_a_policy_that_has_acted_can_still_be_exported(tmp_path: Path) -> None:
    policy = vector_policy()
    rows = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    actions = policy.act(rows)
    assert (onnx_answers(policy, tmp_path / "policy.onnx", rows)[1] == actions).all()


@pytest.mark.parametrize("shape", [(4, 42, 42), (42, 42, 3)])
def test_onnx_shrinks_pictures_as_the_policy_does(tmp_path: Path, shape: tuple[int, ...]) -> None:
    policy = pixel_policy(shape)
    larger = tuple(2 * side if side == 42 else side for side in shape)
    rows = np.random.default_rng(4).integers(256, size=(3, *larger), dtype=np.uint8)
    scores, action = onnx_answers(policy, tmp_path / "policy.onnx", rows)
    assert np.allclose(scores, policy.scores(rows), atol=1e-5)
    assert (action == policy.act(rows)).all()
