"""Networks: heads, scaling, images with their colours anywhere, dictionaries, and checks."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hyq.agents.base import OptimizerConfig
from hyq.agents.building import DiscreteNetworks, computes_in_bfloat16, has_bfloat16
from hyq.core.errors import HyqError
from hyq.core.types import Array
from hyq.linear import Linear
from hyq.networks import (
    LEAST_STD,
    NATURE,
    NETWORKS,
    NORMALISED,
    SMALL,
    ActorCritic,
    Autocast,
    ChannelsFirst,
    Encoder,
    EncoderFactory,
    InputScaling,
    Layers,
    NetworkConfig,
    QNetwork,
    check_network,
    default_layers,
    input_scaling,
    is_image,
    leaf_paths,
    num_actions,
)

ACTIONS = gym.spaces.Discrete(3)
VECTOR = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)


def image_space(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, np.uint8)


def built(space: gym.Space[Any], layers: Layers, outputs: int = 3, seed: int = 0) -> QNetwork:
    torch.manual_seed(seed)
    return QNetwork(Encoder(space, layers, input_scaling(space)), layers, outputs)


def images(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("stream_hidden", [0, 5])
def test_a_dueling_head_adds_a_value_to_centred_advantages(stream_hidden: int) -> None:
    network = built(VECTOR, Layers(hidden=(6,), stream_hidden=stream_hidden))
    rows = torch.randn(7, 4)
    features = network.encoder(rows)
    assert network.value is not None
    value, advantage = network.value(features), network.advantage(features)
    q = network(rows)
    torch.testing.assert_close(q.mean(-1, keepdim=True), value)
    torch.testing.assert_close(q - value, advantage - advantage.mean(-1, keepdim=True))
    plain = built(VECTOR, Layers(hidden=(6,), stream_hidden=stream_hidden, dueling=False))
    assert plain.value is None
    torch.testing.assert_close(plain(rows), plain.advantage(plain.encoder(rows)))


def test_hidden_layers_by_hand() -> None:
    network = built(VECTOR, Layers(hidden=(6, 5), dueling=False))
    first, _, second, _ = network.encoder.hidden
    rows = torch.randn(7, 4)
    hidden = torch.relu(second(torch.relu(first(rows))))
    torch.testing.assert_close(network.encoder(rows), hidden)
    assert network.encoder.width == 5
    kinds = [
        type(layer) for layer in built(VECTOR, Layers(hidden=(6,), layer_norm=True)).encoder.hidden
    ]
    assert kinds == [Linear, nn.LayerNorm, nn.ReLU]


@pytest.mark.parametrize("layers", [SMALL, NORMALISED])
def test_colours_last_equals_channels_first_permuted(layers: Layers) -> None:
    last, first = built(image_space(42, 30, 3), layers), built(image_space(3, 42, 30), layers)
    first.load_state_dict(last.state_dict())
    rows = images(4, 42, 30, 3)
    torch.testing.assert_close(last(rows), first(rows.permute(0, 3, 1, 2)))
    assert not torch.allclose(last(rows), last(rows.flip(3)))


def test_stacked_colours_become_channels_in_order() -> None:
    rows = images(2, 4, 8, 6, 3)  # four frames, colours last
    found = ChannelsFirst(True, 12)(rows)
    assert found.shape == (2, 12, 8, 6)
    for frame in range(4):
        for colour in range(3):
            assert torch.equal(found[:, 3 * frame + colour], rows[:, frame, :, :, colour])
    grey = images(2, 4, 8, 6)
    assert torch.equal(ChannelsFirst(False, 4)(grey), grey)
    single = images(2, 8, 6)
    assert torch.equal(ChannelsFirst(False, 1)(single), single[:, None])


@pytest.mark.parametrize("shape", [(84, 84), (4, 84, 84), (84, 84, 3), (4, 84, 96, 3)])
def test_convolutions_fit_what_the_shapes_say(shape: tuple[int, ...]) -> None:
    space = image_space(*shape)
    assert built(space, NATURE)(images(2, *shape)).shape == (2, 3)
    if 96 not in shape:
        assert built(space, NATURE).encoder.width == 64 * 7 * 7
    with pytest.raises(HyqError, match="too small for convolutions"):
        built(image_space(20, 30), NATURE)
    built(image_space(36, 36), NATURE)
    with pytest.raises(HyqError, match="too small for convolutions"):
        built(image_space(35, 36), NATURE)


MIXED = gym.spaces.Dict(
    {
        "camera": image_space(42, 42),
        "arm": gym.spaces.Dict({"joint": gym.spaces.Box(0.0, 4.0, (3,), np.float32)}),
    }
)


def test_dictionaries_are_read_part_by_part() -> None:
    network = built(MIXED, SMALL)
    rows: dict[str, Any] = {"camera": images(5, 42, 42), "arm": {"joint": torch.rand(5, 3)}}
    q = network(rows)
    assert q.shape == (5, 3)
    assert leaf_paths(MIXED) == ["arm.joint", "camera"]
    for part in ("camera", "joint"):
        changed: dict[str, Any] = {**rows}
        if part == "camera":
            changed["camera"] = 255 - rows["camera"]
        else:
            changed["arm"] = {"joint": rows["arm"]["joint"] + 1}
        assert not torch.allclose(network(changed), q), part
    width = (
        3 + built(image_space(42, 42), SMALL).encoder.branches[0](torch.zeros(1, 42, 42)).numel()
    )
    assert network.encoder.hidden[0].in_features == width
    assert leaf_paths(VECTOR) == [""]


@pytest.mark.parametrize("stream_hidden", [0, 5])
def test_an_actor_critic_starts_orthogonal_and_its_outputs_small(stream_hidden: int) -> None:
    network = ActorCritic(VECTOR, Layers(hidden=(6,), stream_hidden=stream_hidden), 3, 2)
    found = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    for layer in found:
        weight = layer.weight.detach()
        across = weight if weight.shape[0] < weight.shape[1] else weight.T
        size = 1e-4 if layer.out_features in (2, 3) else 2.0
        torch.testing.assert_close(
            across @ across.T, size * torch.eye(len(across)), atol=1e-6, rtol=1e-5
        )
        assert not layer.bias.any()
    assert len(found) == (3 if stream_hidden == 0 else 5)
    logits, values = network(torch.randn(7, 4))
    assert (logits.shape, values.shape) == ((7, 3), (7, 2))


# Scaling


def scaled(scaling: InputScaling, rows: Array) -> Array:
    return scaling(torch.from_numpy(rows)).numpy()


def test_boxes_are_mapped_to_one_around_zero() -> None:
    space = gym.spaces.Box(np.array([0, -4, 7], np.float32), np.array([10, 4, 7], np.float32))
    scaling = InputScaling.of_space(space)
    rows = np.array([[0, -4, 7], [10, 4, 7], [5, 2, 9]], np.float32)
    # An entry that should not change keeps its size.
    expected: Any = [[-1, -1, 0], [1, 1, 0], [0, 0.5, 2]]
    np.testing.assert_allclose(scaled(scaling, rows), expected)


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
        gym.spaces.Box(0.0, np.inf, (2,), np.float32),
        gym.spaces.Box(-1000.0, 1.0, (2,), np.float32),
        gym.spaces.Box(0.0, 1000.0, (2,), np.float32),
        gym.spaces.MultiBinary(2),
    ],
)
def test_boxes_without_sensible_bounds_stay_as_they_are(space: gym.Space[Any]) -> None:
    rows = np.array([[3, -5], [1e4, 0]], np.float32)
    np.testing.assert_array_equal(scaled(InputScaling.of_space(space), rows), rows)
    large = gym.spaces.Box(-999.0, 999.0, (2,), np.float32)
    assert scaled(InputScaling.of_space(large), np.array([[999, 0]], np.float32)).tolist() == [
        [1, 0]
    ]


def test_pixels_are_mapped_to_the_unit_interval() -> None:
    scaling = InputScaling.of_space(image_space(20, 20))
    np.testing.assert_allclose(scaled(scaling, np.array([[0, 51, 255]], np.uint8)), [[0, 0.2, 1]])
    assert scaling(torch.zeros(1, dtype=torch.uint8)).dtype == torch.float32


def test_data_is_given_zero_mean_and_unit_variance_where_it_varies() -> None:
    rng = np.random.default_rng(0)
    sample = rng.normal(3.0, [2.0, 1e-9, 50.0], size=(1000, 3))
    found = scaled(InputScaling.of_data(gym.spaces.Box(-1, 1, (3,), np.float64), sample), sample)
    np.testing.assert_allclose(found[:, [0, 2]].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(found[:, [0, 2]].std(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(found[:, 1], 0, atol=1e-6)
    constant = InputScaling.of_data(VECTOR, np.full((9, 4), 2.0, np.float32))
    np.testing.assert_allclose(scaled(constant, np.full((1, 4), 5.0, np.float32)), 3.0)


def test_pixels_that_hardly_change_are_not_blown_up() -> None:
    assert LEAST_STD == 20.0
    sample = np.full((4, 20, 20), 100, np.uint8)
    sample[:2, 0, 0] = 200  # mean 150, std 50
    sample[:2, 0, 1] = 104  # mean 102, std 2
    scaling = InputScaling.of_data(image_space(20, 20), sample)
    found = scaled(scaling, sample)
    np.testing.assert_allclose(found[0, 0, :3], [1.0, 2 / 20, 0.0], atol=1e-6)
    np.testing.assert_allclose(scaling.scale[0, :3], [1 / 50, 1 / 20, 1 / 20], rtol=1e-6)


def test_what_is_scaled_by_data() -> None:
    asked: list[int] = []

    def sample(about: int) -> Any:
        asked.append(about)
        joint = np.array([[0, 0, 0], [2, 4, 6]], np.float32)
        camera = np.zeros((2, 42, 42), np.uint8)
        camera[1] = 100
        return {"camera": camera, "arm": {"joint": joint}}

    usual = input_scaling(MIXED, sample)
    assert usual["arm.joint"].shift.tolist() == [1, 2, 3]
    assert float(usual["camera"].scale) == pytest.approx(1 / 255)
    standard = input_scaling(MIXED, sample, standardise_pixels=True)
    assert standard["camera"].shift.shape == (42, 42)
    np.testing.assert_allclose(standard["camera"].scale, 1 / 50)
    entries = 42 * 42 + 3
    assert asked == [20_000_000 // entries + 1] * 2
    without = input_scaling(MIXED, None, standardise_pixels=True)
    assert without["arm.joint"].shift.tolist() == [2, 2, 2]
    asked.clear()
    pixels = input_scaling(image_space(42, 42), lambda _: pytest.fail("nothing to learn"))
    assert float(pixels[""].scale) == pytest.approx(1 / 255)
    input_scaling(VECTOR, lambda about: asked.append(about) or np.zeros((2, 4)))  # type: ignore[func-returns-value]
    assert asked == [100_000]


def test_the_scaling_is_saved_with_the_network() -> None:
    sample = np.array([[1, 2, 3, 4], [3, 6, 3, 0]], np.float32)
    factory = EncoderFactory(NetworkConfig(hidden=(6,)), VECTOR, lambda _: sample)
    one: Any = factory.q_network(3)
    other = factory.q_network(3)
    state = one.state_dict()
    assert state["encoder.scalings.0.shift"].tolist() == [2, 4, 3, 2]
    assert state["encoder.scalings.0.scale"].tolist() == [1, 0.5, 1, 0.5]
    plain: Any = EncoderFactory(NetworkConfig(hidden=(6,)), VECTOR, None).q_network(3)
    plain.encoder.scalings[0] = InputScaling(np.zeros(4), np.ones(4))
    plain.load_state_dict(state)
    rows = torch.randn(3, 4)
    torch.testing.assert_close(plain(rows), one(rows))
    with torch.no_grad():  # networks of one factory share no tensors
        one.encoder.scalings[0].shift.add_(1.0)
    assert other.state_dict()["encoder.scalings.0.shift"].tolist() == [2, 4, 3, 2]


def test_a_factory_takes_its_sample_once() -> None:
    asked: list[int] = []

    def sample(about: int) -> Array:
        asked.append(about)
        return np.zeros((2, 4), np.float32)

    factory = EncoderFactory(NetworkConfig(), VECTOR, sample)
    assert not asked
    factory.q_network(3)
    assert factory.q_network(1)(torch.zeros(2, 4)).shape == (2, 1)
    assert len(asked) == 1


# Choices


def test_images_are_told_from_vectors() -> None:
    assert is_image(image_space(20, 20))
    assert is_image(image_space(20, 30, 3))
    assert is_image(image_space(4, 20, 20))
    assert is_image(image_space(2, 20, 20, 1))
    assert not is_image(image_space(19, 20))
    assert not is_image(image_space(20, 19, 3))
    assert not is_image(image_space(30))
    assert not is_image(gym.spaces.Box(0, 1, (84, 84), np.float32))
    assert not is_image(ACTIONS)


@pytest.mark.parametrize(
    ("space", "layers"),
    [
        (VECTOR, NETWORKS["mlp"]),
        (image_space(84, 84), NATURE),
        (image_space(64, 64), NATURE),
        (image_space(63, 84), SMALL),
        (image_space(84, 84, 3), NATURE),
        (image_space(42, 42, 3), SMALL),
        (image_space(4, 84, 84), NATURE),
        (gym.spaces.Dict({"a": image_space(84, 84), "b": image_space(42, 42)}), SMALL),
        (gym.spaces.Dict({"a": image_space(84, 84), "b": VECTOR}), NATURE),
        (gym.spaces.Box(0, 1, (84, 84), np.float32), NETWORKS["mlp"]),
    ],
)
def test_layers_are_chosen_by_what_is_seen(space: gym.Space[Any], layers: Layers) -> None:
    assert default_layers(space) == layers
    assert NetworkConfig().layers(space) == layers
    for name, named in NETWORKS.items():
        assert NetworkConfig(name).layers(space) == named


def test_layers_can_be_changed_one_by_one() -> None:
    config = NetworkConfig("nature", hidden=(7,), dueling=False)
    assert config.layers(VECTOR) == Layers(NATURE.convolutions, (7,), False, 512)
    assert NetworkConfig(hidden=()).layers(VECTOR).hidden == ()
    assert NetworkConfig(dueling=True).layers(VECTOR).dueling
    small = NetworkConfig("normalised").layers(image_space(42, 42))
    assert small.layer_norm
    assert not NETWORKS["unnormalised"].layer_norm
    assert NATURE.convolutions == ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    for wrong in (
        lambda: NetworkConfig("huge"),
        lambda: NetworkConfig(hidden=(4, 0)),
        lambda: Layers(convolutions=((8, 0, 1),)),
        lambda: Layers(stream_hidden=-1),
    ):
        with pytest.raises(HyqError):
            wrong()


# Checks


class Fixed(nn.Module):
    """Returns what a test wants."""

    def __init__(self, outputs: Callable[[Any], Any]) -> None:
        super().__init__()
        self.outputs = outputs
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, observation: Any) -> Any:
        return self.outputs(observation)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda rows: torch.zeros(2, 4), r"tensor \(batch, 3\), for 2 rows it gave \(2, 4\)"),
        (lambda rows: torch.zeros(3), r"for 2 rows it gave \(3,\)"),
        (lambda rows: torch.zeros(1, 3), r"for 2 rows it gave \(1, 3\)"),
        (lambda rows: [1], "for 2 rows it gave list"),
        (lambda rows: rows["camera"], r"cannot read observations of Box.*IndexError"),
    ],
)
def test_networks_that_cannot_serve_raise(outputs: Any, message: str) -> None:
    with pytest.raises(HyqError, match=message) as raised:
        check_network(Fixed(outputs), VECTOR, 3, "cpu")
    assert "\n" not in str(raised.value)


def test_a_check_shows_two_rows_and_leaves_the_network_as_it_was() -> None:
    shown: list[Any] = []

    def outputs(rows: Any) -> Tensor:
        shown.append((rows, network.training))
        return torch.zeros(2, 3)

    network = Fixed(outputs)
    check_network(network, MIXED, 3, "cpu")
    assert network.training
    [(rows, training)] = shown
    assert not training
    assert rows["camera"].shape == (2, 42, 42)
    assert rows["camera"].dtype == torch.uint8
    assert rows["arm"]["joint"].shape == (2, 3)
    network.eval()
    check_network(network, MIXED, 3, "cpu")
    assert not network.training


def test_actions_must_be_discrete() -> None:
    assert num_actions(gym.spaces.Discrete(4, start=2)) == 4
    with pytest.raises(HyqError, match="needs discrete actions"):
        num_actions(VECTOR)


def test_bfloat16_is_close_and_comes_back_in_single_precision() -> None:
    network = built(image_space(42, 42), SMALL)
    half = Autocast(network)
    rows = images(6, 42, 42)
    exact, found = network(rows), half(rows)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, atol=0.02, rtol=0.02)
    assert not torch.equal(found, exact)
    assert all(parameter.dtype == torch.float32 for parameter in half.parameters())
    assert built(MIXED, SMALL)({"camera": rows, "arm": {"joint": torch.zeros(6, 3)}}).shape == (
        6,
        3,
    )


def test_where_bfloat16_is_used() -> None:
    convolutions, plain = built(image_space(42, 42), SMALL), built(VECTOR, Layers())
    auto = OptimizerConfig()
    assert computes_in_bfloat16(convolutions, auto) == has_bfloat16("cpu")
    assert not computes_in_bfloat16(plain, auto)
    for network in (convolutions, plain):
        assert computes_in_bfloat16(network, OptimizerConfig(precision="bfloat16"))
        assert not computes_in_bfloat16(network, OptimizerConfig(precision="float32"))
    assert DiscreteNetworks(lambda *_: plain, VECTOR, ACTIONS, auto).policy() is plain
    made = DiscreteNetworks(
        lambda *_: plain, VECTOR, ACTIONS, OptimizerConfig(precision="bfloat16")
    ).policy()
    assert isinstance(made, Autocast)
    assert {parameter.dtype for parameter in made.parameters()} == {torch.bfloat16}
    assert {buffer.dtype for buffer in made.buffers()} == {torch.float32}, "inputs stay exact"
    assert not has_bfloat16("meta")
