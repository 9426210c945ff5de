"""A controller of the ball in a point maze: from cell to cell along a shortest way to the goal."""

from collections import deque
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from hyq.core.types import Array

STIFFNESS, DAMPING = 10.0, 4.0
"""Force for each metre to the next cell, against each metre a second of speed."""


class Cell(NamedTuple):
    """A cell of the maze's map."""

    row: int
    column: int


def follow_cells(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Array:
    """Push towards the next cell of the way, or towards the goal within its cell."""
    maze: Any = env.unwrapped.maze  # type: ignore[attr-defined]
    position, velocity = np.split(observation["observation"].astype(np.float64), 2)
    goal = observation["desired_goal"].astype(np.float64)
    here, there = (Cell(*map(int, maze.cell_xy_to_rowcol(xy))) for xy in (position, goal))
    way = next_cell(maze.maze_map, here, there)
    target = goal if here == there else maze.cell_rowcol_to_xy(way)
    return STIFFNESS * (target - position) - DAMPING * velocity


def next_cell(cells: list[list[Any]], here: Cell, goal: Cell) -> Cell:
    """Return the neighbour of a cell that is nearest to the goal, by a search from the goal."""
    queue, seen = deque([goal]), {goal}
    while queue:
        cell = queue.popleft()
        for row, column in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            near = Cell(cell.row + row, cell.column + column)
            if near == here:
                return cell
            if cells[near.row][near.column] != 1 and near not in seen:
                seen.add(near)
                queue.append(near)
    return goal
