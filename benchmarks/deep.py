"""How fast deep Hy-Q is beside its peers, and how near to what this machine can do.

    make bench-deep    (or: python benchmarks/deep.py --peers .venv-bench/bin/python)

Everything is measured in one run on one machine, interleaved in rounds, and given as medians and
ratios: environment steps a second of hyq, Stable-Baselines3, TorchRL and d3rlpy with the same
environment, network, batch and number of updates a step, on CartPole and on Montezuma's Revenge
with the paper's settings (with its dueling network and without, each held against peers alike);
the share of the arithmetic limit that an update reaches (its floating-point operations over the
rate of a large matrix product in the same precision); the memory of 2^20 Atari transitions; the
time to draw a batch from them, and to draw and re-prioritise 32 of 2^20 slots.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from hyq.algos.deep_config import PAPER_MONTEZUMA, DeepConfig
from hyq.algos.hyq_dqn import Training
from hyq.core.files import write_json
from hyq.core.schedules import schedule
from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset, Episode
from hyq.data.priorities import Priorities
from hyq.data.replay import Replay
from hyq.envs.make import VectorEnv, make_lanes
from hyq.models.learners import Precision
from hyq.models.make import has_bfloat16
from hyq.models.networks import NATURE, NetworkSpec
from hyq.runs.records import circumstances

Problem = Literal["cartpole", "montezuma"]
Variant = Literal["full", "dueling", "plain"]
"""full: double, dueling, priorities on both replays, as in the paper; dueling: the paper's network
without the other two; plain: without all three, which is what most peers compute."""
VARIANTS: dict[Problem, tuple[Variant, ...]] = {
    "cartpole": ("full", "plain"),
    "montezuma": ("full", "dueling", "plain"),
}

PEERS: dict[str, dict[Problem, list[list[str]]]] = {
    "sb3": {
        "cartpole": [["--vector", "dummy"]],
        "montezuma": [
            ["--vector", "native", "--channels-last"],
            ["--vector", "native", "--channels-last", "--dueling"],
        ],
    },
    "torchrl_dqn": {
        "cartpole": [["--vector", "native", "--compile"]],
        "montezuma": [
            ["--vector", "native", "--channels-last"],
            ["--vector", "native", "--channels-last", "--dueling"],
        ],
    },
    "d3rlpy_dqn": {"cartpole": [[]], "montezuma": [["--frames", "single"]]},
}
"""The options of each peer that were fastest in trials."""

console = Console()


def settings(problem: Problem, variant: Variant) -> DeepConfig:
    """Return the settings that every program of the comparison shares."""
    full, dueling = variant == "full", variant != "plain"
    shared = {
        "online_steps": 10**9,
        "pretraining": 0,
        "n_value": 4,
        "beta": schedule(0.2),
        "mix": "coin",
        "epsilon": schedule(0.05),
        "learning_starts": 1000,
        "double": full,
        "lanes": 8,
        "report_every": 400 if problem == "montezuma" else 4000,
    }
    uniform = {"priority_online": (0.0, 1e-3), "priority_offline": (0.0, 1e-3)}
    if problem == "cartpole":
        base = DeepConfig(n_target=500, batch_size=64, buffer_size=50_000)
        network = NetworkSpec(hidden=(64, 64), dueling=dueling)
    else:
        base = PAPER_MONTEZUMA
        shared |= {"learning_rate": schedule(1e-4)}
        network = NATURE if dueling else NetworkSpec(NATURE.convolutions, (512,), dueling=False)
    return DeepConfig(**{**vars(base), **shared, **({} if full else uniform), "network": network})


def lanes_of(problem: Problem, threads: int) -> VectorEnv:
    """Make eight lanes of a problem."""
    if problem == "cartpole":
        return make_lanes("CartPole-v1", 8)
    return make_lanes("hyq/Montezuma-v0", 8, stack=1, num_threads=threads)


def random_logs(problem: Problem, transitions: int = 10_000) -> Dataset:
    """Record random play, for the offline share."""
    env, rng = lanes_of(problem, 1), np.random.default_rng(0)
    steps = transitions // env.num_envs
    observation, _ = env.reset(seed=list(range(env.num_envs)))  # type: ignore[arg-type]
    seen: list[Any] = [observation]
    actions: list[Any] = []
    rewards: list[Any] = []
    assert isinstance(env.single_action_space, gym.spaces.Discrete)
    for _ in range(steps):
        action = rng.integers(env.single_action_space.n, size=env.num_envs)
        observation, reward, terminated, truncated, _ = env.step(action)
        ended = terminated | truncated
        if ended.any():
            observation, _ = env.reset(options={"reset_mask": ended})
        for store, value in ((seen, observation), (actions, action), (rewards, reward)):
            store.append(value)
    episodes = []
    for lane in range(env.num_envs):  # what follows a reset is cut off: only speed matters here
        frames = np.array([row[lane] for row in seen])
        acts, pay = (np.array([row[lane] for row in rows]) for rows in (actions, rewards))
        episodes.append(Episode(frames, acts, pay.astype(np.float32), terminated=False))
    return Dataset.of(episodes, {"behaviour": "random"})


def measure(
    problem: Problem, variant: Variant, seconds: float, threads: int, precision: Precision
) -> dict[str, Any]:
    """Time one window of training, after warming up."""
    torch.set_num_threads(threads)
    config = replace(settings(problem, variant), precision=precision)
    training = Training(config, lanes_of(problem, 1), random_logs(problem), Streams(0))
    reports = training.run()
    warm = time.perf_counter() + 8.0
    while training.updates < 20 or time.perf_counter() < warm:
        next(reports)
    steps, updates = training.online_steps, training.updates
    began, busy, learning = time.perf_counter(), time.process_time(), 0.0
    while time.perf_counter() < began + seconds:
        learning += next(reports).seconds["learn"]
    elapsed = time.perf_counter() - began
    done = training.updates - updates
    return {
        "peer": f"hyq, {variant}",
        "problem": problem,
        "steps_per_second": (training.online_steps - steps) / elapsed,
        "cpu_seconds": time.process_time() - busy,
        "seconds": elapsed,
        "updates": done,
        "update_ms": 1000 * learning / done,
        "threads": threads,
        "options": "bfloat16" if training.learner.bfloat16 else "float32",
    }


def matmul_rate(precision: torch.dtype, size: int = 1024) -> float:
    """Return the floating-point operations a second of a large product of matrices, by a thread."""
    torch.set_num_threads(1)
    left, right = torch.randn(2, size, size).to(precision)
    return 2 * size**3 / _median(lambda: left @ right, repeats=30)


def update_operations(batch: int) -> float:
    """Count what an update of *full* costs: a product and a sum for every weight used.

    Going back costs twice going forward, less the first layer's gradient in its input; double
    Q-learning's question leaves out V.
    """
    first, stream = 20 * 20 * 32 * 8 * 8 * 4, 3136 * 512
    rest = 9 * 9 * 64 * 4 * 4 * 32 + 7 * 7 * 64 * 3 * 3 * 64 + 2 * stream
    forward, selecting, back = first + rest, first + rest - stream, first + 2 * rest
    return 2 * batch * (2 * forward + selecting + back)


def _median(work: Callable[[], object], repeats: int) -> float:
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def storage() -> dict[str, float]:
    """Measure the memory of 2^20 Atari transitions and the time to draw from them."""
    capacity, rng = 2**20, np.random.default_rng(0)
    tree = Priorities(capacity)
    tree.set(np.arange(capacity), rng.random(capacity))

    def redraw() -> None:
        slots, _ = tree.draw(32, rng)
        tree.set(slots, rng.random(32))

    before = _resident()
    env = lanes_of("montezuma", 2)
    replay = Replay(8, capacity // 8, (84, 84), np.uint8, stack=4)
    frames, _ = env.reset(seed=list(range(8)))  # type: ignore[arg-type]
    replay.start(np.arange(8), _single(frames))
    played = 0
    recorded: list[Any] = []
    while played < 16_000:  # real frames; the rest of the ring repeats them
        action = rng.integers(18, size=8)
        frames, reward, terminated, truncated, _ = env.step(action)
        ended = terminated | truncated
        recorded.append((action, reward, ~terminated, ended, _single(frames)))
        replay.add(*recorded[-1])
        if ended.any():
            frames, _ = env.reset(options={"reset_mask": ended})
            replay.start(np.flatnonzero(ended), _single(frames)[ended])
        played += 8
    for number in range((capacity - played) // 8):
        action, reward, _, ended, frame = recorded[number % len(recorded)]
        replay.add(action, reward, np.ones(8), ended & False, frame)

    def sample() -> None:
        slots, _ = replay.draw(32, rng)
        replay.gather(slots, 1, 0.99)

    return {
        "tree_microseconds": 1e6 * _median(redraw, 2000),
        "replay_gigabytes": (_resident() - before) / 1e9,
        "replay_counted_gigabytes": replay.nbytes / 1e9,
        "sample_ms": 1e3 * _median(sample, 300),
    }


def _single(frames: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return frames.reshape(len(frames), 84, 84)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _program(command: list[str], threads: int) -> dict[str, Any]:
    """Run one program of the comparison and read its line."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1:]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def compare(
    peers: Path, problems: list[Problem], rounds: int, seconds: float, threads: list[int]
) -> list[dict[str, Any]]:
    """Run every program in turn, several times over, and return the median of each."""
    here = Path(__file__).parent
    programs: list[tuple[str, Problem, int, list[str]]] = []
    for problem in problems:
        for count in threads:
            window = ["--seconds", str(seconds), "--threads", str(count)]
            for variant in VARIANTS[problem]:
                own = [sys.executable, str(here / "deep.py"), "--only", problem, variant]
                programs.append((f"hyq, {variant}", problem, count, [*own, *window]))
            for name, options in PEERS.items():
                for option in options[problem]:
                    script = [str(peers), str(here / "peers" / f"{name}.py")]
                    words = [*script, "--problem", problem, *window, *option]
                    label = " ".join((name, *option))
                    programs.append((label, problem, count, words))
    results: dict[tuple[str, Problem, int], list[dict[str, Any]]] = {}
    for number in range(rounds):
        for label, problem, count, command in programs:
            console.print(f"[dim]round {number + 1}: {label}, {problem}, {count} threads[/]")
            results.setdefault((label, problem, count), []).append(_program(command, count))
    return [_summed_up(*key, runs) for key, runs in results.items()]


