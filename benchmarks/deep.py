"""How fast deep Hy-Q is beside its peers at equal precision, and how near to the machine's limit.

    make bench-deep    (or: python -m benchmarks.deep --peers .venv-bench/bin/python)

Everything is measured in one run on one machine, interleaved in rounds, and given as medians and
ratios: environment steps a second of hyq, Stable-Baselines3, TorchRL, d3rlpy and SBX with the same
environment, network, batch and number of updates a step, in float32 and in bfloat16, on CartPole
and on Montezuma's Revenge with the paper's settings (with its dueling network and without, each
compared with peers that have the same network and precision); with --busy, what is left of hyq's
speed beside a process that keeps one core busy; the share of the arithmetic limit that an update
reaches (its floating-point operations over the rate of a large matrix product in the same
precision); the memory of 2^20 Atari transitions; the time to draw a batch from them, and to draw
and re-prioritise 32 of 2^20 slots.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import hyq  # noqa: F401  # isort: skip  (before PyTorch: it says how its threads wait)

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
import tyro

from benchmarks.comparison import JAX_PEERS, Program, compare, console, show
from hyq.algorithms import configure
from hyq.build import build
from hyq.core.files import write_json
from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset, Episode
from hyq.data.priorities import Priorities
from hyq.data.replay_buffer import ReplayBuffer
from hyq.envs.make import VectorEnv, make_vector_env
from hyq.linear import linear
from hyq.runs.records import circumstances

Problem = Literal["cartpole", "montezuma"]
Precision = Literal["float32", "bfloat16"]
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
    "sbx_dqn": {"cartpole": [["--vector", "dummy"]], "montezuma": [["--vector", "native"]]},
}
"""The options of each peer that were fastest in trials."""


def settings(problem: Problem, variant: Variant) -> dict[str, Any]:
    """Return hyq's settings for what every program of the comparison shares."""
    full = variant == "full"
    shared: dict[str, Any] = {
        "online_steps": 10**9,
        "pretraining": 0,
        "update_every": 4,
        "beta": 0.2,
        "mix": "bernoulli",
        "epsilon": 0.05,
        "learning_starts": 1000,
        "double": full,
        "dueling": variant != "plain",
        "num_envs": 8,
    }
    if not full:
        shared |= {"priority_online": (0.0, 1e-3), "priority_offline": (0.0, 1e-3)}
    if problem == "montezuma":
        return shared | {"report_every": 400, "learning_rate": 1e-4}
    network = {"hidden": (64, 64), "target_update_every": 500, "buffer_size": 50_000}
    return shared | network | {"report_every": 4000}


def environments(problem: Problem, threads: int) -> VectorEnv:
    """Make the eight environments of a problem."""
    if problem == "cartpole":
        return make_vector_env("CartPole-v1", 8)
    return make_vector_env("hyq/Montezuma-v0", 8, stack=1, num_threads=threads)


