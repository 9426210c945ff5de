"""The replay ring against a twin that keeps every episode in plain lists."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.types import Array, Transitions
from hyq.data.dataset import Episode
from hyq.data.replay import Replay

GAMMA = 0.9


@dataclass
class Lived:
    """One episode as it happened; entry t of `steps` is (action, reward, continues)."""

    observation: list[Array]
    steps: list[tuple[int, float, float]] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)


class Twin:
    """Drives a replay with random steps and remembers everything in lists."""

    def __init__(self, rng: np.random.Generator, lanes: int, length: int, stack: int) -> None:
        self.rng, self.lanes, self.length, self.stack = rng, lanes, length, stack
        pixels = rng.random() < 0.5
        self.shape: tuple[int, ...] = (3, 2) if pixels else (2,)
        self.dtype = np.dtype("uint8" if pixels else "float32")
        self.replay = Replay(lanes, length, self.shape, self.dtype, stack=stack)
        self.episodes: list[list[Lived]] = [[] for _ in range(lanes)]
        self.written = [0] * lanes
        self.start(np.arange(lanes))

    def start(self, lanes: Any) -> None:
        observation = self.observe(len(lanes))
        self.replay.start(lanes, observation)
        for lane, seen in zip(lanes.tolist(), observation, strict=True):
            self.episodes[lane].append(Lived([seen], slot=[self.take_slot(lane)]))

    def step(self) -> None:
        action = self.rng.integers(0, 5, self.lanes)
        reward = self.rng.normal(size=self.lanes).astype(np.float32)
        continues = self.rng.choice([0.0, 0.5, 1.0], self.lanes, p=[0.1, 0.2, 0.7])
        ended = self.rng.random(self.lanes) < 0.15
        observation = self.observe(self.lanes)
        slots = self.replay.add(action, reward, continues, ended, observation)
        assert slots.tolist() == [self.episodes[lane][-1].slot[-1] for lane in range(self.lanes)]
        for lane in range(self.lanes):
            lived = self.episodes[lane][-1]
            lived.observation.append(observation[lane])
            lived.steps.append((int(action[lane]), float(reward[lane]), float(continues[lane])))
            lived.slot.append(self.take_slot(lane))
        interrupted = self.rng.random(self.lanes) < 0.03
        if (ended | interrupted).any():
            self.start(np.flatnonzero(ended | interrupted))

    def observe(self, count: int) -> Array:
        return self.rng.integers(0, 255, (count, *self.shape)).astype(self.dtype)

    def take_slot(self, lane: int) -> int:
        self.written[lane] += 1
        return lane * self.length + (self.written[lane] - 1) % self.length

    def drawable(self) -> dict[int, tuple[Lived, int]]:
        """Map each slot that should be drawable to its episode and step."""
        found: dict[int, tuple[Lived, int]] = {}
        for episodes in self.episodes:
            history = [(lived, t) for lived in episodes for t in range(len(lived.slot))]
            # Of the `length` newest slots the `stack - 1` oldest lack frames for a stack.
            kept = history[max(0, len(history) - self.length + self.stack - 1) :]
            found |= {lived.slot[t]: (lived, t) for lived, t in kept if t < len(lived.steps)}
        return found

    def transition(
        self, lived: Lived, t: int, n_step: int
    ) -> tuple[Array, int, float, float, Array]:
        total, discount, now = 0.0, 1.0, t
        while now < len(lived.steps) and now < t + n_step and discount > 0:
            _, reward, continues = lived.steps[now]
            total += discount * reward
            discount *= GAMMA * continues
            now += 1
        return self.stacked(lived, t), lived.steps[t][0], total, discount, self.stacked(lived, now)

    def stacked(self, lived: Lived, t: int) -> Array:
        frames = [lived.observation[max(t - back, 0)] for back in reversed(range(self.stack))]
        return np.stack(frames) if self.stack > 1 else frames[0]

    def check(self, n_step: int) -> None:
        expected = self.drawable()
        positive = np.flatnonzero(self.replay.priorities())
        assert sorted(expected) == positive.tolist()
        assert len(self.replay) == len(expected)
        if expected:
            slots = self.rng.permutation(positive)
            batch = self.replay.gather(slots, n_step, GAMMA)
            for row, slot in enumerate(slots.tolist()):
                self.same(batch, row, self.transition(*expected[slot], n_step))

    @staticmethod
    def same(batch: Transitions, row: int, wanted: tuple[Array, int, float, float, Array]) -> None:
        observation, action, reward, discount, next_observation = wanted
        np.testing.assert_array_equal(batch.observation[row], observation)
        np.testing.assert_array_equal(batch.next_observation[row], next_observation)
        assert batch.action[row] == action
        assert batch.reward[row] == pytest.approx(reward, abs=1e-5)
        assert batch.discount[row] == pytest.approx(discount, abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_every_drawable_transition_is_as_it_happened(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stack = int(rng.integers(1, 5))
    twin = Twin(rng, int(rng.integers(1, 4)), stack + int(rng.integers(1, 30)), stack)
    for step in range(60):
        twin.step()
        if step % 2:
            twin.check(int(rng.integers(1, 8)))


@pytest.mark.parametrize("seed", range(8))
def test_exports_loaded_in_order_make_the_same_replay(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stack = int(rng.integers(1, 4))
    twin = Twin(rng, 2, stack + int(rng.integers(2, 30)), stack)
    copy = Replay(2, twin.length, twin.shape, twin.dtype, stack=stack)
    since = copy.written.copy()
    for _ in range(6):
        for _ in range(int(rng.integers(0, 40))):
            twin.step()
            slots, _ = twin.replay.draw(4, rng)
            twin.replay.prioritise(slots, rng.random(4) * 3 + 0.1)
        copy.load(twin.replay.export(since))
        assert_drawable_alike(copy, twin.replay)
        copy.set_priorities(twin.replay.priorities())
        since = twin.replay.written.copy()
        assert_same(copy, twin.replay)
    twin.replay = copy
    twin.step()
    twin.check(3)


def assert_drawable_alike(one: Replay, other: Replay) -> None:
    np.testing.assert_array_equal(one.priorities() > 0.0, other.priorities() > 0.0)


def assert_same(one: Replay, other: Replay) -> None:
    """Compare everything a replay holds, and what it draws."""
    everything = np.zeros(one.lanes, int)
    mine, others = one.export(everything), other.export(everything)
    assert mine.keys() == others.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)
        assert array.dtype == others[name].dtype
    np.testing.assert_array_equal(one.priorities(), other.priorities())
    assert len(one) == len(other)
    if len(one):
        mine_drawn, others_drawn = (r.draw(8, np.random.default_rng(0))[0] for r in (one, other))
        np.testing.assert_array_equal(mine_drawn, others_drawn)


def test_a_missing_export_is_noticed() -> None:
    twin = Twin(np.random.default_rng(0), 1, 20, 1)
    twin.step()
    since = twin.replay.written.copy()
    twin.step()
    with pytest.raises(HyqError, match="load them in order"):
        Replay(1, 20, twin.shape, twin.dtype).load(twin.replay.export(since))


def chain(rewards: list[float], *, length: int = 20) -> Replay:
    """Return one lane that observed 0, 1, 2, ... with these rewards."""
    replay = Replay(1, length, (), np.float32)
    replay.start(np.array([0]), np.array([0.0]))
    for step, reward in enumerate(rewards, 1):
        yes, no = np.array([True]), np.array([False])
        replay.add(np.array([step]), np.array([reward]), yes, no, np.array([float(step)]))
    return replay


def test_returns_stop_at_a_lost_life_but_frame_stacks_do_not() -> None:
    replay = Replay(1, 20, (), np.float32, stack=3)
    replay.start(np.array([0]), np.array([0.0]))
    for step in range(1, 6):
        goes_on, over = np.array([step != 3]), np.array([False])
        replay.add(np.array([step]), np.array([1.0]), goes_on, over, np.array([float(step)]))
    batch = replay.gather(np.array([1, 3]), 4, 0.5)
    np.testing.assert_array_equal(batch.observation, [[0, 0, 1], [1, 2, 3]])
    np.testing.assert_array_equal(batch.next_observation, [[1, 2, 3], [3, 4, 5]])
    np.testing.assert_allclose(batch.reward, [1.5, 1.5])
    np.testing.assert_allclose(batch.discount, [0.0, 0.25])


def test_a_truncated_episode_keeps_its_discount() -> None:
    replay = chain([1.0])
    yes = np.array([True])
    replay.add(np.array([2]), np.array([1.0]), yes, yes, np.array([2.0]))
    replay.start(np.array([0]), np.array([7.0]))
    batch = replay.gather(np.array([0, 1]), 5, 0.5)
    np.testing.assert_allclose(batch.discount, [0.25, 0.5])
    np.testing.assert_array_equal(batch.next_observation, [2.0, 2.0])


def test_long_returns_are_summed_over_all_their_steps() -> None:
    batch = chain([1.0] * 80, length=100).gather(np.array([0, 10, 30]), 60, 0.99)
    full, short = (1 - 0.99**60) / 0.01, (1 - 0.99**50) / 0.01
    np.testing.assert_allclose(batch.reward, [full, full, short], rtol=1e-6)
    np.testing.assert_array_equal(batch.next_observation, [60.0, 70.0, 80.0])


def test_new_transitions_get_the_highest_priority_ever_given() -> None:
    replay = chain([0.0, 0.0])
    replay.prioritise(np.array([0, 1]), np.array([8.0, 0.5]))
    replay.prioritise(np.array([0, 1]), np.array([0.1, 0.5]))
    yes, no = np.array([True]), np.array([False])
    added = replay.add(np.array([3]), np.array([0.0]), yes, no, np.array([3.0]))
    assert replay.priorities()[[0, 1, *added]].tolist() == [0.1, 0.5, 8.0]


def test_a_slot_overwritten_since_it_was_drawn_stays_undrawn() -> None:
    replay = chain([0.0] * 7, length=5)
    undrawable = np.flatnonzero(replay.priorities() == 0.0)
    assert len(undrawable) == 1
    replay.prioritise(np.arange(5), np.full(5, 2.0))
    assert replay.priorities()[undrawable[0]] == 0.0
    assert len(replay) == 4


def test_what_took_the_place_of_a_drawn_transition_keeps_its_own_priority() -> None:
    replay = chain([0.0] * 7, length=5)
    drawn, since = np.flatnonzero(replay.priorities()), replay.written.copy()
    for _ in range(3):  # which overwrite three slots, and complete a transition in two of them
        replay.add(np.array([0]), np.zeros(1), np.ones(1), np.array([False]), np.zeros((1, 1)))
    before = replay.priorities()
    assert (before[drawn] > 0).sum() == 3
    replay.prioritise(drawn, np.full(len(drawn), 2.0), since)
    spared = (since[0] + 3) % 5
    np.testing.assert_array_equal(np.flatnonzero(replay.priorities() != before), [spared])


def test_drawing_follows_the_priorities_with_replacement() -> None:
    replay = chain([0.0, 0.0, 0.0])
    replay.prioritise(np.array([0, 1, 2]), np.array([1.0, 3.0, 4.0]))
    slots, probability = replay.draw(800, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(slots) / 800, [1 / 8, 3 / 8, 4 / 8], atol=0.01)
    np.testing.assert_allclose(probability, np.array([1, 3, 4])[slots] / 8)


def test_logged_episodes_fill_a_replay_of_their_own() -> None:
    twin = Twin(np.random.default_rng(3), 1, 500, 3)
    for _ in range(200):
        twin.step()
    lived = [lived for lived in twin.episodes[0] if lived.steps]
    episodes = []
    for one in lived:
        action, reward, continues = map(np.array, zip(*one.steps, strict=True))
        terminated, lost = bool(continues[-1] == 0), continues < 1
        one.steps = [
            (a, r, 0.25 if life else 1.0) for (a, r, _), life in zip(one.steps, lost, strict=True)
        ]
        if terminated:
            one.steps[-1] = (*one.steps[-1][:2], 0.0)
        episodes.append(Episode(np.stack(one.observation), action, reward, terminated, lost))
    rows = sum(len(episode.observation) for episode in episodes)
    replay = Replay.of(iter(episodes), rows, stack=3, life_loss_discount=0.25)
    assert replay.length == rows + 2
    positive = np.flatnonzero(replay.priorities())
    assert len(replay) == len(positive) == sum(len(one.steps) for one in lived)
    assert set(replay.priorities()) == {0.0, 1.0}
    batch = replay.gather(positive, 4, GAMMA)
    places = [(one, t) for one in lived for t in range(len(one.steps))]
    for row, place in enumerate(places):
        twin.same(batch, row, twin.transition(*place, 4))
    copy = Replay(1, replay.length, twin.shape, twin.dtype, stack=3)
    copy.load(replay.export(np.array([0])))
    assert_same(copy, replay)


def test_what_cannot_be_done_is_refused() -> None:
    replay = Replay(2, 9, (3,), np.float32)
    with pytest.raises(HyqError, match="no transition yet"):
        replay.draw(1, np.random.default_rng(0))
    step = (np.zeros(2, int), np.zeros(2), np.ones(2), np.array([False, True]))
    with pytest.raises(HyqError, match="lane 0 has no episode"):
        replay.add(*step, np.zeros((2, 3)))
    replay.start(np.arange(2), np.zeros((2, 3)))
    replay.add(*step, np.zeros((2, 3)))
    with pytest.raises(HyqError, match="lane 1 has no episode"):
        replay.add(*step, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="slot 1 holds no transition"):
        replay.gather(np.array([0, 1]), 1, 0.5)
    with pytest.raises(HyqError, match="too short to stack 4"):
        Replay(1, 4, (3,), np.float32, stack=4)
    with pytest.raises(HyqError, match="no logged episodes"):
        Replay.of([], 0)


def test_memory_counts_every_part() -> None:
    replay = Replay(2, 512, (10,), np.float32)
    frames, columns, leaves = 1024 * 40, 1024 * (4 + 4 + 4 + 4), 1024 * 8
    assert frames + columns + leaves <= replay.nbytes < frames + columns + leaves * 1.1


def test_even_draws_reach_every_transition_alike_and_nothing_else() -> None:
    rng = np.random.default_rng(4)
    replay = Replay(3, 40, (2,), np.float32, stack=2)
    replay.start(np.arange(3), np.zeros((3, 2)))
    with pytest.raises(HyqError, match="no transition yet"):
        replay.draw_evenly(1, rng)
    for _ in range(70):  # the ring turns over, and lanes end at different times
        ended = rng.random(3) < 0.1
        replay.add(np.zeros(3, int), np.zeros(3), ~ended, ended, np.zeros((3, 2)))
        if ended.any():
            replay.start(np.flatnonzero(ended), np.zeros((int(ended.sum()), 2)))
    drawable = np.flatnonzero(replay.priorities())
    replay.prioritise(drawable, rng.uniform(0.1, 9.0, len(drawable)))  # which must not matter
    slots = replay.draw_evenly(400 * len(drawable), rng)
    found, counts = np.unique(slots, return_counts=True)
    assert found.tolist() == drawable.tolist()
    assert np.abs(counts / 400 - 1).max() < 0.3
