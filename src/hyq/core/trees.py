"""Observations as trees: one array, or a dictionary of arrays all the way from space to network."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym

Tree = Any
"""An array or a tensor, or a dictionary of trees."""


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to the leaves of a tree, beside the same leaves of others."""
    if isinstance(tree, Mapping):
        return {
            name: tree_map(function, branch, *(other[name] for other in others))
            for name, branch in tree.items()
        }
    return function(tree, *others)


def leaves(tree: Tree) -> Iterator[Any]:
    """Go through the leaves."""
    if isinstance(tree, Mapping):
        for branch in tree.values():
            yield from leaves(branch)
    else:
        yield tree


def first_leaf(tree: Tree) -> Any:
    """Return one leaf: all have the same number of rows."""
    return next(leaves(tree))


def flatten(tree: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Name every leaf of nested dictionaries by its path, joined by dots."""
    flat: dict[str, Any] = {}
    for name, branch in tree.items():
        path = f"{prefix}{name}"
        flat |= flatten(branch, f"{path}.") if isinstance(branch, Mapping) else {path: branch}
    return flat


def subtree(prefix: str, flat: Mapping[str, Any]) -> dict[str, Any]:
    """Pick what `flatten` named below a prefix, without the prefix."""
    skip = len(prefix) + 1
    return {name[skip:]: leaf for name, leaf in flat.items() if name.startswith(f"{prefix}.")}


def without_tuples(tree: Any) -> Tree:
    """Turn tuples into dictionaries with the keys "0", "1", ..., in observations and spaces."""
    if isinstance(tree, gym.spaces.Tuple):
        return gym.spaces.Dict({str(i): without_tuples(s) for i, s in enumerate(tree.spaces)})
    if isinstance(tree, gym.spaces.Dict):
        return gym.spaces.Dict({name: without_tuples(s) for name, s in tree.spaces.items()})
    if isinstance(tree, tuple):
        return {str(i): without_tuples(part) for i, part in enumerate(tree)}
    if isinstance(tree, Mapping):
        return {name: without_tuples(part) for name, part in tree.items()}
    return tree


def space_tree(space: gym.Space[Any]) -> Tree:
    """Return the spaces of the leaves: a space itself, or a dictionary of them."""
    if isinstance(space, gym.spaces.Dict):
        return {name: space_tree(part) for name, part in space.spaces.items()}
    return space
