"""What the expert plans with: a route to follow, emulators to imagine in, a search close by."""

from dataclasses import dataclass
from random import Random

import numpy as np
from ale_py import ALEInterface, ALEState

from hyq.core.types import FloatArray
from hyq.envs.montezuma import FRAME_SKIP, STICKINESS, emulator
from recordings.montezuma import console as mr
from recordings.montezuma.console import NOOP
from recordings.montezuma.search import DEEP_FALL, MOVES, Path, Ram, lost_life, memories

DEAD = float("-inf")
"""The value of a plan that loses a life."""
DETOUR_COST = 0.6
"""Steps of progress that one pixel away from the route is worth."""
NEAR = 12.0
"""Pixels within which a point of the route counts as reached."""
DEATH_COST = 80.0
"""Steps of progress that a certain death is worth."""

Plan = list[int]


class Route:
    """A path together with the places it passes, so that progress along it can be measured."""

    def __init__(self, path: Path) -> None:
        self.score = path.score
        self.actions: Plan = [int(action) for action in path.actions]
        ale, score = emulator(), 0
        places: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        for index in range(len(self.actions) + 1):
            ram = ale.getRAM()
            chapter = (int(ram[mr.ROOM]), int(ram[mr.INVENTORY]), score)
            places.setdefault(chapter, []).append((index, int(ram[mr.X]), int(ram[mr.Y])))
            if index < len(self.actions):
                score += ale.act(self.actions[index])
        self._chapters: dict[tuple[int, int, int], FloatArray] = {
            chapter: np.array(points, dtype=np.float64).T for chapter, points in places.items()
        }

    def __len__(self) -> int:
        return len(self.actions)

    def locate(self, ram: Ram, score: int) -> tuple[float, int]:
        """Return how far along the route a state is, and the index of the route's nearest step.

        Only steps with the same room, inventory and score count: the route passes some places
        twice, and standing where it ends before having its points is no progress.
        """
        if score >= self.score:
            return len(self) + 5.0, len(self)
        points = self._chapters.get((int(ram[mr.ROOM]), int(ram[mr.INVENTORY]), score))
        if points is None:
            return -1000.0, 0
        index, x, y = points
        distance = np.abs(x - float(ram[mr.X])) + 1.5 * np.abs(y - float(ram[mr.Y]))
        progress = index - DETOUR_COST * distance
        near = distance <= NEAR
        if near.any():
            best = int(np.where(near, progress, -np.inf).argmax())
            return float(progress[best]), int(index[best])
        best = int(distance.argmin())
        return float(progress[best]) - 20.0, int(index[best])

    def onwards(self, index: int, count: int) -> Plan:
        """Return `count` actions of the route from `index` on, idle after its end."""
        actions = self.actions[max(index, 0) : max(index, 0) + count]
        return actions + [NOOP] * (count - len(actions))


@dataclass(frozen=True, slots=True)
class Moment:
    """All that a plan starts from."""

    state: ALEState
    score: int
    lives: int
    previous: int
    """The action before, which a sticky frame repeats; a cloned state does not know it."""
    progress: float
    nearest: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What became of a plan in several imagined games."""

    deaths: float
    """Share of them that lost a life."""
    progress: float
    """Mean over the others of the furthest point that they came to."""

    @property
    def merit(self) -> float:
        """Trade progress against the risk of dying."""
        return self.progress - DEATH_COST * self.deaths if self.progress > DEAD else DEAD


class Imagination:
    """The planner's own emulators: what would happen if."""

    def __init__(self, route: Route, rng: Random) -> None:
        self._route = route
        self._rng = rng
        self.obedient = emulator()
        self._frames = emulator(frame_skip=1)

    def obeyed(self, moment: Moment, plan: Plan, idle: int = 4) -> float:
        """Return the furthest progress of `plan` if no action is sticky, DEAD if it kills."""
        self.obedient.restoreState(moment.state)
        return self._play(self.obedient, moment, plan, idle, sticky=False)

    def forecast(
        self, moment: Moment, plan: Plan, games: int, idle: int = 4, *, all_must_live: bool = False
    ) -> Forecast:
        """Play `plan` in several games with sticky actions, perhaps only until one is lost."""
        outcomes: list[float] = []
        while len(outcomes) < games and not (all_must_live and DEAD in outcomes):
            self._frames.restoreState(moment.state)
            outcomes.append(self._play(self._frames, moment, plan, idle, sticky=True))
        alive = [outcome for outcome in outcomes if outcome > DEAD]
        return Forecast(
            deaths=1.0 - len(alive) / len(outcomes),
            progress=sum(alive) / len(alive) if alive else DEAD,
        )

    def same(self, moment: Moment, one: int, other: int, next_action: int) -> bool:
        """Say whether two actions have the same effect, whatever their frames' stickiness does.

        Compared are an action obeyed at once, one that begins late, and one that lasts into the
        next step; the stick's own position in memory is left out.
        """
        before, hold = moment.previous, FRAME_SKIP // 2
        for late, lasting in ((0, hold), (hold, 0)):
            scripts = [
                [before] * late + [action] * (FRAME_SKIP - late + lasting) + [next_action] * hold
                for action in (one, other)
            ]
            one_way, other_way = (
                list(memories(self._frames, moment.state, script, mr.JOYSTICK))
                for script in scripts
            )
            if one_way != other_way:
                return False
        return True

    def _play(
        self, ale: ALEInterface, moment: Moment, plan: Plan, idle: int, *, sticky: bool
    ) -> float:
        """Score a plan by its best point, not its end, but wait a while to see that it lives."""
        furthest, score, held, falling = DEAD, moment.score, moment.previous, 0
        for count, action in enumerate(plan + [NOOP] * max(12, idle)):
            if count >= len(plan) + idle and falling == 0:
                break
            if sticky:
                reward, held = self._sticky_step(action, held)
            else:
                reward = ale.act(action)
            score += reward
            ram = ale.getRAM()
            if lost_life(ram, moment.lives):
                return DEAD
            falling = int(ram[mr.FALLING])
            if count < len(plan):
                furthest = max(furthest, self._route.locate(ram, score)[0])
        return furthest

    def _sticky_step(self, action: int, held: int) -> tuple[int, int]:
        """Play four frames, each of which may still have the previous action."""
        reward = 0
        for _ in range(FRAME_SKIP):
            if self._rng.random() >= STICKINESS:
                held = action
            reward += self._frames.act(held)
        return reward, held


