"""The deep trainer's mathematics, schedules and images against values worked out by hand."""

import math

import numpy as np
import pytest
import torch

from hyq.core.errors import HyqError
from hyq.core.images import shrink
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.targets import (
    bootstrap_target,
    expectile_slope,
    huber_slope,
    large_margin_slope,
    log_likelihood_slope,
    signed_log,
    softmax,
)
from hyq.core.types import Array
from hyq.losses import conservative_penalty, large_margin_loss


def gradient(loss: torch.Tensor, of: torch.Tensor) -> Array:
    (slope,) = torch.autograd.grad(loss, of)
    return slope.numpy()


def test_the_selector_chooses_and_the_target_network_values() -> None:
    q_t = np.array([[1.0, 2.0], [5.0, 3.0], [7.0, 8.0]])
    selector = np.array([[9.0, 0.0], [0.0, 9.0], [0.0, 1.0]])
    r_t, discount_t = np.array([0.5, 0.5, 0.5]), np.array([0.9, 0.5, 0.0])
    double = bootstrap_target(r_t, discount_t, q_t, selector)
    np.testing.assert_allclose(double, [0.5 + 0.9 * 1.0, 0.5 + 0.5 * 3.0, 0.5])
    plain = bootstrap_target(r_t, discount_t, q_t, q_t)
    np.testing.assert_allclose(plain, [0.5 + 0.9 * 2.0, 0.5 + 0.5 * 5.0, 0.5])


def test_the_huber_slope_is_that_of_the_huber_loss() -> None:
    error = torch.tensor([-3.0, -1.0, -0.25, 0.0, 0.5, 1.0, 9.0], requires_grad=True)
    loss = torch.nn.functional.huber_loss(error, torch.zeros(7), reduction="sum", delta=1.0)
    np.testing.assert_allclose(huber_slope(error.detach().numpy()), gradient(loss, error))


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.9])
def test_the_expectile_slope_is_zero_at_the_expectile(expectile: float) -> None:
    sample = np.array([0.0, 1.0])  # the expectile of a fair coin is the expectile itself
    assert expectile_slope(sample - expectile, expectile).sum() == pytest.approx(0.0)
    assert expectile_slope(sample - 0.2, expectile).sum() < 0  # v is too low: descending raises it
    v = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    u = torch.tensor([1.0, -2.0], dtype=torch.float64) - v
    loss = ((expectile - (u < 0).double()).abs() * u**2 / 2).sum()
    slope = expectile_slope(u.detach().numpy(), expectile).sum()
    np.testing.assert_allclose(slope, gradient(loss, v))


def test_the_softmax_is_a_distribution_for_any_logits() -> None:
    logits = np.array([[0.0, math.log(3.0)], [1000.0, 1000.0], [-1000.0, 0.0]])
    np.testing.assert_allclose(softmax(logits), [[0.25, 0.75], [0.5, 0.5], [0.0, 1.0]])


def test_slopes_of_the_likelihood_and_of_the_margin_are_those_of_their_losses() -> None:
    rng = np.random.default_rng(0)
    q, action = rng.normal(size=(50, 4)), rng.integers(4, size=50)
    tensor, index = torch.tensor(q, requires_grad=True), torch.tensor(action)
    penalty = gradient(conservative_penalty(tensor, index).sum(), tensor)
    np.testing.assert_allclose(log_likelihood_slope(q, action), penalty, atol=1e-12)
    margin = gradient(large_margin_loss(tensor, index, 0.8).sum(), tensor)
    np.testing.assert_allclose(large_margin_slope(q, action, 0.8), margin, atol=1e-12)
    assert (margin == 0).all(axis=1).any(), "some demonstrated action should be far ahead"


def test_the_signed_logarithm_keeps_signs_and_small_rewards() -> None:
    reward = np.array([0.0, 1.0, -1.0, 400.0, 1e-4])
    expected = [0.0, math.log(2), -math.log(2), math.log(401), 1e-4]
    np.testing.assert_allclose(signed_log(reward), expected, rtol=1e-4)


def test_schedules_are_linear_between_knots_and_constant_outside() -> None:
    line = PiecewiseLinear.parse("100:1, 200:0.5, 300:0.5, 400:0")
    times = [0, 100, 150, 200, 250, 350, 400, 1e9]
    assert [line(time) for time in times] == pytest.approx([1, 1, 0.75, 0.5, 0.5, 0.25, 0, 0])
    assert line.range == (0.0, 1.0)


def test_a_schedule_is_made_of_whatever_says_it() -> None:
    assert schedule(0.25)(7) == schedule("0.25")(7) == 0.25
    line = schedule("0:0.2, 5e6:0.1")
    assert schedule(line) is line
    assert line(2.5e6) == pytest.approx(0.15)


@pytest.mark.parametrize("text", ["", "much", "0:1, 5", "10:0, 10:1", "10:0, 5:1", "0:1:2", "nan"])
def test_text_that_is_no_schedule_raises(text: str) -> None:
    with pytest.raises(HyqError, match="schedule"):
        PiecewiseLinear.parse(text)


def test_shrinking_averages_blocks_and_rounds_to_the_nearest() -> None:
    image = np.array([[0, 1, 255, 255], [1, 0, 255, 255]], np.uint8)
    np.testing.assert_array_equal(shrink(image, 2), [[1, 255]])  # 0.5 rounds up, no overflow
    assert shrink(image, 1) is image
    batch = np.random.default_rng(0).integers(256, size=(3, 2, 12, 8), dtype=np.uint8)
    mean = batch.reshape(3, 2, 3, 4, 2, 4).mean(axis=(3, 5))
    assert np.abs(shrink(batch, 4) - mean).max() <= 0.5
    with pytest.raises(HyqError, match="cannot be downsampled"):
        shrink(batch, 5)


@pytest.mark.parametrize("colours", [1, 3, 4])
def test_colours_are_not_mixed_with_their_neighbours(colours: int) -> None:
    batch = np.random.default_rng(0).integers(256, size=(2, 12, 6, colours), dtype=np.uint8)
    shrunk = shrink(batch, 3)
    assert shrunk.shape == (2, 4, 2, colours)
    for colour in range(colours):
        np.testing.assert_array_equal(shrunk[..., colour], shrink(batch[..., colour], 3))
    assert shrink(batch[0], 3).shape == (4, 2, colours)


def test_only_bytes_can_be_shrunk() -> None:
    with pytest.raises(HyqError, match="bytes"):
        shrink(np.zeros((4, 4)), 2)
