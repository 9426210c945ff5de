"""The targets of fitted Q-iteration against values worked out by hand."""

import numpy as np
import pytest

from hyq.core.types import FloatArray, Transitions
from hyq.fqi.hyq_fqi import HyQConfig, regression_target
from hyq.fqi.tabular import TabularFunction


def rows(reward: list[float], discount: list[float]) -> Transitions:
    """Transitions to states 0, 1, 2, ..."""
    state = np.arange(len(reward))
    return Transitions(state, 0 * state, np.array(reward), np.array(discount), state)


def test_the_target_bootstraps_where_the_episode_continues_and_stays_in_range() -> None:
    met = rows([0.5, 0.5, 0.5, -1.0], [1.0, 0.0, 1.0, 1.0])
    after = TabularFunction(np.array([[0.25, 0.0], [0.25, 0.1], [0.3, 0.9], [0.2, 0.2]]))
    config = HyQConfig(value_range=(0.0, 1.0))
    np.testing.assert_allclose(regression_target(met, after, config), [0.75, 0.5, 1.0, 0.0])
    last = regression_target(met, None, HyQConfig(value_range=(-2.0, 1.0)))
    np.testing.assert_allclose(last, [0.5, 0.5, 0.5, -1.0])


def test_values_that_would_broadcast_raise() -> None:
    class Column(TabularFunction):
        def best(self, observation: FloatArray) -> FloatArray:
            return np.zeros((len(observation), 1))

    with pytest.raises(ValueError, match="one value a row"):
        regression_target(rows([0.0] * 3, [1.0] * 3), Column(np.zeros((3, 1))), HyQConfig())
