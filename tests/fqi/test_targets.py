"""The targets of fitted Q-iteration against values worked out by hand."""

import numpy as np
import pytest

from hyq.fqi.targets import optimality_target


def test_the_target_bootstraps_where_the_episode_continues_and_stays_in_range() -> None:
    target = optimality_target(
        np.array([0.5, 0.5, 0.5, -1.0]),
        np.array([1.0, 0.0, 1.0, 1.0]),
        np.array([0.25, 0.25, 0.9, 0.2]),
        (0.0, 1.0),
    )
    np.testing.assert_allclose(target, [0.75, 0.5, 1.0, 0.0])


def test_shapes_that_would_broadcast_raise() -> None:
    with pytest.raises(ValueError, match="one length"):
        optimality_target(np.zeros(3), np.zeros(3), np.zeros(4), (0.0, 1.0))
    with pytest.raises(ValueError, match="one length"):
        optimality_target(np.zeros((3, 1)), np.zeros(3), np.zeros(3), (0.0, 1.0))
