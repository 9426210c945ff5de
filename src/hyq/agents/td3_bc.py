"""TD3+BC (Fujimoto and Gu 2021): a deterministic policy held near the data's actions.

critics   (Q_i(s, a) - r - gamma min_j Q~_j(s', clip(pi(s') + clipped noise)))^2
policy    -alpha Q(s, pi(s)) / mean |Q| + |pi(s) - a|^2
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from hyq.agents.hyq_sac import ActorCriticConfig, HySAC
from hyq.core.settings import check_range
from hyq.data.sampler import Batch


@dataclass(frozen=True)
class TD3BCConfig(ActorCriticConfig):
    """The settings of TD3+BC; two critics without normalisation, as published."""

    critics: int = 2
    """Q-functions in the ensemble."""
    layer_norm: bool = False
    """Layer normalisation in the critics."""
    value_weight: float = 2.5
    """alpha: how much values count beside likeness to the data."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target's action, so that values are smooth."""
    target_noise_limit: float = 0.5
    """Largest such noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("value_weight", "target_noise", "target_noise_limit"):
            check_range(name, getattr(self, name), 0)


def td3_critic_loss(agent: HySAC, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the mean loss of the critics, and their mean absolute TD error, of each row."""
    config = agent.config
    assert isinstance(config, TD3BCConfig)
    limit = config.target_noise_limit
    with torch.no_grad():
        mode = agent.policy(batch.next_observation).mode
        noise = (config.target_noise * torch.randn_like(mode)).clamp(-limit, limit)
        a_t = (mode + noise).clamp(-1.0, 1.0)
        v_t = agent.target_value(batch.next_observation, a_t)
    return agent.regression(batch, v_t)


def td3_bc_actor_loss(agent: HySAC, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the policy's loss of each row, and its squared distance from the data's action."""
    config = agent.config
    assert isinstance(config, TD3BCConfig)
    action = agent.policy(batch.observation).mode
    q = agent.critic(batch.observation, action)[0]
    distance = (action - batch.action).square().mean(-1)
    scale = config.value_weight / q.detach().abs().mean().clamp(min=1e-6)
    return distance - scale * q, distance.detach()
