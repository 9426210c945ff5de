"""Losses worked out by hand, and their gradients against finite differences."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hyq import losses

Q = torch.tensor([[1.0, 2.0, 4.0], [0.5, -1.0, 0.0]], dtype=torch.float64)
ACTION = torch.tensor([1, 2])


def close(found: Tensor, expected: list[float] | list[list[float]]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype))


def doubles(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_q_learning_by_hand() -> None:
    q_t = torch.tensor([[3.0, 5.0, 1.0], [2.0, 0.0, 1.0]], dtype=torch.float64)
    r_t, discount_t = doubles(1.0, -1.0), doubles(0.5, 0.9)
    # Targets 1 + 0.5 * 5 and -1 + 0.9 * 2, values 2 and 0.
    close(losses.q_learning(Q, ACTION, r_t, discount_t, q_t), [1.5, 0.8])
    selector = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    # The selector chooses actions 0 and 2, which q_t values 3 and 1.
    close(losses.q_learning(Q, ACTION, r_t, discount_t, q_t, selector), [0.5, -0.1])
    close(losses.q_learning(Q, ACTION, r_t, discount_t, q_t, None, (0.9, 2.0)), [0.0, 0.9])
    close(losses.q_learning(Q, ACTION, r_t, doubles(0.0, 0.0), q_t), [-1.0, -1.0])


def test_no_gradient_goes_through_targets() -> None:
    q_tm1, q_t, selector = (Q.clone().requires_grad_() for _ in range(3))
    error = losses.q_learning(q_tm1, ACTION, doubles(1, 1), doubles(1, 1), q_t, selector)
    gradients = torch.autograd.grad(
        error.sum(), (q_tm1, q_t, selector), allow_unused=True, materialize_grads=True
    )
    close(gradients[0], [[0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
    assert not gradients[1].any()
    assert not gradients[2].any()
    v_tm1, v_t = doubles(1.0).requires_grad_(), doubles(2.0).requires_grad_()
    error = losses.td_learning(v_tm1, doubles(1.0), doubles(0.5), v_t)
    gradients = torch.autograd.grad(
        error.sum(), (v_tm1, v_t), allow_unused=True, materialize_grads=True
    )
    close(gradients[0], [-1.0])
    assert not gradients[1].any()


def test_chosen_picks_one_entry_a_row_of_any_shape() -> None:
    close(losses.chosen(Q, ACTION), [2.0, 0.0])
    stacked = torch.stack([Q, 10 * Q])
    close(losses.chosen(stacked, torch.stack([ACTION, ACTION])), [[2.0, 0.0], [20.0, 0.0]])


def test_losses_of_all_actions_take_any_number_of_axes() -> None:
    stacked, taken = torch.stack([Q, 10 * Q, -Q]), torch.stack([ACTION] * 3)
    penalty = losses.conservative_penalty(stacked, taken)
    margin = losses.large_margin_loss(stacked, taken, 0.8)
    for row, q in enumerate(stacked):
        torch.testing.assert_close(penalty[row], losses.conservative_penalty(q, ACTION))
        torch.testing.assert_close(margin[row], losses.large_margin_loss(q, ACTION, 0.8))


def test_td_learning_by_hand() -> None:
    found = losses.td_learning(
        doubles(1.0, 4.0), doubles(0.5, -1.0), doubles(0.9, 0.0), doubles(2.0, 7.0)
    )
    close(found, [1.3, -5.0])


def test_robust_losses_by_hand() -> None:
    error = doubles(-3.0, -1.0, -0.5, 0.0, 0.5, 2.0)
    close(losses.huber_loss(error), [2.5, 0.5, 0.125, 0.0, 0.125, 1.5])
    close(losses.squared_loss(error), [9.0, 1.0, 0.25, 0.0, 0.25, 4.0])
    assert {"huber": losses.huber_loss, "squared": losses.squared_loss} == losses.ROBUST


def test_the_conservative_penalty_is_a_negative_log_likelihood() -> None:
    q = torch.tensor([[0.0, math.log(3.0)], [5.0, 5.0]], dtype=torch.float64)
    close(
        losses.conservative_penalty(q, torch.tensor([1, 0])), [-math.log(3.0 / 4.0), math.log(2.0)]
    )
    expected = torch.nn.functional.cross_entropy(Q, ACTION, reduction="none")
    torch.testing.assert_close(losses.conservative_penalty(Q, ACTION), expected)


def test_the_large_margin_loss_by_hand() -> None:
    # Row 1: max(1 + m, 2, 4 + m) - 2; row 2: max(0.5 + m, -1 + m, 0) - 0.
    close(losses.large_margin_loss(Q, ACTION, 0.8), [2.8, 1.3])
    close(losses.large_margin_loss(Q, torch.tensor([2, 0]), 0.8), [0.0, 0.3])
    close(losses.large_margin_loss(Q, torch.tensor([2, 0]), 0.4), [0.0, 0.0])
    close(losses.large_margin_loss(Q, torch.tensor([2, 0]), 0.0), [0.0, 0.0])


def test_the_expectile_loss_by_hand() -> None:
    close(losses.expectile_loss(doubles(-2.0, 0.0, 2.0), 0.7), [0.6, 0.0, 1.4])
    close(losses.expectile_loss(doubles(-2.0, 1.0), 0.5), [1.0, 0.25])


def test_advantage_weights_by_hand() -> None:
    advantage = doubles(-1.0, 0.0, 0.5, 1.0, 1e6).requires_grad_()
    found = losses.advantage_weights(advantage, 2.0, 5.0)
    close(found, [math.exp(-2), 1.0, math.e, 5.0, 5.0])
    assert not found.requires_grad
    close(losses.advantage_weights(advantage, 0.0, 5.0), [1.0] * 5)


def test_the_clipped_surrogate_by_hand() -> None:
    ratio = doubles(0.5, 0.5, 1.1, 1.5, 1.5)
    advantage = doubles(2.0, -2.0, 1.0, 2.0, -2.0)
    close(losses.clipped_surrogate(ratio, advantage, 0.2), [-1.0, 1.6, -1.1, -2.4, 3.0])


def naive_advantage(
    r_t: Tensor, discount_t: Tensor, v_tm1: Tensor, v_t: Tensor, lambda_t: Tensor
) -> Tensor:
    """Sum the discounted TD errors that come after each time, term by term."""
    error = r_t + discount_t * v_t - v_tm1
    found = torch.zeros_like(error)
    for start in range(len(error)):
        share = torch.ones_like(error[0])
        for t in range(start, len(error)):
            found[start] += share * error[t]
            share = share * discount_t[t] * lambda_t[t]
    return found


def test_generalised_advantages() -> None:
    one = torch.ones(3, dtype=torch.float64)
    zero = torch.zeros(3, dtype=torch.float64)
    # Errors are the rewards; each weighs half of what the next one does to it.
    found = losses.generalised_advantage(doubles(1, 2, 4), one, zero, zero, one / 2)
    close(found, [3.0, 4.0, 4.0])
    close(losses.generalised_advantage(*(doubles(x) for x in (1, 0.5, 3, 2, 0.9))), [-1.0])
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.rand(6, 2, generator=generator, dtype=torch.float64) for _ in range(5)]
    inputs[1][2, 0] = inputs[4][3, 1] = 0.0  # an end of the return, and one of the episode
    found = losses.generalised_advantage(*inputs)
    torch.testing.assert_close(found, naive_advantage(*inputs))


DISCOUNTS = doubles(0.9, 0.0)
SCALAR: dict[str, Callable[[Tensor], Tensor]] = {
    "huber": losses.huber_loss,
    "squared": losses.squared_loss,
    "expectile": lambda x: losses.expectile_loss(x, 0.7),
    "td": lambda x: losses.squared_loss(
        losses.td_learning(x, doubles(1, 2, 3, 4), doubles(0.9, 0, 1, 0.5), doubles(2, 1, 0, -1))
    ),
    "surrogate": lambda x: losses.clipped_surrogate(x, doubles(1, -1, 2, -2), 0.2),
}
MATRIX: dict[str, Callable[[Tensor], Tensor]] = {
    "q_learning": lambda q: losses.huber_loss(
        losses.q_learning(q, ACTION, doubles(0.3, 4.0), DISCOUNTS, Q)
    ),
    "conservative": lambda q: losses.conservative_penalty(q, ACTION),
    "margin": lambda q: losses.large_margin_loss(q, ACTION, 0.8),
}


@pytest.mark.parametrize("name", SCALAR)
def test_gradients_of_vectors_are_those_of_finite_differences(name: str) -> None:
    point = doubles(-2.3, -0.4, 0.7, 1.9).requires_grad_()
    assert torch.autograd.gradcheck(SCALAR[name], (point,))


@pytest.mark.parametrize("name", MATRIX)
def test_gradients_of_matrices_are_those_of_finite_differences(name: str) -> None:
    point = (Q + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(MATRIX[name], (point,))


V = doubles(1.0, 2.0)
WRONG: dict[str, Callable[[], Tensor]] = {
    "q_t": lambda: losses.q_learning(Q, ACTION, V, V, Q[:1]),
    "selector": lambda: losses.q_learning(Q, ACTION, V, V, Q, Q[:, :2]),
    "action": lambda: losses.q_learning(Q, ACTION[:1], V, V, Q),
    "column": lambda: losses.q_learning(Q, ACTION, V[:, None], V, Q),
    "discount": lambda: losses.q_learning(Q, ACTION, V, V[:1], Q),
    "v_t": lambda: losses.td_learning(V, V, V, V[:, None]),
    "reward": lambda: losses.td_learning(V, V[:1], V, V),
    "discount of v": lambda: losses.td_learning(V, V, V[:1], V),
    "cql": lambda: losses.conservative_penalty(Q, ACTION[:1]),
    "margin": lambda: losses.large_margin_loss(Q, ACTION[:1], 0.8),
    "ppo": lambda: losses.clipped_surrogate(V, V[:1], 0.2),
}


@pytest.mark.parametrize("name", WRONG)
def test_shapes_that_would_be_broadcast_raise(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected equal shapes, got \[\("):
        WRONG[name]()
