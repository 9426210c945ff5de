"""A ring of transitions for every environment, with each observation stored once.

A slot holds one observation and how it was reached: the action and reward that led there, the
continuation (how much of the value continues from there), and its timestep, counted from the start
of its episode. The transition *of* a slot is the one that leaves it, so it can be drawn as soon as
the next slot is written. Frame stacks and n-step returns are put together when a batch is gathered.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.actions import Actions
from hyq.core.errors import HyqError
from hyq.core.trees import Tree, flatten, space_tree, subtree, tree_map
from hyq.core.types import Array, BoolArray, FloatArray, IntArray
from hyq.data.columns import blocks
from hyq.data.dataset import Dataset, Episode
from hyq.data.frames import Frames, frames_for
from hyq.data.priorities import Priorities
from hyq.data.stored import StoredFrames, stays_on_disk, stored_columns

BLOCK = 4096
"""Observations of a dataset that are read and prepared at a time."""


@dataclass(frozen=True)
class Rows:
    """Transitions gathered from a buffer, one a row."""

    observation: Tree
    action: Array
    reward: FloatArray
    """Summed over n steps, discounted."""
    discount: FloatArray
    """gamma^n times the continuation: 0 where the episode terminated, never where truncated."""
    next_observation: Tree
    """n steps on."""


class ReplayBuffer:
    """Transitions of `num_envs` environments side by side, the last `length` slots of each.

    Slots are numbered through all environments: position p of environment e is slot e * length + p.
    """

    def __init__(
        self,
        num_envs: int,
        length: int,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        frame_stack: int = 1,
    ) -> None:
        """Start empty, for single frames of a space; they are shown stacked."""
        if length <= frame_stack:
            raise HyqError(f"a buffer of {length} slots is too short to stack {frame_stack} frames")
        self.num_envs, self.length, self.frame_stack = num_envs, length, frame_stack
        self.written: IntArray = np.zeros(num_envs, dtype=np.int64)
        """Slots ever written for each environment."""
        self.reward_range = (0.0, 0.0)
        """The smallest and the largest reward ever stored, and 0."""
        capacity = num_envs * length
        self._frames: Tree = tree_map(
            lambda space: frames_for(capacity, space.shape, _stored(space.dtype)),
            space_tree(observation_space),
        )
        self._columns: dict[str, Array] = {
            "action": np.zeros((capacity, *action_space.shape), _stored(action_space.dtype)),  # type: ignore[misc]
            "reward": np.zeros(capacity, np.float32),
            "continuation": np.zeros(capacity, np.float32),
            "timestep": np.zeros(capacity, np.int32),
        }
        self._priorities = Priorities(capacity)
        self._highest = 1.0
        self._returns: FloatArray | None = None
        """Return from each slot's arrival on, discounted, where that was requested."""
        self._running: BoolArray = np.zeros(num_envs, dtype=np.bool_)

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        observation_space: gym.Space[Any],
        actions: Actions,
        *,
        frame_stack: int = 1,
        prepare: Callable[[Tree], Tree] = lambda frames: frames,
        scale_reward: Callable[[FloatArray], FloatArray] = lambda reward: reward,
        life_loss_discount: float = 1.0,
        truncation_terminates: bool = False,
        return_gamma: float | None = None,
    ) -> "ReplayBuffer":
        """Hold a dataset in one ring just large enough, all with priority 1.

        Args:
            dataset: Episodes laid end to end; transitions without order are episodes of one step.
            observation_space: Of single frames, once prepared.
            actions: How the environment's actions are those of agents.
            frame_stack: Newest frames that make one observation.
            prepare: Applied to blocks of frames as the dataset has them.
            scale_reward: Applied to all rewards.
            life_loss_discount: Share of the value that continues beyond a lost life.
            truncation_terminates: Let the value end where an episode was truncated.
            return_gamma: Work out every transition's discounted return, for `return_to_go`.
        """
        rows = dataset.num_observations
        # One step of the write head invalidates the oldest slots, so there is room for them.
        length = rows + frame_stack - 1
        buffer = cls(1, length, observation_space, actions.space, frame_stack=frame_stack)
        columns = stored_columns(
            dataset, actions.from_env, scale_reward, life_loss_discount, truncation_terminates
        )
        if stays_on_disk(dataset, prepare):
            buffer._frames, buffer._columns = tree_map(StoredFrames, dataset.observation), columns
        else:
            for start in range(0, rows, BLOCK):
                block = slice(start, min(start + BLOCK, rows))
                frames = prepare(tree_map(lambda leaf, b=block: leaf[b], dataset.observation))
                slots = np.arange(block.start, block.stop)
                buffer._put(slots, frames)
                for name, column in columns.items():
                    buffer._columns[name][slots] = column[slots]
        buffer.written += rows
        for rewards in blocks(dataset.reward):
            buffer._widen_reward_range(scale_reward(rewards))
        reached = np.ones(rows, dtype=bool)  # by a transition, unlike the first of each episode
        reached[np.cumsum(dataset.length + 1) - dataset.length - 1] = False
        if return_gamma is not None:
            after = np.flatnonzero(reached)
            ends = np.cumsum(dataset.length) - 1
            reward, continuation = (columns[name][after] for name in ("reward", "continuation"))
            found = _returns(reward, continuation.astype(np.float64), ends, return_gamma)
            buffer._returns = np.full(buffer.length, -np.inf, np.float32)
            buffer._returns[after] = found
        leaves = np.append(reached[1:], np.zeros(frame_stack, bool))  # truth values take less room
        buffer._priorities.restore(leaves)
        return buffer

    def episodes(self, actions: Actions) -> Iterator[Episode]:
        """Go through the episodes held from their first observation on: the reverse of `of`.

        Observations and rewards are as they are learned from.
        """
        for env in range(self.num_envs):
            oldest = max(0, int(self.written[env]) - self.length)
            slots = self._slots(np.array(env), np.arange(oldest, self.written[env]))
            first = np.flatnonzero(self._columns["timestep"][slots] == 0)
            for held in np.split(slots, first)[1:]:
                if len(held) == 1:  # nothing has been done yet
                    continue
                taken = {name: column[held[1:]] for name, column in self._columns.items()}
                continuation = taken["continuation"]
                yield Episode(
                    tree_map(lambda frames, held=held: frames.get(held), self._frames),
                    actions.to_env(taken["action"]),
                    taken["reward"],
                    bool(continuation[-1] == 0),
                    (continuation > 0) & (continuation < 1),
                )

    def __len__(self) -> int:
        """Count the transitions that can be drawn now."""
        return self._priorities.count

    @property
    def nbytes(self) -> int:
        """Memory held."""
        columns = sum(column.nbytes for column in self._columns.values())
        frames = sum(part.nbytes for part in self._parts().values())
        return frames + columns + self._priorities.nbytes

    def start(self, envs: IntArray, observation: Tree) -> None:
        """Begin an episode in each of `envs`; one still running there counts as truncated."""
        slots = self._slots(envs, self.written[envs])
        self._write(slots, observation, action=0, reward=0.0, continuation=1.0, timestep=0)
        self._running[envs] = True
        self._advance(envs, completed=envs[:0])

    def add(
        self,
        action: Array,
        reward: FloatArray,
        continuation: FloatArray,
        ended: BoolArray,
        next_observation: Tree,
    ) -> None:
        """Store one step of every environment.

        `continuation` is the share of the value that continues: 1, 0 where the episode terminated,
        or something in between with a lost life. Where an episode `ended`, `start` must follow.
        """
        if not self._running.all():
            raise HyqError(f"environment {int(self._running.argmin())} has no episode: call start")
        envs = np.arange(self.num_envs)
        left = self._slots(envs, self.written - 1)
        self._write(
            self._slots(envs, self.written),
            next_observation,
            action=action,
            reward=reward,
            continuation=continuation,
            timestep=self._columns["timestep"][left] + 1,
        )
        self._widen_reward_range(reward)
        self._running = ~ended
        self._advance(envs, completed=left)

    def draw(self, count: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Draw slots of transitions by priority, with replacement, and their probabilities."""
        return self._priorities.draw(count, rng)

    def draw_uniformly(self, count: int, rng: np.random.Generator) -> IntArray:
        """Draw slots of transitions with equal chances, with replacement.

        Positions up to the fullest environment's are proposed and rejected where there is no
        transition; few are, so this takes a quarter of the time of drawing by priority.
        """
        fullest = min(max(self.written.tolist()), self.length)
        accepted = np.empty(0, np.int64)
        while len(accepted) < count:
            place = (rng.random(2 * count) * (self.num_envs * fullest)).astype(np.int64)
            slots = place // fullest * self.length + place % fullest
            valid = self._priorities.leaves.take(slots) > 0.0
            accepted = np.concatenate((accepted, slots[valid]))
        return accepted[:count]

    def gather(self, slots: IntArray, n_step: int, gamma: float) -> Rows:
        """Return the transitions of `slots` with returns over up to `n_step` steps.

        A return is shorter where the value or the episode ends, or where the environment has not
        been further yet. Observations have shape (B, frame_stack, ...), or (B, ...) unstacked.
        """
        columns = self._columns
        if n_step == 1:
            last = self._next(slots)
            if not columns["timestep"].take(last).all():
                raise ValueError("a slot without a transition was drawn")
            action, reward = columns["action"].take(last, axis=0), columns["reward"].take(last)
            discount = gamma * columns["continuation"].take(last)
        else:
            steps = np.arange(1, n_step + 1)
            envs, position = np.divmod(slots, self.length)
            path = self._slots(envs[:, None], position[:, None] + steps)
            continuation = columns["continuation"][path].cumprod(axis=1)
            share = np.concatenate((np.ones((len(slots), 1)), continuation[:, :-1]), axis=1)
            reached = self._same_episode(slots, path) & (share > 0.0)
            taken = reached.sum(axis=1)
            if not taken.all():
                raise ValueError("a slot without a transition was drawn")
            row = np.arange(len(slots))
            last = path[row, taken - 1]
            action = columns["action"][path[:, 0]]
            reward = (columns["reward"][path] * share * reached) @ gamma ** (steps - 1.0)
            discount = gamma**taken * continuation[row, taken - 1]
        # Both at once: overlapping stacks share frames, and none is decompressed twice.
        both = self.observations(np.array([slots, last]))
        return Rows(
            tree_map(lambda leaf: leaf[0], both),
            action,
            reward.astype(np.float32, copy=False),
            discount.astype(np.float32, copy=False),
            tree_map(lambda leaf: leaf[1], both),
        )

    def observations(self, slots: IntArray) -> Tree:
        """Return observations with the frames before them; an episode's first one is repeated."""
        if self.frame_stack > 1:
            envs, position = np.divmod(slots[..., None], self.length)
            timestep = self._columns["timestep"][slots][..., None]
            back = np.minimum(np.arange(self.frame_stack)[::-1], timestep)
            slots = self._slots(envs, position - back)
        return tree_map(lambda frames: frames.get(slots), self._frames)

    def sample_observations(self, about: int) -> Tree:
        """Return about so many observations, evenly spread over all transitions."""
        every, passed = max(1, len(self) // about), 0
        chosen = []
        for start in range(0, self._priorities.capacity, 2**20):
            slots = np.flatnonzero(self._priorities.leaves[start : start + 2**20])
            chosen.append(start + slots[-passed % every :: every])
            passed += len(slots)
        return self.observations(np.concatenate(chosen))

    def return_to_go(self, slots: IntArray) -> FloatArray:
        """Return the discounted return of the rest of the episode; minus infinity if unknown."""
        if self._returns is None:
            return np.full(len(slots), -np.inf, np.float32)
        return self._returns[self._next(slots)]

    @property
    def total_priority(self) -> float:
        """The sum of all priorities."""
        return self._priorities.total

    def set_priorities(self, slots: IntArray, priority: FloatArray) -> None:
        """Give transitions new priorities."""
        self._priorities.set(slots, priority)
        self._highest = max(self._highest, float(priority.max(initial=0.0)))

    def priorities(self) -> FloatArray:
        """Return the priority of every slot, for a checkpoint."""
        return self._priorities.leaves.copy()

    def restore_priorities(self, priority: FloatArray) -> None:
        """Undo `priorities`, after everything exported has been loaded."""
        self._priorities.restore(priority)

    def export(self, since: IntArray) -> dict[str, Array]:
        """Return the slots written since `written` was `since`, as far as the ring holds them."""
        first = np.maximum(since, self.written - self.length)
        slots = self._slots_between(first, self.written)
        frames = {name: part.export(slots) for name, part in self._parts().items()}
        return {
            "first": first,
            "written": self.written.copy(),
            "running": self._running.copy(),
            "highest": np.array([self._highest]),
            "reward_range": np.array(self.reward_range),
            **{f"columns.{name}": column[slots] for name, column in self._columns.items()},
            **{f"frames.{name}": leaf for name, leaf in flatten(frames).items()},
        }

    def load(self, exported: Mapping[str, Array]) -> None:
        """Take in an export; several are loaded in the order they were made."""
        first, written = exported["first"], exported["written"]
        if np.any((first > self.written) & (written - first < self.length)):
            raise HyqError("an export before this one is missing: load them in order")
        slots = self._slots_between(first, written)
        for name, column in self._columns.items():
            column[slots] = exported[f"columns.{name}"]
        frames = subtree("frames", exported)
        for name, part in self._parts().items():
            part.load(slots, subtree(name, frames))
        self.written = written.copy()
        self._running = exported["running"].copy()
        self._highest = float(exported["highest"][0])
        self._widen_reward_range(exported["reward_range"])

    def _widen_reward_range(self, reward: FloatArray) -> None:
        low, high = self.reward_range
        self.reward_range = min(low, float(reward.min())), max(high, float(reward.max()))

    def _parts(self) -> dict[str, Frames]:
        """Return the storage of every leaf of an observation, by its path."""
        return flatten({"observation": self._frames})

    def _put(self, slots: IntArray, observation: Tree) -> None:
        tree_map(lambda frames, leaf: frames.put(slots, leaf), self._frames, observation)

    def _write(self, slots: IntArray, observation: Tree, **columns: Array | float) -> None:
        self._put(slots, observation)
        for name, values in columns.items():
            self._columns[name][slots] = values

    def _advance(self, envs: IntArray, completed: IntArray) -> None:
        """Count the slots just written, offer what they complete, withdraw what they cut off.

        The oldest `frame_stack` slots are invalid: the first has just been overwritten, and stacks
        of the others would reach back to it.
        """
        self.written[envs] += 1
        reach = self.written[envs] + self.frame_stack - 2
        invalid = self._slots(envs, reach)[reach >= self.length]  # below, nothing is there yet
        priority = np.zeros(len(invalid) + len(completed))
        priority[len(invalid) :] = self._highest
        self._priorities.set(np.concatenate((invalid, completed)), priority)

    def _slots(self, envs: IntArray, count: IntArray) -> IntArray:
        """Return where the slot numbered `count` in each environment's history lies."""
        return envs * self.length + count % self.length

    def _next(self, slots: IntArray) -> IntArray:
        """Return the slot after each."""
        after: IntArray = slots + 1
        after[after % self.length == 0] -= self.length
        return after

    def _slots_between(self, first: IntArray, end: IntArray) -> IntArray:
        """Return all slots numbered from `first` up to `end`, one environment after the other."""
        counts = [np.arange(*bounds) for bounds in zip(first, end, strict=True)]
        envs = np.repeat(np.arange(self.num_envs), end - first)
        return self._slots(envs, np.concatenate(counts))

    def _same_episode(self, slots: IntArray, path: IntArray) -> BoolArray:
        """Tell which of the slots 1, 2, ... steps on belong to the episode and are written."""
        envs, position = np.divmod(slots, self.length)
        ahead = (self.written[envs] - 1 - position) % self.length
        steps = np.arange(1, path.shape[1] + 1)
        timestep = self._columns["timestep"]
        # A new episode begins at timestep 0, so from there on the numbers no longer match.
        same: BoolArray = timestep[path] == timestep[slots][:, None] + steps
        return same & (steps <= ahead[:, None])


def _returns(
    reward: FloatArray, continuation: FloatArray, ends: IntArray, gamma: float
) -> FloatArray:
    """Return discounted returns to the end of each episode; unknown where it was truncated."""
    found = np.empty(len(reward), np.float64)
    last, later = set(ends.tolist()), -np.inf
    for t in range(len(reward) - 1, -1, -1):
        if t in last:
            later = -np.inf
        later = reward[t] + (gamma * continuation[t] * later if continuation[t] else 0.0)
        found[t] = later
    return found.astype(np.float32)


def _stored(dtype: Any) -> np.dtype[Any]:
    """Return the type that numbers are stored in: bytes and integers as they are, else float32."""
    kind = np.dtype(dtype)
    return np.dtype(np.float32) if kind.kind == "f" else kind
