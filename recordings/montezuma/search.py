"""A search for high-scoring paths through Montezuma's Revenge, in the spirit of Go-Explore.

The emulator without sticky actions is deterministic and its state can be saved. So the search
keeps an archive of *cells*, coarse descriptions of where the game is, each with the shortest way
found so far; it picks a cell, restores it, acts at random for a while and files what it meets
(Ecoffet et al. 2021, phase 1). Cells are read from the console's memory. The result depends on the
seed and on a budget of emulator steps, never on the clock.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from ale_py import ALEInterface, ALEState
from numpy.typing import NDArray

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.envs.montezuma import emulator
from recordings.montezuma import console as mr
from recordings.montezuma.console import NOOP

Ram = NDArray[np.uint8]
CellKey = tuple[int, int, int, int, int, int, int]

# The moves that matter and how often each is tried; most jumps come with a direction.
MOVES = (0, 2, 3, 4, 5, 1, 11, 12)
MOVE_WEIGHTS = (1.0, 2.0, 3.0, 3.0, 2.0, 0.5, 2.5, 2.5)
MOVE_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
WAIT_LENGTHS = (1, 2, 4, 8, 16, 24)
BURST_LENGTHS = (12, 25, 40, 60)
LASER_ROOMS = (0, 7, 12)
"""Rooms whose laser gates open and close every 128 frames: there the time is part of a cell."""
DEEP_FALL = 8
"""A player who has fallen this long may be about to die: no cell is kept in such a moment."""


@dataclass(frozen=True)
class Path:
    """Actions from the start of the game, one an agent step, and the score they reach."""

    actions: NDArray[np.uint8]
    score: int


_Trail = tuple["_Trail", tuple[int, ...]] | None
"""A way from the start, as a linked list of action segments that cells share."""


def _actions(trail: _Trail) -> NDArray[np.uint8]:
    segments: list[tuple[int, ...]] = []
    while trail is not None:
        trail, segment = trail
        segments.append(segment)
    return np.array([action for part in reversed(segments) for action in part], dtype=np.uint8)


@dataclass(slots=True)
class _Cell:
    key: CellKey
    state: ALEState
    trail: _Trail
    length: int
    score: int
    chosen: int = 0
    disappointments: int = 0


class PathSearch:
    """An archive of cells that grows by restoring one and acting at random from it."""

    def __init__(self, seed: int) -> None:
        self.steps = 0
        self.best = Path(np.empty(0, np.uint8), 0)
        self._ale = emulator()
        self._rng = Random(Streams(seed).integer("montezuma-search"))
        self._cells: dict[CellKey, _Cell] = {}
        self._all: list[_Cell] = []
        self._shelves: dict[int, list[_Cell]] = {}
        self._scores: list[int] = []
        self._file(cell_key(self._ale, self._ale.getRAM(), 0), None, 0, 0)

    def run(self, budget: int, target: int) -> Iterator[Path]:
        """Search until `target` points or `budget` steps; yield every path that beats the last."""
        while self.steps < budget and (before := self.best).score < target:
            self._explore_from(self._choose())
            if self.best is not before:
                yield self.best

    def _choose(self) -> _Cell:
        """Prefer cells with high scores, and among a handful the one tried least often."""
        draw = self._rng.random()
        if draw < 0.5:
            rank = min(int(self._rng.expovariate(1.0)), len(self._scores) - 1)
            pool = self._shelves[self._scores[-1 - rank]]
        elif draw < 0.75:
            pool = self._shelves[self._rng.choice(self._scores)]
        else:
            pool = self._all
        return min(self._rng.choices(pool, k=8), key=lambda cell: cell.chosen)

    def _explore_from(self, cell: _Cell) -> None:
        cell.chosen += 1
        cell.disappointments += 1
        ale, trail, length, score, key = self._ale, cell.trail, cell.length, cell.score, cell.key
        ale.restoreState(cell.state)
        lives = int(ale.getRAM()[mr.SPARE_LIVES])
        segment: list[int] = []
        for action in self._burst():
            score += ale.act(action)
            segment.append(action)
            self.steps += 1
            ram = ale.getRAM()
            if lost_life(ram, lives):
                return
            if ram[mr.FALLING] > DEEP_FALL:
                continue
            before, key = key, cell_key(ale, ram, score)
            if key != before and self._is_worth_filing(key, length + len(segment)):
                length += len(segment)
                trail = (trail, tuple(segment))
                segment = []
                if self._file(key, trail, length, score):
                    cell.disappointments = 0
                    cell.chosen = max(0, cell.chosen - 1)

    def _burst(self) -> Iterator[int]:
        """Draw random moves, each held for a while."""
        left = self._rng.choice(BURST_LENGTHS)
        while left > 0:
            move = self._rng.choices(MOVES, MOVE_WEIGHTS)[0]
            for _ in range(min(left, self._rng.choice(MOVE_LENGTHS if move else WAIT_LENGTHS))):
                left -= 1
                yield move

    def _is_worth_filing(self, key: CellKey, length: int) -> bool:
        """Say whether a cell is new, nearer than before, or a dead end that needs another state."""
        known = self._cells.get(key)
        if known is None or length < known.length:
            return True
        return known.disappointments > 10 and self._rng.random() < 0.3

    def _file(self, key: CellKey, trail: _Trail, length: int, score: int) -> bool:
        """Keep the emulator's present state under `key`; return whether the cell is new."""
        state = self._ale.cloneState()
        known = self._cells.get(key)
        if known is not None:
            known.state, known.trail, known.length = state, trail, length
            known.disappointments = 0
            return False
        cell = _Cell(key, state, trail, length, score)
        self._cells[key] = cell
        self._all.append(cell)
        self._shelves.setdefault(score, []).append(cell)
        self._scores = sorted(self._shelves)
        if score > self.best.score:
            self.best = Path(_actions(trail), score)
        return True


