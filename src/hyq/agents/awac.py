"""AWAC (Nair et al. 2020): the policy imitates actions, more so those that did better than its own.

Critics are those of `hyq_sac` without entropy. The policy minimises, over rows of both sources,

    -min(exp((Q(s, a) - Q(s, a_pi)) / lambda), 100) log pi(a | s),    a_pi ~ pi(. | s)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from hyq import losses
from hyq.agents.hyq_sac import ActorCriticConfig, HySAC
from hyq.agents.iql import LARGEST_WEIGHT
from hyq.core.settings import check_positive
from hyq.data.sampler import Batch


@dataclass(frozen=True)
class AWACConfig(ActorCriticConfig):
    """The settings of AWAC; two critics without normalisation, as published."""

    critics: int = 2
    """Q-functions in the ensemble."""
    layer_norm: bool = False
    """Layer normalisation in the critics."""
    advantage_scale: float = 1.0
    """lambda: an advantage of this size makes an action e times as likely to be imitated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "advantage_scale")


def awac_critic_loss(agent: HySAC, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the mean loss of the critics, and their mean absolute TD error, of each row."""
    with torch.no_grad():
        a_t, _ = agent.policy(batch.next_observation).sample()
        v_t = agent.target_value(batch.next_observation, a_t)
    return agent.regression(batch, v_t)


def awac_actor_loss(agent: HySAC, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the weighted negative log-likelihood of each row's action, and its advantage."""
    config, policy = agent.config, agent.policy(batch.observation)
    assert isinstance(config, AWACConfig)
    with torch.no_grad():
        own, _ = policy.sample()
        taken = agent.critic(batch.observation, batch.action).amin(0)
        advantage = taken - agent.critic(batch.observation, own).amin(0)
    weight = losses.advantage_weights(advantage, 1 / config.advantage_scale, LARGEST_WEIGHT)
    return -weight * policy.log_prob(batch.action), advantage
