"""A ring of transitions for every lane, with each observation stored once.

A slot holds one observation and how it was reached: the action and reward that led there, how much
of the value goes on from there, and its age, the number of steps since its episode began. Nothing
of it changes once written. The transition *of* a slot is the one that leaves it, so it can be
drawn as soon as the next slot is written. Frame stacks and n-step returns are put together when a
batch is gathered.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import DTypeLike

from hyq.core.errors import HyqError
from hyq.core.types import Array, BoolArray, FloatArray, IntArray, Transitions
from hyq.data.columns import only_column
from hyq.data.dataset import Episode
from hyq.data.frames import frames_for
from hyq.data.priorities import Priorities

_FRAMES = "frames."
"""Begins the names of exported observations, apart from the names of columns."""


class Replay:
    """Transitions of `lanes` environments side by side, the last `length` slots of each.

    Slots are numbered through all lanes: position p of lane l is slot l * length + p.
    """

    def __init__(
        self,
        lanes: int,
        length: int,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        *,
        stack: int = 1,
    ) -> None:
        """Start empty; an observation is shown with the `stack - 1` ones before it."""
        if length <= stack:
            raise HyqError(f"a replay of {length} slots a lane is too short to stack {stack}")
        self.lanes, self.length, self.stack = lanes, length, stack
        self.written = np.zeros(lanes, dtype=np.int64)
        """Slots ever written in each lane."""
        capacity = lanes * length
        self._frames = frames_for(capacity, shape, dtype)
        self._columns: dict[str, Array] = {
            "action": np.zeros(capacity, np.int32),
            "reward": np.zeros(capacity, np.float32),
            "continues": np.zeros(capacity, np.float32),
            "age": np.zeros(capacity, np.int32),
        }
        self._priorities = Priorities(capacity)
        self._highest = 1.0
        self._running = np.zeros(lanes, dtype=np.bool_)

    @classmethod
    def of(
        cls,
        episodes: Iterable[Episode],
        observations: int,
        *,
        stack: int = 1,
        life_loss_discount: float = 1.0,
    ) -> "Replay":
        """Hold logged episodes in one lane just large enough, all with priority 1.

        Args:
            episodes: Gone through once, and none is kept: together they may not fit into memory.
            observations: How many they have in all.
            stack: Newest frames that make one observation.
            life_loss_discount: Share of the value that goes on beyond a lost life.
        """
        coming = iter(episodes)
        first = next(coming, None)
        if first is None:
            raise HyqError("there are no logged episodes to replay")
        seen = only_column(first.observation)
        shape, dtype = seen.shape[1:], seen.dtype
        # The write head's shadow must not fall on the oldest slots.
        replay = cls(1, observations + stack - 1, shape, dtype, stack=stack)
        replay._append(first, life_loss_discount)
        del first, seen
        for episode in coming:
            replay._append(episode, life_loss_discount)
        return replay

    @classmethod
    def of_tuples(cls, rows: Transitions) -> "Replay":
        """Hold transitions without order, each an episode of its own, all with priority 1."""
        replay = cls(1, 2 * len(rows) + 1, rows.observation.shape[1:], rows.observation.dtype)
        before = 2 * np.arange(len(rows))
        replay._write(before, rows.observation, 0, 0.0, 1.0, 0)
        replay._write(before + 1, rows.next_observation, rows.action, rows.reward, rows.discount, 1)
        replay.written += 2 * len(rows)
        replay._priorities.set(before, np.ones(len(rows)))
        return replay

    def __len__(self) -> int:
        """Count the transitions that can be drawn now."""
        return self._priorities.count

    @property
    def nbytes(self) -> int:
        """Memory held."""
        columns = sum(column.nbytes for column in self._columns.values())
        return self._frames.nbytes + columns + self._priorities.nbytes

    def start(self, lanes: IntArray, observation: Array) -> None:
        """Begin an episode in each of `lanes`; one still going on there counts as truncated."""
        slots = self._slots(lanes, self.written[lanes])
        self._write(slots, observation, action=0, reward=0.0, continues=1.0, age=0)
        self._running[lanes] = True
        self._advance(lanes, completed=lanes[:0])

    def add(
        self,
        action: Array,
        reward: FloatArray,
        continues: FloatArray | BoolArray,
        ended: BoolArray,
        next_observation: Array,
    ) -> IntArray:
        """Store one step of every lane and return the slots of the transitions it completed.

        `continues` is the share of the value that goes on: 1, or 0 where the episode terminated,
        or something in between with a lost life. `ended` says that the episode is over, after
        which the lane needs a `start`.
        """
        if not self._running.all():
            raise HyqError(f"lane {int(self._running.argmin())} has no episode: call start first")
        lanes = np.arange(self.lanes)
        left = self._slots(lanes, self.written - 1)
        self._write(
            self._slots(lanes, self.written),
            next_observation,
            action=action,
            reward=reward,
            continues=continues,
            age=self._columns["age"][left] + 1,
        )
        self._running = ~ended
        self._advance(lanes, completed=left)
        return left

    def draw(self, count: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Draw slots of transitions by priority, with replacement, and their probabilities."""
        if len(self) == 0:
            raise HyqError("the replay holds no transition yet: act before learning")
        return self._priorities.draw(count, rng)

    def draw_evenly(self, count: int, rng: np.random.Generator) -> IntArray:
        """Draw slots of transitions with equal chances, with replacement.

        Any place in any lane is proposed, as far as the fullest lane goes, and refused where it
        holds no transition; few are, so this takes a quarter of the time of drawing by priority.
        """
        if len(self) == 0:
            raise HyqError("the replay holds no transition yet: act before learning")
        fullest = min(int(self.written.max()), self.length)
        accepted = np.empty(0, np.int64)
        while len(accepted) < count:
            place = rng.integers(self.lanes * fullest, size=2 * count)
            slots = place // fullest * self.length + place % fullest
            accepted = np.concatenate((accepted, slots[self._priorities.leaves[slots] > 0.0]))
        return accepted[:count]

    def gather(self, slots: IntArray, n_step: int, gamma: float) -> Transitions:
        """Return the transitions of `slots` with returns over up to `n_step` steps.

        A return is shorter where the value or the episode ends, or where the lane has not been
        further yet. Observations have shape (B, stack, ...), or (B, ...) without stacking.
        """
        if n_step == 1:
            return self._gather_single(slots, gamma)
        steps = np.arange(1, n_step + 1)
        lanes, position = np.divmod(slots, self.length)
        path = self._slots(lanes[:, None], position[:, None] + steps)
        continues = self._columns["continues"][path].cumprod(axis=1)
        share = np.concatenate((np.ones_like(continues[:, :1]), continues[:, :-1]), axis=1)
        reached = self._follows(slots, path) & (share > 0.0)
        taken = reached.sum(axis=1)
        if not taken.all():
            raise ValueError(f"slot {int(slots[taken.argmin()])} holds no transition")
        rows = np.arange(len(slots))
        last = path[rows, taken - 1]
        reward = (self._columns["reward"][path] * share * reached) @ gamma ** (steps - 1.0)
        discount = gamma**taken * continues[rows, taken - 1]
        observation, next_observation = self.observations(np.stack([slots, last]))
        return Transitions(
            observation,
            self._columns["action"][path[:, 0]].astype(np.int64),
            reward.astype(np.float32),
            discount.astype(np.float32),
            next_observation,
        )

    def observations(self, slots: IntArray) -> Array:
        """Return observations with those before them; before an episode's first it is repeated."""
        if self.stack == 1:
            return self._frames.get(slots)
        lanes, position = np.divmod(slots[..., None], self.length)
        back = np.minimum(np.arange(self.stack)[::-1], self._columns["age"][slots][..., None])
        return self._frames.get(self._slots(lanes, position - back))

    def _gather_single(self, slots: IntArray, gamma: float) -> Transitions:
        """Return single-step transitions: what `gather` would, in a quarter of its time."""
        columns, following = self._columns, slots + 1
        following[following % self.length == 0] -= self.length
        age = columns["age"][following]
        if not age.all():
            raise ValueError(f"slot {int(slots[age.argmin()])} holds no transition")
        observation, next_observation = self.observations(np.array((slots, following)))
        discount = gamma * columns["continues"][following]
        return Transitions(
            observation,
            columns["action"][following].astype(np.int64),
            columns["reward"][following],
            discount.astype(np.float32),
            next_observation,
        )

    def prioritise(
        self, slots: IntArray, priority: FloatArray, since: IntArray | None = None
    ) -> None:
        """Give transitions new priorities, unless they have been overwritten since they were drawn.

        `since` is what `written` was then; without it nothing has been written meanwhile.
        """
        present = self._priorities.leaves[slots] > 0.0
        if since is not None and not np.array_equal(since, self.written):
            lanes, position = np.divmod(slots, self.length)
            spared = (position - since[lanes]) % self.length  # by that many writes
            present &= self.written[lanes] - since[lanes] <= spared
        if not present.all():
            slots, priority = slots[present], priority[present]
        self._priorities.set(slots, priority)
        self._highest = max(self._highest, float(priority.max(initial=0.0)))

    def priorities(self) -> FloatArray:
        """Return the priority of every slot, for a checkpoint."""
        return self._priorities.leaves.copy()

    def set_priorities(self, priority: FloatArray) -> None:
        """Restore what `priorities` returned, after everything exported has been loaded."""
        self._priorities.restore(priority)

    def export(self, since: IntArray) -> dict[str, Array]:
        """Return the slots written since `written` was `since`, as far as the ring holds them."""
        first = np.maximum(since, self.written - self.length)
        slots = self._slots_between(first, self.written)
        return {
            "first": first,
            "written": self.written.copy(),
            "running": self._running.copy(),
            "highest": np.array([self._highest]),
            **{name: column[slots] for name, column in self._columns.items()},
            **{_FRAMES + name: part for name, part in self._frames.export(slots).items()},
        }

    def load(self, exported: Mapping[str, Array]) -> None:
        """Take in an export; several are loaded in the order they were made.

        Its transitions get the highest priority, as new ones do: `set_priorities` restores theirs.
        """
        first, written = exported["first"], exported["written"]
        if np.any((first > self.written) & (written - first < self.length)):
            raise HyqError("an export before this one is missing: load them in order")
        slots = self._slots_between(first, written)
        for name, column in self._columns.items():
            column[slots] = exported[name]
        frames = {
            name.removeprefix(_FRAMES): part
            for name, part in exported.items()
            if name.startswith(_FRAMES)
        }
        self._frames.load(slots, frames)
        self.written = written.copy()
        self._running = exported["running"].copy()
        self._highest = float(exported["highest"][0])
        # From the observation that was the newest before, to the new shadow of the write head.
        touched = self._slots_between(first - 1, written + self.stack - 1)
        priority = self.priorities()
        priority[touched] = self._highest * self._drawable(touched)
        self.set_priorities(priority)

    def _append(self, episode: Episode, life_loss_discount: float) -> None:
        """Write a whole episode at once into the only lane, where it still has room."""
        steps = len(episode.action)
        slots = self.written[0] + np.arange(steps + 1)
        continues = np.ones(steps, np.float32)
        if episode.life_lost is not None:
            continues[episode.life_lost] = life_loss_discount
        continues[-1] *= not episode.terminated
        seen = only_column(episode.observation)
        self._write(slots[:1], seen[:1], 0, 0.0, 1.0, 0)
        self._write(
            slots[1:],
            seen[1:],
            episode.action,
            episode.reward,
            continues,
            np.arange(1, steps + 1),
        )
        self.written += steps + 1
        self._priorities.set(slots[:-1], np.ones(steps))

    def _write(
        self,
        slots: IntArray,
        observation: Array,
        action: Array | int,
        reward: FloatArray | float,
        continues: FloatArray | BoolArray | float,
        age: IntArray | int,
    ) -> None:
        self._frames.put(slots, observation)
        self._columns["action"][slots] = action
        self._columns["reward"][slots] = reward
        self._columns["continues"][slots] = continues
        self._columns["age"][slots] = age

    def _advance(self, lanes: IntArray, completed: IntArray) -> None:
        """Count the slots just written, offer what they complete, give up what they cut off.

        The `stack` oldest slots stay undrawn: the first has just been overwritten, and frame
        stacks of the others would reach back to it.
        """
        self.written[lanes] += 1
        reach = self.written[lanes] + self.stack - 2
        shadow = self._slots(lanes, reach)[reach >= self.length]  # below, nothing is there yet
        priority = np.zeros(len(shadow) + len(completed))
        priority[len(shadow) :] = self._highest
        self._priorities.set(np.concatenate((shadow, completed)), priority)

    def _slots(self, lanes: IntArray, count: IntArray) -> IntArray:
        """Return where the slot numbered `count` in each lane's history lies."""
        return lanes * self.length + count % self.length

    def _slots_between(self, first: IntArray, end: IntArray) -> IntArray:
        """Return all slots numbered from `first` up to `end`, lane after lane."""
        counts = [np.arange(*bounds) for bounds in zip(first, end, strict=True)]
        lanes = np.repeat(np.arange(self.lanes), end - first)
        return self._slots(lanes, np.concatenate(counts))

    def _follows(self, slots: IntArray, path: IntArray) -> BoolArray:
        """Tell which of the slots 1, 2, ... steps on belong to the episode and are written."""
        lanes, position = np.divmod(slots, self.length)
        ahead = (self.written[lanes] - 1 - position) % self.length
        steps = np.arange(1, path.shape[1] + 1)
        age = self._columns["age"]
        # A new episode begins at age 0, and from then on its ages lag behind.
        same_episode = age[path] == age[slots][:, None] + steps
        return same_episode & (steps <= ahead[:, None])

    def _drawable(self, slots: IntArray) -> BoolArray:
        """Tell which slots have a transition and are not in the shadow of the write head."""
        lanes, position = np.divmod(slots, self.length)
        written = self.written[lanes]
        ahead = (written - 1 - position) % self.length
        held = ahead < np.minimum(written, self.length - self.stack + 1)
        following = self._slots(lanes, position + 1)
        return held & self._follows(slots, following[:, None])[:, 0]