def lost_life(ram: Ram, lives: int) -> bool:
    """Say whether a death has begun since there were so many spare lives."""
    return bool(ram[mr.DYING] or ram[mr.SPARE_LIVES] != lives)


def cell_key(ale: ALEInterface, ram: Ram, score: int) -> CellKey:
    """Describe where the game is: level, room, place, inventory, score, and the lasers' phase."""
    room = int(ram[mr.ROOM])
    phase = (ale.getEpisodeFrameNumber() >> 4) & 7 if room in LASER_ROOMS else 0
    place = (int(ram[mr.X]) >> 3, int(ram[mr.Y]) >> 3)
    return (int(ram[mr.LEVEL]), room, *place, int(ram[mr.INVENTORY]), score, phase)


def tidied(path: Path, lookahead: int = 20) -> Path:
    """Replace actions by simpler ones wherever that changes nothing in the game.

    A step's action becomes NOOP, or loses its FIRE, if `lookahead` steps then leave the same memory
    behind. From the end to the start: a button held after a jump can be let go only from its last
    step backwards.
    """
    ale, actions = emulator(), [int(action) for action in path.actions]
    states = []
    for action in actions:
        states.append(ale.cloneState())
        ale.act(action)
    for index in reversed(range(len(actions))):
        before, *after = actions[index : index + lookahead]
        expected = list(memories(ale, states[index], (before, *after), mr.JOYSTICK, mr.BUTTON))
        for simpler in dict.fromkeys((NOOP, mr.WITHOUT_FIRE.get(before, before))):
            found = memories(ale, states[index], (simpler, *after), mr.JOYSTICK, mr.BUTTON)
            if simpler == before or all(map(bytes.__eq__, found, expected)):
                actions[index] = simpler
                break
    if score_of(actions) != path.score:
        raise HyqError("tidying changed the path's score: use a longer lookahead")
    return Path(np.array(actions, dtype=np.uint8), path.score)


def score_of(actions: Sequence[int]) -> int:
    """Play actions without stickiness; return their points."""
    ale = emulator()
    return sum(ale.act(action) for action in actions)


def memories(
    ale: ALEInterface, state: ALEState, actions: Iterable[int], *but: int
) -> Iterator[bytes]:
    """Act from a state; yield the console's memory after each action, without the bytes `but`.

    What merely records the stick and the button differs even where nothing else does.
    """
    ale.restoreState(state)
    for action in actions:
        ale.act(action)
        yield memory_without(ale, *but)


def memory_without(ale: ALEInterface, *but: int) -> bytes:
    """Return the console's memory with the bytes at these addresses set to zero."""
    ram = ale.getRAM()
    ram[list(but)] = 0
    return ram.tobytes()


def search_path(
    seeds: Iterable[int],
    *,
    target: int = 6500,
    budget: int = 450_000,
    progress: Callable[[int, int, Path], None] = lambda seed, steps, path: None,
) -> Path:
    """Search with one seed after another until one reaches `target` points; return its path.

    Most seeds do within `budget` steps, one to three minutes on a core; the others get stuck at a
    lower score, so a fresh seed is better than a longer search. `progress` receives the seed, its
    steps so far and its best path whenever that improves.
    """
    best = 0
    for seed in seeds:
        search = PathSearch(seed)
        for path in search.run(budget, target):
            progress(seed, search.steps, path)
        if search.best.score >= target:
            return search.best
        best = max(best, search.best.score)
    raise HyqError(f"no search reached {target} points, the best {best}: try more seeds")
