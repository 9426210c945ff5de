"""CQL (Kumar et al. 2020) with an actor, and Cal-QL (Nakamoto et al. 2023), its form to go online.

To the critics' loss in `hyq_sac` comes, on offline rows, for each critic

    weight (log sum_a' exp(Q(s, a') - log mu(a')) - Q(s, a))

where a' are uniform actions and samples of the policy at s and at s', and mu is the density each
was drawn from. Cal-QL takes max(Q(s, a'), the data's return) for samples of the policy: values are
not pushed below what the data shows can be had, so that they need not be unlearned online.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hyq.agents.hyq_sac import HySAC, HySACConfig, critic_loss
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.settings import check_range
from hyq.core.trees import tree_map
from hyq.data.sampler import Batch


@dataclass(frozen=True)
class CQLSACConfig(HySACConfig):
    """The settings of CQL; two critics without normalisation, as published."""

    critics: int = 2
    """Q-functions in the ensemble."""
    layer_norm: bool = False
    """Layer normalisation in the critics."""
    cql_weight: PiecewiseLinear = schedule(5.0)
    """Weight of the penalty on offline rows."""
    sampled_actions: int = 4
    """Actions of each of the three kinds in the penalty; they use 10."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("cql_weight", self.cql_weight, 0)
        check_range("sampled_actions", self.sampled_actions, 1)


def cql_critic_loss(agent: HySAC, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the critics' loss with CQL's penalty, and the TD error, of each row."""
    return _penalised(agent, batch, calibrated=False)


def calql_critic_loss(agent: HySAC, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the critics' loss with Cal-QL's penalty, and the TD error, of each row."""
    return _penalised(agent, batch, calibrated=True)


def _penalised(agent: HySAC, batch: Batch, *, calibrated: bool) -> tuple[Tensor, Tensor]:
    loss, td_error = critic_loss(agent, batch)
    config = agent.config
    assert isinstance(config, CQLSACConfig)
    rows = batch.offline.nonzero()[:, 0]
    weight = config.cql_weight(agent.step)
    if not (weight and len(rows)):
        return loss, td_error
    penalty = _penalty(agent, batch, rows, config.sampled_actions, calibrated=calibrated)
    return loss.index_add(0, rows, weight * penalty), td_error


def _penalty(agent: HySAC, batch: Batch, rows: Tensor, count: int, *, calibrated: bool) -> Tensor:
    """Return the penalty of each of some rows, averaged over the critics."""
    observation = tree_map(lambda leaf: leaf[rows], batch.observation)
    later = tree_map(lambda leaf: leaf[rows], batch.next_observation)
    with torch.no_grad():
        policies = agent.policy(observation), agent.policy(later)
        uniform = [2 * torch.rand_like(policies[0].mode) - 1 for _ in range(count)]
        density = uniform[0].new_full((len(rows),), -math.log(2) * agent.actions)
        drawn = [(action, density) for action in uniform]
        drawn += [policy.sample() for policy in policies for _ in range(count)]
    action, log_mu = (torch.stack(part, 1) for part in zip(*drawn, strict=True))
    repeated = tree_map(lambda leaf: leaf.repeat_interleave(3 * count, 0), observation)
    q = agent.critic(repeated, action.flatten(0, 1)).unflatten(1, (-1, 3 * count))
    if calibrated:
        assert batch.return_to_go is not None, "the buffer computes returns"
        floor = batch.return_to_go[rows, None].expand(-1, 2 * count)
        q = torch.cat((q[..., :count], q[..., count:].maximum(floor)), -1)
    taken = agent.critic(observation, batch.action[rows])
    return ((q - log_mu).logsumexp(-1) - math.log(3 * count) - taken).mean(0)
