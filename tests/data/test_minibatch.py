"""Minibatches by step."""

import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.types import Transitions
from hyq.data.dataset import Dataset
from hyq.data.minibatch import StepSampler


def test_every_step_gets_its_own_rows_and_all_of_them() -> None:
    step = np.repeat([0, 1, 2], [3, 1, 5])
    zeros = np.zeros(9)
    dataset = Dataset.from_transitions(
        Transitions(zeros, zeros.astype(int), zeros, zeros, zeros), step, {}
    )
    draw = StepSampler.of(dataset.by_step()).draw(200, np.random.default_rng(0))
    assert draw.shape == (3, 200)
    assert [sorted(set(rows)) for rows in draw.tolist()] == [[0, 1, 2], [3], [4, 5, 6, 7, 8]]


def test_rows_of_a_step_are_equally_likely() -> None:
    draw = StepSampler.counted([4, 4]).draw(20_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(draw[1])[4:] / 20_000, 0.25, atol=0.02)


def test_a_step_without_rows_is_refused() -> None:
    with pytest.raises(HyqError, match="step 1 "):
        StepSampler.counted([3, 0, 2])