@dataclass(slots=True)
class _Cell:
    state: ALEState
    way: Plan
    score: int
    progress: float
    chosen: int = 0


class LocalSearch:
    """An archive of the cells around a moment, to find ways that lead further along the route."""

    def __init__(self, route: Route, ale: ALEInterface, rng: Random, moment: Moment) -> None:
        self._route, self._ale, self._rng, self._moment = route, ale, rng, moment
        start = _Cell(moment.state, [], moment.score, moment.progress)
        self._cells: dict[tuple[int, ...], _Cell] = {}
        self._all = [start]
        self._ways: list[tuple[float, Plan]] = []
        self._lowest = self._highest = moment.progress

    def run(self, budget: int, detour: float, gain: float, enough: int = 6) -> list[Plan]:
        """Spend `budget` steps or find `enough` ways that gain; return the best five.

        `detour` is how far back along the route a way may lead.
        """
        self._lowest = self._moment.progress - detour
        self._highest = self._moment.progress + gain
        while budget > 0 and len(self._ways) < enough:
            budget -= self._explore_from(self._choose())
        best = sorted(self._ways, key=lambda item: item[0], reverse=True)[:5]
        return [way for _, way in best]

    def _choose(self) -> _Cell:
        return max(
            self._rng.choices(self._all, k=4),
            key=lambda cell: cell.progress - 3.0 * cell.chosen + self._rng.random(),
        )

    def _explore_from(self, cell: _Cell, length: int = 24) -> int:
        """Act at random from `cell`; return how many steps that took."""
        cell.chosen += 1
        self._ale.restoreState(cell.state)
        way, score = list(cell.way), cell.score
        while len(way) < len(cell.way) + length:
            move = self._rng.choice((*MOVES, 3, 4, 11, 12))
            for _ in range(self._rng.choice((1, 2, 3, 4, 6, 8, 12))):
                score += self._ale.act(move)
                way.append(move)
                ram = self._ale.getRAM()
                if lost_life(ram, self._moment.lives) or ram[mr.FALLING] > DEEP_FALL:
                    return len(way) - len(cell.way)
                self._file(ram, way, score)
        return len(way) - len(cell.way)

    def _file(self, ram: Ram, way: Plan, score: int) -> None:
        place = (int(ram[mr.ROOM]), int(ram[mr.X]) >> 2, int(ram[mr.Y]) >> 2)
        key = (*place, int(ram[mr.INVENTORY]), score)
        known = self._cells.get(key)
        if known is not None and len(way) >= len(known.way):
            return
        progress = self._route.locate(ram, score)[0]
        if progress < self._lowest:
            return
        cell = _Cell(self._ale.cloneState(), list(way), score, progress)
        if known is None:
            self._all.append(cell)
            self._cells[key] = cell
        else:
            known.state, known.way, known.progress = cell.state, cell.way, cell.progress
        if progress >= self._highest:
            self._ways.append((progress - 0.3 * len(way), list(way)))
