"""Observations as trees, from spaces to leaves by name."""

import gymnasium as gym
import numpy as np
import pytest

from hyq.core.trees import (
    first_leaf,
    flatten,
    leaves,
    space_tree,
    subtree,
    tree_map,
    without_tuples,
)

TREE = {"a": 1, "b": {"c": 2, "d": {"e": 3}}}
BOX = gym.spaces.Box(0.0, 1.0, (2,), np.float32)


def test_maps_go_over_all_leaves_side_by_side() -> None:
    assert tree_map(lambda x: 10 * x, TREE) == {"a": 10, "b": {"c": 20, "d": {"e": 30}}}
    doubled = tree_map(lambda x: 2 * x, TREE)
    assert tree_map(lambda x, y: y - x, TREE, doubled) == TREE
    assert tree_map(lambda x, y, z: x + y + z, 1, 2, 3) == 6
    with pytest.raises(KeyError):
        tree_map(lambda x, y: x, TREE, {"a": 1})


def test_leaves_come_in_order() -> None:
    assert list(leaves(TREE)) == [1, 2, 3]
    assert list(leaves(7)) == [7]
    assert first_leaf(TREE) == 1
    assert first_leaf(7) == 7


def test_paths_name_leaves() -> None:
    flat = flatten(TREE)
    assert flat == {"a": 1, "b.c": 2, "b.d.e": 3}
    assert flatten({0: {"x": 1}}) == {"0.x": 1}
    assert subtree("b", flat) == {"c": 2, "d.e": 3}
    assert subtree("b.d", flat) == {"e": 3}
    assert subtree("a", flat) == {}
    assert subtree("b", {"bc.d": 1, "b.d": 2}) == {"d": 2}


def test_tuples_become_dictionaries() -> None:
    assert without_tuples((1, {"a": (2, 3)})) == {"0": 1, "1": {"a": {"0": 2, "1": 3}}}
    assert without_tuples(5) == 5
    space = gym.spaces.Tuple((BOX, gym.spaces.Dict({"a": gym.spaces.Tuple((BOX,))})))
    found = without_tuples(space)
    assert found == gym.spaces.Dict(
        {"0": BOX, "1": gym.spaces.Dict({"a": gym.spaces.Dict({"0": BOX})})}
    )
    assert without_tuples(BOX) is BOX
    assert space_tree(found) == {"0": BOX, "1": {"a": {"0": BOX}}}
    assert space_tree(BOX) is BOX
