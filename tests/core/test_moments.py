"""Running moments: those of all rows at once, however they were cut, and after any interruption."""

import numpy as np
import pytest

from hyq.core.moments import RunningMoments


@pytest.mark.parametrize("sizes", [(50,), (1, 49), (7, 0, 20, 1, 22)])
def test_batches_add_up_to_numpys_moments(sizes: tuple[int, ...]) -> None:
    rows = np.random.default_rng(0).normal(100.0, 3.0, size=(50, 2, 3))
    moments = RunningMoments((2, 3))
    for part in np.split(rows, np.cumsum(sizes)[:-1]):
        moments.update(part)
    assert moments.count == 50
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.std, rows.std(axis=0), rtol=1e-10)


def test_bytes_do_not_overflow_and_what_never_changes_has_no_std() -> None:
    moments = RunningMoments((2,))
    moments.update(np.full((3, 2), 255, np.uint8))
    moments.update(np.array([[255, 0]], np.uint8))
    np.testing.assert_allclose(moments.mean, [255, 255 * 3 / 4])
    np.testing.assert_allclose(moments.std, np.array([0.0, 255 * np.sqrt(3 / 16)]))


def test_moments_that_were_saved_resume_to_the_bit() -> None:
    rows = np.random.default_rng(1).normal(size=(20, 4))
    whole, before, after = (RunningMoments((4,)) for _ in range(3))
    whole.update(rows[:13])
    whole.update(rows[13:])
    before.update(rows[:13])
    after.load_state(before.state())
    after.update(rows[13:])
    assert np.array_equal(after.std, whole.std)
    assert np.array_equal(after.mean, whole.mean)
