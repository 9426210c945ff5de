"""DDPG from demonstrations (Vecerik et al. 2017), beside which the paper sets its own idea.

    critic    (Q(s, a) - 1-step target)^2 + lambda_1 (Q(s, a) - n-step target)^2
    policy    -Q(s, pi(s)), deterministic; it acts with normal noise

Demonstrations stay in the replay for ever and have a bonus in their priority, which decides how
many rows of a minibatch are theirs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from hyq.agents.hyq_sac import ActorCriticConfig, HySAC
from hyq.core.settings import check_range
from hyq.data.sampler import Batch


@dataclass(frozen=True)
class DDPGfDConfig(ActorCriticConfig):
    """The settings of DDPG from demonstrations; one critic, as published."""

    critics: int = 1
    """Q-functions in the ensemble."""
    target_critics: int = 1
    """How many of them the target is the minimum of."""
    layer_norm: bool = False
    """Layer normalisation in the critics."""
    n_step_weight: float = 1.0
    """lambda_1: weight of the n-step loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("n_step_weight", self.n_step_weight, 0)


def ddpgfd_critic_loss(agent: HySAC, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return both losses of each row, added up, and the single-step TD error."""
    config, single = agent.config, batch.one_step
    assert isinstance(config, DDPGfDConfig)
    assert single is not None, "the sampler adds single-step rows"
    found = []
    for rows in (single, batch):
        with torch.no_grad():
            action = agent.policy(rows.next_observation).mode
            v_t = agent.target_value(rows.next_observation, action)
        found.append(agent.regression(rows, v_t))
    (loss, td_error), (n_step, _) = found
    return loss + config.n_step_weight * n_step, td_error


def ddpgfd_actor_loss(agent: HySAC, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return minus the value of the policy's action in each row, twice."""
    loss = -agent.critic(batch.observation, agent.policy(batch.observation).mode).mean(0)
    return loss, loss.detach()