def _summed_up(
    label: str, problem: Problem, threads: int, runs: list[dict[str, Any]]
) -> dict[str, Any]:
    good = [run for run in runs if "steps_per_second" in run]
    summary: dict[str, Any] = {"program": label, "problem": problem, "threads": threads}
    if not good:
        return {**summary, "error": runs[-1].get("error")}
    for name in ("steps_per_second", "update_ms"):
        summary[name] = statistics.median(run[name] for run in good)
    return {**summary, "rounds": [run["steps_per_second"] for run in good]}


def show(results: list[dict[str, Any]], problems: list[Problem]) -> dict[str, float]:
    """Print a table a problem, and return hyq's speed over its fastest peer's.

    On Montezuma's Revenge, each is held against the fastest peer with the same network.
    """
    ratios: dict[str, float] = {}
    for problem in problems:
        rows = [r for r in results if r["problem"] == problem and "steps_per_second" in r]
        if not rows:
            continue
        rivals: dict[bool, float] = {}
        for row in rows:
            if not row["program"].startswith("hyq"):
                network = _dueling(row)
                rivals[network] = max(rivals.get(network, 0.0), row["steps_per_second"])
        table = Table(title=problem, title_justify="left")
        for name in ("program", "threads", "steps/s", "update ms", "over fastest alike"):
            table.add_column(name, justify="left" if name == "program" else "right")
        for row in sorted(rows, key=lambda row: -row["steps_per_second"]):
            alike = _dueling(row) and problem == "montezuma"  # on CartPole peers have one network
            rival = rivals.get(alike, float("nan"))
            ratio = row["steps_per_second"] / rival
            table.add_row(
                row["program"],
                str(row["threads"]),
                f"{row['steps_per_second']:,.0f}",
                f"{row['update_ms']:.2f}",
                f"{ratio:.2f}x",
            )
            if row["program"].startswith("hyq"):
                name = f"{problem}, {row['program']}"
                ratios[name] = max(ratios.get(name, 0.0), ratio)
        console.print(table)
    return ratios


