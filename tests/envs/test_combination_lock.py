"""The combination lock against its own latent MDP and hand-computed cases."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy.linalg import hadamard

import hyq.envs  # noqa: F401  (registers the environments)
from hyq.core.errors import HyqError
from hyq.core.types import IntArray
from hyq.envs.combination_lock import BAD, CombinationLockVector, LockSpec
from hyq.fqi.rollout import lockstep
from tests.fqi.conformance import returns


def copies(count: int, **parameters: float) -> CombinationLockVector:
    return CombinationLockVector(count, **parameters)


def test_gymnasium_accepts_the_single_lock() -> None:
    env = gym.make("hyq/CombinationLock-v0", horizon=5)
    with pytest.warns(UserWarning, match="infinity"):  # Gaussian noise has no bound
        check_env(env.unwrapped)


def test_vectors_follow_the_next_step_autoreset() -> None:
    env = gym.make_vec(
        "hyq/CombinationLock-v0", num_envs=4, vectorization_mode="vector_entry_point", horizon=2
    )
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space
    ended = []
    for _ in range(6):
        observation, reward, terminated, truncated, _ = env.step(np.zeros(4, dtype=int))
        assert observation in env.observation_space
        assert reward.shape == (4,)
        assert not truncated.any()
        ended.append(bool(terminated.all()))
    assert ended == [False, True, False, False, True, False]


def test_the_observation_is_the_rotated_noisy_code() -> None:
    env = copies(4000, horizon=9)
    dim, latent, h = 16, 1, 4
    assert env.lock.observation_dim == dim
    env.reset(seed=1)
    observation = env.place(np.full(4000, latent), h)
    plain = observation @ hadamard(dim) / dim  # the inverse rotation
    expected = np.zeros(dim)
    expected[[latent, 3 + h]] = 1.0
    np.testing.assert_allclose(plain.mean(axis=0), expected, atol=0.01)
    np.testing.assert_allclose(np.cov(plain.T), 0.1**2 * np.eye(dim), atol=1e-3)


def test_without_rotation_the_code_is_bare() -> None:
    env = copies(3, horizon=4, rotate=False, noise=0.0)
    env.reset(seed=0)
    observation = env.place(np.array([0, 1, 2]), 2)
    np.testing.assert_array_equal(observation[:, :3], np.eye(3))
    np.testing.assert_array_equal(observation[:, 3:].argmax(axis=1), 2)


@pytest.mark.parametrize("emission", ["shared", "per-step", "nonlinear"])
def test_only_the_shared_emission_tells_latents_apart_alike_at_every_step(emission: str) -> None:
    env = CombinationLockVector(3, horizon=60, noise=0.0, emission=emission)
    again = CombinationLockVector(3, horizon=60, noise=0.0, emission=emission)
    env.reset(seed=0)
    again.reset(seed=1)
    codes = np.array([env.place(np.arange(3), h) for h in (0, 30, 60)])
    np.testing.assert_array_equal(codes[1], again.place(np.arange(3), 30))
    direction = codes[:, 0] - codes[:, 1]
    cosine = np.corrcoef(direction)
    assert (np.abs(cosine[np.triu_indices(3, 1)] - 1).max() < 1e-6) == (emission == "shared")
    if emission != "nonlinear":  # orthonormal rows, as long as the matrix is wide
        gram = codes @ codes.swapaxes(1, 2) / env.lock.observation_dim
        np.testing.assert_allclose(gram, [np.eye(3) + 1] * 3, atol=1e-5)


@pytest.mark.parametrize("horizon", [1, 4, 5, 12, 13, 100, 124, 125])
def test_latent_and_time_codes_always_fit(horizon: int) -> None:
    dim = LockSpec(horizon=horizon).observation_dim
    assert dim >= horizon + 4
    assert math.log2(dim) % 1 == 0
    assert dim < 2 * (horizon + 4)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"anti_reward_probability": 1.0}, {"dense": True}, {"switch_probability": 0.1}],
)
def test_simulation_agrees_with_the_latent_mdp(parameters: dict[str, float]) -> None:
    spec = LockSpec(horizon=4, actions=3, **parameters)  # type: ignore[arg-type]
    mdp = spec.latent_mdp()
    policy = np.full((4, 3, 3), 1 / 3)
    env = CombinationLockVector(40_000, **vars(spec))
    rng = np.random.default_rng(0)
    occupancy = mdp.occupancy(policy).sum(axis=-1)
    total = np.zeros(env.num_envs)
    env.reset(seed=3)
    for h in range(4):
        visited = np.bincount(env.latent, minlength=3) / env.num_envs
        np.testing.assert_allclose(visited, occupancy[h], atol=0.01)
        _, reward, *_ = env.step(rng.integers(3, size=env.num_envs))
        total += reward
    np.testing.assert_allclose(total.mean(), mdp.value(policy), atol=0.01)


def test_good_actions_alone_open_the_lock() -> None:
    spec = LockSpec(horizon=20)
    env = CombinationLockVector(50, **vars(spec))
    np.testing.assert_array_equal(returns(env, lambda h, x: env.expert_action(), 20, seed=0), 1.0)
    assert spec.optimal_return == pytest.approx(1.0)
    dense = LockSpec(horizon=20, dense=True)
    assert dense.optimal_return == pytest.approx(dense.max_return) == pytest.approx(2.9)


@pytest.mark.parametrize(("probability", "paid"), [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_a_fall_pays_once_and_never_ends(probability: float, paid: float) -> None:
    env = copies(8000, horizon=6, anti_reward_probability=probability)

    def fall_at_once(h: int, observation: object) -> IntArray:
        return (env.expert_action() + (h == 0)) % env.lock.actions

    total = returns(env, fall_at_once, 6, seed=0)
    assert set(np.unique(total)) <= {0.0, 0.1}
    assert (total > 0).mean() == pytest.approx(paid, abs=0.02)
    assert (env.latent == BAD).all()


def test_same_seed_same_bits_other_seed_other_bits() -> None:
    def play(seed: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        env = copies(7, horizon=5)
        policy = lambda h, x: np.full(7, h)  # noqa: E731
        return [rows.next_observation for rows, _ in lockstep(env, policy, 5, seed)]

    first, second, other = play(4), play(4), play(5)
    np.testing.assert_array_equal(np.stack(first), np.stack(second))
    assert not np.array_equal(np.stack(first), np.stack(other))


def test_the_instance_seed_chooses_the_combination() -> None:
    tables = [LockSpec(instance_seed=s).good_actions() for s in (0, 0, 1)]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert not np.array_equal(tables[0], tables[2])


def test_variable_latents_are_redrawn_from_their_own_code() -> None:
    env = copies(20_000, horizon=3, variable_latent=True, temperature=1.0, noise=0.0)
    env.reset(seed=0)
    assert (env.latent < BAD).all()
    env.place(np.zeros(20_000, dtype=int), 1)
    share = np.bincount(env.latent, minlength=3) / 20_000
    softmax = np.exp([1, 0, 0]) / np.exp([1, 0, 0]).sum()
    np.testing.assert_allclose(share, softmax, atol=0.015)
    with pytest.raises(HyqError, match="no finite latent MDP"):
        env.lock.latent_mdp()


@pytest.mark.parametrize(
    "parameters",
    [
        {"horizon": 0},
        {"actions": 1},
        {"switch_probability": 1.5},
        {"anti_reward_probability": -0.1},
        {"noise": -1.0},
        {"anti_reward": 2.0},
        {"temperature": 0.0},
        {"emission": "none"},
        {"emission": "per-step", "rotate": False},
    ],
)
def test_impossible_locks_raise(parameters: dict[str, Any]) -> None:
    with pytest.raises(HyqError):
        LockSpec(**parameters)
