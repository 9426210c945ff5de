"""Losses against values worked out by hand."""

import math

import pytest
import torch

from hyq.losses import chosen, conservative_penalty, large_margin_loss

Q = torch.tensor([[0.0, math.log(2.0), math.log(5.0)], [1.0, 1.0, 1.0]])


def test_chosen_takes_one_value_a_row_in_any_batch_shape() -> None:
    torch.testing.assert_close(chosen(Q, torch.tensor([2, 0])), torch.tensor([math.log(5.0), 1.0]))
    torch.testing.assert_close(chosen(Q[None], torch.tensor([[1, 1]])), Q[None, :, 1])


def test_the_conservative_penalty_is_the_negative_log_likelihood_of_the_action() -> None:
    # exp Q = (1, 2, 5) has shares 1/8, 1/4, 5/8; equal values have thirds
    penalty = conservative_penalty(Q, torch.tensor([1, 0]))
    torch.testing.assert_close(penalty, torch.tensor([math.log(4.0), math.log(3.0)]))


def test_the_conservative_penalty_lowers_every_action_but_the_logged_one() -> None:
    q = Q.clone().requires_grad_()
    conservative_penalty(q, torch.tensor([1, 0])).sum().backward()  # type: ignore[no-untyped-call]
    expected = torch.tensor([[1 / 8, 1 / 4 - 1, 5 / 8], [1 / 3 - 1, 1 / 3, 1 / 3]])
    torch.testing.assert_close(q.grad, expected)


@pytest.mark.parametrize(
    ("values", "action", "expected"),
    [
        ([1.0, 0.1, 0.0], 0, 0.0),  # ahead of all others by more than the margin
        ([1.0, 0.5, 0.0], 0, 0.3),  # 0.5 + 0.8 - 1.0
        ([1.0, 0.5, 0.0], 2, 1.8),  # 1.0 + 0.8 - 0.0
        ([0.0, 0.0, 0.0], 1, 0.8),  # nothing told apart
    ],
)
def test_the_large_margin_loss(values: list[float], action: int, expected: float) -> None:
    loss = large_margin_loss(torch.tensor([values]), torch.tensor([action]), 0.8)
    torch.testing.assert_close(loss, torch.tensor([expected]))


def test_without_a_margin_only_the_best_action_costs_nothing() -> None:
    loss = large_margin_loss(Q[:1].expand(3, 3), torch.tensor([0, 1, 2]), 0.0)
    torch.testing.assert_close(loss, torch.tensor([math.log(5.0), math.log(2.5), 0.0]))
