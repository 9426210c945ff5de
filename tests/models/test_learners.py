"""The two learners against one another, against finite differences, and against a saved state."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from hyq.core.errors import HyqError
from hyq.core.types import Array, FloatArray
from hyq.models import torch_learner
from hyq.models.layers import Convolution
from hyq.models.learners import AdamSettings, Learner, Question
from hyq.models.make import make_learner
from hyq.models.networks import (
    FAINTEST,
    NATURE,
    NORMALISED_CONVOLUTIONS,
    SMALL_CONVOLUTIONS,
    InputScaling,
    Network,
    NetworkSpec,
)
from hyq.models.torch_learner import TorchLearner
from hyq.models.vector_learner import VectorLearner

ROWS, ACTIONS = 16, 4
SCALING = InputScaling(np.array([0.5, -1.0, 0.0], np.float32), np.array([2, 1, 0.5], np.float32))
CLIPPED = AdamSettings(weight_decay=0.01, max_gradient_norm=0.05)


def network(dueling: bool = True, extra: int = 0, hidden: tuple[int, ...] = (8, 6)) -> Network:
    return Network((3,), ACTIONS, NetworkSpec(hidden=hidden, dueling=dueling), SCALING, extra)


def in_numpy(of: Network, adam: AdamSettings = CLIPPED) -> Learner:
    return VectorLearner(of, of.initial(np.random.default_rng(0)), adam)


def in_torch(of: Network, adam: AdamSettings = CLIPPED) -> Learner:
    return TorchLearner(of, of.initial(np.random.default_rng(0)), adam, "cpu", bfloat16=False)


def observe(rng: np.random.Generator, of: Network) -> Array:
    if of.spec.convolutions:
        return rng.integers(256, size=(ROWS, *of.shape), dtype=np.uint8)
    return rng.normal(size=(ROWS, *of.shape)).astype(np.float32)


def learn(learner: Learner, of: Network, seed: int, steps: int) -> list[float]:
    """Pull the outputs towards noise, with a new target network half way."""
    rng, norms = np.random.default_rng(seed), []
    for k in range(steps):
        outputs, _ = learner.forward(observe(rng, of))
        noise = rng.normal(size=outputs.shape).astype(np.float32)
        norms.append(learner.step((outputs - noise) / ROWS, 1e-2 / (1 + k)))
        if k == steps // 2:
            learner.synchronise_target()
    return norms


@pytest.mark.parametrize(
    ("dueling", "extra", "hidden"),
    [*itertools.product([True, False], [0, 1, 5], [(8, 6)]), (True, 5, ()), (False, 0, (7,))],
)
def test_both_learners_take_the_same_steps(
    dueling: bool, extra: int, hidden: tuple[int, ...]
) -> None:
    described = network(dueling, extra, hidden)
    numpy, pytorch = in_numpy(described), in_torch(described)
    norms = learn(numpy, described, 1, 20)
    np.testing.assert_allclose(norms, learn(pytorch, described, 1, 20), rtol=1e-3)
    assert min(norms) > CLIPPED.max_gradient_norm, "clipping should have been active"
    for name, value in pytorch.parameters().items():
        np.testing.assert_allclose(numpy.parameters()[name], value, atol=2e-5, err_msg=name)
    probe = observe(np.random.default_rng(2), described)
    np.testing.assert_allclose(numpy.outputs(probe), pytorch.outputs(probe), atol=1e-4)
    targets = []
    for learner in (numpy, pytorch):
        questions = [Question(probe, target=True), Question(probe[:3], target=False)]
        outputs, (target, some) = learner.forward(observation=probe, questions=questions)
        np.testing.assert_array_equal(outputs, learner.outputs(probe))
        np.testing.assert_allclose(some, outputs[:3], atol=1e-5)
        targets.append(target)
    np.testing.assert_allclose(targets[0], targets[1], atol=1e-4)
    assert np.abs(targets[0] - outputs).max() > 1e-3
    assert numpy.outputs(probe).shape == (ROWS, ACTIONS + extra)


def test_weight_decay_and_clipping_each_change_the_steps() -> None:
    described = network()
    ends = []
    for adam in (AdamSettings(), AdamSettings(weight_decay=0.1), AdamSettings(epsilon=1e-2)):
        for make in (in_numpy, in_torch):
            learner = make(described, adam)
            learn(learner, described, 1, 5)
            ends.append(learner.arrays()["online" if make is in_numpy else "online.heads.0.bias"])
    for one, other in itertools.combinations(ends[::2], 2):
        assert np.abs(one - other).max() > 1e-3
    for one, other in itertools.combinations(ends[1::2], 2):
        assert np.abs(one - other).max() > 1e-5


def test_clipping_scales_the_whole_gradient_to_the_norm() -> None:
    described = network()
    moments = []
    for limit in (1e9, 0.05):
        learner = in_numpy(described, AdamSettings(max_gradient_norm=limit))
        norm = learn(learner, described, 1, 1)[0]
        moments.append(learner.arrays()["moments"][0])
    assert norm > 0.05
    np.testing.assert_allclose(moments[1], moments[0] * 0.05 / norm, rtol=1e-4, atol=1e-9)
    assert np.linalg.norm(moments[1]) == pytest.approx(0.1 * 0.05, rel=1e-4)


@pytest.mark.parametrize(("dueling", "extra"), [(True, 0), (False, 0), (True, 3)])
def test_the_gradient_agrees_with_finite_differences(dueling: bool, extra: int) -> None:
    described = network(dueling, extra)
    rng = np.random.default_rng(3)
    learner = in_numpy(described, AdamSettings(max_gradient_norm=1e9))
    start = learner.arrays()
    observation = observe(rng, described)
    direction = rng.normal(size=(ROWS, ACTIONS + extra)).astype(np.float32)
    learner.forward(observation)
    learner.step(direction, 0.0)
    gradient = learner.arrays()["moments"][0] / 0.1  # the first moment after one step

    def moved(k: int, by: float) -> float:
        online = start["online"].copy()
        online[k] += by
        learner.load({**start, "online": online})
        return float((direction * learner.outputs(observation)).sum(dtype=np.float64))

    # The outputs are piecewise linear in a single weight, so the step need not be small.
    differences = [(moved(k, 3e-3) - moved(k, -3e-3)) / 6e-3 for k in range(len(gradient))]
    close = np.isclose(differences, gradient, rtol=1e-2, atol=2e-2)
    assert close.mean() > 0.97  # the rest crossed a kink of a ReLU
    assert np.abs(gradient).mean() > 0.1


@pytest.mark.parametrize("make", [in_numpy, in_torch])
@pytest.mark.parametrize("before", [0, 5])
def test_a_saved_state_goes_on_bit_for_bit(make: Callable[[Network], Learner], before: int) -> None:
    described = network(extra=2)
    learner = make(described)
    if before:
        learn(learner, described, 1, before)
    saved = learner.arrays()
    kept = {name: array.copy() for name, array in saved.items()}
    learn(learner, described, 2, 5)
    for name, array in saved.items():
        np.testing.assert_array_equal(array, kept[name], err_msg="arrays must be copies")
    other = make(described)
    learn(other, described, 3, 4)  # whatever it was, loading replaces all of it
    other.load(saved)
    learn(other, described, 2, 5)
    for name, array in learner.arrays().items():
        np.testing.assert_array_equal(other.arrays()[name], array, err_msg=name)


def test_parameters_are_copies_by_pytorchs_names() -> None:
    learner = in_numpy(network(extra=2))
    parameters = learner.parameters()
    shapes = {name: value.shape for name, value in parameters.items()}
    assert shapes["body.1.weight"] == (8, 3)
    assert shapes["heads.0.weight"] == (1, 6)
    assert shapes["heads.1.bias"] == (4,)
    assert shapes["heads.2.bias"] == (2,)
    assert list(parameters) == list(in_torch(network(extra=2)).parameters())
    parameters["heads.0.weight"][:] = 99.0
    assert learner.parameters()["heads.0.weight"].max() < 1.0


@pytest.mark.parametrize("stream_hidden", [0, 5])
def test_the_dueling_head_has_one_value_and_centred_advantages(stream_hidden: int) -> None:
    spec = NetworkSpec(hidden=(8,), stream_hidden=stream_hidden)
    described = Network((3,), ACTIONS, spec, SCALING)
    module, rows = described.module(), observe(np.random.default_rng(0), described)
    bias = "heads.{}.2.bias" if stream_hidden else "heads.{}.bias"
    initial = described.initial(np.random.default_rng(0))

    def q(**changes: FloatArray) -> FloatArray:
        learner = TorchLearner(described, initial | changes, AdamSettings(), "cpu", bfloat16=False)
        return learner.outputs(rows)

    value, advantage = bias.format(0), bias.format(1)
    assert dict(module.named_parameters())[value].shape == (1,)
    raised = initial[advantage] + np.float32(3)
    np.testing.assert_allclose(q(**{advantage: raised}), q(), atol=1e-5)
    np.testing.assert_allclose(q(**{value: initial[value] + 3}), q() + 3, atol=1e-5)


def test_a_dueling_network_in_numpy_ignores_a_constant_of_the_advantages() -> None:
    described = network()
    rows, initial = (
        observe(np.random.default_rng(0), described),
        described.initial(np.random.default_rng(0)),
    )
    raised = initial | {"heads.1.bias": initial["heads.1.bias"] + np.float32(3)}
    before = VectorLearner(described, initial, CLIPPED).outputs(rows)
    after = VectorLearner(described, raised, CLIPPED).outputs(rows)
    np.testing.assert_allclose(before, after, atol=1e-5)


IMAGES = Network((2, 42, 42), ACTIONS, SMALL_CONVOLUTIONS, InputScaling.pixels(), 2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_convolutions_learn_from_bytes_in_either_precision(precision: str) -> None:
    learner = make_learner(
        IMAGES,
        np.random.default_rng(0),
        AdamSettings(),
        precision=precision,  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(1)
    images = observe(rng, IMAGES)
    wanted = rng.normal(size=(ROWS, ACTIONS + 2)).astype(np.float32)
    start, errors = learner.parameters(), []
    for _ in range(40):
        outputs, _ = learner.forward(images)
        assert outputs.dtype == np.float32
        errors.append(float(np.square(outputs - wanted).mean()))
        learner.step((outputs - wanted) / ROWS, 1e-3)
    assert errors[-1] < 0.3 * errors[0]
    for name, value in learner.parameters().items():
        assert np.any(value != start[name]), name
    np.testing.assert_array_equal(learner.outputs(images), learner.outputs(images))


@pytest.mark.parametrize(
    ("shape", "to_channels"),
    [
        ((42, 42), lambda rows: rows[:, None]),
        ((2, 42, 42), lambda rows: rows),
        ((42, 42, 3), lambda rows: rows.transpose(0, 3, 1, 2)),
        ((2, 1, 42, 42), lambda rows: rows.reshape(ROWS, 2, 42, 42)),
        (
            (2, 42, 42, 3),
            lambda rows: rows.transpose(0, 1, 4, 2, 3).reshape(ROWS, 6, 42, 42),
        ),
    ],
)
def test_images_of_any_layout_are_seen_alike(
    shape: tuple[int, ...], to_channels: Callable[[Array], Array]
) -> None:
    described = replace(IMAGES, shape=shape)
    rows = observe(np.random.default_rng(0), described)
    channels = to_channels(rows)
    plain = replace(IMAGES, shape=channels.shape[1:])
    seen, expected = in_torch(described).outputs(rows), in_torch(plain).outputs(channels)
    np.testing.assert_allclose(seen, expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 42, 42), (2, 42, 42, 3)])
def test_one_scaling_serves_every_frame_of_a_stack(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    frame = InputScaling(*rng.random((2, *shape[1:]), dtype=np.float32))
    every = InputScaling(*(np.repeat(part[None], 2, axis=0) for part in vars(frame).values()))
    rows = rng.integers(256, size=(ROWS, *shape), dtype=np.uint8)
    one, each = (in_torch(replace(IMAGES, shape=shape, scaling=s)) for s in (frame, every))
    np.testing.assert_array_equal(one.outputs(rows), each.outputs(rows))


@pytest.mark.parametrize("shape", [(2, 42, 42), (42, 42, 3), (2, 42, 42, 3)])
def test_standard_pixels_are_scaled_each_by_itself_in_any_layout(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    sample = rng.integers(256, size=(200, *shape), dtype=np.uint8)
    sample.reshape(200, -1)[:, 0] = 7  # never changes
    scaling = InputScaling.standard_pixels(sample)
    scaled = (sample - scaling.shift) * scaling.scale
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-3)
    assert scaling.scale.flat[0] == 1 / FAINTEST
    np.testing.assert_allclose(np.delete(scaled.std(axis=0).ravel(), 0), 1.0, rtol=1e-3)

    described = replace(IMAGES, shape=shape, scaling=scaling)
    unscaled = replace(
        described, scaling=InputScaling(np.zeros((), np.float32), np.ones((), np.float32))
    )
    np.testing.assert_allclose(
        in_torch(described).outputs(sample[:ROWS]),
        in_torch(unscaled).outputs(scaled[:ROWS].astype(np.float32)),
        atol=1e-4,
    )


def test_normalised_layers_do_not_feel_the_size_of_what_enters_them() -> None:
    described = Network((4, 42, 42), ACTIONS, NORMALISED_CONVOLUTIONS, InputScaling.pixels())
    initial = described.initial(np.random.default_rng(0))
    normalised = [name for name in initial if name.startswith("body.") and initial[name].ndim == 1]
    assert any(np.all(initial[name] == 1) for name in normalised), "gains start at one"
    louder = {
        name: value * 10 if name.startswith("body.5") else value for name, value in initial.items()
    }
    rows = observe(np.random.default_rng(1), described)
    quiet, loud = (
        TorchLearner(described, start, CLIPPED, "cpu", bfloat16=False).outputs(rows)
        for start in (initial, louder)
    )
    np.testing.assert_allclose(quiet, loud, rtol=1e-2)
    assert isinstance(make_learner(described, np.random.default_rng(0), CLIPPED), TorchLearner)


def test_bfloat16_is_near_float32_but_not_the_same() -> None:
    described = network()
    exact, rounded = (
        make_learner(described, np.random.default_rng(0), CLIPPED, precision=precision)
        for precision in ("float32", "bfloat16")
    )
    assert isinstance(exact, VectorLearner)
    assert isinstance(rounded, TorchLearner)
    rows = observe(np.random.default_rng(1), described)
    difference = np.abs(exact.outputs(rows) - rounded.outputs(rows)).max()
    assert 0 < difference < 0.03
    assert math.isfinite(learn(rounded, described, 1, 3)[-1])


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("spec", [SMALL_CONVOLUTIONS, NORMALISED_CONVOLUTIONS])
def test_a_helper_changes_no_bit(
    spec: NetworkSpec, bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_learner, "PIECE", 50_000)
    described = Network((2, 42, 42), ACTIONS, spec, InputScaling.pixels(), 2)
    rows = observe(np.random.default_rng(5), described)
    ends = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            initial = described.initial(np.random.default_rng(0))
            learner = TorchLearner(described, initial, CLIPPED, "cpu", bfloat16)
            assert learner.hands.helped == (threads == 2)
            norms = learn(learner, described, 1, 8)
            few = rows[:9]
            _, answers = learner.forward(rows, [Question(rows, True), Question(few, False)])
            np.testing.assert_allclose(answers[1], learner.outputs(few), atol=0.02)
            ends.append({**learner.arrays(), "norms": np.array(norms)})
            ends[-1] |= {"target": answers[0], "online": answers[1]}
        finally:
            torch.set_num_threads(1)
    for name, value in ends[0].items():
        np.testing.assert_array_equal(value, ends[1][name], err_msg=name)


@pytest.mark.parametrize("threads", [1, 2])
def test_questions_asked_ahead_are_answered_by_the_target_network_of_the_step(threads: int) -> None:
    described = Network((2, 42, 42), ACTIONS, SMALL_CONVOLUTIONS, InputScaling.pixels())
    torch.set_num_threads(threads)
    try:
        initial = described.initial(np.random.default_rng(0))
        learner = TorchLearner(described, initial, CLIPPED, "cpu", bfloat16=False)
        rows = observe(np.random.default_rng(5), described)
        questions = [Question(rows, True), Question(rows, False)]
        learner.ask(questions, ahead=True)
        assert questions[1].answer is None, "the network will have learned by then"
        learn(learner, described, 1, 3)
        learner.synchronise_target()
        learn(learner, described, 2, 3)
        _, (settled, learned) = learner.forward(rows, questions)
        now = learner.forward(rows, [Question(rows, True), Question(rows, False)])[1]
        np.testing.assert_array_equal(settled, now[0])
        np.testing.assert_array_equal(learned, now[1])
        assert np.abs(settled - learned).max() > 1e-4
    finally:
        torch.set_num_threads(1)


def test_a_new_target_network_does_not_ask_the_learning_one_again() -> None:
    learner, rows = in_torch(IMAGES), observe(np.random.default_rng(5), IMAGES)
    learn(learner, IMAGES, 1, 3)
    questions = [Question(rows, True), Question(rows, False)]
    learner.ask(questions, ahead=True)
    learner.ask(questions)
    before = [question.answer for question in questions]
    learner.synchronise_target()
    assert questions[0].answer is not before[0]
    assert questions[1].answer is before[1]
    outputs, answers = learner.forward(rows, questions)
    for answer in answers:
        np.testing.assert_allclose(answer, outputs, atol=1e-6)


@pytest.mark.parametrize(("dueling", "extra"), [(True, 0), (True, 5), (False, 0), (False, 5)])
def test_where_the_order_is_all_that_counts_values_are_shifted_together(
    dueling: bool, extra: int
) -> None:
    described = network(dueling, extra)
    rows = observe(np.random.default_rng(5), described)
    for learner in (in_numpy(described), in_torch(described)):
        learn(learner, described, 1, 3)
        exact = learner.outputs(rows)
        _, (asked,) = learner.forward(rows, [Question(rows, target=False, order_only=True)])
        for ordered in (asked, learner.outputs(rows, order_only=True)):
            shift = exact - ordered
            np.testing.assert_allclose(
                shift[:, :ACTIONS], shift[:, :1].repeat(ACTIONS, 1), atol=1e-6
            )
            np.testing.assert_allclose(ordered[:, ACTIONS:], exact[:, ACTIONS:], atol=1e-6)
            np.testing.assert_array_equal(
                ordered[:, :ACTIONS].argmax(axis=1), exact[:, :ACTIONS].argmax(axis=1)
            )


def test_the_norm_is_that_of_the_whole_gradient_and_clipping_keeps_to_it() -> None:
    ends = []
    for limit in (1e9, 0.05):
        learner = in_torch(IMAGES, AdamSettings(max_gradient_norm=limit))
        norm = learn(learner, IMAGES, 1, 1)[0]
        moments = [v for name, v in learner.arrays().items() if name.startswith("mean.")]
        ends.append(10 * math.hypot(*(float(np.linalg.norm(moment)) for moment in moments)))
    assert ends[0] == pytest.approx(norm, rel=1e-4)
    assert ends[1] == pytest.approx(0.05, rel=1e-4)


@pytest.mark.parametrize("spec", [NetworkSpec(hidden=(8, 6)), NORMALISED_CONVOLUTIONS])
def test_gradients_in_torch_agree_with_finite_differences(spec: NetworkSpec) -> None:
    """Of every layer, in the direction of its own gradient."""
    shape, scaling = ((2, 42, 42), InputScaling.pixels()) if spec.convolutions else ((3,), SCALING)
    described = Network(shape, ACTIONS, spec, scaling)
    rng = np.random.default_rng(3)
    learner = in_torch(described, AdamSettings(max_gradient_norm=1e9))
    start, observation = learner.arrays(), observe(rng, described)
    direction = rng.normal(size=(ROWS, ACTIONS)).astype(np.float32)
    learner.forward(observation)
    learner.step(direction, 0.0)
    gradients = {k: v / 0.1 for k, v in learner.arrays().items() if k.startswith("mean.")}
    for name, gradient in gradients.items():
        key, length = name.replace("mean.", "online."), float(np.linalg.norm(gradient))
        values = []
        for sign in (1, -1):
            moved = start[key] + sign * 1e-3 * gradient / length
            learner.load({**start, key: moved})
            outputs = learner.outputs(observation).astype(np.float64)
            values.append(float((direction * outputs).sum()))
        slope = (values[0] - values[1]) / 2e-3
        assert slope == pytest.approx(length, rel=0.05), name


def test_weights_of_another_network_are_refused() -> None:
    learner, other = in_torch(network()), in_torch(network(hidden=(8, 7)))
    with pytest.raises(HyqError, match="another network"):
        learner.load(other.arrays())


def test_the_fastest_learner_is_chosen_and_starts_from_the_same_weights() -> None:
    described = network()
    streams = replace(described, spec=replace(described.spec, stream_hidden=5))
    assert isinstance(make_learner(IMAGES, np.random.default_rng(0), CLIPPED), TorchLearner)
    assert isinstance(make_learner(streams, np.random.default_rng(0), CLIPPED), TorchLearner)
    chosen = make_learner(described, np.random.default_rng(0), CLIPPED)
    for name, value in in_torch(described).parameters().items():
        np.testing.assert_array_equal(chosen.parameters()[name], value)


@pytest.mark.parametrize("device", ["abacus", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(HyqError, match=f"no device '{device}' here"):
        make_learner(network(), np.random.default_rng(0), CLIPPED, device=device)


def test_initial_weights_lie_within_the_root_of_their_fan_in() -> None:
    for described in (network(hidden=(64, 32)), IMAGES):
        initial = described.initial(np.random.default_rng(0))
        for name, weight in initial.items():
            if name.endswith("weight"):
                bound = math.prod(weight.shape[1:]) ** -0.5
                bias = initial[name.removesuffix("weight") + "bias"]
                assert 0.5 * bound < np.abs(weight).max() <= bound
                assert np.abs(bias).max() <= bound
        again = described.initial(np.random.default_rng(0))
        assert all(np.array_equal(again[name], initial[name]) for name in initial)


def test_scalings_bring_observations_near_the_unit_range() -> None:
    low, high = np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)
    box = InputScaling.box(low, high)
    for corner, expected in ((low, -1.0), (high, 1.0)):
        np.testing.assert_allclose((corner - box.shift) * box.scale, expected, atol=1e-6)
    sample = np.random.default_rng(0).normal([5.0, 0.0], [0.1, 1.0], (1000, 2))
    sample = np.column_stack([sample, np.full(1000, 3.0)]).astype(np.float32)
    standard = InputScaling.standard(sample)
    scaled = (sample - standard.shift) * standard.scale
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-3)
    np.testing.assert_allclose(scaled.std(axis=0), [1.0, 1.0, 0.0], atol=1e-3)
    still = InputScaling.box(np.zeros(2), np.array([0.0, 1.0]))
    np.testing.assert_array_equal(still.scale, [1.0, 2.0])
    for alone in (
        InputScaling.box(np.array(0.0), np.array(4.0)),
        InputScaling.standard(np.arange(4.0)),
    ):
        assert isinstance(alone.shift, np.ndarray)
        assert isinstance(alone.scale, np.ndarray)
    pixels = InputScaling.pixels()
    np.testing.assert_allclose((np.array([0, 255]) - pixels.shift) * pixels.scale, [0, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NetworkSpec(hidden=(0,)), "at least one unit"),
        (lambda: NetworkSpec(((8, 3, 0),)), "at least one unit"),
        (lambda: NetworkSpec(stream_hidden=-1), "at least one unit"),
        (lambda: Network((4,), 2, NATURE, SCALING), "need images"),
        (lambda: Network((4, 20, 20), 2, NATURE, InputScaling.pixels()), "too small"),
    ],
)
def test_networks_that_cannot_be_built_are_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(HyqError, match=message):
        make()


def test_the_network_of_the_nature_paper_has_its_size() -> None:
    described = Network((4, 84, 84), 18, NATURE, InputScaling.pixels())
    parameters = described.initial(np.random.default_rng(0))
    assert parameters["heads.0.0.weight"].shape == (512, 64, 7, 7)
    convolutions = (4 * 64 + 1) * 32 + (32 * 16 + 1) * 64 + (64 * 9 + 1) * 64
    assert sum(v.size for name, v in parameters.items() if "body" in name) == convolutions


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(
    ("kernel", "stride", "together"), [(8, 4, 4), (4, 2, 2), (6, 4, 1), (6, 3, 1)]
)
def test_pixels_taken_together_are_convolved_as_if_they_were_not(
    dtype: torch.dtype, kernel: int, stride: int, together: int
) -> None:
    spec = NetworkSpec(((5, kernel, stride),), hidden=(3,))
    described = Network((3, 40, 36), ACTIONS, spec, InputScaling.pixels())
    module, rng = described.module(), np.random.default_rng(0)
    module.set_parameters(described.initial(rng))
    images = torch.from_numpy(rng.integers(256, size=(2, 3, 40, 36), dtype=np.uint8)).to(dtype)
    first = module.body[0]
    assert isinstance(first, Convolution)
    assert described.pixels_together == together == first.weight.shape[1] // 3
    apart = first.weight.view(5, 3, together, kernel, kernel // together)
    filters = apart.permute(0, 1, 3, 4, 2).flatten(-2)
    assert filters.shape == (5, 3, kernel, kernel)
    plain = torch.nn.functional.conv2d(images.float() / 255, filters, first.bias, stride)
    torch.testing.assert_close(first(module.scaled(images)), plain, atol=1e-5, rtol=1e-5)
