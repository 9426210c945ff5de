"""Conservative Q-learning, the DQN variant (Kumar et al. 2020), on offline data alone.

    L(theta) = alpha E_D [ log sum_a exp Q(s, a) - Q(s, a_data) ]               CQL penalty
             + E_D [ (Q(s, a_data) - r - gamma max_a' Q_target(s', a'))^2 ]     Bellman error
    target <- (1 - tau) target + tau theta                                      after each step

The first term pulls Q down wherever the data has no actions, so that the greedy policy stays near
the behaviour that made it. Where the logged actions are uniform it tells no action from another,
and what is left is fitted Q-iteration, which trusts values of states it has never seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from hyq.core.seeding import Streams
from hyq.core.settings import check_positive, check_range
from hyq.data.dataset import Dataset
from hyq.fqi.base import State, Step
from hyq.fqi.networks import Minibatch, NetworkConfig, StepNetworks, at_next_step, learn
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

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: State | None = None
    ) -> Iterator[Step]:
        """Descend the loss on minibatches of the data; `env` is never stepped."""
        config, streams = self.config, streams.below("cql")
        loss = partial(cql_loss, config)
        return learn(config, env, offline, streams, state, loss, tau=config.tau)


def cql_loss(
    config: CQLConfig, networks: StepNetworks, batch: Minibatch
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the loss, summed over networks so that each learns as if it were alone; its terms."""
    with torch.no_grad():
        v_t = at_next_step(networks.target, batch.next_observation).amax(-1)
        target_tm1 = batch.reward + config.discount * batch.discount * v_t
    q_tm1 = networks.online(batch.observation)
    squared = squared_loss(chosen(q_tm1, batch.action) - target_tm1)
    penalty = conservative_penalty(q_tm1, batch.action)
    loss = (squared.mean() + config.alpha * penalty.mean()) * networks.online.members
    return loss, {"offline_residual": squared, "penalty": penalty, "value": v_t}
