"""The sum tree against a plain array."""

import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.types import FloatArray, IntArray
from hyq.data.priorities import Priorities


class Fixed(np.random.Generator):
    """A generator that returns given numbers, to reach the edges that chance does not."""

    def __init__(self, numbers: FloatArray) -> None:
        super().__init__(np.random.PCG64(0))
        self.numbers = numbers

    def random(self, *_: object, **__: object) -> FloatArray:  # type: ignore[override]
        return self.numbers


def naive_draw(priority: FloatArray, numbers: FloatArray) -> IntArray:
    upto = np.cumsum(priority)
    share = (np.arange(len(numbers)) + numbers) / len(numbers)
    return np.searchsorted(upto, share * upto[-1], side="right")


def filled(leaves: FloatArray) -> Priorities:
    priorities = Priorities(len(leaves))
    priorities.set(np.arange(len(leaves)), leaves)
    return priorities


@pytest.mark.parametrize("capacity", [1, 31, 32, 33, 1000, 40_000])
def test_it_draws_what_a_cumulative_sum_would(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    priorities, plain = Priorities(capacity), np.zeros(capacity)
    for _ in range(20):
        slots = rng.integers(0, capacity, 50)
        # Sums of eighths are exact, so that both must agree to the last slot.
        new = rng.integers(0, 9, 50) / 8
        new[-1] = 1.0
        priorities.set(slots, new)
        plain[slots] = new
        numbers = rng.integers(0, 2**20, 64) / 2**20
        drawn, probability = priorities.draw(64, Fixed(numbers))
        np.testing.assert_array_equal(drawn, naive_draw(plain, numbers))
        np.testing.assert_allclose(probability, plain[drawn] / plain.sum())
        np.testing.assert_array_equal(priorities.leaves, plain)
        assert priorities.total == plain.sum()
        assert priorities.count == np.count_nonzero(plain)


def test_draws_are_in_proportion() -> None:
    leaves = np.array([0.0, 1.0, 2.0, 0.0, 5.0] * 20)
    drawn, _ = filled(leaves).draw(100_000, np.random.default_rng(0))
    found = np.bincount(drawn, minlength=100) / 100_000
    np.testing.assert_allclose(found, leaves / leaves.sum(), atol=1e-4)


@pytest.mark.parametrize("number", [0.0, 1.0 - 2**-53])
def test_rounding_never_reaches_a_slot_of_priority_zero(number: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        leaves = 10.0 ** rng.uniform(-12, 3, 3000) * (rng.random(3000) < 0.02)
        leaves[rng.integers(3000)] = 5e-324
        drawn, probability = filled(leaves).draw(16, Fixed(np.full(16, number)))
        assert (leaves[drawn] > 0.0).all()
        assert (probability >= 0.0).all()


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_rounding_never_passes_the_end_of_a_row(size: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        leaves = size * rng.random(32)
        leaves[0] = 0.0
        (drawn,), _ = filled(leaves).draw(1, Fixed(np.array([1.0 - 2**-53])))
        assert drawn == 31


def test_the_last_of_a_slot_named_twice_counts() -> None:
    priorities = filled(np.ones(100))
    priorities.set(np.array([7, 7, 8, 7, 8]), np.array([3.0, 5.0, 1.0, 0.0, 4.0]))
    assert priorities.leaves[7:9].tolist() == [0.0, 4.0]
    assert (priorities.total, priorities.count) == (98 + 4.0, 99)


def test_one_slot_or_none_may_be_set() -> None:
    priorities = Priorities(40)
    priorities.set(np.array([33]), np.array([0.5]))
    priorities.set(np.array([], np.int64), np.array([]))
    assert (priorities.total, priorities.count) == (0.5, 1)
    assert priorities.draw(2, np.random.default_rng(0))[0].tolist() == [33, 33]


def test_memory_is_that_of_the_slots_and_the_nodes_above() -> None:
    # Rows of 32 slots: 1,250 below the root; or 9,375 below 293 rows of nodes below the root.
    assert Priorities(40_000).nbytes == 8 * (40_000 + 1_250)
    assert Priorities(300_000).nbytes == 8 * (300_000 + 293 * 32 + 293)


def test_a_million_updates_leave_no_drift() -> None:
    rng = np.random.default_rng(0)
    priorities = Priorities(50_000)
    for _ in range(500):
        slots = rng.integers(0, 50_000, 2000)
        priorities.set(slots, 10.0 ** rng.uniform(-9, 9, 2000) * (rng.random(2000) < 0.8))
    rebuilt = Priorities(50_000)
    rebuilt.restore(priorities.leaves)
    assert (priorities.total, priorities.count) == (rebuilt.total, rebuilt.count)
    numbers = rng.random(1000)
    for mine, other in zip(
        priorities.draw(1000, Fixed(numbers)), rebuilt.draw(1000, Fixed(numbers)), strict=True
    ):
        np.testing.assert_array_equal(mine, other)


def test_nothing_to_draw_and_priorities_that_are_none_are_refused() -> None:
    priorities = Priorities(5)
    with pytest.raises(HyqError, match="nothing to draw"):
        priorities.draw(1, np.random.default_rng(0))
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(HyqError, match="has learning diverged"):
            priorities.set(np.array([0, 1]), np.array([1.0, bad]))
    with pytest.raises(ValueError, match="read-only"):
        priorities.leaves[0] = 1.0


def test_slots_below_several_levels_are_drawn_in_proportion() -> None:
    tree = Priorities(300_000)  # two levels below the root
    slots = np.array([0, 5, 40, 1023, 1024, 5000, 131_072, 299_999])
    priority = np.arange(1.0, 9.0)
    tree.set(slots, priority)
    drawn, probability = tree.draw(36_000, np.random.default_rng(0))
    counts = np.array([(drawn == slot).sum() for slot in slots])
    assert counts.sum() == len(drawn)
    np.testing.assert_allclose(counts, 1000 * priority, atol=2)
    np.testing.assert_allclose(probability, (priority / 36)[np.searchsorted(slots, drawn)])
