"""Deep Q-learning from demonstrations (Hester et al. 2018), in its finite-horizon form.

    L(theta) = beta     E_offline [ TD^2 + lambda (max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E)) ]
             + (1-beta) E_online  [ TD^2 ]  +  l2 ||theta||^2
    TD       = Q_h(s, a) - r - Q_target_{h+1}(s', argmax_a' Q_{h+1}(s', a'))        double DQN

First it learns from the offline data alone, then it alternates between collecting with its greedy
policy and learning from both sources. The margin l(a_E, a) holds every other action below the
logged one: it takes the offline data for demonstrations, which is its strength where they are and
misleads it where they are not.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hyq.core.choices import check_choices
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.minibatch import StepSampler
from hyq.data.mix import mixing_weights
from hyq.data.online import OnlineStore
from hyq.fqi.base import Snapshot, Step
from hyq.fqi.classes import GreedyPolicy, num_actions
from hyq.fqi.hyq_fqi import HyQConfig, collect
from hyq.fqi.networks import StepNetworks, as_tensor, at_next_step
from hyq.fqi.rollout import VectorEnv
from hyq.losses import chosen, large_margin_loss, squared_loss


@dataclass(frozen=True)
class DQfDConfig:
    """The settings of DQfD; m_on is the `num_envs` of the environment it is given."""

    iterations: int = 70
    """Iterations; each ends with a policy to evaluate."""
    pretraining: int = 20
    """Iterations, of the above, that learn offline before the first interaction."""
    updates: int = 100
    """Gradient steps in an iteration."""
    collection: Literal["q-type", "v-type"] = "v-type"
    """How to collect online tuples: as Hy-Q does."""
    offline_share: float = 0.5
    """beta, the weight of the offline data once there is online data."""
    margin: float = 0.8
    """l(a_E, a) for every action a but the logged one."""
    margin_weight: float = 1.0
    """lambda; 0 is Q-learning on both sources."""
    l2: float = 1e-5
    """Weight of the squared parameters."""
    networks: Literal["shared", "per-step"] = "per-step"
    """One network for all steps, which must read the step off the observation, or one for each."""
    hidden: tuple[int, ...] = (32,)
    """Hidden units of each network."""
    batch_size: int = 3200
    """Rows in a gradient step; networks of their own divide them evenly."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    tau: float = 0.1
    """How far the target network moves towards the network at every gradient step."""
    value_range: tuple[float, float] = (0.0, 1.0)
    """Targets are kept inside this range: [0, V_max] in the paper."""

    def __post_init__(self) -> None:
        """Validate the settings."""
        if min(self.iterations, self.updates) < 1 or not self.learning_rate > 0:
            raise HyqError("iterations, updates and learning_rate must be positive")
        if self.batch_size < 2:
            raise HyqError(f"batch_size must leave room for both sources, got {self.batch_size}")
        check_choices(self)
        if min(self.pretraining, self.margin, self.margin_weight, self.l2) < 0:
            raise HyqError("pretraining, margin, margin_weight and l2 must not be negative")
        if not 0 < self.tau <= 1:
            raise HyqError(f"tau must lie in (0, 1], got {self.tau}")
        mixing_weights(1, 1, self.offline_share)


@dataclass(frozen=True)
class DQfDState:
    """Everything the next iteration depends on."""

    arrays: Mapping[str, Array]
    """Both networks, the optimiser and the counters."""
    online: OnlineStore


@dataclass(frozen=True)
class DQfD:
    """DQfD. Its metrics, averaged over the iteration's minibatches, are:

    * `offline_residual`, `online_residual`: root mean squared temporal-difference error by source;
    * `margin_loss`: of the offline rows; zero when Q tells every logged action from all others.
    """

    config: DQfDConfig = DQfDConfig()

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: DQfDState | None = None
    ) -> Iterator[Step[DQfDState]]:
        """Learn offline for a while; then alternate between collecting and learning from both."""
        config, data = self.config, offline.by_step()
        horizon = data.horizon
        members = horizon if config.networks == "per-step" else 1
        networks = StepNetworks(
            members,
            math.prod(data.transitions.observation.shape[1:]),
            config.hidden,
            num_actions(env.single_action_space),
            learning_rate=config.learning_rate,
            seed=streams.integer("dqfd", "initial"),
        )
        begin, samples, online = 0, 0, OnlineStore()
        if state is not None:
            networks.restore(state.arrays)
            begin, samples = int(state.arrays["iteration"]), int(state.arrays["online_steps"])
            online = state.online
        logged = Source.of(data.transitions, data.step, members)
        for t in range(begin, config.iterations):
            started = time.perf_counter()
            if t >= config.pretraining:
                collecting = Streams(streams.integer("dqfd", "collect", t))
                how = HyQConfig(collection=config.collection)
                batch, used = collect(env, networks.functions(horizon), how, collecting)
                online += batch
                samples += used
            collected = time.perf_counter()
            sources = [logged, *_online_source(online, horizon, members)]
            rng, parts = streams.generator("dqfd", "minibatches", t), []
            for _ in range(config.updates):
                minibatch = draw_mixed(sources, config, rng)
                loss, row = dqfd_loss(networks, minibatch, horizon, config)
                networks.descend(loss, config.tau)
                parts.append(row)
            yield Step(
                state=DQfDState(networks.arrays(iteration=t + 1, online_steps=samples), online),
                iteration=t + 1,
                online_steps=samples,
                policy=GreedyPolicy(networks.functions(horizon)),
                metrics=_summarise(parts),
                seconds={
                    "collect": collected - started,
                    "fit": time.perf_counter() - collected,
                },
            )

    def snapshot(self, state: DQfDState) -> Snapshot:
        """Keep networks, optimiser and counters; append the newest batch."""
        if int(state.arrays["iteration"]) <= self.config.pretraining:
            return Snapshot(state.arrays, {"counts": np.zeros(0, np.int64)})
        return Snapshot(state.arrays, state.online.newest())

    def restore(
        self, replaced: Mapping[str, Array], appended: Sequence[Mapping[str, Array]]
    ) -> DQfDState:
        """Take the arrays back, and rebuild the online store."""
        collected = (part for part in appended if len(part["counts"]))
        return DQfDState(replaced, OnlineStore.rebuild(collected))


