from collections.abc import Mapping

import numpy as np

from hyq.core.types import Array, FloatArray
from hyq.fqi.classes import DiscreteValueFunction


class Ramp(DiscreteValueFunction):
    """f(s, a) = s, 2 s, 2 s for a = 0, 1, 2."""

    def values(self, observation: Array) -> FloatArray:
        return np.outer(observation, [1.0, 2.0, 2.0])

    def arrays(self) -> Mapping[str, Array]:
        return {}


def test_everything_follows_from_the_values_of_all_actions() -> None:
    observation = np.array([1.0, -3.0])
    np.testing.assert_array_equal(Ramp().at(observation, np.array([2, 0])), [2.0, -3.0])
    np.testing.assert_array_equal(Ramp().best(observation), [2.0, -3.0])
    np.testing.assert_array_equal(Ramp().greedy(observation), [1, 0])
