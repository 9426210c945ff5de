"""Deep Q-learning from demonstrations (Hester et al. 2018), in its finite-horizon form.

    L(theta) = beta     E_offline [ TD^2 + lambda (max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E)) ]
             + (1-beta) E_online  [ TD^2 ]  +  l2 ||theta||^2
    TD       = Q_h(s, a) - r - Q_target_{h+1}(s', argmax_a' Q_{h+1}(s', a'))        double DQN

First it learns from the offline data alone, then it alternates between collecting with its greedy
policy and learning from both sources. The margin l(a_E, a) holds every other action below the
logged one: it takes the offline data for demonstrations, which is its strength where they are and
misleads it where they are not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.settings import check_positive, check_range
from hyq.data.dataset import Dataset
from hyq.fqi.base import State, Step
from hyq.fqi.networks import Minibatch, NetworkConfig, StepNetworks, at_next_step, learn
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

    def rows(self, members: int) -> int:
        """Return the rows that each network gets: one of either source at least."""
        return max(2, super().rows(members))


@dataclass(frozen=True)
class DQfD:
    """DQfD. Its metrics, averaged over the iteration's minibatches, are:

    * `offline_residual`, `online_residual`: root mean squared temporal-difference error by source;
    * `margin_loss`: of the offline rows; zero when Q tells every logged action from all others.
    """

    config: DQfDConfig = DQfDConfig()

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: State | None = None
    ) -> Iterator[Step]:
        """Learn offline for a while; then alternate between collecting and learning from both."""
        config = self.config
        return learn(
            config,
            env,
            offline,
            streams.below("dqfd"),
            state,
            partial(dqfd_loss, config),
            tau=config.tau,
            collection=config.collection,
            pretraining=config.pretraining,
            offline_share=config.offline_share,
        )


def dqfd_loss(
    config: DQfDConfig, networks: StepNetworks, batch: Minibatch
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the loss, summed over networks, and its terms: TD by source, margin."""
    with torch.no_grad():
        a_t = at_next_step(networks.online, batch.next_observation).argmax(-1)
        v_t = chosen(at_next_step(networks.target, batch.next_observation), a_t)
        target_tm1 = (batch.reward + batch.discount * v_t).clamp(*config.value_range)
    q_tm1, a_tm1, logged = networks.online(batch.observation), batch.action, batch.logged
    squared = squared_loss(chosen(q_tm1, a_tm1) - target_tm1)
    margin = large_margin_loss(q_tm1[:, :logged], a_tm1[:, :logged], config.margin)
    norm = sum(parameter.square().sum() for parameter in networks.online.parameters())
    loss = (squared @ batch.weight).sum() + config.l2 * norm
    loss = loss + config.margin_weight * (margin @ batch.weight[:logged]).sum()
    return loss, {
        "offline_residual": squared[:, :logged],
        "online_residual": squared[:, logged:],
        "margin_loss": margin,
    }
