import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.fqi.classes import Regression
from tests.fqi.conformance import regression
from tests.fqi.finite import FiniteClass

FIRST = np.array([[0.0, 1.0], [2.0, 2.0]])
SECOND = np.array([[0.0, 3.0], [2.0, 2.0]])


def row(state: int, action: int, target: float) -> Regression:
    return regression(np.array([state]), np.array([action]), np.array([target]), np.ones(1))


def test_the_member_with_the_smallest_weighted_error_wins() -> None:
    family = FiniteClass(np.stack([FIRST, SECOND]))
    fitted = family.fit(row(0, 1, 2.9))
    np.testing.assert_array_equal(fitted.table, SECOND)
    # Of targets 1 and 3 at the same place, the heavier one decides.
    for weight, winner in (([0.7, 0.3], FIRST), ([0.3, 0.7], SECOND)):
        problem = regression(
            np.zeros(2, int), np.ones(2, int), np.array([1.0, 3.0]), np.array(weight)
        )
        np.testing.assert_array_equal(family.fit(problem).table, winner)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_earlier_of_equal_members_wins(order: tuple[int, int]) -> None:
    tables = np.stack([FIRST, SECOND])[list(order)]
    family = FiniteClass(tables)
    fitted = family.fit(row(1, 0, 2.0))
    np.testing.assert_array_equal(fitted.table, tables[0])


def test_equal_actions_are_taken_in_the_given_order() -> None:
    states = np.array([0, 1])
    for order, expected in (([0, 1], [1, 0]), ([1, 0], [1, 1])):
        family = FiniteClass(FIRST[None], action_order=np.array(order))
        fitted = family.fit(row(0, 0, 0.0))
        np.testing.assert_array_equal(fitted.greedy(states), expected)
        rebuilt = family.zero().with_arrays(fitted.arrays())
        np.testing.assert_array_equal(rebuilt.greedy(states), expected)
        np.testing.assert_array_equal(family.zero().greedy(states), [order[0]] * 2)


def test_malformed_classes_raise() -> None:
    with pytest.raises(HyqError, match="tables must have shape"):
        FiniteClass(FIRST)
    with pytest.raises(HyqError, match="action_order must list each of 2 actions"):
        FiniteClass(FIRST[None], action_order=np.array([0, 0]))
