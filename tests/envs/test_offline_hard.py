import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.envs.offline_hard import (
    A,
    B,
    C,
    L,
    R,
    Variant,
    make_offline_hard_vector,
    offline_hard_mdp,
)
from tests.fqi.finite import offline_hard_class


def test_the_two_mdps_differ_only_at_c() -> None:
    first, second = offline_hard_mdp("M1"), offline_hard_mdp("M2")
    np.testing.assert_array_equal(first.transition, second.transition)
    different = np.argwhere(first.reward != second.reward)
    assert different.tolist() == [[1, C, L], [1, C, R]]
    assert first.reward[1, C].tolist() == [0.0, 1.0]
    assert second.reward[1, C].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("variant", ["M1", "M2"])
def test_going_left_is_optimal_and_going_right_blindly_is_not(variant: Variant) -> None:
    mdp = offline_hard_mdp(variant)
    assert mdp.optimal_value() == 1.0
    policy = mdp.uniform_policy()
    policy[0, A] = np.eye(2)[L]
    assert mdp.value(policy) == 1.0
    policy[0, A] = np.eye(2)[R]
    assert mdp.value(policy) == 0.5


def test_the_class_holds_both_optimal_functions() -> None:
    first, second = offline_hard_class()
    np.testing.assert_array_equal(first, [[1, 1], [1, 1], [0, 1]])
    np.testing.assert_array_equal(second, [[1, 1], [1, 1], [1, 0]])


def test_the_environment_walks_as_drawn() -> None:
    env = make_offline_hard_vector(4, variant="M2")
    state, _ = env.reset(seed=0)
    assert state.tolist() == [A] * 4
    state, reward, *_ = env.step(np.array([L, L, R, R]))
    assert state.tolist() == [B, B, C, C]
    assert reward.tolist() == [0.0] * 4
    _, reward, terminated, *_ = env.step(np.array([L, R, L, R]))
    assert reward.tolist() == [1.0, 1.0, 1.0, 0.0]
    assert terminated.all()


def test_other_variants_raise() -> None:
    with pytest.raises(HyqError, match="variant must be one of"):
        offline_hard_mdp("M3")  # type: ignore[arg-type]
