"""One of everything that is loaded: small runs, policies, suites, datasets and videos, and readers.

Used by the campaign (`benchmarks/hostile.py`), its kills and the soak.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rich.console import Console

from hyq.coverage.policy import load_policy
from hyq.data.dataset import Dataset
from hyq.experts.scripted import scripted_dataset
from hyq.policy import Policy
from hyq.report.records import RunResult, SuiteRecords
from hyq.report.suite import report_suite
from hyq.runs import lock, runner
from hyq.runs.launch import SuiteDirectory, execute
from hyq.runs.lock_spec import LockRun
from hyq.runs.records import RunDirectory
from hyq.runs.spec import RunSpec
from hyq.runs.suites import Suite
from hyq.runs.video import Environment, Video, play_video

LOCK = LockRun(data="trajectory", horizon=10, offline_samples=200, m_on=1, iterations=6, seed=3)
SUITE = Suite("small", "Small", (LOCK, replace(LOCK, seed=4)))


@dataclass(frozen=True)
class Item:
    """Files to damage, and what reads them."""

    name: str
    path: Path
    load: Callable[[Path], str]
    """Returns what was loaded, in short."""
    share: float = 1.0
    """How often it is chosen, compared with the others."""


def digest(*parts: Any) -> str:
    """Sum up what was loaded, whatever order its names are in."""
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def weights(module: torch.nn.Module) -> list[bytes]:
    """Return the bytes of a network."""
    return [tensor.numpy().tobytes() for tensor in module.state_dict().values()]


def of_policy(path: Path) -> str:
    """Load a deep policy, and where it would play."""
    policy = Policy.load(path)
    seen = policy.observation_space
    Environment.of(policy)
    facts = seen, policy.action_space, policy.preprocessing, sorted(policy.about.items())
    return digest(weights(policy.network), *facts, policy.act(zeros(seen)))


def zeros(space: gym.Space[Any]) -> Any:
    """Return an observation of zeros."""
    if isinstance(space, gym.spaces.Dict):
        return {name: zeros(part) for name, part in space.items()}
    return np.zeros(space.shape or (), space.dtype)


def of_steps(path: Path) -> str:
    """Load a policy by step."""
    greedy = load_policy(path)
    return digest([one.arrays() for one in greedy.functions])


def of_run(path: Path) -> str:
    """Read a run's records, as a report does."""
    found = RunResult.read(path)
    return digest(found.spec, found.rows, found.summary, RunDirectory(path).manifest)


def of_suite(path: Path) -> str:
    """Read a suite's records."""
    found = SuiteRecords.read(path)
    return digest(found.manifest, [run.rows for run in found.runs], sorted(found.failures))


def of_page(path: Path) -> str:
    """Write the page of a suite from its records."""
    with open("/dev/null", "w") as nowhere:
        report_suite(path, Console(file=nowhere))
    return "written"


def of_video(path: Path) -> str:
    """Load a recorded episode, and the environment that would play it."""
    found = Video.load(path)
    found.environment.make(render=False).close()
    return digest(found.environment, sorted(found.about.items()), found.episodes, found.actions)


def of_start(data: Path, path: Path) -> str:
    """Begin a run with the networks of another."""
    begun = runner.start(replace(deep_spec(data), start_from=str(path)))
    return digest(weights(next(begun).policy.network))


def of_dataset(path: Path) -> str:
    """Open a dataset and read all of it."""
    found = Dataset.load(path)
    return digest(found.digest(), sorted(found.provenance.items()))


def results(path: Path) -> str:
    """Sum up what a run came to, but for the time it took."""
    run, timed = RunDirectory.open(path), ("seconds", "wall_seconds")
    rows = [{k: v for k, v in row.items() if k not in timed} for row in run.rows]
    ended = {k: v for k, v in (run.summary or {}).items() if k not in timed}
    learned = [p for p in sorted(path.rglob("*.safetensors")) if "checkpoint" not in p.parts]
    return digest(rows, ended, [p.read_bytes() for p in learned])


