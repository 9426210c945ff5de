"""The drift test: quiet on honest data, and loud about each fault."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.coverage.drift import ALPHA, Drift, Part, drift_test
from hyq.coverage.nearby import Flat, Rows, Space, rows_of
from hyq.data.dataset import Dataset, Episode

Make = Callable[[], gym.Env[Any, Any]]


def logged(make: Make, episodes: int, seed: int = 0, longest: int = 200) -> Dataset:
    """Log random play."""
    env = make()
    env.action_space.seed(seed)
    found = []
    for number in range(episodes):
        seen = [env.reset(seed=1000 * seed + number)[0]]
        actions: list[Any] = []
        rewards: list[float] = []
        over = cut = False
        while not (over or cut) and len(actions) < longest:
            actions.append(env.action_space.sample())
            state, reward, over, cut, _ = env.step(actions[-1])
            seen.append(state)
            rewards.append(float(reward))
        if isinstance(seen[0], dict):
            rows: Any = {key: np.array([one[key] for one in seen]) for key in seen[0]}
        else:
            rows = np.array(seen)
        found.append(Episode(rows, np.array(actions), np.array(rewards), bool(over)))
    return Dataset.of(found, {})


def car(gravity: float = 0.0025) -> gym.Env[Any, Any]:
    env = gym.make("MountainCar-v0")
    env.unwrapped.gravity = gravity  # type: ignore[attr-defined]
    return env


@pytest.fixture(scope="module")
def rolling() -> Dataset:
    """Random play in MountainCar, which time limits end."""
    return logged(car, 60)


def named(found: Drift) -> set[str]:
    return {part.name for part in found.alarms}


@pytest.mark.parametrize("seed", range(4))
def test_honest_data_raises_no_alarm(rolling: Dataset, seed: int) -> None:
    found = drift_test(rolling, car, seed=seed)
    assert named(found) == set(), found
    assert found.steps == 800
    assert found.matched > 0.5


def test_constant_rewards_agree_whatever_was_done() -> None:
    """A hundred rows of an action are few for a polynomial, but enough for a constant."""
    env, episodes = car(), []
    rng = np.random.default_rng(0)
    for number in range(20):
        seen, actions = [env.reset(seed=number)[0]], []
        for _ in range(200):
            actions.append(0 if rng.random() < 0.99 else int(rng.integers(3)))
            seen.append(env.step(actions[-1])[0])
        episodes.append(Episode(np.array(seen), np.array(actions), -np.ones(200), False))
    assert named(drift_test(Dataset.of(episodes, {}), car)) == set()


@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_another_gravity_is_found(rolling: Dataset, factor: float) -> None:
    found = drift_test(rolling, lambda: car(0.0025 * factor))
    assert named(found) == {"dynamics"}, found


def test_observations_on_another_scale_are_found(rolling: Dataset) -> None:
    scaled = replace(rolling, observation=np.asarray(rolling.observation) * np.float32(1.2))
    assert {"starts", "dynamics"} <= named(drift_test(scaled, car))


def test_shifted_rewards_are_found(rolling: Dataset) -> None:
    shifted = replace(rolling, reward=rolling.reward + np.float32(0.1))
    assert named(drift_test(shifted, car)) == {"rewards"}


def test_time_limits_logged_as_ends_are_found(rolling: Dataset) -> None:
    ended = replace(rolling, terminated=np.ones(rolling.num_episodes, np.bool_))
    found = drift_test(ended, car)
    assert named(found) == {"ends"}
    assert "60 episodes are logged as terminated after exactly 200 steps" in found.alarms[0].text


class Lines(gym.Env[Any, Any]):
    """A point that is pushed along a line; its end is a time limit that it does not declare."""

    def __init__(self, power: float = 0.1, limit: int = 20, ends: bool = False) -> None:
        """Push with `power`."""
        self.observation_space = gym.spaces.Dict(
            {
                "place": gym.spaces.Box(-np.inf, np.inf, (1,)),
                "speed": gym.spaces.Box(-np.inf, np.inf, (1,)),
            }
        )
        self.action_space = gym.spaces.Box(-1, 1, (1,))
        self.power, self.limit, self.ends = power, limit, ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start somewhere."""
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.normal(size=2)
        self.time = 0
        return self.seen(), {}

    def seen(self) -> dict[str, Any]:
        """Show place and speed, and some text."""
        return {
            "place": np.array([self.place], np.float32),
            "speed": np.array([self.speed], np.float32),
        }

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Push, with some chance in it."""
        self.speed += self.power * float(action[0]) + 0.01 * self.np_random.normal()
        self.place += 0.1 * self.speed
        self.time += 1
        over = self.time == self.limit
        return self.seen(), -abs(self.place), over and self.ends, over and not self.ends, {}


def test_dictionaries_and_vectors_of_actions_are_tested() -> None:
    data = logged(Lines, 100)
    assert named(drift_test(data, Lines)) == set()
    found = drift_test(data, lambda: Lines(power=0.2))
    assert named(found) == {"dynamics"}
    assert "differs most, by" in found.alarms[0].text


def test_a_limit_that_is_not_declared_is_found_by_acting() -> None:
    """An environment that ends by itself is right to be logged so; one with a limit is not."""
    ended = logged(lambda: Lines(ends=True), 60)
    assert named(drift_test(ended, lambda: Lines(ends=True))) == set()
    assert named(drift_test(ended, Lines)) == {"ends"}


def test_names_of_states_lead_where_they_led() -> None:
    def lake(rate: float = 1 / 3) -> gym.Env[Any, Any]:
        return gym.make("FrozenLake-v1", success_rate=rate)

    data = logged(lake, 300)
    assert named(drift_test(data, lake)) == set()
    assert "dynamics" in named(drift_test(data, lambda: lake(1.0)))


def test_few_episodes_cannot_tell(rolling: Dataset) -> None:
    found = drift_test(Dataset.of(list(rolling)[:5], {}), car)
    assert all(math.isnan(part.p_value) for part in found.parts)
    assert found.alarms == ()


def test_holm_by_hand() -> None:
    """Of four parts the least is held against a quarter of the rate, the next against a third."""

    def alarms(*p_values: float) -> list[str]:
        parts = tuple(Part(str(i), p, "") for i, p in enumerate(p_values))
        return [part.name for part in Drift(parts, 0, 0.0, {}).alarms]

    a = ALPHA
    assert alarms(1.0, a / 4, a / 3, 1.0) == ["1", "2"]
    assert alarms(1.0, a / 3, a / 3, 1.0) == []
    assert alarms(math.nan, a / 3, 1.0, 1.0) == ["1"]


def points(rng: np.random.Generator, count: int) -> Rows:
    """Rows of random states and two actions, which add or subtract."""
    state, action = rng.normal(size=(count, 2)), rng.integers(2, size=count)
    after = state + np.where(action == 1, 1.0, -1.0)[:, None] * state[:, ::-1] ** 2
    flags = np.zeros(count, np.bool_)
    number = np.arange(count)
    return Rows(state, action, after, state.sum(axis=1), flags, number, number)


def test_matches_are_near_of_the_same_action_and_taken_once() -> None:
    rng = np.random.default_rng(0)
    taught, held, live = points(rng, 500), points(rng, 400), points(rng, 300)
    mine, match = Space.of(taught, named=False).matched(held, live, rng)
    assert len(mine) > 100
    assert len(set(mine.tolist())) == len(mine)
    assert len(set(match.tolist())) == len(match)
    np.testing.assert_array_equal(live.action[mine], held.action[match])
    apart = np.linalg.norm(live.state[mine] - held.state[match], axis=1)
    assert apart.max() < np.median(np.linalg.norm(live.state - np.roll(live.state, 1, 0), axis=1))


def test_what_is_a_polynomial_is_predicted_exactly() -> None:
    rng = np.random.default_rng(0)
    taught, others = points(rng, 500), points(rng, 50)
    space = Space.of(taught, named=False)
    found, _ = space.predicted(taught.after - taught.state, others)
    np.testing.assert_allclose(found, others.after - others.state, atol=1e-4)


def test_rows_are_those_of_their_episodes() -> None:
    data = logged(Lines, 3, longest=4)
    flat = Flat.of(data, np.random.default_rng(0))
    rows = rows_of(data, flat, np.array([2, 0]))
    assert flat.names == ["place[0]", "speed[0]"]
    np.testing.assert_array_equal(rows.episode, np.repeat([2, 0], 4))
    np.testing.assert_array_equal(rows.after[:3], rows.state[1:4])
    last = list(data)[2]
    np.testing.assert_allclose(rows.state[:4, 0], last.observation["place"][:4, 0])
    np.testing.assert_allclose(rows.reward[:4], last.reward)
