"""Collecting experience: nothing crosses episodes, and every episode can be brought back."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from hyq import collector as module
from hyq.collector import (
    Collector,
    Outcome,
    Preprocessing,
    PreprocessingConfig,
    VectorEnv,
    check_endless,
    evaluate,
    evaluation_envs,
)
from hyq.core.errors import HyqError
from hyq.core.schedules import schedule
from hyq.core.seeding import Streams
from hyq.core.trees import flatten, leaves
from hyq.core.types import Array
from hyq.exploration import EpsilonGreedy, ExplorationConfig


class Diary(gym.Env[Any, Any]):
    """Shows (its episode's number, the time); the seed decides length, ending and lives.

    Each step pays its action plus the time.
    """

    observation_space: gym.Space[Any] = gym.spaces.Box(0.0, np.inf, (2,), np.float32)
    action_space: gym.Space[Any] = gym.spaces.Discrete(3)

    def __init__(self, forgetful: bool = False) -> None:
        self._forgetful, self._resets = forgetful, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._resets += 1
        self._number = self._resets if self._forgetful else int(self.np_random.integers(1_000_000))
        self._length = 2 + self._number % 9
        self._time = 0
        return self._observe(), {"lives": 2}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self._time += 1
        over, dies = self._time == self._length, self._number % 2 == 0
        lives = int(self._time < 2) + int(not (over and dies))
        reward = float(np.sum(action)) + self._time
        return self._observe(), reward, over and dies, over and not dies, {"lives": lives}

    def _observe(self) -> Any:
        return np.array([self._number, self._time], np.float32)


class Shifted(Diary):
    """A diary whose actions begin at 5."""

    action_space = gym.spaces.Discrete(3, start=5)


class Continuous(Diary):
    """A diary with actions away from zero, so that no action at all would be outside."""

    action_space = gym.spaces.Box(np.float32(0.5), np.float32(2.0), (2,), np.float32)


class Nested(Diary):
    """A diary on two pages."""

    observation_space = gym.spaces.Dict(
        {
            "number": gym.spaces.Box(0.0, np.inf, (), np.float32),
            "times": gym.spaces.Tuple(
                (gym.spaces.Box(0, 20, (2,), np.uint8), gym.spaces.MultiBinary(3))
            ),
        }
    )

    def _observe(self) -> Any:
        bits = np.array([self._time & 1, self._time >> 1 & 1, self._time >> 2 & 1], np.int8)
        times = np.full(2, self._time, np.uint8)
        return {"number": np.float32(self._number).reshape(()), "times": (times, bits)}


def envs(
    make: Any, count: int, vector: Any = SyncVectorEnv, seed_lasts: int | None = None
) -> VectorEnv:
    made: Any = vector([make] * count, autoreset_mode=AutoresetMode.DISABLED)
    if seed_lasts is not None:
        made.seed_lasts = seed_lasts
    return made


def collecting(make: Any = Diary, count: int = 3, stack: int = 1, seed: int = 0) -> Collector:
    return Collector(envs(make, count), Streams(seed), PreprocessingConfig(stack))


def random_actions(space: gym.Space[Any], rng: np.random.Generator, count: int) -> Array:
    if isinstance(space, gym.spaces.Box):
        return rng.uniform(space.low, space.high, (count, *space.shape)).astype(space.dtype)
    return rng.integers(2, size=count)


def walk(collector: Collector, steps: int, seed: int = 0) -> Iterator[tuple[Array, Array, Outcome]]:
    """Act at random and yield (what was seen before, what was done, what came of it)."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        before = collector.frame
        action = random_actions(collector.env.single_action_space, rng, collector.num_envs)
        collector.send(action)
        yield before, action, collector.receive()


def test_no_transition_crosses_episodes() -> None:
    collector, ended = collecting(), 0
    for before, _, outcome in walk(collector, 200):
        np.testing.assert_array_equal(outcome.frame[:, 0], before[:, 0])
        np.testing.assert_array_equal(outcome.frame[:, 1], before[:, 1] + 1)
        over = outcome.frame[:, 1] == 2 + outcome.frame[:, 0] % 9
        np.testing.assert_array_equal(outcome.ended, over)
        np.testing.assert_array_equal(collector.frame[over, 1], 0)
        np.testing.assert_array_equal(collector.frame[~over], outcome.frame[~over])
        assert (collector.frame[over, 0] != outcome.frame[over, 0]).all()
        ended += int(over.sum())
    assert ended > 50


def test_episodes_come_from_seeds_named_by_environment_and_number() -> None:
    collector, numbers = collecting(seed=4), [0, 0, 0]
    shown = [[float(n)] for n in collector.frame[:, 0]]
    for _, _, outcome in walk(collector, 60):
        for env in np.flatnonzero(outcome.ended).tolist():
            numbers[env] += 1
            shown[env].append(float(collector.frame[env, 0]))
    assert min(numbers) > 5
    alone = Diary()
    for env in range(3):
        for episode, number in enumerate(shown[env]):
            seen, _ = alone.reset(seed=Streams(4).integer("episode", env, episode))
            assert seen[0] == number


def test_termination_and_truncation_are_told_apart() -> None:
    for _, _, outcome in walk(collecting(), 200):
        dies = outcome.frame[:, 0] % 2 == 0
        np.testing.assert_array_equal(outcome.terminated, outcome.ended & dies)
        np.testing.assert_array_equal(outcome.truncated, outcome.ended & ~dies)


def test_lost_lives_are_seen_up_to_the_last_but_not_across_episodes() -> None:
    for _, _, outcome in walk(collecting(), 200):
        first = outcome.frame[:, 1] == 2
        np.testing.assert_array_equal(outcome.life_lost, first | outcome.terminated)


def test_lives_may_be_counted_from_the_first_step_on_or_never() -> None:
    class Late(Diary):
        def reset(self, **given: Any) -> tuple[Array, dict[str, Any]]:
            return super().reset(**given)[0], {}

    class Never(Late):
        def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
            return *super().step(action)[:4], {}

    lost = [outcome.life_lost for *_, outcome in walk(collecting(Late), 200)]
    assert not lost[0].any()
    assert np.any(lost)
    assert not np.any([outcome.life_lost for *_, outcome in walk(collecting(Never), 50)])


def test_finished_episodes_have_their_return_and_length() -> None:
    collector, own, finished = collecting(), np.zeros(3), 0
    for _, action, outcome in walk(collector, 100):
        np.testing.assert_array_equal(outcome.reward, action + outcome.frame[:, 1])
        own += outcome.reward
        expected = [
            (int(env), float(own[env]), int(outcome.frame[env, 1]))
            for env in np.flatnonzero(outcome.ended)
        ]
        assert [*outcome.finished] == expected
        own[outcome.ended] = 0.0
        finished += len(expected)
    assert finished > 20


def test_frame_stacks_do_not_cross_episodes() -> None:
    collector, stack = collecting(stack=4), 4
    assert collector.observation.shape == (3, 4, 2)
    for _ in walk(collector, 200):
        shown = collector.observation
        np.testing.assert_array_equal(shown[:, :, 0], shown[:, -1:, 0].repeat(stack, axis=1))
        now = shown[:, -1, 1]
        expected = np.maximum(now[:, None] - np.arange(stack)[::-1], 0)
        np.testing.assert_array_equal(shown[:, :, 1], expected)


def test_an_observation_once_shown_is_not_changed_by_the_next_step() -> None:
    collector = collecting(stack=2)
    shown, kept = [collector.observation], [collector.observation.copy()]
    for *_, outcome in walk(collector, 30):
        shown += [collector.observation, outcome.frame]
        kept += [collector.observation.copy(), outcome.frame.copy()]
    for one, other in zip(shown, kept, strict=True):
        np.testing.assert_array_equal(one, other)


def test_tuples_become_dictionaries_and_every_part_is_stacked() -> None:
    collector = collecting(Nested, stack=3)
    shapes = {name: x.shape for name, x in flatten(collector.observation).items()}
    # A single number is shown as a vector of one.
    assert shapes == {"number": (3, 3, 1), "times.0": (3, 3, 2), "times.1": (3, 3, 3)}
    space = collector.preprocessing.space
    assert isinstance(space, gym.spaces.Dict)
    wanted = {name: part.shape for name, part in flatten(dict(collector_spaces(space))).items()}
    assert wanted == {name: shape[1:] for name, shape in shapes.items()}
    for *_, outcome in walk(collector, 40):
        times = outcome.frame["times"]
        bits = times["1"] @ np.array([1, 2, 4])
        np.testing.assert_array_equal(times["0"][:, 0] % 8, bits)


def test_an_action_too_few_or_too_many_raises() -> None:
    for count in (2, 4):
        with pytest.raises(ValueError, match="argument"):
            collecting(count=3).send(np.zeros(count, np.int64))


def collector_spaces(space: gym.spaces.Dict) -> Iterator[tuple[str, Any]]:
    for name, part in space.spaces.items():
        inner = isinstance(part, gym.spaces.Dict)
        yield name, dict(collector_spaces(part)) if inner else part  # type: ignore[arg-type]


class Recorder(Shifted):
    """Remembers what it was asked to do."""

    taken: list[int] = []  # noqa: RUF012 - shared on purpose

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken.append(int(action))
        return super().step(action)


def test_actions_are_counted_from_the_environments_first() -> None:
    Recorder.taken = []
    collector = collecting(Recorder, 2)
    assert collector.actions.space == gym.spaces.Discrete(3)
    collector.send(np.array([0, 2]))
    collector.receive()
    assert Recorder.taken == [5, 7]


def pump(observation: Array) -> Array:
    """Swing MountainCar up: push the way it is going."""
    return np.where(observation[:, 1] >= 0, 2, 0)


def swing(
    collector: Collector, steps: int, seed: int = 0
) -> Iterator[tuple[Array, Array, Outcome]]:
    for _ in range(steps):
        before = collector.frame.copy()
        collector.send(pump(before))
        yield before, pump(before), collector.receive()


Go = Callable[[Collector, int], Iterator[tuple[Array, Array, Outcome]]]


@pytest.mark.parametrize(
    ("env", "go", "steps", "stack", "seed_lasts"),
    [
        (lambda: gym.make("MountainCar-v0"), swing, 170, 1, 0),
        (lambda: gym.make("CartPole-v1"), walk, 75, 3, 30),
        (Diary, walk, 33, 1, None),
        (Diary, walk, 33, 3, 10_000),
        (Diary, walk, 33, 1, 12),
        (Shifted, walk, 33, 1, 0),
        (Continuous, walk, 33, 1, 0),
        (Nested, walk, 33, 2, 0),
    ],
)
def test_a_restored_collector_continues_as_if_nothing_had_happened(
    env: Any, go: Go, steps: int, stack: int, seed_lasts: int | None
) -> None:
    def made() -> Collector:
        vector = envs(env, 4, seed_lasts=seed_lasts)
        return Collector(vector, Streams(5), PreprocessingConfig(stack))

    collector = made()
    for _ in go(collector, steps):
        pass
    saved = collector.state()
    if seed_lasts is None or seed_lasts < 10_000:
        assert len(set(saved["length"].tolist())) > 1, "episodes should be at different times"
        assert saved["seeded"].max() > 0
    else:
        assert (saved["length"] == steps).all()
    fresh = made()
    for _ in go(fresh, 7):  # wherever it was, it comes back
        pass
    fresh.load_state(saved)
    finished = 0
    for (_, _, one), (_, _, other) in zip(go(collector, 150), go(fresh, 150), strict=True):
        for name in ("reward", "terminated", "truncated", "life_lost"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        for a, b in zip(leaves(one.frame), leaves(other.frame), strict=True):
            np.testing.assert_array_equal(a, b)
        assert one.finished == other.finished
        shown = zip(leaves(fresh.observation), leaves(collector.observation), strict=True)
        for a, b in shown:
            np.testing.assert_array_equal(a, b)
        finished += len(one.finished)
    assert finished > 3
    again = fresh.state()
    for name, array in collector.state().items():
        np.testing.assert_array_equal(again[name], array)
        assert again[name].dtype == array.dtype


@pytest.mark.parametrize(("seed_lasts", "seeds"), [(0, 4), (1, 4), (11, 2), (10_000, 1)])
def test_a_seed_lasts_as_long_as_the_environment_says(seed_lasts: int, seeds: int) -> None:
    env = envs(Diary, 1, seed_lasts=seed_lasts)
    given, reset = list[Any](), env.reset
    env.reset = lambda **asked: given.append(asked["seed"][0]) or reset(**asked)  # type: ignore
    collector = Collector(env, Streams(0))
    lengths: list[int] = []
    while len(lengths) < 3:
        collector.send(np.array([0]))
        lengths += [length for *_, length in collector.receive().finished]
    assert len(given) == 4
    assert sum(seed is not None for seed in given) == seeds, lengths


def test_a_seed_is_renewed_after_exactly_as_many_steps() -> None:
    """An episode that ends with the last step of a seed is the last one with it."""
    first = Diary()
    first.reset(seed=Streams(0).integer("episode", 0, 0))
    for lasts, renewed in ((first._length, True), (first._length + 1, False)):
        collector = Collector(envs(Diary, 1, seed_lasts=lasts), Streams(0))
        for _ in walk(collector, first._length):
            pass
        assert (collector.state()["seeded"][0] == 1) == renewed


def test_a_saved_state_does_not_change_with_the_collector() -> None:
    collector = collecting(count=2)
    saved = collector.state()
    kept = {name: array.copy() for name, array in saved.items()}
    for _ in walk(collector, 20):
        pass
    for name, array in saved.items():
        np.testing.assert_array_equal(array, kept[name])


def test_an_environment_that_does_not_come_back_raises() -> None:
    collector = collecting(lambda: Diary(forgetful=True), 2)
    for _ in walk(collector, 20):
        pass
    with pytest.raises(HyqError, match="not deterministic"):
        collecting(lambda: Diary(forgetful=True), 2).load_state(collector.state())


def test_an_environment_that_resets_itself_raises() -> None:
    env: Any = SyncVectorEnv([Diary] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    with pytest.raises(HyqError, match="DISABLED"):
        Collector(env, Streams(0))


def test_processes_step_as_one_process_does() -> None:
    with closing(envs(Diary, 2, AsyncVectorEnv)) as apart:
        one, other = Collector(apart, Streams(1)), collecting(Diary, 2, seed=1)
        for (_, _, a), (_, _, b) in zip(walk(one, 40), walk(other, 40), strict=True):
            np.testing.assert_array_equal(a.frame, b.frame)
            assert a.finished == b.finished
            np.testing.assert_array_equal(one.frame, other.frame)


class Broken(Diary):
    """A diary whose pages, or pay, become unreadable."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        if self._what == "a reward":
            reward = float("nan")
        else:
            observation = observation * np.inf
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("what", ["a reward", "an observation"])
def test_numbers_that_are_not_finite_are_named(what: str) -> None:
    collector = collecting(lambda: Broken(what), 2)
    collector.send(np.zeros(2, np.int64))
    with np.errstate(all="ignore"), pytest.raises(HyqError, match=f"gave {what} that is not fin"):
        collector.receive()


class Seedless(Diary):
    """A diary that begins as environments did long ago."""

    def reset(self) -> Array:  # type: ignore[override]
        return super().reset()[0]


class Infoless(Diary):
    """A diary that begins, or continues, as environments did less long ago."""

    def __init__(self, resets: bool = False) -> None:
        super().__init__()
        self._resets_well = resets

    def reset(self, **settings: Any) -> Any:
        seen, info = super().reset(**settings)
        return (seen, info) if self._resets_well else seen

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


GYMNASIUM_SHOWS_TRACES = pytest.mark.filterwarnings("ignore:.*:UserWarning")
"""Those of processes, as warnings."""


@GYMNASIUM_SHOWS_TRACES
@pytest.mark.parametrize("env", [Seedless, Infoless])
@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
def test_an_environment_that_begins_in_an_old_way_is_told_the_new_one(
    env: Any, vector: Any
) -> None:
    message = r"first reset failed .*reset\(seed=..., options=...\)"
    with closing(envs(env, 2, vector)) as made, pytest.raises(HyqError, match=message):
        Collector(made, Streams(0))


@GYMNASIUM_SHOWS_TRACES
@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
def test_an_environment_that_steps_in_an_old_way_is_told_the_new_one(vector: Any) -> None:
    with closing(envs(lambda: Infoless(resets=True), 2, vector)) as made:
        collector = Collector(made, Streams(0))
        collector.send(np.zeros(2, np.int64))
        with pytest.raises(HyqError, match="step returned 4 values"):
            collector.receive()


def test_other_errors_of_a_step_stay_what_they_are() -> None:
    class Odd(Diary):
        def step(self, action: Any) -> Any:
            raise ValueError("no such room")

    collector = collecting(Odd, 1)
    collector.send(np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="no such room"):
        collector.receive()


# Preprocessing


def test_images_are_downsampled_and_stacked() -> None:
    space = gym.spaces.Box(0, 255, (4, 6, 3), np.uint8)
    preprocessing = Preprocessing(PreprocessingConfig(frame_stack=2, downsample=2), space)
    assert preprocessing.frame_space == gym.spaces.Box(0, 255, (2, 3, 3), np.uint8)
    assert preprocessing.space == gym.spaces.Box(0, 255, (2, 2, 3, 3), np.uint8)
    images = np.random.default_rng(0).integers(256, size=(5, 4, 6, 3), dtype=np.uint8)
    found = preprocessing.frames(images)
    blocks = images.astype(int).reshape(5, 2, 2, 3, 2, 3).sum(axis=(2, 4))
    np.testing.assert_array_equal(found, (blocks + 2) // 4)


def test_a_stack_of_one_image_loses_its_axis_where_images_are_stacked() -> None:
    space = gym.spaces.Box(0, 255, (1, 8, 8), np.uint8)
    stacked = Preprocessing(PreprocessingConfig(frame_stack=2), space)
    assert stacked.frame_space.shape == (8, 8)
    assert stacked.space.shape == (2, 8, 8)
    assert stacked.frames(np.zeros((2, 1, 8, 8), np.uint8)).shape == (2, 8, 8)
    assert Preprocessing(PreprocessingConfig(), space).space.shape == (1, 8, 8)
    several = gym.spaces.Box(0, 255, (2, 8, 8), np.uint8)
    assert Preprocessing(PreprocessingConfig(2), several).space.shape == (2, 2, 8, 8)


def test_bounds_are_stacked_with_the_frames() -> None:
    space = gym.spaces.Box(np.array([0, -1], np.float32), np.array([2, 1], np.float32))
    stacked = Preprocessing(PreprocessingConfig(frame_stack=3), space).space
    assert isinstance(stacked, gym.spaces.Box)
    np.testing.assert_array_equal(stacked.low, [[0, -1]] * 3)
    np.testing.assert_array_equal(stacked.high, [[2, 1]] * 3)


def test_double_precision_is_shown_in_single_as_it_is_stored() -> None:
    space = gym.spaces.Box(-np.inf, 1.0, (2,), np.float64)
    preprocessing = Preprocessing(PreprocessingConfig(), space)
    assert preprocessing.space.dtype == np.float32
    assert preprocessing.frames(np.zeros((3, 2))).dtype == np.float32


def test_observations_that_are_no_arrays_raise() -> None:
    for space in (gym.spaces.Discrete(3), gym.spaces.Dict({"a": gym.spaces.Text(3)})):
        with pytest.raises(HyqError, match="must be arrays or dictionaries of arrays"):
            Preprocessing(PreprocessingConfig(), space)
    with pytest.raises(HyqError, match="only images of bytes"):
        Preprocessing(PreprocessingConfig(downsample=2), Diary.observation_space)
    with pytest.raises(HyqError, match="frame_stack must be within"):
        PreprocessingConfig(frame_stack=0)
    with pytest.raises(HyqError, match="downsample must be at least 1"):
        PreprocessingConfig(downsample=0)


# Exploration


def explored(steps: int, envs: int = 64, actions: int = 4, **config: Any) -> Array:
    """Return what is done where the greedy action would always be -1."""
    chances: dict[str, Any] = {n: schedule(v) if n == "epsilon" else v for n, v in config.items()}
    explore = EpsilonGreedy(ExplorationConfig(**chances), envs, actions)
    greedy = np.full(envs, -1)
    rng = np.random.default_rng(0)
    return np.stack([explore(greedy, step, rng) for step in range(steps)])


def test_random_actions_come_as_often_as_epsilon_says_and_alike() -> None:
    done = explored(500, epsilon=0.3)
    assert abs((done >= 0).mean() - 0.3) < 4 * np.sqrt(0.21 / done.size)
    shares = np.bincount(done[done >= 0], minlength=4) / (done >= 0).sum()
    np.testing.assert_allclose(shares, 0.25, atol=0.03)
    assert (explored(20, epsilon=0.0) == -1).all()
    assert (explored(20, epsilon=1.0) >= 0).all()


def test_epsilon_follows_its_schedule() -> None:
    done = explored(100, epsilon="0:1, 49:1, 50:0")
    assert (done[:50] >= 0).all()
    assert (done[50:] == -1).all()


def test_some_environments_keep_to_a_fixed_epsilon() -> None:
    done = explored(400, epsilon=1.0, fixed_epsilon_envs=16, fixed_epsilon=0.2)
    fixed, others = done[:, :16] >= 0, done[:, 16:] >= 0
    assert others.all()
    assert abs(fixed.mean() - 0.2) < 4 * np.sqrt(0.16 / fixed.size)
    with pytest.raises(HyqError, match="fixed_epsilon_envs is more than all 3"):
        EpsilonGreedy(ExplorationConfig(fixed_epsilon_envs=4), 3, 2)
    EpsilonGreedy(ExplorationConfig(fixed_epsilon_envs=3), 3, 2)


def test_random_actions_are_repeated_for_times_that_fall_with_their_square() -> None:
    done = explored(4000, epsilon=0.01, random_action_repeat=4, actions=10_000)
    runs: list[int] = []
    for column in done.T:
        ends = np.flatnonzero(np.diff(column)) + 1
        for piece in np.split(column, ends)[1:-1]:
            runs += [len(piece)] if piece[0] >= 0 else []
    weights = 1 / np.arange(1, 5) ** 2
    shares = np.bincount(runs, minlength=5)[1:] / len(runs)
    assert len(runs) > 1500
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.04)
    assert max(runs) == 4


def test_repeats_end_with_the_episode_and_are_saved() -> None:
    config = ExplorationConfig(epsilon=schedule(1.0), random_action_repeat=1000)
    one, rng = EpsilonGreedy(config, 50, 10_000), np.random.default_rng(0)
    first = one(np.full(50, -1), 0, rng)
    state = one.state()
    kept = {name: array.copy() for name, array in state.items()}
    again = one(np.full(50, -1), 0, rng)
    repeated = first == again
    assert 5 < repeated.sum() < 50
    np.testing.assert_array_equal(repeated, kept["remaining"] > 0)
    for name, array in kept.items():
        np.testing.assert_array_equal(state[name], array)
    other = EpsilonGreedy(config, 50, 10_000)
    other.load_state(state)
    np.testing.assert_array_equal(
        other(np.full(50, -1), 0, np.random.default_rng(7))[repeated], first[repeated]
    )
    mask = np.arange(50) < 25
    other.load_state(state)
    other.reset(mask)
    after = other(np.full(50, -1), 0, np.random.default_rng(8))
    assert (after == first)[~mask].sum() == repeated[~mask].sum()
    assert not (after == first)[mask].any()


# Evaluation


@pytest.mark.parametrize("episodes", [1, 3, 7, 20])
def test_an_evaluation_counts_the_first_episodes_of_every_environment(episodes: int) -> None:
    returns = evaluate(
        envs(Diary, 3), lambda seen: np.ones(len(seen), np.int64), episodes, Streams(3)
    )
    env, seeds = Diary(), Streams(3)
    expected = []
    for k in range(episodes):
        (number, _), _ = env.reset(seed=seeds.integer("episode", k % 3, k // 3))
        length = 2 + int(number) % 9
        expected.append(length + length * (length + 1) / 2)
    assert sorted(returns) == sorted(expected)


def test_environments_share_episodes_evenly() -> None:
    assert [evaluation_envs(n) for n in (0, 1, 20, 32, 33, 64, 65, 100)] == [
        1, 1, 20, 32, 17, 32, 22, 25,
    ]  # fmt: skip


class Endless(Diary):
    """A diary in which an episode ends only with action 2."""

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, *_ = super().step(action)
        return observation, reward, bool(action == 2), False, {"lives": 1}


def test_an_evaluation_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_EPISODE", 50)

    def until(last: int) -> Callable[[Array], Array]:
        return lambda seen: np.where(seen[:, 1] == last - 1, 2, 0)

    with pytest.raises(HyqError, match=r"after 50 steps.*TimeLimit"):
        evaluate(envs(Endless, 2), lambda seen: np.zeros(2, np.int64), 2, Streams(0))
    assert len(evaluate(envs(Endless, 2), until(50), 6, Streams(0))) == 6

    # An environment that has played its episodes may go on.
    def first_waits(seen: Array) -> Array:
        return np.array([2 if seen[0, 1] == 40 else 0, 2 if seen[1, 1] == 1 else 0])

    assert len(evaluate(envs(Endless, 2), first_waits, 3, Streams(0))) == 3
    check_endless(49)
    with pytest.raises(HyqError):
        check_endless(50)


def test_counts_become_boxes_of_what_they_count() -> None:
    space = gym.spaces.MultiDiscrete([3, 5], start=[1, 10])
    found = module.Preprocessing(PreprocessingConfig(), space).space
    assert isinstance(found, gym.spaces.Box)
    assert found.low.tolist() == [1, 10]
    assert found.high.tolist() == [3, 14]
