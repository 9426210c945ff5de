"""Stacks of networks against single networks, and Adam against PyTorch's."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from hyq.core.errors import HyqError
from hyq.fqi.stack import Adam, Stack, action_count

SHAPE = Stack(members=3, inputs=4, hidden=(5,), outputs=2)


def parameters(seed: int = 0) -> torch.Tensor:
    return SHAPE.initial(np.random.default_rng(seed))


def test_each_member_is_a_network_of_its_own() -> None:
    theta = parameters()
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 6, 4)).astype(np.float32))
    together = SHAPE(theta, x)
    for i, function in enumerate(SHAPE.functions(theta, horizon=3)):
        np.testing.assert_allclose(function.values(x[i].numpy()), together[i], atol=1e-6)
    # and one of them written out
    (w0, b0), (w1, b1) = SHAPE.layers(theta)
    by_hand = torch.relu(x[1] @ w0[1] + b0[1]) @ w1[1] + b1[1]
    torch.testing.assert_close(together[1], by_hand)


def test_observations_may_be_whole_numbers() -> None:
    x = torch.from_numpy(np.random.default_rng(1).integers(9, size=(3, 6, 4)))
    torch.testing.assert_close(SHAPE(parameters(), x), SHAPE(parameters(), x.float()))


def test_what_a_step_leads_to_is_judged_by_the_next_member() -> None:
    theta = parameters()
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 6, 4)).astype(np.float32))
    f = SHAPE.functions(theta, 3)
    following = SHAPE.following(theta, x)
    np.testing.assert_allclose(following[0], f[1].values(x[0].numpy()), atol=1e-6)
    np.testing.assert_allclose(following[1], f[2].values(x[1].numpy()), atol=1e-6)


def test_a_single_member_serves_every_step_and_judges_its_own_successors() -> None:
    shape = Stack(members=1, inputs=2, hidden=(), outputs=2)
    theta = torch.tensor([1.0, 2.0, 3.0, 4.0, 0.5, -0.5])
    x = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    torch.testing.assert_close(shape(theta, x), torch.tensor([[[1.5, 1.5], [3.5, 3.5]]]))
    torch.testing.assert_close(shape.following(theta, x), shape(theta, x))
    assert len(shape.functions(theta, horizon=7)) == 7


def test_functions_do_not_follow_later_training() -> None:
    theta = parameters()
    f = SHAPE.functions(theta, 3)
    x = np.ones((1, 4), np.float32)
    before = f[0].values(x)
    theta += 1.0
    np.testing.assert_array_equal(f[0].values(x), before)


def test_adam_takes_the_steps_of_pytorch() -> None:
    ours = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    adam, reference = Adam.fresh(ours.detach()), torch.optim.Adam([theirs], lr=0.1)
    for t in range(20):
        scale = torch.tensor([1.0, 0.1, 10.0 * t])
        adam.descend(ours, (scale * ours.square()).sum(), 0.1)
        reference.zero_grad()
        (scale * theirs.square()).sum().backward()  # type: ignore[no-untyped-call]
        reference.step()
        torch.testing.assert_close(ours, theirs)
    assert (ours.detach() - torch.tensor([1.0, -2.0, 3.0])).abs().min() > 0.5


def test_adam_survives_being_saved() -> None:
    theta = torch.ones(3, requires_grad=True)
    adam = Adam.fresh(theta.detach())
    adam.descend(theta, theta.square().sum(), 0.1)
    again = Adam.rebuild(adam.arrays())
    other = theta.detach().clone().requires_grad_()
    adam.descend(theta, theta.square().sum(), 0.1)
    again.descend(other, other.square().sum(), 0.1)
    assert torch.equal(theta, other)


def test_networks_without_width_and_spaces_without_indices_are_refused() -> None:
    with pytest.raises(HyqError):
        Stack(1, 3, (0,), 2)
    assert action_count(gym.spaces.Discrete(4)) == 4
    for space in (gym.spaces.Box(0, 1), gym.spaces.Discrete(4, start=1)):
        with pytest.raises(HyqError):
            action_count(space)