def of_resumed(path: Path) -> str:
    """Resume a run to its end."""
    resume(path)
    return results(path)


def resume(path: Path) -> None:
    """Resume a run of either kind."""
    experiment = RunDirectory.open(path).manifest.get("experiment")
    for _ in lock.resume(path) if experiment == "lock" else runner.resume(path):
        pass


def deep_spec(data: Path) -> RunSpec:
    """Describe a run of a second."""
    settings: dict[str, Any] = {
        "online_steps": 120,
        "pretraining": 20,
        "report_every": 30,
        "learning_starts": 10,
    }
    settings |= {"num_envs": 2, "buffer_size": 100, "hidden": [16], "batch_size": 16}
    return RunSpec("CartPole-v1", str(data), settings=settings, evaluation_episodes=2, seed=5)


def arm_spec(data: Path) -> RunSpec:
    """Describe a run with continuous actions in a simulation by MuJoCo, of some seconds."""
    settings: dict[str, Any] = {
        "online_steps": 250,
        "pretraining": 30,
        "report_every": 50,
        "learning_starts": 20,
    }
    settings |= {"buffer_size": 200, "hidden": [16], "batch_size": 16, "critics": 3}
    return RunSpec(
        "hyq/PointMazeUMaze-v0",
        str(data),
        settings=settings,
        evaluation_episodes=2,
        actions="continuous",
        seed=5,
    )


def corpus_data(root: Path, episodes: int = 10) -> None:
    """Write a small dataset for CartPole, of random actions."""
    rng, env = np.random.default_rng(0), gym.make("CartPole-v1")
    rows: list[tuple[Any, ...]] = []
    for episode in range(episodes):
        seen, ended = env.reset(seed=episode)[0], False
        while not ended:
            action = rng.integers(2)
            after, reward, ended, _, _ = env.step(action)
            rows.append((seen, action, reward, after, ended))
            seen = after
    columns: Any = map(np.array, zip(*rows, strict=True))
    found = Dataset.from_arrays(*columns, provenance={"made": "here"})  # type: ignore[misc]
    found.save(root / "data")


def corpus(root: Path) -> list[Item]:
    """Make one of everything that is loaded."""
    corpus_data(root)
    scripted_dataset("pointmaze-umaze", 0.5, 0, 400).save(root / "maze")
    spec = deep_spec(root / "data")
    list(runner.start(spec, root / "deep"))
    list(islice(runner.start(spec, root / "deep-half", checkpoint_seconds=0), 3))
    list(runner.start(arm_spec(root / "maze"), root / "arm"))
    list(lock.start(LOCK, root / "lock"))
    list(islice(lock.start(LOCK, root / "lock-half"), 3))
    policy = Policy.load(root / "deep" / "best")
    play_video(policy, Environment.of(policy), 2, 0).save(root / "video")
    directory = SuiteDirectory.prepare(root / "suite", SUITE)
    for run in SUITE.runs:
        execute(directory.path, run)
    directory.fail(replace(LOCK, seed=5), "it failed")
    return [
        Item("policy", root / "deep" / "best", of_policy),
        Item("continuous policy", root / "arm" / "last", of_policy),
        Item("policy by step", root / "lock", of_steps),
        Item("networks", root / "deep", partial(of_start, root / "data"), 0.3),
        Item("deep run", root / "deep", of_run),
        Item("lock run", root / "lock", of_run),
        Item("suite", root / "suite", of_suite),
        Item("page of a suite", root / "suite", of_page, 0.03),
        Item("dataset", root / "data", of_dataset),
        Item("video", root / "video", of_video),
        Item("deep checkpoint", root / "deep-half", of_resumed, 0.5),
        Item("lock checkpoint", root / "lock-half", of_resumed, 0.5),
    ]
