"""Networks trained by gradient steps: one for every step of an episode, or one for all steps.

BC, CQL and DQfD are the loss that they descend, and what they collect; everything else is here.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hyq.core.errors import HyqError
from hyq.core.optimizers import load_moments
from hyq.core.seeding import Streams, torch_seed
from hyq.core.settings import check_choices, check_positive
from hyq.core.trees import flatten, subtree
from hyq.core.types import Array, FloatArray, IntArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.mix import mixing_weights
from hyq.data.online import OnlineStore
from hyq.ensembles import Activation, Ensemble
from hyq.fqi.base import State, Step
from hyq.fqi.classes import GreedyPolicy, num_actions
from hyq.fqi.hyq_fqi import Collection, collect
from hyq.fqi.mlp import MLPFunction, member_functions
from hyq.fqi.rollout import VectorEnv


@dataclass(frozen=True)
class NetworkConfig:
    """The settings of every method that descends a loss of networks."""

    iterations: int = 10
    """Iterations; each ends with a policy to evaluate."""
    updates: int = 100
    """Gradient steps in an iteration."""
    batch_size: int = 64
    """Rows in a gradient step; networks of their own divide them evenly."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    hidden: tuple[int, ...] = ()
    """Hidden units of each network; none makes it linear."""
    activation: Activation = "relu"
    """Of hidden units; three of them with "softmax" are the class of the paper's Hy-Q."""
    networks: Literal["shared", "per-step"] = "per-step"
    """One network for all steps, which must read the step off the observation, or one for each."""

    def __post_init__(self) -> None:
        check_positive(self, "iterations", "updates", "batch_size", "learning_rate")
        check_choices(self)

    def rows(self, members: int) -> int:
        """Return the rows that each of so many networks gets in a gradient step."""
        return -(-self.batch_size // members)


class StepNetworks(nn.Module):
    """An ensemble with one member for each step (or for all), its target network and Adam."""

    def __init__(
        self,
        members: int,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        learning_rate: float,
        seed: int,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        with torch_seed(seed):
            self.online = Ensemble(members, inputs, hidden, outputs, activation=activation)
        self.target = deepcopy(self.online).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), learning_rate, fused=True)

    def descend(self, loss: Tensor, tau: float = 0.0) -> None:
        """Take one step down the gradient; then move the target network by the share `tau`."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if not tau:
            return
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.online.parameters(), strict=True):
                old.lerp_(new, tau)

    def functions(self, horizon: int) -> tuple[MLPFunction, ...]:
        """Return f_0, ..., f_{H-1} as they are now; a single member serves every step."""
        return member_functions(self.online) * (horizon // self.online.members)

    def arrays(self, **counts: int) -> dict[str, Array]:
        """Copy networks and optimiser, with the counts of a run, as named arrays."""
        moments = flatten(self.optimizer.state_dict()["state"], "optimizer.")
        arrays = {name: t.numpy().copy() for name, t in (self.state_dict() | moments).items()}
        return arrays | {name: np.array(count) for name, count in counts.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Load what `arrays` copied."""
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        self.load_state_dict({name: tensors[name] for name in self.state_dict()})
        load_moments(self.optimizer, subtree("optimizer", tensors))


def at_next_step(network: Ensemble, next_observation: Tensor) -> Tensor:
    """Evaluate what step h led to by member h + 1; a single member evaluates its own.

    What comes after the last step wraps around to the first member: its discount is zero.
    """
    return network(next_observation.roll(1, 0)).roll(-1, 0)


