"""What lies on disk is drawn from to the same bits as what is in memory."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.core.actions import Actions
from hyq.core.trees import leaves
from hyq.data import stored
from hyq.data.dataset import Dataset, Episode
from hyq.data.replay_buffer import ReplayBuffer
from hyq.data.stored import StoredFrames

VECTOR = gym.spaces.Box(-9, 9, (3,), np.float32)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"life_loss_discount": 0.5, "truncation_terminates": True}]
)
def test_a_buffer_on_disk_gives_the_rows_of_one_in_memory(
    keyed: bool, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)

    def one(steps: int) -> Episode:
        seen: Any = rng.normal(size=(steps + 1, 3)).astype(np.float64)
        return Episode(
            {"a": seen, "b": seen[:, :1]} if keyed else seen,
            rng.integers(4, 7, steps),
            rng.normal(size=steps).astype(np.float32),
            bool(rng.random() < 0.5),
            rng.random(steps) < 0.2,
        )

    Dataset.of([one(int(rng.integers(1, 9))) for _ in range(40)], {}).save(tmp_path / "logs")
    dataset = Dataset.load(tmp_path / "logs")
    space = (
        gym.spaces.Dict(a=VECTOR, b=gym.spaces.Box(-9, 9, (1,), np.float32)) if keyed else VECTOR
    )
    options = {"frame_stack": 2, "scale_reward": np.sign, "return_gamma": 0.9, **settings}
    actions = Actions(gym.spaces.Discrete(3, start=4))
    plain, disk = (
        ReplayBuffer.of(dataset, space, actions, **options)
        for limit in (2**30, 0)
        if not monkeypatch.setattr(stored, "LARGE", limit)
    )
    assert all(isinstance(leaf, StoredFrames) for leaf in leaves(disk._frames))
    assert disk.nbytes < plain.nbytes
    drawn, again = (one.draw_uniformly(500, np.random.default_rng(1)) for one in (plain, disk))
    np.testing.assert_array_equal(drawn, again)
    np.testing.assert_array_equal(plain.return_to_go(drawn), disk.return_to_go(drawn))
    monkeypatch.setattr(stored, "_HELD", 64)  # so that blocks are given back between draws
    for n_step in (1, 4):
        ours, theirs = (buffer.gather(drawn, n_step, 0.9) for buffer in (disk, plain))
        for name in vars(ours):
            pairs = zip(leaves(getattr(ours, name)), leaves(getattr(theirs, name)), strict=True)
            for found, wanted in pairs:
                np.testing.assert_array_equal(found, wanted)
                assert found.dtype == wanted.dtype
    few, wanted = (next(leaves(buffer.sample_observations(50))) for buffer in (disk, plain))
    np.testing.assert_array_equal(few, wanted)
