"""Policies that are kept: saved, loaded, exported, and the same ever after."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from hyq.actor_critic import Actor, Mode
from hyq.collector import Preprocessing, PreprocessingConfig
from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.errors import HyqError
from hyq.core.files import write_json
from hyq.core.trees import tree_map
from hyq.core.types import Array
from hyq.networks import (
    Autocast,
    Encoder,
    EncoderFactory,
    InputScaling,
    Layers,
    NetworkConfig,
    QNetwork,
)
from hyq.policy import DESCRIPTION, NEXT, WEIGHTS, Policy, plain_network

VECTOR = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
PICTURE = gym.spaces.Box(0, 255, (84, 84), np.uint8)
MIXED = gym.spaces.Dict(
    {
        "camera": gym.spaces.Box(0, 255, (40, 40, 3), np.uint8),
        "joint": gym.spaces.Box(-1.0, 1.0, (3,), np.float32),
    }
)


def policy_of(
    space: gym.Space[Any],
    config: PreprocessingConfig = PreprocessingConfig(),
    *,
    start: int = 0,
    seed: int = 0,
) -> Policy:
    torch.manual_seed(seed)
    seen = Preprocessing(config, space).space
    network = EncoderFactory(NetworkConfig(hidden=(16,)), seen, None).q_network(3)
    return Policy(network, space, gym.spaces.Discrete(3, start=start), config, {"return": 3.5})


def vector_policy(start: int = 0) -> Policy:
    return policy_of(VECTOR, start=start)


def pixel_policy(space: gym.Space[Any] = PICTURE, stack: int = 3, factor: int = 2) -> Policy:
    return policy_of(space, PreprocessingConfig(stack, factor))


def rows_for(space: gym.Space[Any], count: int, stack: int = 1) -> Any:
    rng = np.random.default_rng(count)
    if isinstance(space, gym.spaces.Dict):
        return {name: rows_for(part, count, stack) for name, part in space.items()}
    shape = (count, *((stack,) if stack > 1 else ()), *(space.shape or ()))
    if space.dtype == np.uint8:
        return rng.integers(256, size=shape, dtype=np.uint8)
    return rng.uniform(-1, 1, size=shape).astype(np.float32)


def test_one_observation_gives_a_number_and_a_batch_an_array() -> None:
    policy = vector_policy(start=5)
    rows = 5 * rows_for(VECTOR, 40)
    actions = policy.act(rows)
    assert actions.shape == (40,)
    assert set(actions) <= {5, 6, 7}
    assert len(set(actions)) > 1
    assert [policy.act(row) for row in rows] == actions.tolist()
    assert isinstance(policy.act(rows[0]), int)
    assert policy.scores(rows[0]).shape == (3,)
    with torch.no_grad():
        expected = policy.network(torch.from_numpy(rows)).numpy()
    np.testing.assert_array_equal(policy.scores(rows), expected)
    np.testing.assert_array_equal(actions, 5 + expected.argmax(1))


def test_double_precision_is_read_as_single() -> None:
    policy, rows = vector_policy(), rows_for(VECTOR, 5)
    np.testing.assert_array_equal(policy.scores(rows.astype(np.float64)), policy.scores(rows))
    assert policy.act([0.5, 1]) == policy.act(np.array([0.5, 1.0], np.float32))


CASES = [(VECTOR, 1, 1), (PICTURE, 3, 2), (MIXED, 1, 1), (MIXED, 2, 1)]


@pytest.mark.parametrize(("space", "stack", "factor"), CASES)
def test_saved_and_loaded_acts_the_same(
    tmp_path: Path, space: gym.Space[Any], stack: int, factor: int
) -> None:
    policy = policy_of(space, PreprocessingConfig(stack, factor), start=2)
    policy.save(tmp_path / "policy")
    policy.save(str(tmp_path / "policy"))  # a newer one may take its place
    loaded = Policy.load(tmp_path / "policy")
    rows = rows_for(space, 20, stack)
    np.testing.assert_array_equal(loaded.scores(rows), policy.scores(rows))
    np.testing.assert_array_equal(loaded.act(rows), policy.act(rows))
    assert loaded.observation_space == policy.observation_space
    assert loaded.action_space == policy.action_space
    assert loaded.preprocessing == policy.preprocessing
    assert loaded.about == policy.about


BOUNDS = gym.spaces.Box(np.array([-3, 0], np.float32), np.array([1, 10], np.float32))


def steering_policy(squashed: bool) -> Policy:
    torch.manual_seed(0)
    encoder = EncoderFactory(NetworkConfig(hidden=(16,)), VECTOR, None)()
    return Policy(Mode(Actor(encoder, 2, squashed=squashed)), VECTOR, BOUNDS)


@pytest.mark.parametrize("squashed", [False, True])
def test_continuous_actions_fill_their_bounds_here_when_loaded_and_elsewhere(
    tmp_path: Path, squashed: bool
) -> None:
    policy, rows = steering_policy(squashed), 9 * rows_for(VECTOR, 12)
    with torch.no_grad():
        mode = policy.network(torch.from_numpy(rows)).numpy()
    assert np.abs(mode).max() > 0.5
    expected = np.stack([-1 + 2 * mode[:, 0], 5 + 5 * mode[:, 1]], axis=1)
    np.testing.assert_allclose(policy.act(rows), expected, atol=1e-5)
    assert policy.act(rows[3]).shape == (2,)
    with pytest.raises(HyqError, match="has no scores of them"):
        policy.scores(rows)
    policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    np.testing.assert_array_equal(loaded.act(rows), policy.act(rows))
    with torch.no_grad():
        likelihoods = []
        for one in (policy, loaded):
            torch.manual_seed(0)
            likelihoods.append(one.network.actor(torch.from_numpy(rows)).sample()[1])  # type: ignore[operator]
        assert torch.equal(*likelihoods)
    policy.export_onnx(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    assert [output.name for output in session.get_outputs()] == ["action"]
    [found] = session.run(None, {"observation": rows})
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_policy_says_in_a_line_what_it_is() -> None:
    policy = replace(vector_policy(), about={})
    spaces = f"{VECTOR} to {gym.spaces.Discrete(3)}"
    assert str(policy) == f"policy of an unknown algorithm: {spaces}"
    known = replace(policy, about={"algorithm": "hyq", "env": "Tank-v0", "return": 0.0})
    said = "policy of hyq for Tank-v0, mean return 0 when it was evaluated"
    assert str(known) == f"{said}: {spaces}"


def test_the_scaling_of_inputs_is_saved(tmp_path: Path) -> None:
    layers = Layers(hidden=(4,))
    scaling = InputScaling(np.array([1.0, 2.0]), np.array([3.0, 0.5]))
    network = QNetwork(Encoder(VECTOR, layers, {"": scaling}), layers, 3)
    policy = Policy(network, VECTOR, gym.spaces.Discrete(3))
    policy.save(tmp_path)
    rows = rows_for(VECTOR, 9)
    np.testing.assert_array_equal(Policy.load(tmp_path).scores(rows), policy.scores(rows))


def test_a_directory_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(HyqError, match="something else"):
        vector_policy().save(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_save_that_was_killed_half_way_is_made_good(tmp_path: Path) -> None:
    for name in ("weights.safetensors", ".policy.json.0.draft"):
        (tmp_path / name).write_bytes(b"half")
    vector_policy().save(tmp_path)
    assert Policy.load(tmp_path).observation_space == VECTOR


@pytest.mark.parametrize("written", [1, 2])
def test_a_policy_is_whole_at_any_moment_of_its_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Killed after the new weights, the old policy is there; after their description, the new."""
    old, new = vector_policy(), vector_policy()
    with torch.no_grad():
        next(new.network.parameters()).add_(1)
    old.save(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if written == 1:
            patched.setattr("hyq.policy.write_json", killed)
        else:
            kept = Path.replace
            patched.setattr(
                Path, "replace", lambda old, new: (killed if old.name == NEXT else kept)(old, new)
            )
        with pytest.raises(KeyboardInterrupt):
            new.save(tmp_path)
    found, wanted = (
        next(p.network.parameters()) for p in (Policy.load(tmp_path), (old, new)[written - 1])
    )
    assert torch.equal(found, wanted)
    new.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {DESCRIPTION, WEIGHTS}


def test_a_file_is_not_taken_for_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(HyqError, match="is a file"):
        vector_policy().save(tmp_path / "file")


def test_damage_is_noticed(tmp_path: Path) -> None:
    weights, description = tmp_path / "weights.safetensors", tmp_path / "policy.json"
    vector_policy().save(tmp_path)
    whole, about = weights.read_bytes(), json.loads(description.read_text())
    for damaged in (b"nothing", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        weights.write_bytes(damaged)
        with pytest.raises(HyqError, match="damaged"):
            Policy.load(tmp_path)
    weights.write_bytes(whole)
    arrays = load_arrays(weights)
    digest = save_arrays(weights, arrays | {"value.bias": arrays["value.bias"] * math.nan})
    with pytest.raises(HyqError, match="damaged"):  # whole, but not what the description names
        Policy.load(tmp_path)
    write_json(description, about | {"weights": digest})
    with pytest.raises(HyqError, match=r"weights value.bias of .* are not finite"):
        Policy.load(tmp_path)
    digest = save_arrays(weights, arrays | {"value.bias": np.zeros(2, np.float32)})
    write_json(description, about | {"weights": digest})
    with pytest.raises(HyqError, match=r"do not fit its network: value.bias"):
        Policy.load(tmp_path)
    digest = save_arrays(weights, {n: a for n, a in arrays.items() if n != "value.bias"})
    write_json(description, about | {"weights": digest})
    with pytest.raises(HyqError, match="do not fit its network"):
        Policy.load(tmp_path)
    digest = save_arrays(weights, {n: a for n, a in arrays.items() if "scalings" not in n})
    write_json(description, about | {"weights": digest})
    with pytest.raises(HyqError, match="description of the network is damaged"):
        Policy.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "hyq-policy-1"}, "no policy that can be read here"),
        ({"preprocessing": {"rotate": 2}}, "no setting is called rotate"),
        ({"observation_space": {"type": "Sphere"}}, "no kind of space 'Sphere'"),
        ({"action_space": {"type": "MultiDiscrete", "nvec": [2]}}, "actions of .* not supported"),
        ({"network": {"layers": {"hidden": [16]}}}, "description of the network is damaged"),
        ({"about": None}, r"policy.json is damaged"),
    ],
)
def test_a_damaged_description_is_noticed(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    vector_policy().save(tmp_path)
    description = tmp_path / "policy.json"
    write_json(description, {**json.loads(description.read_text()), **change})
    with pytest.raises(HyqError, match=message):
        Policy.load(tmp_path)


def test_a_description_without_its_checksum_is_not_taken(tmp_path: Path) -> None:
    vector_policy().save(tmp_path)
    description = tmp_path / "policy.json"
    about = json.loads(description.read_text())
    assert about.pop("checksum")
    description.write_text(json.dumps(about))
    with pytest.raises(HyqError, match="not what was written"):
        Policy.load(tmp_path)


def test_more_layers_than_there_are_weights_are_not_built(tmp_path: Path) -> None:
    vector_policy().save(tmp_path)
    description = tmp_path / "policy.json"
    about = json.loads(description.read_text())
    weights = len(load_arrays(tmp_path / WEIGHTS))
    half = weights // 2 + 1
    about["network"]["layers"] |= {"hidden": [4] * half, "convolutions": [[1, 1, 1]] * half}
    write_json(description, about)
    with pytest.raises(HyqError, match="more layers than weights"):
        Policy.load(tmp_path)


class Own(nn.Module):
    """A network of a user's."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(2, int(action_space.n))

    def forward(self, observation: Tensor) -> Tensor:
        values: Tensor = self.layer(observation)
        return values


def test_a_network_of_ones_own_is_given_again(tmp_path: Path) -> None:
    policy = Policy(Own(VECTOR, gym.spaces.Discrete(3)), VECTOR, gym.spaces.Discrete(3, start=1))
    policy.save(tmp_path)
    with pytest.raises(HyqError, match=r"of your own \(.*:Own\).*Policy.load\(path, network=...\)"):
        Policy.load(tmp_path)
    rows = rows_for(VECTOR, 9)
    loaded = Policy.load(tmp_path, network=Own)
    for same in (rows, rows.astype(np.float64)):  # which layers of a user's do not take
        np.testing.assert_array_equal(loaded.scores(same), policy.scores(rows))
    with pytest.raises(HyqError, match="do not fit its network"):
        Policy.load(tmp_path, network=lambda *_: nn.Linear(2, 3))


def test_a_run_is_not_taken_for_its_policy(tmp_path: Path) -> None:
    vector_policy().save(tmp_path / "best")
    with pytest.raises(HyqError, match=f"is a run: load {tmp_path}/best$"):
        Policy.load(tmp_path)
    vector_policy().save(tmp_path / "last")
    with pytest.raises(HyqError, match=f"load {tmp_path}/best or {tmp_path}/last$"):
        Policy.load(tmp_path)


# Frames


def test_a_player_stacks_frames_as_in_training() -> None:
    """A stack of the newest frames; an episode's first is repeated."""
    policy = pixel_policy()
    episodes = np.random.default_rng(5).integers(256, size=(2, 4, 84, 84), dtype=np.uint8)
    player = policy.player()
    for episode in episodes:
        player.reset()
        for time, frame in enumerate(episode):
            stack = episode[[max(0, time - back) for back in (2, 1, 0)]]
            np.testing.assert_array_equal(player.see(frame), stack)
            assert policy.frame_stack_of(frame) == 3
    player.reset()
    assert player.act(episodes[0, 0]) == policy.act(episodes[0, [0, 0, 0]])
    assert player.act(episodes[0, 1]) == policy.act(episodes[0, [0, 0, 1]])


def test_a_player_keeps_frames_that_the_environment_overwrites() -> None:
    player = pixel_policy(gym.spaces.Box(0, 255, (1, 84, 84), np.uint8)).player()
    frame = np.zeros((1, 84, 84), np.uint8)
    for time in range(3):
        frame[:] = time
        seen = player.see(frame)
    assert seen.shape == (3, 84, 84)
    assert seen[:, 0, 0].tolist() == [0, 1, 2]


def test_an_environment_may_stack_its_frames_itself() -> None:
    policy = pixel_policy()
    stacks = rows_for(PICTURE, 5, 3)
    assert policy.frame_stack_of(stacks[0]) == 1
    assert policy.player().act(stacks[0]) == policy.act(stacks)[0]
    player, rows = vector_policy().player(), rows_for(VECTOR, 2)
    assert [player.act(row) for row in rows] == vector_policy().act(rows).tolist()


def test_dictionaries_are_stacked_part_by_part() -> None:
    policy = policy_of(MIXED, PreprocessingConfig(2))
    frames = rows_for(MIXED, 3)
    player = policy.player()
    seen = [player.see(tree_map(lambda leaf, t=t: leaf[t], frames)) for t in range(3)]
    for name in ("camera", "joint"):
        np.testing.assert_array_equal(seen[0][name], frames[name][[0, 0]])
        np.testing.assert_array_equal(seen[2][name], frames[name][[1, 2]])
    assert policy.act(seen[2]) in (0, 1, 2)


def test_images_are_downsampled_before_the_network() -> None:
    policy = pixel_policy()
    rows = rows_for(PICTURE, 2, 3)
    blocks = rows.astype(int).reshape(2, 3, 42, 2, 42, 2).sum(axis=(3, 5))
    small = ((blocks + 2) // 4).astype(np.uint8)
    with torch.no_grad():
        expected = policy.network(torch.from_numpy(small)).numpy()
    np.testing.assert_array_equal(policy.scores(rows), expected)


@pytest.mark.parametrize(
    ("policy", "seen"),
    [
        (vector_policy(), np.zeros(3, np.float32)),
        (vector_policy(), {"a": np.zeros(2)}),
        (vector_policy(), np.float32(1.0)),
        (policy_of(MIXED), np.zeros(3)),
        (policy_of(MIXED), {"camera": np.zeros((40, 40, 3), np.uint8)}),
        (pixel_policy(), np.zeros((3, 42, 42), np.uint8)),
    ],
)
def test_observations_of_another_shape_raise(policy: Policy, seen: Any) -> None:
    with pytest.raises(HyqError, match=r"expected observations of shape .*player"):
        policy.act(seen)
    with pytest.raises(HyqError, match="was trained on observations of"):
        policy.player().act(seen)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_a_number_has_no_action(value: float) -> None:
    rows = np.zeros((3, 2), np.float32)
    rows[1, 1] = value
    for seen in (rows, rows[1]):
        with pytest.raises(HyqError, match="NaN or infinite"):
            vector_policy().act(seen)


def test_a_plain_network_is_a_copy_in_single_precision() -> None:
    network = vector_policy().network
    copy = plain_network(Autocast(network))
    assert isinstance(copy, QNetwork)
    assert copy is not network
    assert not copy.training
    with torch.no_grad():
        next(network.parameters()).add_(1.0)
    assert not torch.equal(next(copy.parameters()), next(network.parameters()))


# ONNX


def onnx_answers(policy: Policy, path: Path, rows: Any) -> tuple[Array, Array]:
    policy.export_onnx(path)
    session = onnxruntime.InferenceSession(str(path))
    feed = rows if isinstance(rows, dict) else {"observation": rows}
    feed = {name: part.astype(np.float32) for name, part in feed.items()}
    scores, action = session.run(["scores", "action"], feed)
    return scores, action


@pytest.mark.parametrize(
    ("space", "stack", "factor", "count"),
    [
        (VECTOR, 1, 1, 7),
        (VECTOR, 1, 1, 1),
        (PICTURE, 3, 2, 3),
        (gym.spaces.Box(0, 255, (84, 63, 3), np.uint8), 1, 3, 3),
        (MIXED, 1, 1, 3),
    ],
)
def test_onnx_gives_what_the_policy_gives(
    tmp_path: Path, space: gym.Space[Any], stack: int, factor: int, count: int
) -> None:
    policy = replace(
        policy_of(space, PreprocessingConfig(stack, factor)),
        action_space=gym.spaces.Discrete(3, start=5),
    )
    rows = rows_for(space, count, stack)
    expected = policy.scores(rows)  # one that has acted can still be exported
    scores, action = onnx_answers(policy, tmp_path / "policy.onnx", rows)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_array_equal(action, policy.act(rows))
    assert action.min() >= 5
