"""Networks by step: which member evaluates what, and states that can be saved."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from hyq.core.errors import HyqError
from hyq.core.types import Transitions
from hyq.fqi.classes import num_actions
from hyq.fqi.networks import Source, StepNetworks, at_next_step


def networks(members: int = 3, seed: int = 0) -> StepNetworks:
    return StepNetworks(members, 4, (5,), 2, learning_rate=0.1, seed=seed)


X = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 6, 4)).astype(np.float32))


def test_next_states_are_evaluated_by_the_member_of_the_next_step() -> None:
    made = networks()
    f, values = made.functions(3), at_next_step(made.online, X).detach()
    np.testing.assert_allclose(values[0], f[1].values(X[0].numpy()), atol=1e-6)
    np.testing.assert_allclose(values[1], f[2].values(X[1].numpy()), atol=1e-6)


def test_a_single_member_serves_every_step_and_evaluates_its_own_next_states() -> None:
    made = networks(1)
    torch.testing.assert_close(at_next_step(made.online, X[:1]), made.online(X[:1]))
    functions = made.functions(7)
    assert len(functions) == 7
    np.testing.assert_allclose(
        functions[3].values(X[0].numpy()), made.online(X[:1])[0].detach(), atol=1e-6
    )


def test_the_target_network_moves_by_tau_and_functions_do_not_change_later() -> None:
    made = networks()
    f, x = made.functions(3)[0], X[0].numpy()
    before, old = f.values(x), made.target.weights[0].clone()
    made.descend(made.online(X).square().sum(), tau=0.25)
    new = made.online.weights[0].detach()
    assert not torch.equal(new, old)
    torch.testing.assert_close(made.target.weights[0].detach(), 0.75 * old + 0.25 * new)
    np.testing.assert_array_equal(f.values(x), before)


def test_training_resumes_to_the_bit_from_saved_arrays() -> None:
    made, other = networks(), networks(seed=1)
    made.descend(made.online(X).square().sum(), tau=0.5)
    other.restore(made.arrays(iteration=1))
    for one in (made, other):
        one.descend(one.online(X).square().sum(), tau=0.5)
    saved, again = made.arrays(), other.arrays()
    assert saved.keys() == again.keys()
    assert all(np.array_equal(saved[name], again[name]) for name in saved)


def test_spaces_whose_actions_do_not_count_from_0_raise() -> None:
    assert num_actions(gym.spaces.Discrete(4)) == 4
    for space in (gym.spaces.Box(0, 1), gym.spaces.Discrete(4, start=1)):
        with pytest.raises(HyqError, match="counted from 0"):
            num_actions(space)


def numbered(counts: list[int], members: int) -> Source:
    """Rows of these numbers at each step, each row observing its own number."""
    rows = np.arange(sum(counts))
    column = np.ones(len(rows))
    step = np.repeat(np.arange(len(counts)), counts)
    found = Transitions(rows, rows, column, column, rows)
    return Source.of(found, step, horizon=len(counts), members=members)


def test_every_network_gets_rows_of_its_own_step_and_all_of_them() -> None:
    drawn = numbered([3, 1, 5], members=3).draw(200, np.random.default_rng(0))
    assert drawn.observation.shape == (3, 200)
    found = [sorted(set(rows)) for rows in drawn.observation.tolist()]
    assert found == [[0, 1, 2], [3], [4, 5, 6, 7, 8]]
    alone = numbered([3, 1, 5], members=1).draw(400, np.random.default_rng(0))
    assert sorted(set(alone.observation[0].tolist())) == list(range(9))


def test_beyond_the_last_step_nothing_is_earned_terminated_or_not() -> None:
    drawn = numbered([3, 1, 5], members=3).draw(20, np.random.default_rng(0))
    assert (drawn.discount[:2] == 1.0).all()
    assert (drawn.discount[2] == 0.0).all()


def test_rows_of_a_step_are_equally_likely() -> None:
    drawn = numbered([4, 4], members=2).draw(20_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn.observation[1])[4:] / 20_000, 0.25, atol=0.02)


def test_a_step_without_rows_raises() -> None:
    with pytest.raises(HyqError, match="step 1 "):
        numbered([3, 0, 2], members=3)