def random_data(problem: Problem, transitions: int = 10_000) -> Dataset:
    """Record random play, for the offline share."""
    env, rng = environments(problem, 1), np.random.default_rng(0)
    assert isinstance(env.single_action_space, gym.spaces.Discrete)
    observation, _ = env.reset(seed=list(range(env.num_envs)))  # type: ignore[arg-type]
    seen, actions, rewards = [observation], [], []
    for _ in range(transitions // env.num_envs):
        actions.append(rng.integers(env.single_action_space.n, size=env.num_envs))
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        if (ended := terminated | truncated).any():
            observation, _ = env.reset(options={"reset_mask": ended})
        seen.append(observation)
        rewards.append(reward.astype(np.float32))
    columns = (np.stack(rows, axis=1) for rows in (seen, actions, rewards))
    # An episode runs across resets: only speed matters here.
    episodes = [Episode(o, a, r, terminated=False) for o, a, r in zip(*columns, strict=True)]
    return Dataset.of(episodes, {"behaviour": "random"})


def measure(
    problem: Problem, variant: Variant, precision: Precision, threads: int, seconds: float
) -> dict[str, Any]:
    """Time one window of hyq's training, after warming up."""
    torch.set_num_threads(threads)
    preset = "paper-montezuma" if problem == "montezuma" else "default"
    given = settings(problem, variant) | {"precision": precision, "threads": threads}
    training = build(
        configure("hyq", preset, given),
        environments(problem, 1),
        random_data(problem),
        Streams(0),
    )
    reports = training.run()
    warm = time.perf_counter() + 5.0
    while training.updates < 20 or time.perf_counter() < warm:
        next(reports)
    steps, updates = training.online_steps, training.updates
    began, busy, learning = time.perf_counter(), time.process_time(), 0.0
    while time.perf_counter() < began + seconds:
        learning += next(reports).seconds["learn"]
    elapsed = time.perf_counter() - began
    done = training.updates - updates
    return {
        "steps_per_second": (training.online_steps - steps) / elapsed,
        "update_ms": 1000 * learning / done,
        "updates": done,
        "seconds": elapsed,
        "cpu_seconds": time.process_time() - busy,
    }


def matmul_rate(precision: torch.dtype, size: int = 1024) -> float:
    """Return the floating-point operations a second of a large product of matrices, by a thread."""
    torch.set_num_threads(1)
    left, right = torch.randn(2, size, size).to(precision)
    return 2 * size**3 / _median(lambda: linear(left, right), repeats=30)


def update_operations(batch: int) -> float:
    """Count what an update of *full* costs: a product and a sum for every weight used.

    The backward pass costs twice the forward pass, less the first layer's gradient in its input;
    where double Q-learning selects an action, V can be left out.
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
    env = environments("montezuma", 2)
    space = gym.spaces.Box(0, 255, (84, 84), np.uint8)
    replay = ReplayBuffer(8, capacity // 8, space, gym.spaces.Discrete(18), frame_stack=4)
    frames, _ = env.reset(seed=list(range(8)))  # type: ignore[arg-type]
    replay.start(np.arange(8), frames.reshape(8, 84, 84))
    played = 0
    recorded: list[Any] = []
    while played < 16_000:  # real frames; the rest of the ring repeats them
        action = rng.integers(18, size=8)
        frames, reward, terminated, truncated, _ = env.step(action)
        ended = terminated | truncated
        recorded.append((action, reward, ~terminated, ended, frames.reshape(8, 84, 84)))
        replay.add(*recorded[-1])
        if ended.any():
            frames, _ = env.reset(options={"reset_mask": ended})
            replay.start(np.flatnonzero(ended), frames.reshape(8, 84, 84)[ended])
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


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def programs(
    what: tuple[Problem, Precision, int], peers: Path | None, names: tuple[str, ...], seconds: float
) -> Iterator[Program]:
    """List the programs for one problem, precision and number of threads."""
    problem, precision, threads = what
    window = ("--threads", str(threads), "--seconds", str(seconds))
    for variant in VARIANTS[problem] if "hyq" in names else ():
        only = ("-m", "benchmarks.deep", "--only", problem, variant, precision)
        command = (sys.executable, *only, *window)
        yield Program(f"hyq, {variant}", command, *what)
    for name in PEERS if peers else ():
        if name in names and (precision == "float32" or name not in JAX_PEERS):
            script = (str(peers), str(Path(__file__).parent / "peers" / f"{name}.py"))
            for options in PEERS[name][problem]:
                kind = ("--problem", problem, "--precision", precision, *options)
                yield Program(" ".join((name, *options)), (*script, *kind, *window), *what)


def _dueling(row: dict[str, Any]) -> bool:
    """Tell whether to compare a program with peers that have the paper's network."""
    paper = "dueling" in row["name"] or "full" in row["name"]
    return paper and row["problem"] == "montezuma"  # on CartPole the peers have one network


def main(
    peers: Path | None = None,
    rounds: int = 3,
    seconds: float = 15.0,
    threads: tuple[int, ...] = (1,),
    problems: tuple[Problem, ...] = ("cartpole", "montezuma"),
    precisions: tuple[Precision, ...] = ("float32", "bfloat16"),
    names: tuple[str, ...] = ("hyq", *PEERS),
    busy: bool = False,
    out: Path | None = None,
    only: tuple[Problem, Variant, Precision] | None = None,
) -> None:
    """Compare deep Hy-Q with its peers.

    Args:
        peers: Python of the environment the peers are installed in; without it only hyq is timed.
        rounds: Times that every program is run, in turn.
        seconds: Length of each timed window.
        threads: Threads a program may use; the fastest counts.
        problems: What to learn.
        precisions: Arithmetic of the layers; programs are compared at the same one.
        names: Programs to time.
        busy: Time hyq beside a process that keeps one core busy, too.
        out: File for the results, as JSON.
        only: Time one variant of hyq at one precision, and print one line of JSON.
    """
    if only is not None:
        print(json.dumps(measure(*only, threads[0], seconds)))
        return
    figures: dict[str, Any] = storage() if "hyq" in names else {}
    rates = {name: matmul_rate(getattr(torch, name)) for name in precisions}
    chosen: list[Program] = []
    for what in itertools.product(problems, precisions, threads):
        chosen += programs(what, peers, names, seconds)
    if busy:
        chosen += [replace(each, busy=True) for each in chosen if each.name.startswith("hyq")]
    rows = compare(chosen, rounds)
    for problem, kind in itertools.product(problems, precisions):
        alike = [row for row in rows if (row["problem"], row["precision"]) == (problem, kind)]
        show(alike, f"{problem}, {kind}", _dueling)
    figures |= {f"matmul_gigaflops_one_thread_{kind}": rates[kind] / 1e9 for kind in rates}
    for row in rows:
        if (row["problem"], row["name"], row["busy"]) == ("montezuma", "hyq, full", False):
            which = f"{row['precision']}_{row['threads']}_threads"
            limit_ms = 1000 * update_operations(32) / (rates[row["precision"]] * row["threads"])
            figures[f"share_of_arithmetic_limit_{which}"] = limit_ms / row["update_ms"]
            figures[f"sampling_share_of_update_{which}"] = figures["sample_ms"] / row["update_ms"]
    for name, value in figures.items():
        console.print(f"{name.replace('_', ' ')}: {value:.3g}")
    if out is not None:
        write_json(out, {**figures, "results": rows, **circumstances()})


if __name__ == "__main__":
    tyro.cli(main)
