"""A privileged expert for Montezuma's Revenge: it plans in emulators of its own.

The expert has a *route*, a path that scores high when every action is obeyed, and follows it in a
game whose sticky actions it cannot foresee. Before it acts it clones the game's state into its own
emulators, plays a few plans forward there under stickiness of its own drawing, and takes one that
survives and makes progress along the route. The game being recorded is only read, never restored.

No agent could do this from images: the expert stands in for a trained agent as a source of
good trajectories. Where the chosen action makes no difference (RIGHT with or without FIRE in
mid-air, DOWN while standing) it takes the simplest of the equivalent ones, so that its actions are
as much as possible a function of what is on the screen.

With `noise` it stands in for an agent that samples its actions: now and then it does something else
first, if imagined games survive that, and returns to its route. Nothing is simplified then.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
from ale_py import ALEInterface

from hyq.core.seeding import Streams
from hyq.envs.montezuma import ACTIONS, STEP_LIMIT, STICKINESS, emulator
from hyq.experts.montezuma_data import Recording
from recordings.montezuma import console as mr
from recordings.montezuma.console import NOOP
from recordings.montezuma.planning import (
    DEAD,
    Forecast,
    Imagination,
    LocalSearch,
    Moment,
    Plan,
    Route,
)
from recordings.montezuma.search import MOVES, lost_life, memory_without

UP, RIGHT, LEFT, DOWN = 2, 3, 4, 5

HORIZON = 14
"""Steps of the route in a special plan; most jumps and climbs are decided within as many."""
STRIDE = 20
"""Steps of the route that are planned at a time where it simply works."""
LASER_SPELL = 34
"""Standing idle for this many steps (a laser gate's whole period) shows whether a place is safe."""


class MontezumaExpert:
    """Follows a route in a game with sticky actions; deterministic given its seed."""

    def __init__(self, route: Route, seed: int, *, patience: int = 120, noise: float = 0.0) -> None:
        """Prepare for one episode.

        `patience` is how many steps may pass without progress before the expert does something
        else than wait for it: look further, else walk about, else take any risk. `noise` is the
        chance of a uniformly random action, where that is survived.
        """
        self._route = route
        self._patience = patience
        self._noise = noise
        self._rng = Random(Streams(seed).integer("montezuma-expert"))
        self._imagine = Imagination(route, self._rng)
        self._shadow = emulator()
        self._plan: Plan = []
        self._expected_progress = DEAD
        self._committed = 0
        self._on_track = False
        self._looked = False
        self._lives = -1
        self._furthest = DEAD
        self._stalled = 0

    def act(self, game: ALEInterface, score: int, previous: int) -> int:
        """Choose an action for the present state of `game`, which is read and not changed."""
        ram = game.getRAM()
        lives = int(ram[mr.SPARE_LIVES])
        if lives != self._lives or ram[mr.DYING]:
            self._plan, self._committed, self._lives = [], 0, lives
            self._furthest, self._stalled = DEAD, 0
        deviates = self._noise > 0 and self._rng.random() < self._noise
        if ram[mr.DYING]:
            return self._rng.randrange(ACTIONS) if deviates else NOOP
        progress, nearest = self._route.locate(ram, score)
        self._stalled += 1
        if progress >= self._furthest + 1.0:
            self._furthest, self._stalled = progress, 0
        moment = Moment(game.cloneState(), score, lives, previous, progress, nearest)
        self._on_track = bool(self._plan) and (
            memory_without(game, mr.JOYSTICK) == memory_without(self._shadow, mr.JOYSTICK)
        )
        if not self._keeps_plan(moment):
            self._plan, self._expected_progress = self._replan(moment)
            self._on_track = False
        action = self._execute(moment)
        return self._deviation(moment, action) if deviates else action

    def _keeps_plan(self, moment: Moment) -> bool:
        """Keep or prolong the present plan if possible; return False if another one is needed.

        A plan is followed to its end unless it has become dangerous: one that is given up after
        its first step for another that starts alike would lead nowhere for ever. Towards its end
        the route takes over if it can, so that the player need not stop.
        """
        if self._committed > 0 and self._plan:
            self._committed -= 1
            return True
        if self._looked and self._plan:
            self._looked = False
            return True
        # A deviating expert is seldom where its plan foresaw; to look at every step would be slow.
        self._looked = self._noise > 0 and len(self._plan) >= 6
        if len(self._plan) < 6 and self._stalled <= self._patience and self._joins_route(moment):
            return True
        return bool(self._plan) and (self._on_track or self._is_still_good(moment))

    def _joins_route(self, moment: Moment) -> bool:
        """Follow the route from here if that works: the plan in nearly all cases."""
        plan = self._route.onwards(moment.nearest, STRIDE)
        forecast = self._imagine.forecast(moment, plan, 3, all_must_live=True)
        enough = min(moment.progress + 0.45 * STRIDE, len(self._route) - 1.0)
        if forecast.deaths > 0 or forecast.progress < enough:
            return False
        self._plan, self._expected_progress, self._on_track = plan, forecast.progress, False
        return True

    def _is_still_good(self, moment: Moment) -> bool:
        """Look again at the rest of a plan, after the game did not do what was imagined."""
        forecast = self._imagine.forecast(moment, self._plan, 3 if len(self._plan) <= 20 else 2)
        return forecast.deaths == 0 and forecast.progress >= self._expected_progress - 6.0

    def _execute(self, moment: Moment) -> int:
        """Take the plan's next action in its simplest form, and note what it should lead to."""
        action = self._plan.pop(0)
        if not self._on_track:
            self._shadow.restoreState(moment.state)
        self._shadow.act(action)
        if self._noise > 0:
            return action
        next_action = self._plan[0] if self._plan else NOOP
        for simpler in (NOOP, mr.WITHOUT_FIRE.get(action, action)):
            if simpler == action:
                return action
            if self._imagine.same(moment, action, simpler, next_action):
                return simpler
        return action

    def _deviation(self, moment: Moment, own: int) -> int:
        """Return a random action in place of its own, if that is survived and loses little."""
        other = self._rng.randrange(ACTIONS)
        plan = [other, own, *self._plan]
        seen = plan[:HORIZON]
        forecast = self._imagine.forecast(moment, seen, 2, all_must_live=True)
        enough = min(self._expected_progress, moment.progress + 0.45 * len(seen)) - 5.0
        if forecast.deaths > 0 or forecast.progress < enough:
            return own
        self._plan, self._looked, self._on_track = plan[1:], True, False
        return other

    def _replan(self, moment: Moment) -> tuple[Plan, float]:
        """The route does not work from here: try ever more special plans."""
        if self._stalled > self._patience:
            return self._break_out(moment)
        tried = [(Forecast(1.0, DEAD), [NOOP])]
        for candidates in (self._shifted, self._short, self._delayed, self._random_detours):
            for candidate, idle in candidates(moment):
                forecast = self._imagine.forecast(moment, candidate, 5, idle)
                tried.append((forecast, candidate))
                if forecast.deaths == 0 and forecast.progress >= self._wanted(moment, candidate):
                    break
            best, plan = max(tried, key=_merit)
            if best.merit >= moment.progress + min(0.25 * HORIZON, 0.4 * len(plan)):
                return plan, best.progress
        tried += self._local_plans(moment, budget=3000)
        best, plan = max(tried, key=_merit)
        if best.merit >= moment.progress + 1.0:
            return plan, best.progress
        return self._bide(moment, plan)

    def _wanted(self, moment: Moment, plan: Plan) -> float:
        return moment.progress + 0.4 * min(len(plan), HORIZON)

    def _shifted(self, moment: Moment) -> Iterator[tuple[Plan, int]]:
        """Join the route a little earlier or later, after a short wait or a few steps aside."""
        plans = [
            [NOOP] * wait + self._route.onwards(moment.nearest + offset, HORIZON)
            for wait in (0, 2, 5)
            for offset in (-3, -2, -1, 1, 2, 3)
        ]
        plans += [
            [move] * count + self._route.onwards(moment.nearest, HORIZON)
            for move in (UP, RIGHT, LEFT, DOWN)
            for count in (1, 2, 3, 5)
        ]
        yield from ((plan, 4) for plan in self._promising(moment, plans))

    def _short(self, moment: Moment) -> Iterator[tuple[Plan, int]]:
        """Follow the route for a few steps to a place where one can stand for ever."""
        for length in (12, 9, 7, 5):
            plan = self._route.onwards(moment.nearest, length)
            wanted = moment.progress + 0.5 * length
            if self._imagine.obeyed(moment, plan, LASER_SPELL) >= wanted:
                yield plan, LASER_SPELL

    def _delayed(self, moment: Moment, longest: int = 66) -> Iterator[tuple[Plan, int]]:
        """Wait for the right moment, then follow the route; the middle of a long one is best."""
        follow = self._route.onwards(moment.nearest + 1, HORIZON)
        works: dict[int, float] = {}
        for wait, later in enumerate(self._waiting(moment, longest), start=1):
            progress = self._imagine.obeyed(later, follow)
            if progress >= self._wanted(moment, follow):
                works[wait] = progress
            elif len(works) >= 6:
                break

        def appeal(wait: int) -> float:
            neighbours = sum(wait + offset in works for offset in (-2, -1, 1, 2))
            return works[wait] - 0.05 * wait + 1.5 * neighbours

        for wait in sorted(works, key=appeal, reverse=True)[:5]:
            yield [NOOP] * wait + follow, 4

    def _waiting(self, moment: Moment, longest: int) -> list[Moment]:
        """Return the moments that idling leads to, until it kills."""
        ale, score, moments = self._imagine.obedient, moment.score, []
        ale.restoreState(moment.state)
        for _ in range(longest):
            score += ale.act(NOOP)
            if lost_life(ale.getRAM(), moment.lives):
                break
            moments.append(replace(moment, state=ale.cloneState(), score=score, previous=NOOP))
        return moments

    def _random_detours(self, moment: Moment, count: int = 60) -> Iterator[tuple[Plan, int]]:
        """Make one or two arbitrary moves first."""
        plans = []
        for _ in range(count):
            detour = self._moves(self._rng.choice((1, 1, 2)), (1, 1, 2, 3, 4))
            offset = self._rng.randrange(-3, 6)
            plans.append(detour + self._route.onwards(moment.nearest + offset, HORIZON))
        yield from ((plan, 4) for plan in self._promising(moment, plans))

    def _moves(self, count: int, lengths: tuple[int, ...]) -> Plan:
        moves: Plan = []
        for _ in range(count):
            moves += [self._rng.choice(MOVES)] * self._rng.choice(lengths)
        return moves

    def _promising(self, moment: Moment, plans: list[Plan], count: int = 5) -> list[Plan]:
        """Return the plans that do best when obeyed, if they make progress at all."""
        rated = []
        for plan in plans:
            lateness = 0.2 * max(0, len(plan) - HORIZON)
            rated.append((self._imagine.obeyed(moment, plan) - lateness, plan))
        rated.sort(key=lambda item: item[0], reverse=True)
        return [plan for value, plan in rated[:count] if value >= moment.progress + 2.0]

    def _bide(self, moment: Moment, otherwise: Plan) -> tuple[Plan, float]:
        """Nothing makes progress now: wait where that is safe, or go where it is."""
        # Thinking in vain is slow and a wait seldom helps, so it tries the patience sooner.
        self._stalled += self._patience // 10
        if self._is_safe(moment, [NOOP], games=0):
            return self._commit([NOOP] * 4)
        for length in (1, 2, 3, 4, 6):
            for move in (LEFT, RIGHT, UP, DOWN):
                if self._is_safe(moment, [move] * length, games=2):
                    return self._commit([move] * length)
        return otherwise, DEAD

    def _break_out(self, moment: Moment) -> tuple[Plan, float]:
        """Waiting has not helped: search further, else walk about, else risk a life."""
        self._furthest, self._stalled = DEAD, 0
        found = self._local_plans(moment, budget=12_000, detour=1000.0, gain=3.0)
        best, plan = max(found, key=_merit, default=(Forecast(1.0, DEAD), [NOOP]))
        if best.merit > DEAD:
            return plan, best.progress
        for _ in range(30):
            walk = self._moves(3, (2, 4, 6, 8, 12))
            if self._is_safe(moment, walk, games=2):
                return self._commit(walk)
        # A lost life puts the player back where the room was entered, which is a way out too.
        return self._commit(self._moves(6, (4, 8, 12)))

    def _is_safe(self, moment: Moment, plan: Plan, games: int) -> bool:
        """Say whether one can do `plan` and then stand there for a laser gate's whole period."""
        if self._imagine.obeyed(moment, plan, LASER_SPELL) == DEAD:
            return False
        return games == 0 or self._imagine.forecast(moment, plan, games, LASER_SPELL).deaths == 0

    def _commit(self, plan: Plan) -> tuple[Plan, float]:
        """Do all of `plan` before thinking again."""
        self._committed = len(plan) - 1
        return plan, DEAD

    def _local_plans(
        self, moment: Moment, budget: int, detour: float = 60.0, gain: float = 10.0
    ) -> list[tuple[Forecast, Plan]]:
        """Look for ways that lead to the route with a small archive of cells."""
        search = LocalSearch(self._route, self._imagine.obedient, self._rng, moment)
        ways = search.run(budget, detour, gain)
        return [(self._imagine.forecast(moment, way, 5), way) for way in ways]


def _merit(item: tuple[Forecast, Plan]) -> float:
    return item[0].merit


def play_episode(
    route: Route,
    game_seed: int,
    expert_seed: int,
    limit: int = STEP_LIMIT,
    *,
    noise: float = 0.0,
) -> tuple[Recording, int]:
    """Let the expert play one game until its route's score, game over or `limit` steps.

    Returns the episode and its score.
    """
    game = emulator(game_seed, stickiness=STICKINESS)
    expert = MontezumaExpert(route, expert_seed, noise=noise)
    actions: Plan = []
    score = 0
    while score < route.score and not game.game_over() and len(actions) < limit:
        action = expert.act(game, score, actions[-1] if actions else NOOP)
        score += game.act(action)
        actions.append(action)
    return Recording(game_seed, np.array(actions, dtype=np.uint8)), score
