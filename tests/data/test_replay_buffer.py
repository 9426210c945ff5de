"""The replay buffer against a twin that keeps every episode in plain lists."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.core.actions import Actions
from hyq.core.errors import HyqError
from hyq.core.trees import Tree, leaves, tree_map
from hyq.core.types import Array, FloatArray, Transitions
from hyq.data import replay_buffer
from hyq.data.dataset import Dataset, Episode
from hyq.data.replay_buffer import ReplayBuffer, Rows

GAMMA = 0.9
DISCRETE = gym.spaces.Discrete(5)
SPACES: dict[str, gym.Space[Any]] = {
    "vector": gym.spaces.Box(0, 255, (2,), np.float64),
    "bytes": gym.spaces.Box(0, 255, (3, 2), np.uint8),
    "image": gym.spaces.Box(0, 255, (64, 64), np.uint8),  # large enough to be compressed
    "dict": gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, (3, 2), np.uint8),
            "arm": gym.spaces.Dict({"joint": gym.spaces.Box(0, 255, (2,), np.float32)}),
        }
    ),
}
FLOATS = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def random_observation(space: gym.Space[Any], rng: np.random.Generator, count: int) -> Tree:
    if isinstance(space, gym.spaces.Dict):
        return {name: random_observation(part, rng, count) for name, part in space.items()}
    return rng.integers(0, 255, (count, *(space.shape or ()))).astype(space.dtype)


@dataclass
class Lived:
    """One episode as it happened; entry t of `steps` is (action, reward, continuation)."""

    observation: list[Tree]
    steps: list[tuple[Any, float, float]] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)


class Twin:
    """Drives a buffer with random steps and remembers everything in lists."""

    def __init__(
        self,
        rng: np.random.Generator,
        num_envs: int,
        length: int,
        stack: int,
        space: gym.Space[Any],
        action_space: gym.Space[Any] = DISCRETE,
    ) -> None:
        self.rng, self.num_envs, self.length, self.stack = rng, num_envs, length, stack
        self.space, self.action_space = space, action_space
        self.buffer = self.fresh()
        self.episodes: list[list[Lived]] = [[] for _ in range(num_envs)]
        self.written = [0] * num_envs
        self.start(np.arange(num_envs))

    def fresh(self) -> ReplayBuffer:
        return ReplayBuffer(
            self.num_envs, self.length, self.space, self.action_space, frame_stack=self.stack
        )

    def start(self, envs: Any) -> None:
        observation = random_observation(self.space, self.rng, len(envs))
        self.buffer.start(envs, observation)
        for row, env in enumerate(envs.tolist()):
            seen = tree_map(lambda leaf, row=row: leaf[row], observation)
            self.episodes[env].append(Lived([seen], slot=[self.take_slot(env)]))

    def step(self) -> None:
        count = self.num_envs
        action: Array = self.rng.integers(0, 5, count)
        if isinstance(self.action_space, gym.spaces.Box):
            action = self.rng.normal(size=(count, 2)).astype(np.float32)
        reward = self.rng.normal(size=count).astype(np.float32)
        continuation = self.rng.choice([0.0, 0.5, 1.0], count, p=[0.1, 0.2, 0.7])
        ended = self.rng.random(count) < 0.15
        observation = random_observation(self.space, self.rng, count)
        self.buffer.add(action, reward, continuation, ended, observation)
        for env in range(count):
            lived = self.episodes[env][-1]
            lived.observation.append(tree_map(lambda leaf, env=env: leaf[env], observation))
            lived.steps.append((action[env], float(reward[env]), float(continuation[env])))
            lived.slot.append(self.take_slot(env))
        interrupted = self.rng.random(count) < 0.03
        if (ended | interrupted).any():
            self.start(np.flatnonzero(ended | interrupted))

    def take_slot(self, env: int) -> int:
        self.written[env] += 1
        return env * self.length + (self.written[env] - 1) % self.length

    def valid(self) -> dict[int, tuple[Lived, int]]:
        """Map each slot that should have a transition to its episode and timestep."""
        found: dict[int, tuple[Lived, int]] = {}
        for episodes in self.episodes:
            history = [(lived, t) for lived in episodes for t in range(len(lived.slot))]
            # Of the `length` newest slots the `stack - 1` oldest lack frames for a stack.
            kept = history[max(0, len(history) - self.length + self.stack - 1) :]
            found |= {lived.slot[t]: (lived, t) for lived, t in kept if t < len(lived.steps)}
        return found

    def transition(self, lived: Lived, t: int, n_step: int) -> tuple[Tree, Any, float, float, Tree]:
        total, discount, now = 0.0, 1.0, t
        while now < len(lived.steps) and now < t + n_step and discount > 0:
            _, reward, continuation = lived.steps[now]
            total += discount * reward
            discount *= GAMMA * continuation
            now += 1
        return self.stacked(lived, t), lived.steps[t][0], total, discount, self.stacked(lived, now)

    def stacked(self, lived: Lived, t: int) -> Tree:
        frames = [lived.observation[max(t - back, 0)] for back in reversed(range(self.stack))]
        return tree_map(lambda *parts: np.stack(parts), *frames) if self.stack > 1 else frames[0]

    def check(self, n_step: int) -> None:
        expected = self.valid()
        positive = np.flatnonzero(self.buffer.priorities())
        assert sorted(expected) == positive.tolist()
        assert len(self.buffer) == len(expected)
        if expected:
            slots = self.rng.permutation(positive)
            rows = self.buffer.gather(slots, n_step, GAMMA)
            for row, slot in enumerate(slots.tolist()):
                assert_row(rows, row, self.transition(*expected[slot], n_step))


def assert_row(rows: Rows, row: int, wanted: tuple[Tree, Any, float, float, Tree]) -> None:
    observation, action, reward, discount, next_observation = wanted
    for found, expected in (
        (rows.observation, observation),
        (rows.next_observation, next_observation),
    ):
        pairs = zip(leaves(found), leaves(expected), strict=True)
        for leaf, other in pairs:
            np.testing.assert_array_equal(leaf[row], other)
    np.testing.assert_array_equal(rows.action[row], action)
    assert rows.reward[row] == pytest.approx(reward, abs=1e-5)
    assert rows.discount[row] == pytest.approx(discount, abs=1e-6)
    assert rows.reward.dtype == rows.discount.dtype == np.float32


@pytest.mark.parametrize("seed", range(24))
def test_every_valid_transition_is_as_it_happened(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stack = int(rng.integers(1, 5))
    space = [*SPACES.values()][seed % 4]
    actions = FLOATS if seed % 3 == 0 else DISCRETE
    length = stack + int(rng.integers(1, 30))
    twin = Twin(rng, int(rng.integers(1, 4)), length, stack, space, actions)
    for step in range(60):
        twin.step()
        if step % 2:
            twin.check(int(rng.integers(1, 8)))
            twin.check(1)


@pytest.mark.parametrize("seed", range(8))
def test_exports_loaded_in_order_make_the_same_buffer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stack = int(rng.integers(1, 4))
    space = [*SPACES.values()][seed % 4]
    twin = Twin(rng, 2, stack + int(rng.integers(2, 30)), stack, space)
    copy = twin.fresh()
    since = copy.written.copy()
    for _ in range(6):
        for _ in range(int(rng.integers(0, 40))):
            twin.step()
            if len(twin.buffer):
                slots, _ = twin.buffer.draw(4, rng)
                twin.buffer.set_priorities(slots, rng.random(4) * 3 + 0.1)
        exported = twin.buffer.export(since)
        kept = np.minimum(twin.buffer.written - since, twin.length)
        assert len(exported["columns.reward"]) == kept.sum()
        copy.load(exported)
        copy.restore_priorities(twin.buffer.priorities())
        since = twin.buffer.written.copy()
        assert_same(copy, twin.buffer)
    twin.buffer = copy
    twin.step()
    twin.check(3)


def assert_same(one: ReplayBuffer, other: ReplayBuffer) -> None:
    """Compare everything a buffer holds, and what it draws."""
    everything = np.zeros(one.num_envs, int)
    mine, others = one.export(everything), other.export(everything)
    assert mine.keys() == others.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)
        assert array.dtype == others[name].dtype
    np.testing.assert_array_equal(one.priorities(), other.priorities())
    assert len(one) == len(other)
    if len(one):
        mine_drawn, others_drawn = (b.draw(8, np.random.default_rng(0))[0] for b in (one, other))
        np.testing.assert_array_equal(mine_drawn, others_drawn)


def test_what_is_exported_does_not_change_with_the_buffer() -> None:
    buffer = chain([1.0, 2.0])
    exported = buffer.export(np.array([0]))
    kept = {name: array.copy() for name, array in exported.items()}
    step(buffer, reward=5.0, ended=True)
    buffer.set_priorities(np.array([0]), np.array([9.0]))
    for name, array in kept.items():
        np.testing.assert_array_equal(exported[name], array, err_msg=name)


def test_a_missing_export_raises_unless_nothing_of_it_is_left() -> None:
    buffer = chain([0.0] * 3, length=6)
    since = buffer.written.copy()
    step(buffer)
    with pytest.raises(HyqError, match="load them in order"):
        chain([], length=6).load(buffer.export(since))
    for _ in range(5):  # six newer slots fill the ring
        step(buffer)
    copy = ReplayBuffer(1, 6, BOX, DISCRETE)
    copy.load(buffer.export(since))
    copy.restore_priorities(buffer.priorities())
    assert_same(copy, buffer)


BOX = gym.spaces.Box(-np.inf, np.inf, (), np.float32)


def chain(rewards: list[float], *, length: int = 20, stack: int = 1) -> ReplayBuffer:
    """Return one environment that observed 0, 1, 2, ... with these rewards."""
    buffer = ReplayBuffer(1, length, BOX, DISCRETE, frame_stack=stack)
    buffer.start(np.array([0]), np.array([0.0]))
    for reward in rewards:
        step(buffer, reward)
    return buffer


def step(
    buffer: ReplayBuffer, reward: float = 0.0, continuation: float = 1.0, ended: bool = False
) -> None:
    """Go on to the next number."""
    seen = float(buffer.observations((buffer.written - 1) % buffer.length).reshape(-1)[-1])
    buffer.add(
        np.array([int(seen + 1) % 5]),
        np.array([reward]),
        np.array([continuation]),
        np.array([ended]),
        np.array([seen + 1]),
    )


def test_returns_stop_at_a_lost_life_but_frame_stacks_do_not() -> None:
    buffer = chain([], stack=3)
    for number in range(1, 6):
        step(buffer, reward=1.0, continuation=float(number != 3))
    rows = buffer.gather(np.array([1, 3]), 4, 0.5)
    np.testing.assert_array_equal(rows.observation, [[0, 0, 1], [1, 2, 3]])
    np.testing.assert_array_equal(rows.next_observation, [[1, 2, 3], [3, 4, 5]])
    np.testing.assert_allclose(rows.reward, [1.5, 1.5])
    np.testing.assert_allclose(rows.discount, [0.0, 0.25])


def test_a_share_of_the_value_continues_beyond_a_lost_life() -> None:
    buffer = chain([])
    step(buffer, reward=1.0, continuation=0.5)
    step(buffer, reward=2.0)
    step(buffer, reward=4.0, continuation=0.25)
    rows = buffer.gather(np.array([0]), 3, 0.5)
    np.testing.assert_allclose(rows.reward, [1 + 0.5 * 0.5 * 2 + 0.25 * 0.5 * 4])
    np.testing.assert_allclose(rows.discount, [0.125 * 0.5 * 0.25])


@pytest.mark.parametrize("n_step", [1, 5])
def test_a_truncated_episode_keeps_its_discount_and_a_terminated_one_does_not(n_step: int) -> None:
    buffer = chain([1.0])
    step(buffer, reward=1.0, ended=True)
    buffer.start(np.array([0]), np.array([7.0]))
    step(buffer, reward=3.0, continuation=0.0, ended=True)
    buffer.start(np.array([0]), np.array([9.0]))
    rows = buffer.gather(np.array([1, 3]), n_step, 0.5)
    np.testing.assert_allclose(rows.discount, [0.5, 0.0])
    np.testing.assert_array_equal(rows.next_observation, [2.0, 8.0])
    np.testing.assert_allclose(rows.reward, [1.0, 3.0])


def test_long_returns_are_summed_over_all_their_steps() -> None:
    rows = chain([1.0] * 80, length=100).gather(np.array([0, 10, 30]), 60, 0.99)
    full, short = (1 - 0.99**60) / 0.01, (1 - 0.99**50) / 0.01
    np.testing.assert_allclose(rows.reward, [full, full, short], rtol=1e-6)
    np.testing.assert_array_equal(rows.next_observation, [60.0, 70.0, 80.0])


def test_new_transitions_get_the_highest_priority_ever_given() -> None:
    buffer = chain([0.0, 0.0])
    assert buffer.priorities()[:3].tolist() == [1.0, 1.0, 0.0]
    buffer.set_priorities(np.array([0, 1]), np.array([8.0, 0.5]))
    buffer.set_priorities(np.array([0, 1]), np.array([0.1, 0.5]))
    step(buffer)
    assert buffer.priorities()[:4].tolist() == [0.1, 0.5, 8.0, 0.0]
    copy = chain([])
    copy.load(buffer.export(np.array([0])))
    copy.restore_priorities(buffer.priorities())
    step(copy)
    assert copy.priorities()[3] == 8.0


def test_the_range_of_rewards_is_of_all_that_were_ever_stored() -> None:
    buffer = chain([])
    assert buffer.reward_range == (0.0, 0.0)
    step(buffer, reward=3.0)
    assert buffer.reward_range == (0.0, 3.0)
    copy = chain([], length=5)
    for reward in (-2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0):  # the first is overwritten
        step(copy, reward=reward)
    assert copy.reward_range == (-2.0, 1.0)
    resumed = chain([], length=5)
    resumed.load(copy.export(np.array([0])))
    assert resumed.reward_range == (-2.0, 1.0)
    episode = Episode(np.zeros((3, 1)), np.zeros(2, int), np.array([-1.0, 8.0]), terminated=True)
    held = ReplayBuffer.of(
        Dataset.of([episode], {}),
        gym.spaces.Box(0, 1, (1,)),
        Actions(DISCRETE),
        scale_reward=lambda reward: reward / 2,
    )
    assert held.reward_range == (-0.5, 4.0)


def test_an_overwritten_slot_is_invalid_until_its_next_transition() -> None:
    buffer = chain([0.0] * 7, length=5)  # 8 slots written: the newest is slot 2
    assert np.flatnonzero(buffer.priorities() == 0.0).tolist() == [2]
    assert len(buffer) == 4
    buffer = chain([0.0] * 7, length=5, stack=3)  # stacks of slots 3 and 4 would lack frames
    assert np.flatnonzero(buffer.priorities() == 0.0).tolist() == [2, 3, 4]


def test_drawing_follows_the_priorities_with_replacement() -> None:
    buffer = chain([0.0, 0.0, 0.0])
    buffer.set_priorities(np.array([0, 1, 2]), np.array([1.0, 3.0, 4.0]))
    slots, probability = buffer.draw(800, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(slots) / 800, [1 / 8, 3 / 8, 4 / 8], atol=0.01)
    np.testing.assert_allclose(probability, np.array([1, 3, 4])[slots] / 8)


def test_uniform_draws_reach_every_transition_alike_and_nothing_else() -> None:
    rng = np.random.default_rng(4)
    space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
    buffer = ReplayBuffer(3, 40, space, DISCRETE, frame_stack=2)
    buffer.start(np.arange(3), np.zeros((3, 2)))
    for count in range(70):  # the ring turns over, and episodes end at different times
        if count in (20, 69):
            valid = np.flatnonzero(buffer.priorities())
            buffer.set_priorities(valid, rng.uniform(0.1, 9.0, len(valid)))  # must not matter
            slots = buffer.draw_uniformly(400 * len(valid), rng)
            found, counts = np.unique(slots, return_counts=True)
            assert found.tolist() == valid.tolist()
            assert np.abs(counts / 400 - 1).max() < 0.3
            assert len(slots) == 400 * len(valid)
        ended = rng.random(3) < 0.1
        buffer.add(np.zeros(3, int), np.zeros(3), np.ones(3), ended, np.zeros((3, 2)))
        if ended.any():
            buffer.start(np.flatnonzero(ended), np.zeros((int(ended.sum()), 2)))


def test_a_sample_of_observations_is_spread_over_all_transitions() -> None:
    buffer = chain([0.0] * 9)
    assert buffer.sample_observations(3).tolist() == [0.0, 3.0, 6.0]
    assert buffer.sample_observations(9).tolist() == list(range(9))
    assert buffer.sample_observations(1000).tolist() == list(range(9))


def test_steps_without_an_episode_and_slots_without_a_transition_raise() -> None:
    space = gym.spaces.Box(0.0, 1.0, (3,), np.float32)
    buffer = ReplayBuffer(2, 9, space, DISCRETE)
    with pytest.raises(HyqError, match="nothing to draw"):
        buffer.draw(1, np.random.default_rng(0))
    given = (np.zeros(2, int), np.zeros(2), np.ones(2), np.array([False, True]))
    with pytest.raises(HyqError, match="environment 0 has no episode"):
        buffer.add(*given, np.zeros((2, 3)))
    buffer.start(np.arange(2), np.zeros((2, 3)))
    buffer.add(*given, np.zeros((2, 3)))
    with pytest.raises(HyqError, match="environment 1 has no episode"):
        buffer.add(*given, np.zeros((2, 3)))
    for n_step in (1, 3):
        with pytest.raises(ValueError, match="without a transition"):
            buffer.gather(np.array([0, 1]), n_step, 0.5)
    with pytest.raises(HyqError, match="4 slots is too short to stack 4"):
        ReplayBuffer(1, 4, space, DISCRETE, frame_stack=4)
    assert len(ReplayBuffer(1, 5, space, DISCRETE, frame_stack=4)) == 0


def test_memory_counts_every_part() -> None:
    space = gym.spaces.Box(0.0, 1.0, (10,), np.float64)  # stored in single precision
    buffer = ReplayBuffer(2, 512, space, gym.spaces.Box(-1, 1, (3,), np.float64))
    frames, columns, priorities = 1024 * 40, 1024 * (12 + 4 + 4 + 4), 1024 * 8
    assert frames + columns + priorities <= buffer.nbytes
    assert buffer.nbytes < frames + columns + priorities * 1.1


def random_episodes(rng: np.random.Generator, space: gym.Space[Any]) -> list[Episode]:
    episodes = []
    for length in (1, 4, 2, 7, 1):
        episodes.append(
            Episode(
                random_observation(space, rng, length + 1),
                5 + rng.integers(0, 5, length),
                rng.normal(size=length).astype(np.float32),
                terminated=length in (2, 7),
                life_lost=rng.random(length) < 0.4,
            )
        )
    return episodes


@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("block", [3, 4096])
def test_every_slot_of_a_dataset_is_its_transition(
    stack: int, kind: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_buffer, "BLOCK", block)
    rng, space = np.random.default_rng(0), SPACES[kind]
    if kind == "dict":  # datasets hold dictionaries of one level
        space = gym.spaces.Dict({n: SPACES[n] for n in ("bytes", "vector")})
    episodes = random_episodes(rng, space)
    seen: list[int] = []

    def prepare(frames: Tree) -> Tree:
        seen.append(len(next(leaves(frames))))
        return tree_map(lambda leaf: (leaf // 2).astype(leaf.dtype), frames)

    buffer = ReplayBuffer.of(
        Dataset.of(episodes, {}),
        space,
        Actions(gym.spaces.Discrete(int(DISCRETE.n), start=5)),
        frame_stack=stack,
        prepare=prepare,
        scale_reward=lambda reward: 3 * reward,
        life_loss_discount=0.25,
    )
    assert seen == ([3] * 6 + [2] if block == 3 else [20])
    twin = Twin(rng, 1, 50, stack, space)
    lived, slots, slot = [], [], 0
    for episode in episodes:
        assert episode.life_lost is not None
        share = np.where(episode.life_lost, 0.25, 1.0)
        share[-1] *= not episode.terminated
        frames = [
            tree_map(lambda leaf, t=t: (leaf[t] // 2).astype(leaf.dtype), episode.observation)
            for t in range(len(episode.action) + 1)
        ]
        steps = [*zip(episode.action - 5, 3 * episode.reward, share, strict=True)]
        lived.append(Lived(frames, steps))
        slots += [slot + t for t in range(len(steps))]
        slot += len(steps) + 1
    places = [(one, t) for one in lived for t in range(len(one.steps))]
    for n_step in (1, 4):
        rows = buffer.gather(np.array(slots), n_step, GAMMA)
        for row, place in enumerate(places):
            assert_row(rows, row, twin.transition(*place, n_step))
    assert np.flatnonzero(buffer.priorities()).tolist() == slots
    assert set(buffer.priorities()) == {0.0, 1.0}
    assert len(buffer) == 15
    assert buffer.length == 20 + stack - 1
    copy = ReplayBuffer(1, buffer.length, space, DISCRETE, frame_stack=stack)
    copy.load(buffer.export(np.array([0])))
    copy.restore_priorities(buffer.priorities())
    assert_same(copy, buffer)


def test_the_episodes_of_a_buffer_are_those_it_was_made_of() -> None:
    rng, space = np.random.default_rng(2), SPACES["vector"]
    actions = Actions(gym.spaces.Discrete(5, start=5))
    episodes = [
        replace(one, life_lost=one.life_lost & (np.arange(len(one.action)) + 1 < len(one.action)))
        for one in random_episodes(rng, space)
        if one.life_lost is not None
    ]
    assert any(one.life_lost is not None and one.life_lost.any() for one in episodes)
    buffer = ReplayBuffer.of(Dataset.of(episodes, {}), space, actions, life_loss_discount=0.25)
    found = list(buffer.episodes(actions))
    assert [one.terminated for one in found] == [one.terminated for one in episodes]
    for one, wanted in zip(found, episodes, strict=True):
        for name in ("observation", "action", "reward", "life_lost"):
            np.testing.assert_array_equal(getattr(one, name), getattr(wanted, name), err_msg=name)
    begun = chain([1.0, 2.0])
    step(begun, ended=True)
    begun.start(np.array([0]), np.array([7.0]))  # where nothing has been done yet
    [only] = begun.episodes(Actions(DISCRETE))
    assert only.reward.tolist() == [1.0, 2.0, 0.0]


def test_transitions_without_order_are_episodes_of_one_step() -> None:
    rows = Transitions(
        np.arange(4, dtype=np.float32)[:, None],
        np.array([3, 2, 1, 0]),
        np.array([0.1, 0.2, 0.3, 0.4], np.float32),
        np.array([1.0, 0.0, 1.0, 0.0]),
        np.arange(10, 14, dtype=np.float32)[:, None],
    )
    dataset = Dataset.from_transitions(rows, np.zeros(4, np.int64))
    space = gym.spaces.Box(0.0, 20.0, (1,), np.float32)
    buffer = ReplayBuffer.of(dataset, space, Actions(DISCRETE))
    assert np.flatnonzero(buffer.priorities()).tolist() == [0, 2, 4, 6]
    for n_step in (1, 5):  # no return reaches into the next row
        found = buffer.gather(np.array([0, 2, 4, 6]), n_step, GAMMA)
        np.testing.assert_array_equal(found.observation, rows.observation)
        np.testing.assert_array_equal(found.next_observation, rows.next_observation)
        np.testing.assert_array_equal(found.action, rows.action)
        np.testing.assert_allclose(found.reward, rows.reward)
        np.testing.assert_allclose(found.discount, [0.9, 0.0, 0.9, 0.0])


@pytest.mark.parametrize(("ends", "expected"), [(False, [0.9, 0.9, 0.0]), (True, [0.9, 0.0, 0.0])])
def test_a_truncation_may_be_taken_for_an_end(ends: bool, expected: list[float]) -> None:
    seen = np.zeros((3, 1), np.float32)
    two = Episode(seen, np.zeros(2, int), np.zeros(2, np.float32), terminated=False)
    one = Episode(seen[:2], np.zeros(1, int), np.zeros(1, np.float32), terminated=True)
    space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    buffer = ReplayBuffer.of(
        Dataset.of([two, one], {}), space, Actions(DISCRETE), truncation_terminates=ends
    )
    np.testing.assert_allclose(buffer.gather(np.array([0, 1, 3]), 1, 0.9).discount, expected)


def test_float_actions_of_a_dataset_are_kept() -> None:
    action = np.array([[0.5, -0.25], [1.0, 0.125]])
    episode = Episode(np.zeros((3, 1), np.float32), action, np.zeros(2, np.float32), True)
    space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    buffer = ReplayBuffer.of(Dataset.of([episode], {}), space, Actions(FLOATS))
    found = buffer.gather(np.array([0, 1]), 1, 0.9).action
    np.testing.assert_array_equal(found, action)
    assert found.dtype == np.float32


def test_returns_to_go_are_known_where_episodes_end() -> None:
    ended = Episode(np.zeros((4, 1), np.float32), np.zeros((3, 1)), np.array([1.0, 2, 4]), True)
    cut = Episode(np.zeros((3, 1), np.float32), np.zeros((2, 1)), np.ones(2), False)
    box = gym.spaces.Box(0, 1, (1,), np.float32)
    buffer = ReplayBuffer.of(Dataset.of([ended, cut], {}), box, Actions(box), return_gamma=0.5)
    found = buffer.return_to_go(np.array([0, 1, 2, 4, 5]))
    assert found.tolist() == [3.0, 4.0, 4.0, -math.inf, -math.inf]
    online = ReplayBuffer(1, 9, box, Actions(box).space)
    assert online.return_to_go(np.array([1])).tolist() == [-math.inf]


Change = Callable[[FloatArray], FloatArray]


@pytest.mark.parametrize("change", [lambda p: -p, lambda p: p * np.nan, lambda p: p * np.inf])
def test_priorities_that_are_no_numbers_raise(change: Change) -> None:
    with pytest.raises(HyqError, match="finite and not negative"):
        chain([0.0]).set_priorities(np.array([0]), change(np.ones(1)))