@dataclass(frozen=True, eq=False)
class Source:
    """Rows to draw from, sorted by step."""

    rows: Transitions
    step: Array
    sampler: StepSampler

    @classmethod
    def of(cls, rows: Transitions, step: Array, members: int) -> "Source":
        """Draw evenly for every network: from its own step, or from all rows."""
        counts = [len(rows)] if members == 1 else np.bincount(step, minlength=members).tolist()
        return cls(rows, step, StepSampler.counted(counts))


def _online_source(online: OnlineStore, horizon: int, members: int) -> list[Source]:
    """Lay the online data out step by step; nothing before the first collection."""
    if not online.batches:
        return []
    by_step = [online.at(h) for h in range(horizon)]
    counts = [sum(map(len, parts)) for parts in by_step]
    rows = Transitions.concatenate([part for parts in by_step for part in parts])
    return [Source.of(rows, np.repeat(np.arange(horizon), counts), members)]


@dataclass(frozen=True, eq=False)
class Mixed:
    """A minibatch of rows shaped (networks, n, ...), offline ones first."""

    rows: Transitions
    step: Array
    weight: FloatArray
    """Of each column; sums to one, offline columns holding their share exactly."""
    logged: int
    """Columns that are offline."""


def draw_mixed(sources: Sequence[Source], config: DQfDConfig, rng: np.random.Generator) -> Mixed:
    """Draw from the offline source and, if there is one, the online source."""
    each = max(2, -(-config.batch_size // len(sources[0].sampler.count)))
    share = config.offline_share if len(sources) == 2 else 1.0
    logged = round(share * each)
    if 0 < share < 1:
        logged = min(max(logged, 1), each - 1)
    counts = (logged, each - logged)
    draws = [source.sampler.draw(n, rng) for source, n in zip(sources, counts, strict=False)]
    parts = [source.rows[draw] for source, draw in zip(sources, draws, strict=True)]
    rows = Transitions(
        *(np.concatenate(columns, axis=1) for columns in zip(*map(_columns, parts), strict=True))
    )
    steps = [source.step[draw] for source, draw in zip(sources, draws, strict=True)]
    return Mixed(rows, np.concatenate(steps, axis=1), mixing_weights(*counts, share), logged)


def _columns(rows: Transitions) -> list[Array]:
    return list(vars(rows).values())


def dqfd_loss(
    networks: StepNetworks, batch: Mixed, horizon: int, config: DQfDConfig
) -> tuple[Tensor, list[float]]:
    """Return the loss, summed over networks, and its parts: TD by source, margin."""
    rows = batch.rows
    with torch.no_grad():
        next_observation = as_tensor(rows.next_observation).flatten(2)
        a_t = at_next_step(networks.online, next_observation).argmax(-1)
        v_t = chosen(at_next_step(networks.target, next_observation), a_t)
        discount_t = as_tensor(rows.discount * (batch.step < horizon - 1))
        target_tm1 = (as_tensor(rows.reward) + discount_t * v_t).clamp(*config.value_range)
    q_tm1 = networks.online(as_tensor(rows.observation).flatten(2))
    a_tm1 = as_tensor(rows.action)
    squared = squared_loss(chosen(q_tm1, a_tm1) - target_tm1)
    margin = large_margin_loss(q_tm1[:, : batch.logged], a_tm1[:, : batch.logged], config.margin)
    weight = as_tensor(batch.weight)
    norm = sum(parameter.square().sum() for parameter in networks.online.parameters())
    loss = (squared @ weight).sum() + config.l2 * norm
    loss = loss + config.margin_weight * (margin @ weight[: batch.logged]).sum()
    parts = (squared[:, : batch.logged], squared[:, batch.logged :], margin)
    return loss, [part.detach().mean().item() if part.numel() else math.nan for part in parts]


def _summarise(parts: list[list[float]]) -> dict[str, float]:
    """Average over minibatches; a source that was not drawn from has no residual."""
    offline, online, margin = np.mean(parts, axis=0).tolist()
    metrics = {
        "offline_residual": math.sqrt(offline),
        "online_residual": math.sqrt(online),
        "margin_loss": margin,
    }
    return {name: value for name, value in metrics.items() if not math.isnan(value)}
