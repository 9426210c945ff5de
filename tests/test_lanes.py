"""Lanes that go on and on: nothing crosses episodes, and every lane can be brought back."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hyq import rollout
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array
from hyq.envs.make import make_lanes
from hyq.rollout import Lanes, Outcome, lanes_to_play, play


class Diary(gym.Env[Array, Any]):
    """Shows (its episode's number, the time); the seed decides length, ending and lives.

    Each step pays its action plus the time.
    """

    observation_space = gym.spaces.Box(0.0, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, forgetful: bool = False) -> None:
        self._forgetful, self._resets = forgetful, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._resets += 1
        self._number = self._resets if self._forgetful else int(self.np_random.integers(1_000_000))
        self._length = 2 + self._number % 9
        self._time = 0
        return self._observe(), {"lives": 2}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._time += 1
        over, dies = self._time == self._length, self._number % 2 == 0
        lives = int(self._time < 2) + int(not (over and dies))
        reward = float(action) + self._time
        return self._observe(), reward, over and dies, over and not dies, {"lives": lives}

    def _observe(self) -> Array:
        return np.array([self._number, self._time], np.float64)


def walk(lanes: Lanes, steps: int, seed: int = 0) -> Iterator[tuple[Array, Array, Outcome]]:
    """Act at random and yield (what was seen before, what was done, what came of it)."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        before = lanes.frame.copy()
        action = rng.integers(2, size=len(before))
        lanes.send(action)
        yield before, action, lanes.receive()


def test_no_transition_crosses_episodes() -> None:
    lanes = Lanes(make_lanes(Diary, 3), Streams(0))
    ended = 0
    for before, _, outcome in walk(lanes, 200):
        np.testing.assert_array_equal(outcome.frame[:, 0], before[:, 0])
        np.testing.assert_array_equal(outcome.frame[:, 1], before[:, 1] + 1)
        over = outcome.frame[:, 1] == 2 + outcome.frame[:, 0] % 9
        np.testing.assert_array_equal(outcome.ended, over)
        np.testing.assert_array_equal(lanes.frame[over, 1], 0)
        np.testing.assert_array_equal(lanes.frame[~over], outcome.frame[~over])
        assert (lanes.frame[over, 0] != outcome.frame[over, 0]).all()
        ended += int(over.sum())
    assert ended > 50


def test_termination_and_truncation_are_told_apart() -> None:
    lanes = Lanes(make_lanes(Diary, 3), Streams(0))
    for _, _, outcome in walk(lanes, 200):
        dies = outcome.frame[:, 0] % 2 == 0
        np.testing.assert_array_equal(outcome.terminated, outcome.ended & dies)
        np.testing.assert_array_equal(outcome.truncated, outcome.ended & ~dies)


def test_lost_lives_are_seen_up_to_the_last_but_not_across_episodes() -> None:
    lanes = Lanes(make_lanes(Diary, 3), Streams(0))
    for _, _, outcome in walk(lanes, 200):
        first = outcome.frame[:, 1] == 2
        np.testing.assert_array_equal(outcome.life_lost, first | outcome.terminated)


def test_lives_may_be_counted_from_the_first_step_on() -> None:
    class Late(Diary):
        def reset(self, **given: Any) -> tuple[Array, dict[str, Any]]:
            return super().reset(**given)[0], {}

    lost = [outcome.life_lost for *_, outcome in walk(Lanes(make_lanes(Late, 3), Streams(0)), 200)]
    assert not lost[0].any()
    assert np.any(lost)


def test_finished_episodes_have_their_return_and_length() -> None:
    lanes, own = Lanes(make_lanes(Diary, 3), Streams(0)), np.zeros(3)
    finished = 0
    for _, action, outcome in walk(lanes, 100):
        np.testing.assert_array_equal(outcome.reward, action + outcome.frame[:, 1])
        own += outcome.reward
        expected = [
            (int(lane), float(own[lane]), int(outcome.frame[lane, 1]))
            for lane in np.flatnonzero(outcome.ended)
        ]
        assert [*outcome.finished] == expected
        own[outcome.ended] = 0.0
        finished += len(expected)
    assert finished > 20


def test_frame_stacks_do_not_cross_episodes() -> None:
    lanes, stack = Lanes(make_lanes(Diary, 3), Streams(0), stack=4), 4
    assert lanes.observation.shape == (3, 4, 2)
    for _ in walk(lanes, 200):
        shown = lanes.observation
        np.testing.assert_array_equal(shown[:, :, 0], shown[:, -1:, 0].repeat(stack, axis=1))
        now = shown[:, -1, 1]
        expected = np.maximum(now[:, None] - np.arange(stack)[::-1], 0)
        np.testing.assert_array_equal(shown[:, :, 1], expected)


def test_an_observation_once_shown_is_not_changed_by_the_next_step() -> None:
    lanes = Lanes(make_lanes(Diary, 3), Streams(0), stack=2)
    shown = [lanes.observation]
    kept = [lanes.observation.copy()]
    for _ in walk(lanes, 30):
        shown.append(lanes.observation)
        kept.append(lanes.observation.copy())
    for one, other in zip(shown, kept, strict=True):
        np.testing.assert_array_equal(one, other)


def pump(observation: Array) -> Array:
    """Swing MountainCar up: push the way it is going."""
    return np.where(observation[:, 1] >= 0, 2, 0)


def swing(lanes: Lanes, steps: int) -> Iterator[tuple[Array, Array, Outcome]]:
    for _ in range(steps):
        before = lanes.frame.copy()
        lanes.send(pump(before))
        yield before, pump(before), lanes.receive()


Go = Callable[[Lanes, int], Iterator[tuple[Array, Array, Outcome]]]


@pytest.mark.parametrize(
    ("env", "go", "steps"),
    [("CartPole-v1", walk, 75), ("MountainCar-v0", swing, 170), (Diary, walk, 33)],
)
@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize("seed_lasts", [0, 30, 10_000])
def test_restored_lanes_go_on_as_if_nothing_had_happened(
    env: Any, go: Go, steps: int, stack: int, seed_lasts: int
) -> None:
    def made() -> Any:
        several = make_lanes(env, 4)
        several.seed_lasts = seed_lasts  # type: ignore[attr-defined]
        return several

    lanes = Lanes(made(), Streams(5), stack=stack)
    for _ in go(lanes, steps):
        pass
    saved = lanes.arrays()
    if seed_lasts < 10_000:
        assert len(set(saved["length"].tolist())) > 1, "lanes should be at different times"
        assert saved["seeded"].max() > 0
    else:
        assert (saved["length"] == steps).all()
    fresh = Lanes(made(), Streams(5), stack=stack)
    for _ in go(fresh, 7):  # wherever it was, it comes back
        pass
    fresh.restore(saved)
    np.testing.assert_array_equal(fresh.observation, lanes.observation)
    finished = 0
    for (_, _, one), (_, _, other) in zip(go(lanes, 150), go(fresh, 150), strict=True):
        for name in ("frame", "reward", "terminated", "truncated", "life_lost"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert one.finished == other.finished
        np.testing.assert_array_equal(fresh.observation, lanes.observation)
        finished += len(one.finished)
    assert finished > 3
    again = fresh.arrays()
    for name, array in lanes.arrays().items():
        np.testing.assert_array_equal(again[name], array)


@pytest.mark.parametrize(("seed_lasts", "seeds"), [(0, 4), (1, 4), (11, 2), (10_000, 1)])
def test_a_seed_lasts_as_long_as_the_environment_says(seed_lasts: int, seeds: int) -> None:
    env = make_lanes(Diary, 1)
    env.seed_lasts = seed_lasts  # type: ignore[attr-defined]
    given, reset = list[Any](), env.reset
    env.reset = lambda **asked: given.append(asked["seed"][0]) or reset(**asked)  # type: ignore
    lanes = Lanes(env, Streams(0))
    lengths: list[int] = []
    while len(lengths) < 3:
        lanes.send(np.array([0]))
        lengths += [length for *_, length in lanes.receive().finished]
    assert len(given) == 4
    assert sum(seed is not None for seed in given) == seeds, lengths


def test_a_saved_state_does_not_change_with_the_lanes() -> None:
    lanes = Lanes(make_lanes(Diary, 2), Streams(0))
    saved = lanes.arrays()
    kept = {name: array.copy() for name, array in saved.items()}
    for _ in walk(lanes, 20):
        pass
    for name, array in saved.items():
        np.testing.assert_array_equal(array, kept[name])


def test_an_environment_that_does_not_come_back_is_refused() -> None:
    lanes = Lanes(make_lanes(Diary, 2, forgetful=True), Streams(0))
    for _ in walk(lanes, 20):
        pass
    with pytest.raises(HyqError, match="not deterministic"):
        Lanes(make_lanes(Diary, 2, forgetful=True), Streams(0)).restore(lanes.arrays())


def test_an_environment_that_resets_itself_is_refused() -> None:
    env: Any = SyncVectorEnv([Diary] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    with pytest.raises(HyqError, match="DISABLED"):
        Lanes(env, Streams(0))


def test_processes_step_as_one_process_does() -> None:
    apart = make_lanes("CartPole-v1", 2, processes=True)
    try:
        one, other = Lanes(apart, Streams(1)), Lanes(make_lanes("CartPole-v1", 2), Streams(1))
        for (_, _, a), (_, _, b) in zip(walk(one, 60), walk(other, 60), strict=True):
            np.testing.assert_array_equal(a.frame, b.frame)
            assert a.finished == b.finished
            np.testing.assert_array_equal(one.frame, other.frame)
    finally:
        apart.close()


@pytest.mark.parametrize("episodes", [1, 3, 7, 20])
def test_playing_counts_the_first_episodes_of_every_lane(episodes: int) -> None:
    returns = play(
        make_lanes(Diary, 3), lambda seen: np.ones(len(seen), np.int64), episodes, Streams(3)
    )
    env, seeds = Diary(), Streams(3)
    expected = []
    for k in range(episodes):
        (number, _), _ = env.reset(seed=seeds.integer("episode", k % 3, k // 3))
        length = 2 + int(number) % 9
        expected.append(length + length * (length + 1) / 2)
    assert sorted(returns) == sorted(expected)


def test_lanes_share_episodes_evenly() -> None:
    assert [lanes_to_play(n) for n in (0, 1, 20, 32, 33, 100)] == [1, 1, 20, 32, 17, 25]


class Endless(Diary):
    """A diary in which an episode ends only with action 2."""

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, *_ = super().step(action)
        return observation, reward, bool(action == 2), False, {"lives": 1}


def test_an_evaluation_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "LONGEST_EPISODE", 50)

    def until(last: int) -> Callable[[Array], Array]:
        return lambda seen: np.where(seen[:, 1] == last - 1, 2, 0)

    with pytest.raises(HyqError, match=r"after 50 steps.*TimeLimit"):
        play(make_lanes(Endless, 2), lambda seen: np.zeros(2, np.int64), 2, Streams(0))
    assert len(play(make_lanes(Endless, 2), until(49), 6, Streams(0))) == 6


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
    lanes = Lanes(make_lanes(lambda: Broken(what), 2), Streams(0))
    lanes.send(np.zeros(2, np.int64))
    with pytest.raises(HyqError, match=f"gave {what} that is not finite"):
        lanes.receive()


class Spaceless(gym.Env[Array, Any]):
    """An environment without spaces."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_lanes("Pendulum-v1", 2), "methods here need discrete actions"),
        (lambda: make_lanes("Blackjack-v1", 2), "must be arrays"),
        (lambda: make_lanes("NoSuchEnv-v0", 2), "no environment"),
        (lambda: make_lanes("no_such_module:Env-v0", 2), "No module named 'no_such_module'"),
        (lambda: make_lanes(Diary(), 2), "function that makes"),  # type: ignore[arg-type]
        (lambda: make_lanes("CartPole-v1", 2, wrappers=["nothing"]), "module:Class"),
        (lambda: make_lanes("CartPole-v1", 2, bogus=1), "cannot make .*'bogus'"),
        (lambda: make_lanes("hyq/Montezuma-v0", 2, bogus=1), "cannot make .*'bogus'"),
        (lambda: make_lanes("CartPole", 2), "choose a version, CartPole-v0 or CartPole-v1$"),
        (
            lambda: make_lanes("CartPole-v1", 2, wrappers=["gymnasium.wrappers:Foo"]),
            "module 'gymnasium.wrappers' has no class 'Foo'",
        ),
        (
            lambda: make_lanes("CartPole-v1", 2, wrappers=["nowhere:Foo"]),
            "cannot import it: .*No module named 'nowhere'",
        ),
        (
            lambda: make_lanes("CartPole-v1", 2, wrappers=["math:sqrt"]),
            "cannot make environment 'CartPole-v1': TypeError",
        ),
        (
            lambda: make_lanes(gym.make("CartPole-v1"), 2),  # type: ignore[arg-type]
            r'such as lambda: gym.make\("CartPole-v1"\), not',
        ),
        (lambda: make_lanes(3, 2), "a Gymnasium id or a function"),  # type: ignore[arg-type]
        (lambda: make_lanes(lambda: 3, 2), "must be a gymnasium.Env, not of type int"),  # type: ignore[arg-type, return-value]
        (lambda: make_lanes(lambda: Broken(what=1 / 0), 2), "ZeroDivisionError"),  # type: ignore[arg-type]
        (lambda: make_lanes(Spaceless, 2), "'Spaceless' object has no attribute 'action_space'"),
        (lambda: make_lanes(Spaceless, 2, processes=True), "cannot make environment Spaceless: "),
    ],
)
def test_environments_that_cannot_be_lanes_are_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(HyqError, match=message):
        make()


def test_a_module_that_cannot_be_imported_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hyq_test_typo.py").write_text("class Plant(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(HyqError, match=r"SyntaxError: .*hyq_test_typo.py, line 1"):
        make_lanes("hyq_test_typo:Plant-v0", 2)


class Seedless(Diary):
    """A diary that begins as environments did long ago."""

    def reset(self) -> Array:  # type: ignore[override]
        return super().reset()[0]


class Infoless(Diary):
    """A diary that begins, and goes on, as environments did less long ago."""

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
@pytest.mark.parametrize("processes", [False, True])
def test_an_environment_that_begins_in_an_old_way_is_told_the_new_one(
    env: type[Diary], processes: bool
) -> None:
    message = r"first reset failed .*reset\(seed=..., options=...\)"
    with (
        closing(make_lanes(env, 2, processes=processes)) as made,
        pytest.raises(HyqError, match=message),
    ):
        Lanes(made, Streams(0))


@GYMNASIUM_SHOWS_TRACES
@pytest.mark.parametrize("processes", [False, True])
def test_an_environment_that_steps_in_an_old_way_is_told_the_new_one(processes: bool) -> None:
    with closing(make_lanes(Infoless, 2, processes=processes, resets=True)) as made:
        lanes = Lanes(made, Streams(0))
        lanes.send(np.zeros(2, np.int64))
        with pytest.raises(HyqError, match="step returned 4 values"):
            lanes.receive()


def test_an_environment_whose_package_is_missing_says_so() -> None:
    def lacking() -> Diary:
        raise gym.error.DependencyNotInstalled("Box2D is not installed:\ninstall it")

    gym.register("hyq/Lacking-v0", lacking)  # type: ignore[arg-type]
    try:
        with pytest.raises(HyqError, match=r"cannot make .* Box2D is not installed: install it"):
            make_lanes("hyq/Lacking-v0", 2)
    finally:
        del gym.registry["hyq/Lacking-v0"]


def test_wrappers_are_put_around_every_lane() -> None:
    env = make_lanes("Taxi-v4", 2, wrappers=["gymnasium.wrappers:FlattenObservation"])
    assert Lanes(env, Streams(0)).observation.shape == (2, 500)
