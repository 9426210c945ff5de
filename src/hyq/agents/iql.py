"""Implicit Q-learning (Kostrikov et al. 2022): values of the data's actions alone, no maximum.

With Q~ the smaller of two target networks, and no gradient through it or through V where they are
targets, for discrete and continuous actions alike:

    V       |expectile - 1(u < 0)| u^2 / 2 with u = Q~(s, a) - V(s)                 (equation 5)
    Q       the squared or Huber loss of r + gamma V(s') - Q(s, a)                  (equation 6)
    policy  -min(exp(temperature (Q~(s, a) - V(s))), 100) log pi(a | s)             (equation 7)
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hyq import losses
from hyq.actor_critic import log_likelihood
from hyq.agents.base import AdamConfig, Agent, Follower, GradientStep, Loss, Updated
from hyq.agents.building import Networks, greedy
from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.settings import check_range
from hyq.core.trees import Tree
from hyq.data.sampler import Batch

LARGEST_WEIGHT = 100.0
"""Of a row in the policy's loss."""


@dataclass(frozen=True)
class IQLConfig:
    """The settings of IQL."""

    gamma: PiecewiseLinear = schedule(0.99)
    """Discount factor, against updates."""
    target_rate: float = 0.005
    """Share of each update by which the target networks follow (Polyak averaging)."""
    loss: Literal["huber", "squared"] = "squared"
    """Of the TD error."""
    expectile: float = 0.7
    """Above 1/2, V leans towards the best action in the data; they use 0.7, or 0.9 in mazes."""
    temperature: float = 3.0
    """Inverse temperature of the policy: 0 is behaviour cloning. They use 3, or 10 in mazes."""

    def __post_init__(self) -> None:
        check_range("gamma", self.gamma, 0, 1)
        check_range("temperature", self.temperature, 0)
        check_range("target_rate", self.target_rate, 0, 1)
        if not 0 < self.expectile < 1:
            raise HyqError(f"expectile must lie strictly between 0 and 1, got {self.expectile}")


def iql_loss(agent: "IQL", batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the three losses of each row, added up, and the mean TD error of Q."""
    config = agent.config
    q_tm1 = agent.q(batch.observation, batch.action)
    v_tm1 = agent.v(batch.observation)[:, 0]
    with torch.no_grad():
        v_t = agent.v(batch.next_observation)[:, 0]
        target_q = agent.target(batch.observation, batch.action).amin(0)
    td_error = losses.ensemble_td_learning(q_tm1, batch.reward, batch.discount, v_t)
    advantage = target_q - v_tm1
    weight = losses.advantage_weights(advantage, config.temperature, LARGEST_WEIGHT)
    cloning = -log_likelihood(agent.actor(batch.observation), batch.action)
    value = losses.expectile_loss(advantage, config.expectile)
    fit = losses.ROBUST[config.loss](td_error).mean(0)
    return fit + value + weight * cloning, td_error.mean(0)


class IQL(Agent):
    """Two Q-functions with their targets, V, and a policy."""

    def __init__(
        self,
        config: IQLConfig,
        optimizer: AdamConfig,
        networks: Networks,
        *,
        steps_per_update: float = 1,
        loss: Loss = iql_loss,
    ) -> None:
        """Build the networks; see `HyQ` for the arguments."""
        super().__init__()
        self.config, self.loss = config, loss
        self.q, self.v, self.actor = networks.critics(2), networks.value(), networks.policy()
        self._greedy = networks.greedy
        self.target = copy.deepcopy(self.q).requires_grad_(False).eval()
        self._follow = Follower(self.target, self.q, config.target_rate)
        learned = nn.ModuleList([self.q, self.v, self.actor])
        self._gradient_step = GradientStep(learned.parameters(), optimizer)

    def act(self, observation: Tree, *, explore: bool = False) -> Tensor:
        """Return the policy's most likely action."""
        return greedy(self.actor(observation))

    def value(self, observation: Tree) -> Tensor:
        """Return V."""
        value: Tensor = self.v(observation)[:, 0]
        return value

    def update(self, batch: Batch, step: int) -> Updated:
        """Move V towards Q~, Q towards r + gamma V(s'), and the policy towards good actions."""
        for network in (self.q, self.v, self.actor):
            network.train()
        self.updates.add_(1)
        updated = self._gradient_step(self.loss, self, batch, step)
        self._follow()
        return updated

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Return Adam."""
        return {"adam": self._gradient_step.optimizer}

    def policy_network(self) -> nn.Module:
        """Return the policy without chance."""
        return self._greedy(self.actor)
