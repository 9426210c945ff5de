"""How an update of the paper's network is shared between two cores, and what it consists of.

    python -m benchmarks.designs --out results/deep/designs.json

Times the update of full deep Hy-Q (double, dueling, priorities, batch 32, 84x84x4) on one drawn
minibatch, in programs of their own, interleaved in rounds: products by MKL and by oneDNN, one
thread and two, and two that wait for one another as busily as they do by themselves; on a quiet
machine, and beside a program that keeps one core busy. On one thread the parts of the update are
timed too, and a profile counts the time of PyTorch's operations.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import hyq  # noqa: F401  # isort: skip  (before PyTorch: it says how its threads wait)

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from rich.console import Console
from torch.profiler import ProfilerActivity, profile

from benchmarks.deep import environments, random_data, settings
from hyq import linear
from hyq.agents.hyq_dqn import HyQ, hyq_loss
from hyq.algorithms import configure
from hyq.build import build
from hyq.core.files import write_json
from hyq.core.seeding import Streams
from hyq.data.sampler import Batch
from hyq.runs.records import circumstances
from hyq.trainer import Trainer

console = Console()
Library = Literal["MKL", "oneDNN"]
BUSILY = "300000"
"""How often GNU's threads look before they sleep, where nobody says otherwise."""
DESIGNS: dict[str, tuple[Library, int, str | None]] = {
    "one thread, MKL": ("MKL", 1, None),
    "one thread, as shipped": ("oneDNN", 1, None),
    "two threads, MKL": ("MKL", 2, None),
    "two threads, as shipped": ("oneDNN", 2, None),
    "two threads, waiting busily": ("oneDNN", 2, BUSILY),
}
"""Products, threads and waiting of each design."""


def made(precision: str) -> tuple[HyQ, Batch]:
    """Return an agent and a minibatch."""
    trainer = build(
        configure(
            "hyq", "paper-montezuma", settings("montezuma", "full") | {"precision": precision}
        ),
        environments("montezuma", 1),
        random_data("montezuma", 800),
        Streams(0),
    )
    assert isinstance(trainer, Trainer)
    assert isinstance(trainer.agent, HyQ)
    rng = Streams(0).generator("draw")
    drawn = trainer.sampler.draw(32, 0, importance=0.6, gamma=0.99, rng=rng, offline_only=True)
    return trainer.agent, drawn.batch


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of a piece of work."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def parts(agent: HyQ, batch: Batch, repeats: int) -> dict[str, float]:
    """Time what an update consists of."""
    learned = list(agent.network.parameters())

    def forward() -> None:
        with torch.no_grad():
            agent.network(batch.observation)

    def loss() -> torch.Tensor:
        return hyq_loss(agent, batch)[0].mean()

    kept = loss()
    found = {
        "one forward pass, of which there are three": milliseconds(forward, repeats),
        "loss": milliseconds(loss, repeats),
        "backward pass": milliseconds(
            lambda: torch.autograd.grad(kept, learned, retain_graph=True), repeats
        ),
    }
    [adam] = agent.optimizers().values()
    for parameter in adam.param_groups[0]["params"]:
        parameter.grad = torch.zeros_like(parameter)
    return found | {"Adam": milliseconds(adam.step, repeats)}


def operations(agent: HyQ, batch: Batch, repeats: int, most: int = 8) -> dict[str, float]:
    """Return the milliseconds of an update that the costliest operations take."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(repeats):
            agent.update(batch, 0)
    spent = {each.key: each.self_cpu_time_total / 1000 / repeats for each in found.key_averages()}
    costliest = sorted(spent, key=lambda name: -spent[name])[:most]
    rest = sum(spent.values()) - sum(spent[name] for name in costliest)
    return {name: spent[name] for name in costliest} | {"all others": rest}


def timed(name: str, precision: str, repeats: int, busy: bool) -> float:
    """Time a design in a program of its own, beside a busy one if requested."""
    _, _, waiting = DESIGNS[name]
    command = [sys.executable, "-m", "benchmarks.designs", "--only", name]
    command += ["--precisions", precision, "--repeats", str(repeats)]
    environment = {**os.environ, **({"GOMP_SPINCOUNT": waiting} if waiting else {})}
    # In a session of its own, as programs of another user or terminal are.
    other = [sys.executable, "-c", "while True: pass"]
    beside = subprocess.Popen(other, start_new_session=True) if busy else None
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    finally:
        if beside is not None:
            beside.kill()
    return float(json.loads(done.stdout))


def main(
    rounds: int = 3,
    repeats: int = 20,
    precisions: tuple[str, ...] = ("float32", "bfloat16"),
    out: Path | None = None,
    only: str | None = None,
) -> None:
    """Time the designs.

    Args:
        rounds: Times that every design is timed, in turn.
        repeats: Updates in a round.
        precisions: Arithmetic of the layers.
        out: File for the results, as JSON.
        only: Time one design, and print the milliseconds of its update.
    """
    if only is not None:
        library, threads, _ = DESIGNS[only]
        linear._available = linear._available and library == "oneDNN"
        torch.set_num_threads(threads)
        agent, batch = made(precisions[0])
        update = partial(agent.update, batch, 0)
        milliseconds(update, 3)
        print(milliseconds(update, repeats))
        return
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for precision in precisions:
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(rounds):
            for name in DESIGNS:
                for where in ("quiet", "beside a busy program"):
                    took = timed(name, precision, repeats, where != "quiet")
                    found.setdefault(name, {}).setdefault(where, []).append(took)
        medians = {
            name: {where: statistics.median(times) for where, times in one.items()}
            for name, one in found.items()
        }
        agent, batch = made(precision)
        pieces, costs = parts(agent, batch, repeats), operations(agent, batch, repeats)
        results[precision] = {
            "update_ms": medians,
            "rounds": found,
            "parts_ms": pieces,
            "operations_ms": costs,
        }
        for name, one in medians.items():
            said = ", ".join(f"{where} {value:.1f} ms" for where, value in one.items())
            console.print(f"{precision}, {name}: {said}")
        for name, value in (pieces | costs).items():
            console.print(f"{precision}, one thread, {name}: {value:.1f} ms")
    if out is not None:
        write_json(out, {**results, **circumstances()})


if __name__ == "__main__":
    tyro.cli(main)