@dataclass(frozen=True, eq=False)
class Minibatch:
    """Rows as tensors of shape (networks, n, ...), offline ones first."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    """Zero where the episode terminated, and at the last step: beyond it Q is zero."""
    next_observation: Tensor
    weight: Tensor
    """Of each of n columns; sums to one, offline columns holding their share exactly."""
    logged: int
    """Columns that are offline."""

    @classmethod
    def of(cls, rows: Transitions, weight: FloatArray, logged: int) -> "Minibatch":
        """Convert rows: floats to single precision, observations to vectors."""
        columns = [torch.as_tensor(column) for column in (*vars(rows).values(), weight)]
        seen, action, reward, discount, after, share = columns
        before = seen.float().flatten(2), action.long(), reward.float(), discount.float()
        return cls(*before, after.float().flatten(2), share.float(), logged)


@dataclass(frozen=True, eq=False)
class Source:
    """Rows that lie end to end, step after step, to draw from."""

    rows: Transitions
    count: IntArray
    """Rows of each network: those of its own step, or all."""

    @classmethod
    def of(cls, rows: Transitions, step: IntArray, horizon: int, members: int) -> "Source":
        """Draw evenly for every network; raise for a step that no minibatch could show."""
        count = np.bincount(step, minlength=horizon) if members > 1 else np.array([len(rows)])
        if not count.all():
            missing = int(np.argmin(count))
            raise HyqError(
                f"step {missing} has no transitions to draw from: learn one network for all steps"
            )
        return cls(replace(rows, discount=rows.discount * (step < horizon - 1)), count)

    def draw(self, rows: int, rng: np.random.Generator) -> Transitions:
        """Draw rows for every network, with replacement."""
        share = rng.random((len(self.count), rows))
        within = (share * self.count[:, None]).astype(np.int64)
        return self.rows[(np.cumsum(self.count) - self.count)[:, None] + within]


def draw_mixed(
    sources: Sequence[Source], each: int, offline_share: float, rng: np.random.Generator
) -> Minibatch:
    """Draw `each` rows a network from the offline source and, if there is one, the online one."""
    share = offline_share if len(sources) == 2 else 1.0
    logged = round(share * each)
    if 0 < share < 1:
        logged = min(max(logged, 1), each - 1)
    counts = (logged, each - logged)
    parts = [source.draw(n, rng) for source, n in zip(sources, counts, strict=False)]
    rows = Transitions.concatenate(parts, axis=1)
    return Minibatch.of(rows, mixing_weights(*counts, share), logged)


Loss = Callable[[StepNetworks, Minibatch], tuple[Tensor, Mapping[str, Tensor]]]
"""What to descend, summed over networks, and terms to report: the mean of each over an iteration,
of a `..._residual` the root of it. An empty term is not reported."""


def learn(
    config: NetworkConfig,
    env: VectorEnv,
    offline: Dataset,
    streams: Streams,
    state: State | None,
    loss: Loss,
    *,
    tau: float = 0.0,
    falling: bool = False,
    collection: Collection = "none",
    pretraining: int = 0,
    offline_share: float = 1.0,
) -> Iterator[Step]:
    """Alternate between collecting, after `pretraining` iterations, and gradient steps.

    The target network moves by `tau` at each; a `falling` learning rate ends the run at zero.
    """
    data = offline.by_step()
    networks = StepNetworks(
        data.horizon if config.networks == "per-step" else 1,
        math.prod(data.transitions.observation.shape[1:]),
        config.hidden,
        num_actions(env.single_action_space),
        learning_rate=config.learning_rate,
        seed=streams.integer("initial"),
        activation=config.activation,
    )
    members = networks.online.members
    logged = Source.of(data.transitions, data.step, data.horizon, members)
    begin, samples, online = 0, 0, OnlineStore()
    if state is not None:
        networks.restore(state.arrays)
        online, (begin, samples) = state.online, state.counts
    for t in range(begin, config.iterations):
        started = time.perf_counter()
        if collection != "none" and t >= pretraining:
            seeds = Streams(streams.integer("collect", t))
            batch, used = collect(env, networks.functions(data.horizon), collection, seeds)
            online, samples = online + batch, samples + used
        collected = time.perf_counter()
        rng, terms = streams.generator("minibatches", t), []
        sources = [logged, *_online_source(online, data.horizon, members)]
        for number in range(t * config.updates, (t + 1) * config.updates):
            if falling:
                left = 1.0 - number / (config.iterations * config.updates)
                networks.optimizer.param_groups[0]["lr"] = config.learning_rate * left
            mixed = draw_mixed(sources, config.rows(members), offline_share, rng)
            total, reported = loss(networks, mixed)
            networks.descend(total, tau)
            terms.append({n: term.mean().item() for n, term in reported.items() if term.numel()})
        means = {name: float(np.mean([one[name] for one in terms])) for name in terms[0]}
        yield Step(
            State(networks.arrays(iteration=t + 1, online_steps=samples), online),
            policy=GreedyPolicy(networks.functions(data.horizon)),
            metrics={
                name: math.sqrt(mean) if name.endswith("residual") else mean
                for name, mean in means.items()
            },
            seconds={"collect": collected - started, "fit": time.perf_counter() - collected},
        )


def _online_source(online: OnlineStore, horizon: int, members: int) -> list[Source]:
    """Lay the online data out step by step; nothing before the first collection."""
    if not online.batches:
        return []
    by_step = [online.at(h) for h in range(horizon)]
    counts = [sum(map(len, parts)) for parts in by_step]
    rows = Transitions.concatenate([part for parts in by_step for part in parts])
    return [Source.of(rows, np.repeat(np.arange(horizon), counts), horizon, members)]
