"""Spaces as JSON and back."""

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.envs.spaces import space_from_json, space_to_json

SPACES: list[gym.Space[Any]] = [
    gym.spaces.Box(0, 255, (84, 84, 3), np.uint8),
    gym.spaces.Box(-np.inf, np.inf, (3,), np.float32),
    gym.spaces.Box(-1.0, 2.0, (), np.float64),
    gym.spaces.Box(np.array([-np.inf, 0.1], np.float32), np.array([1, np.inf], np.float32)),
    gym.spaces.Box(np.array([[0, 0], [0, 1]], np.float32), np.array([[1, 2], [3, 3]], np.float32)),
    gym.spaces.Box(np.array([[0, 0], [1, 1]], np.float32), np.array([[5, 5], [6, 6]], np.float32)),
    gym.spaces.Box(-3, 3, (2, 2), np.int16),
    gym.spaces.Discrete(4),
    gym.spaces.Discrete(4, start=5),
    gym.spaces.MultiDiscrete(np.array([2, 3])),
    gym.spaces.MultiBinary((2, 3)),
    gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, (4, 4), np.uint8),
            "arm": gym.spaces.Dict({"joint": gym.spaces.Box(-1, 1, (2,), np.float32)}),
        }
    ),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_come_back(space: gym.Space[Any]) -> None:
    described = json.loads(json.dumps(space_to_json(space), allow_nan=False))
    found = space_from_json(described)
    assert found == space
    assert found.dtype == space.dtype
    assert found.shape == space.shape


def test_descriptions_are_brief() -> None:
    assert space_to_json(SPACES[0]) == {
        "type": "Box",
        "shape": [84, 84, 3],
        "dtype": "uint8",
        "low": 0.0,
        "high": 255.0,
    }
    assert space_to_json(SPACES[3])["low"] == ["-inf", pytest.approx(0.1)]
    assert space_to_json(SPACES[3])["high"] == [1.0, "inf"]
    assert space_to_json(SPACES[8]) == {"type": "Discrete", "n": 4, "start": 5}


def test_tuples_come_back_as_dictionaries() -> None:
    space = gym.spaces.Tuple((SPACES[0], SPACES[7]))
    assert space_from_json(space_to_json(space)) == gym.spaces.Dict(
        {"0": SPACES[0], "1": SPACES[7]}
    )


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"type": "Sphere"},
        {"type": "Box", "shape": [2]},
        {"type": "Box", "shape": [2], "dtype": "float99", "low": 0, "high": 1},
        {"type": "Box", "shape": [2], "dtype": "float32", "low": [0, 0, 0], "high": 1},
        {"type": "Box", "shape": [2], "dtype": "float32", "low": "a", "high": 1},
        {"type": "Discrete", "n": 0, "start": 0},
        {"type": "Dict", "spaces": [1]},
        {"type": "Dict", "spaces": {"a": {"type": "Discrete"}}},
    ],
)
def test_damaged_descriptions_raise(damaged: dict[str, Any]) -> None:
    with pytest.raises(HyqError, match="damaged"):
        space_from_json(damaged)


def test_other_spaces_cannot_be_described() -> None:
    with pytest.raises(HyqError, match="cannot be described"):
        space_to_json(gym.spaces.Text(3))
