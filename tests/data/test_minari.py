"""Export to Minari: any dataset, without loss."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.data.columns import named
from hyq.data.dataset import Dataset, Episode
from hyq.data.minari import export_minari, import_minari
from hyq.envs.spaces import space_from_json
from hyq.runs.named_data import load

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
    assert import_minari(exported).digest() == dataset.digest()
    back = load("hyq/test-v0")
    assert back.digest() == load(tmp_path / "hyq" / "test-v0").digest() == dataset.digest()
    assert space_from_json(back.provenance["action_space"]) == actions
    assert back.provenance["behaviour"] == "random"
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


@pytest.mark.parametrize("env", [None, "MountainCar-v0"])
def test_the_command_exports_what_was_saved(
    env: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    dataset = load("mountaincar/half").episodes(np.arange(2))
    dataset.save(tmp_path / "logs")
    words = ["data", "export", str(tmp_path / "logs"), "--dataset-id", "lab/car-v0"]
    assert main([*words, *(["--env", env] if env else [])]) == 0
    assert load("lab/car-v0").digest() == dataset.digest()


def test_actions_of_another_space_are_refused() -> None:
    dataset = Dataset.of([Episode(np.zeros((2, 3)), np.zeros(1, int), np.zeros(1), True)], {})
    with pytest.raises(HyqError, match="outside Discrete"):
        export_minari(dataset, "hyq/test-v0", VECTOR, gym.spaces.Discrete(2, start=1))


def test_an_environment_spec_and_precise_rewards_survive_the_way_there_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = gym.make("MountainCarContinuous-v0")
    rng = np.random.default_rng(0)
    buffers = [
        minari.data_collector.EpisodeBuffer(
            observations=rng.normal(0, 0.01, (6, 2)).astype(np.float32),
            actions=rng.uniform(-1, 1, (5, 1)).astype(np.float32),
            rewards=rng.normal(size=5),
            terminations=np.zeros(5, np.bool_),
            truncations=np.arange(5) == 4,
        )
        for _ in range(2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # no author, no permalink
        theirs = minari.create_dataset_from_buffers("car/random-v0", buffers, env=env.spec)
    dataset = load("car/random-v0")
    given = np.concatenate([one.rewards for one in theirs.iterate_episodes()])
    np.testing.assert_array_equal(dataset.reward, given)
    assert dataset.reward.dtype == given.dtype == np.float64
    seen, taken = (
        space_from_json(dataset.provenance[f"{name}_space"]) for name in ("observation", "action")
    )
    again = export_minari(dataset, "car/again-v0", seen, taken)
    assert again.spec.env_spec == theirs.spec.env_spec
    assert (again.observation_space, again.action_space) == (
        env.observation_space,
        env.action_space,
    )
    assert import_minari(again).digest() == dataset.digest()
    with pytest.raises(HyqError, match="no columns to choose"):
        load("car/random-v0", reward="r")
