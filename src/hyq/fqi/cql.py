"""Conservative Q-learning, the DQN variant (Kumar et al. 2020), on offline data alone.

    L(theta) = alpha E_D [ log sum_a exp Q(s, a) - Q(s, a_data) ]               CQL penalty
             + E_D [ (Q(s, a_data) - r - gamma max_a' Q_target(s', a'))^2 ]     Bellman error
    target <- (1 - tau) target + tau theta                                      after each step

The first term pulls Q down wherever the data has no actions, so that the greedy policy stays near
the behaviour that made it. Where the logged actions are uniform it tells no action from another,
and what is left is fitted Q-iteration, which trusts values of states it has never seen.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hyq.core.seeding import Streams
from hyq.core.settings import check_positive, check_range
from hyq.core.types import Array, Transitions
from hyq.data.dataset import Dataset
from hyq.data.minibatch import StepSampler
from hyq.fqi.base import Step
from hyq.fqi.networks import (
    NetworkConfig,
    NetworkState,
    StepNetworks,
    as_tensor,
    at_next_step,
    iterate,
    make_networks,
)
from hyq.fqi.rollout import VectorEnv
from hyq.losses import chosen, conservative_penalty, squared_loss


@dataclass(frozen=True)
class CQLConfig(NetworkConfig):
    """The settings of CQL; the defaults are the paper's."""

    iterations: int = 40
    updates: int = 150
    batch_size: int = 512
    hidden: tuple[int, ...] = (256, 256)
    networks: Literal["shared", "per-step"] = "shared"
    discount: float = 0.99
    """gamma."""
    tau: float = 0.01
    """How far the target network moves towards the network at every gradient step."""
    alpha: float = 0.1
    """CQL weight; 0 is offline DQN."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "tau")
        check_range("tau", self.tau, 0, 1)
        check_range("discount", self.discount, 0, 1)
        check_range("alpha", self.alpha, 0)


@dataclass(frozen=True)
class CQL:
    """CQL-DQN. Its metrics, averaged over the iteration's minibatches, are:

    * `offline_residual`: root mean squared temporal-difference error;
    * `penalty`: the regulariser before alpha; log(actions) where Q tells no action from another;
    * `value`: max_a Q_target(s', a'), which diverges where the penalty is too weak.
    """

    config: CQLConfig = CQLConfig()
    restore = staticmethod(NetworkState.restore)

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: NetworkState | None = None
    ) -> Iterator[Step[NetworkState]]:
        """Descend the loss on minibatches of the data; `env` is never stepped."""
        config, data, streams = self.config, offline.by_step(), streams.below("cql")
        per_step = config.networks == "per-step"
        sampler = StepSampler.of(data) if per_step else StepSampler.counted([len(data)])
        networks = make_networks(config, env, data, streams)
        members = networks.online.members
        each = -(-config.batch_size // members)

        def update(rng: np.random.Generator, number: int) -> list[float]:
            draw = sampler.draw(each, rng)
            last = data.step[draw] == data.horizon - 1
            squared, penalty, value = cql_terms(networks, data.transitions[draw], last, config)
            loss = squared.mean() + config.alpha * penalty.mean()
            # Summed over networks, so that each learns as if it were alone.
            networks.descend(loss * members, config.tau)
            return [term.mean().item() for term in (squared, penalty, value)]

        def metrics(means: list[float]) -> dict[str, float]:
            square, penalty, value = means
            return {"offline_residual": math.sqrt(square), "penalty": penalty, "value": value}

        return iterate(
            config, networks, data.horizon, streams, state, lambda online: update, metrics
        )


def cql_terms(
    networks: StepNetworks, rows: Transitions, last: Array, config: CQLConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Return squared TD errors, penalties and bootstrap values of rows shaped (networks, n, ...).

    Rows marked `last` happened at step H - 1, beyond which Q is zero, terminated or not.
    """
    with torch.no_grad():
        v_t = at_next_step(networks.target, as_tensor(rows.next_observation).flatten(2)).amax(-1)
        discount_t = config.discount * as_tensor(rows.discount * ~last)
        target_tm1 = as_tensor(rows.reward) + discount_t * v_t
    q_tm1 = networks.online(as_tensor(rows.observation).flatten(2))
    a_tm1 = as_tensor(rows.action)
    squared = squared_loss(chosen(q_tm1, a_tm1) - target_tm1)
    return squared, conservative_penalty(q_tm1, a_tm1), v_t