def _dueling(row: dict[str, Any]) -> bool:
    """Tell whether a program had the paper's network."""
    return any(word in row["program"] for word in ("dueling", "full"))


def main(
    peers: Path | None = None,
    rounds: int = 3,
    seconds: float = 15.0,
    threads: tuple[int, ...] = (1,),
    problems: tuple[Problem, ...] = ("cartpole", "montezuma"),
    out: Path | None = None,
    only: tuple[Problem, Variant] | None = None,
    precision: Precision = "auto",
) -> None:
    """Compare deep Hy-Q with its peers.

    Args:
        peers: Python of the environment the peers are installed in; without it only hyq is timed.
        rounds: Times that every program is run, in turn.
        seconds: Length of each timed window.
        threads: Threads a program may use; the fastest counts.
        problems: What to learn.
        out: File for the results, as JSON.
        only: Time one variant on one problem, and print one line of JSON.
        precision: With `only`, the arithmetic of the layers.
    """
    if only is not None:
        print(json.dumps(measure(*only, seconds, threads[0], precision)))
        return
    chosen = list(problems)
    stored = storage()
    chosen_precision = torch.bfloat16 if has_bfloat16("cpu") else torch.float32  # by `auto`
    rate = matmul_rate(chosen_precision)
    results = compare(peers, chosen, rounds, seconds, list(threads)) if peers else []
    ratios = show(results, chosen)
    full = [
        row for row in results if row["problem"] == "montezuma" and row["program"] == "hyq, full"
    ]
    figures: dict[str, Any] = {
        **stored,
        "precision": str(chosen_precision).removeprefix("torch."),
        "matmul_gigaflops_one_thread": rate / 1e9,
        "over_fastest_peer": ratios,
        "results": results,
    }
    for row in full:
        needed = update_operations(32) / (rate * row["threads"])
        figures[f"share_of_arithmetic_limit_{row['threads']}_threads"] = (
            1000 * needed / row["update_ms"]
        )
        figures["sampling_share_of_update"] = stored["sample_ms"] / row["update_ms"]
    for name, value in figures.items():
        if isinstance(value, float):
            console.print(f"{name.replace('_', ' ')}: {value:.3g}")
    if out is not None:
        write_json(out, {**figures, **circumstances()})


if __name__ == "__main__":
    tyro.cli(main)
