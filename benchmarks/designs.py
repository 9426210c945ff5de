"""How an update of the paper's network is shared between two cores: three designs, and its parts.

    python -m benchmarks.designs --out results/deep/designs.json

Times the update of full deep Hy-Q (double, dueling, priorities, batch 32, 84x84x4) on one drawn
minibatch, interleaved in rounds: on one thread; on PyTorch's own two threads, which share single
operations; on two shards of the minibatch, a thread each, as `threads=2` has it. On one thread the
parts of the update are timed too, and a profile counts the time of PyTorch's operations: they say
what any design has to share.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from torch.profiler import ProfilerActivity, profile

from benchmarks.deep import environments, random_data, settings
from hyq.agents.base import GradientStep
from hyq.agents.hyq_dqn import HyQ, hyq_loss
from hyq.algorithms import configure
from hyq.build import build
from hyq.core.files import write_json
from hyq.core.seeding import Streams
from hyq.data.sampler import Batch
from hyq.runs.records import circumstances
from hyq.trainer import Trainer

console = Console()
DESIGNS = {"one thread": (1, 1), "PyTorch's two threads": (1, 2), "two shards": (2, 1)}
"""(threads of the agent, threads of PyTorch's operations) of each design."""


def agents(precision: str) -> tuple[dict[str, HyQ], Batch]:
    """Return an agent for each design, and a minibatch."""
    found: dict[str, HyQ] = {}
    for name, (threads, _) in DESIGNS.items():
        given = settings("montezuma", "full") | {"precision": precision, "threads": threads}
        trainer = build(
            configure("hyq", "paper-montezuma", given),
            environments("montezuma", 1),
            random_data("montezuma", 800),
            Streams(0),
        )
        assert isinstance(trainer, Trainer)
        assert isinstance(trainer.agent, HyQ)
        found[name] = trainer.agent
        sampler = trainer.sampler
    rng = Streams(0).generator("draw")
    drawn = sampler.draw(32, 0, importance=0.6, gamma=0.99, rng=rng, offline_only=True)
    return found, drawn.batch


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of a piece of work."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def parts(agent: HyQ, batch: Batch, repeats: int) -> dict[str, float]:
    """Time what an update consists of, on one thread."""
    torch.set_num_threads(1)
    learned = list(agent.network.parameters())
    step: GradientStep = agent._gradient_step

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
    [adam] = step.optimizers.values()
    for parameter in adam.param_groups[0]["params"]:
        parameter.grad = torch.zeros_like(parameter)
    return found | {"Adam": milliseconds(adam.step, repeats)}


def operations(agent: HyQ, batch: Batch, repeats: int, most: int = 8) -> dict[str, float]:
    """Return the milliseconds of an update on one thread that the costliest operations take."""
    torch.set_num_threads(1)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(repeats):
            agent.update(batch, 0)
    spent = {each.key: each.self_cpu_time_total / 1000 / repeats for each in found.key_averages()}
    costliest = sorted(spent, key=lambda name: -spent[name])[:most]
    rest = sum(spent.values()) - sum(spent[name] for name in costliest)
    return {name: spent[name] for name in costliest} | {"all others": rest}


def main(
    rounds: int = 5,
    repeats: int = 20,
    precisions: tuple[str, ...] = ("float32", "bfloat16"),
    out: Path | None = None,
) -> None:
    """Time the designs.

    Args:
        rounds: Times that every design is timed, in turn.
        repeats: Updates in a round.
        precisions: Arithmetic of the layers.
        out: File for the results, as JSON.
    """
    results: dict[str, Any] = {}
    for precision in precisions:
        made, batch = agents(precision)
        times: dict[str, list[float]] = {name: [] for name in DESIGNS}
        for _ in range(rounds):
            for name, (_, count) in DESIGNS.items():
                torch.set_num_threads(count)
                times[name].append(milliseconds(partial(made[name].update, batch, 0), repeats))
        medians = {name: statistics.median(found) for name, found in times.items()}
        pieces = parts(made["one thread"], batch, repeats)
        costs = operations(made["one thread"], batch, repeats)
        results[precision] = {
            "update_ms": medians,
            "rounds": times,
            "parts_ms": pieces,
            "operations_ms": costs,
        }
        for name, value in (medians | pieces | costs).items():
            console.print(f"{precision}, {name}: {value:.1f} ms")
    if out is not None:
        write_json(out, {**results, **circumstances()})


if __name__ == "__main__":
    tyro.cli(main)
