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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.settings import check_positive, check_range
from hyq.core.types import Array, FloatArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.minibatch import StepSampler
from hyq.data.mix import mixing_weights
from hyq.data.online import Batch, OnlineStore
from hyq.fqi.base import Step
from hyq.fqi.hyq_fqi import HyQConfig, collect
from hyq.fqi.networks import (
    NetworkConfig,
    NetworkState,
    StepNetworks,
    Update,
    as_tensor,
    at_next_step,
    iterate,
    make_networks,
)
from hyq.fqi.rollout import VectorEnv
from hyq.losses import chosen, large_margin_loss, squared_loss


@dataclass(frozen=True)
class DQfDConfig(NetworkConfig):
    """The settings of DQfD; m_on is the `num_envs` of the environment it is given."""

    iterations: int = 70
    batch_size: int = 3200
    hidden: tuple[int, ...] = (32,)
    pretraining: int = 20
    """Iterations, of all, that learn offline before the first interaction."""
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
    tau: float = 0.1
    """How far the target network moves towards the network at every gradient step."""
    value_range: tuple[float, float] = (0.0, 1.0)
    """Targets are kept inside this range: [0, V_max] in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size < 2:
            raise HyqError(f"batch_size must leave room for both sources, got {self.batch_size}")
        for name in ("pretraining", "margin", "margin_weight", "l2"):
            check_range(name, getattr(self, name), 0)
        check_positive(self, "tau")
        check_range("tau", self.tau, 0, 1)
        check_range("offline_share", self.offline_share, 0, 1)


@dataclass(frozen=True)
class DQfD:
    """DQfD. Its metrics, averaged over the iteration's minibatches, are:

    * `offline_residual`, `online_residual`: root mean squared temporal-difference error by source;
    * `margin_loss`: of the offline rows; zero when Q tells every logged action from all others.
    """

    config: DQfDConfig = DQfDConfig()
    restore = staticmethod(NetworkState.restore)

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: NetworkState | None = None
    ) -> Iterator[Step[NetworkState]]:
        """Learn offline for a while; then alternate between collecting and learning from both."""
        config, data, streams = self.config, offline.by_step(), streams.below("dqfd")
        horizon, networks = data.horizon, make_networks(config, env, data, streams)
        members = networks.online.members
        logged = Source.of(data.transitions, data.step, members)

        def collected(t: int) -> tuple[Batch, int] | None:
            if t < config.pretraining:
                return None
            how = HyQConfig(collection=config.collection)
            seeds = Streams(streams.integer("collect", t))
            return collect(env, networks.functions(horizon), how, seeds)

        def prepare(online: OnlineStore) -> Update:
            sources = [logged, *_online_source(online, horizon, members)]

            def update(rng: np.random.Generator, number: int) -> list[float]:
                minibatch = draw_mixed(sources, config, rng)
                loss, parts = dqfd_loss(networks, minibatch, horizon, config)
                networks.descend(loss, config.tau)
                return parts

            return update

        return iterate(config, networks, horizon, streams, state, prepare, _metrics, collected)


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
    rows = Transitions.concatenate(parts, axis=1)
    steps = [source.step[draw] for source, draw in zip(sources, draws, strict=True)]
    return Mixed(rows, np.concatenate(steps, axis=1), mixing_weights(*counts, share), logged)


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


def _metrics(means: list[float]) -> dict[str, float]:
    """Name the parts of the loss; a source that was not drawn from has no residual."""
    offline, online, margin = means
    metrics = {
        "offline_residual": math.sqrt(offline),
        "online_residual": math.sqrt(online),
        "margin_loss": margin,
    }
    return {name: value for name, value in metrics.items() if not math.isnan(value)}
