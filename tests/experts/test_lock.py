"""The paper's two datasets, checked by statistics that only the latent state can tell."""

import numpy as np
import pytest
from scipy.linalg import hadamard

from hyq.core.errors import HyqError
from hyq.core.types import FloatArray, IntArray
from hyq.envs.combination_lock import BAD, LockSpec
from hyq.experts.lock import lock_dataset

LOCK = LockSpec(horizon=10, actions=5, instance_seed=3)


def latents(observation: FloatArray) -> IntArray:
    """Undo the rotation and read the latent code: possible only for who knows the lock."""
    dim = observation.shape[1]
    return (observation @ hadamard(dim)[:, :3]).argmax(axis=1)


def test_occupancy_data_has_good_states_and_uniform_actions() -> None:
    data = lock_dataset(LOCK, "occupancy", 20_000, seed=1).by_step()
    good = LOCK.good_actions()
    for h in range(LOCK.horizon):
        rows = data.at(h)
        assert len(rows) == 2000
        z = latents(rows.observation)
        np.testing.assert_allclose(np.bincount(z, minlength=3) / 2000, [0.5, 0.5, 0], atol=0.05)
        np.testing.assert_allclose(np.bincount(rows.action) / 2000, 0.2, atol=0.04)
        advanced = latents(rows.next_observation) != BAD
        np.testing.assert_array_equal(advanced, rows.action == good[h, z])
        assert (rows.discount == (h < LOCK.horizon - 1)).all()
        np.testing.assert_array_equal(rows.reward == 1, advanced & (h == LOCK.horizon - 1))


def test_trajectory_data_is_nearly_optimal_except_in_the_middle() -> None:
    data = lock_dataset(LOCK, "trajectory", 50_000, seed=1).by_step()
    good = LOCK.good_actions()
    alive = 1.0
    for h in range(LOCK.horizon):
        rows = data.at(h)
        z = latents(rows.observation)
        assert (z != BAD).mean() == pytest.approx(alive, abs=0.02)
        taken = rows.action == good[h, np.minimum(z, 1)]
        expected = 0.2 if h == LOCK.horizon // 2 else 1 - 0.1 * 0.8
        assert taken.mean() == pytest.approx(expected, abs=0.02)
        alive *= expected


def test_trajectories_are_whole_episodes() -> None:
    data = lock_dataset(LOCK, "trajectory", 1000, seed=0).by_step()
    for h in range(LOCK.horizon - 1):
        np.testing.assert_array_equal(data.at(h).next_observation, data.at(h + 1).observation)


@pytest.mark.parametrize("kind", ["occupancy", "trajectory"])
@pytest.mark.parametrize("size", [10, 137, 500])
def test_any_size_is_spread_evenly(kind: str, size: int) -> None:
    data = lock_dataset(LOCK, kind, size, seed=0).by_step()  # type: ignore[arg-type]
    counts = [len(data.at(h)) for h in range(LOCK.horizon)]
    assert sum(counts) == len(data) == size
    assert max(counts) - min(counts) <= 1


def test_the_seed_decides_every_bit() -> None:
    digests = [lock_dataset(LOCK, "occupancy", 100, seed=s).digest() for s in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_what_cannot_be_made_raises() -> None:
    with pytest.raises(HyqError, match="one of"):
        lock_dataset(LOCK, "optimal", 100)  # type: ignore[arg-type]
    with pytest.raises(HyqError, match="at least 10"):
        lock_dataset(LOCK, "occupancy", 9)
