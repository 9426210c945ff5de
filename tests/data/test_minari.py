"""Export to Minari: any dataset, without loss."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.data.columns import named
from hyq.data.dataset import Dataset, Episode
from hyq.data.minari import export_minari

minari = pytest.importorskip("minari")
VECTOR = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
WHOLE = gym.spaces.Box(-9, 9, (2,), np.int64)


@pytest.mark.parametrize("format_", ["arrow", "hdf5"])
@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (VECTOR, gym.spaces.Discrete(3, start=4)),
        (VECTOR, gym.spaces.Box(-1, 1, (2,), np.float32)),
        (gym.spaces.Dict(a=VECTOR, b=WHOLE), gym.spaces.Box(-1, 1, (2,), np.float32)),
        (gym.spaces.Tuple((VECTOR, WHOLE)), gym.spaces.MultiDiscrete([2, 3])),
    ],
    ids=["start", "box", "dictionary", "tuple"],
)
def test_what_is_exported_comes_back(
    space: gym.Space[Any],
    actions: gym.Space[Any],
    format_: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    rng = np.random.default_rng(0)
    actions.seed(0)

    def one(steps: int) -> Episode:
        parts = [rng.normal(size=(steps + 1, 3)), rng.integers(-9, 10, (steps + 1, 2))]
        seen: Any = parts[0]
        if not isinstance(space, gym.spaces.Box):
            keys = ("a", "b") if isinstance(space, gym.spaces.Dict) else ("0", "1")
            seen = dict(zip(keys, parts, strict=True))
        taken = np.array([actions.sample() for _ in range(steps)])
        return Episode(seen, taken, rng.normal(size=steps).astype(np.float32), steps == 4)

    dataset = Dataset.of([one(4), one(2)], {"behaviour": "random"})
    exported = export_minari(dataset, "hyq/test-v0", space, actions, data_format=format_)
    assert (exported.observation_space, exported.action_space) == (space, actions)
    for ours, theirs in zip(dataset, exported.iterate_episodes(), strict=True):
        found = theirs.observations
        if isinstance(found, tuple):
            found = {str(index): part for index, part in enumerate(found)}
        wanted = named("", ours.observation)
        for key, column in named("", found).items():
            np.testing.assert_array_equal(column, wanted[key])
        np.testing.assert_array_equal(theirs.actions, ours.action)
        np.testing.assert_array_equal(theirs.rewards, ours.reward)
        assert bool(theirs.terminations[-1]) == ours.terminated == (not theirs.truncations[-1])


def test_actions_of_another_space_are_refused() -> None:
    dataset = Dataset.of([Episode(np.zeros((2, 3)), np.zeros(1, int), np.zeros(1), True)], {})
    with pytest.raises(HyqError, match="outside Discrete"):
        export_minari(dataset, "hyq/test-v0", VECTOR, gym.spaces.Discrete(2, start=1))
