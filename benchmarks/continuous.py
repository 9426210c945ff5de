"""How fast Hy-SAC is beside its peers' soft actor-critic in float32, with 2 and with 10 critics.

    make bench-continuous
    (or: python -m benchmarks.continuous --peers .venv-bench/bin/python --threads 1 2)

Steps and updates a second of hyq, Stable-Baselines3, SBX (JAX), d3rlpy and TorchRL, interleaved in
rounds on one machine and given as medians and ratios: one environment that costs next to nothing
(17 observations, 6 actions), two hidden layers of 256 units everywhere, batches of 256, and one
update of critics, policy and temperature for every step. `plain` computes what the peers compute;
`default` has hyq's own settings: layer normalisation, and a target of two random critics.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import hyq  # noqa: F401  # isort: skip  (before PyTorch: it says how its threads wait)

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro

from benchmarks.comparison import Program, compare, console, show
from benchmarks.peers.synthetic import Synthetic
from hyq.algorithms import configure
from hyq.build import build
from hyq.core.files import write_json
from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset, Episode
from hyq.envs.make import make_vector_env
from hyq.runs.records import circumstances

Variant = Literal["plain", "default"]
PEERS: dict[str, list[list[str]]] = {
    "sb3_sac": [[]],
    "torchrl_sac": [[], ["--compile"]],
    "d3rlpy_sac": [[]],
    "sbx_sac": [[]],
}
"""The options of each peer, each of them timed; the fastest counts."""


def random_data(transitions: int = 10_000) -> Dataset:
    """Record random play, for the offline half."""
    env, rng, episodes = Synthetic(), np.random.default_rng(0), []
    for number in range(transitions // 1000):
        seen, actions, rewards = [env.reset(seed=number)[0]], [], []
        for _ in range(1000):
            actions.append(rng.uniform(-1, 1, 6).astype(np.float32))
            after, reward, *_ = env.step(actions[-1])
            seen.append(after)
            rewards.append(reward)
        columns = np.array(seen), np.array(actions), np.array(rewards, np.float32)
        episodes.append(Episode(*columns, terminated=False))
    return Dataset.of(episodes, {"behaviour": "random"})


def measure(
    critics: int, variant: Variant, threads: int, seconds: float, warmup: float
) -> dict[str, Any]:
    """Time one window of hyq's training, after warming up."""
    torch.set_num_threads(threads)
    settings: dict[str, Any] = {
        "online_steps": 10**9,
        "pretraining": 0,
        "learning_starts": 1000,
        "buffer_size": 100_000,
        "report_every": 50,
        "critics": critics,
        "threads": threads,
    }
    if variant == "plain":
        settings |= {"layer_norm": False, "target_critics": critics, "entropy_in_backup": True}
    training = build(
        configure("hyq", "default", settings, "continuous"),
        make_vector_env(Synthetic, 1),
        random_data(),
        Streams(0),
    )
    reports = training.run()
    while training.updates < 20:
        next(reports)
    warm = time.perf_counter() + warmup
    while time.perf_counter() < warm:
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


def programs(
    what: tuple[int, int],
    peers: Path | None,
    names: tuple[str, ...],
    window: tuple[str, ...],
) -> Iterator[Program]:
    """List the programs for one number of critics and of threads."""
    critics, threads = what
    about = f"{critics} critics", "float32", threads
    for variant in ("plain", "default") if "hyq" in names else ():
        only = ("-m", "benchmarks.continuous", "--only", str(critics), variant)
        command = (sys.executable, *only, *window)
        yield Program(f"hyq, {variant}", (*command, "--threads", str(threads)), *about)
    for name in PEERS if peers else ():
        script = (str(peers), str(Path(__file__).parent / "peers" / f"{name}.py"))
        for options in PEERS[name] if name in names else ():
            command = (*script, "--critics", str(critics), *options, *window)
            label = " ".join((name, *options))
            yield Program(label, (*command, "--threads", str(threads)), *about)


def main(
    peers: Path | None = None,
    rounds: int = 3,
    seconds: float = 10.0,
    warmup: float = 10.0,
    threads: tuple[int, ...] = (1,),
    critics: tuple[int, ...] = (2, 10),
    names: tuple[str, ...] = ("hyq", *PEERS),
    out: Path | None = None,
    only: tuple[int, Variant] | None = None,
) -> None:
    """Compare Hy-SAC with its peers.

    Args:
        peers: Python of the environment the peers are installed in; without it only hyq is timed.
        rounds: Times that every program is run, in turn.
        seconds: Length of each timed window.
        warmup: Seconds of learning before each of them, enough to compile what is compiled.
        threads: Threads a program may use; the fastest counts.
        critics: Sizes of the ensemble.
        names: Programs to time.
        out: File for the results, as JSON.
        only: Time hyq with so many critics in one variant, and print one line of JSON.
    """
    if only is not None:
        print(json.dumps(measure(*only, threads[0], seconds, warmup)))
        return
    window = ("--seconds", str(seconds), "--warmup", str(warmup))
    chosen: list[Program] = []
    for what in itertools.product(critics, threads):
        chosen += programs(what, peers, names, window)
    rows = compare(chosen, rounds)
    for size in critics:
        alike = [row for row in rows if row["problem"] == f"{size} critics"]
        show(alike, f"{size} critics, float32", lambda _: None)
    if out is not None:
        write_json(out, {"rounds": rounds, "seconds": seconds, "results": rows, **circumstances()})
    console.print("Ratios are to the fastest peer, on however many threads it was fastest.")


if __name__ == "__main__":
    tyro.cli(main)
