"""Implicit Q-learning (Kostrikov et al. 2022) for discrete actions: no maximum over actions.

With Q~ of the target network, and no gradient through it or through V where they are targets:

    V       |expectile - 1(u < 0)| u^2 / 2 with u = Q~(s, a) - V(s)                 (equation 5)
    Q       the squared or Huber loss of r + gamma V(s') - Q(s, a)                  (equation 6)
    policy  -min(exp(temperature (Q~(s, a) - V(s))), 100) log pi(a | s)             (equation 7)
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import torch
from torch import Tensor, nn

from hyq import losses
from hyq.agents.base import Agent, GradientStep, Loss, OptimizerConfig, Updated, build_network
from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.settings import check_range
from hyq.core.trees import Tree
from hyq.data.sampler import Batch
from hyq.networks import NetworkFactory

LARGEST_WEIGHT = 100.0
"""Of a row in the policy's loss."""


@dataclass(frozen=True)
class IQLConfig:
    """The settings of IQL."""

    gamma: PiecewiseLinear = schedule(0.99)
    """Discount factor, against updates."""
    target_update_every: int = 50
    """Updates between two copies to the target network."""
    loss: Literal["huber", "squared"] = "huber"
    """Of the TD error."""
    expectile: float = 0.7
    """Above 1/2, V leans towards the best action in the data; they use 0.7, or 0.9 in mazes."""
    temperature: float = 3.0
    """Inverse temperature of the policy: 0 is behaviour cloning. They use 3, or 10 in mazes."""

    def __post_init__(self) -> None:
        """Raise for settings that cannot run."""
        check_range("gamma", self.gamma, 0, 1)
        check_range("temperature", self.temperature, 0)
        check_range("target_update_every", self.target_update_every, 1)
        if not 0 < self.expectile < 1:
            raise HyqError(f"expectile must lie strictly between 0 and 1, got {self.expectile}")


def iql_loss(agent: "IQL", batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the three losses of each row, added up, and the TD error of Q."""
    config = agent.config
    q_tm1 = losses.chosen(agent.q(batch.observation), batch.action)
    v_tm1 = agent.v(batch.observation)[:, 0]
    with torch.no_grad():
        v_t = agent.v(batch.next_observation)[:, 0]
        target_q = losses.chosen(agent.target(batch.observation), batch.action)
    td_error = losses.td_learning(q_tm1, batch.reward, batch.discount, v_t)
    advantage = target_q - v_tm1
    weight = losses.advantage_weights(advantage, config.temperature, LARGEST_WEIGHT)
    cloning = losses.conservative_penalty(agent.actor(batch.observation), batch.action)
    value = losses.expectile_loss(advantage, config.expectile)
    return losses.ROBUST[config.loss](td_error) + value + weight * cloning, td_error


class IQL(Agent):
    """Three networks of the same build: Q, V with a single output, and the policy's logits."""

    def __init__(
        self,
        config: IQLConfig,
        optimizer: OptimizerConfig,
        make_network: NetworkFactory,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        update_every: int = 1,
        loss: Loss = iql_loss,
    ) -> None:
        """Build the networks; see `HyQ` for the arguments."""
        super().__init__()
        self.config, self.loss = config, loss
        self.q, self.v, self.actor = (
            build_network(make_network, observation_space, space, optimizer)
            for space in (action_space, gym.spaces.Discrete(1), action_space)
        )
        self.target = copy.deepcopy(self.q).requires_grad_(False).eval()
        networks = nn.ModuleList([self.q, self.v, self.actor])
        self._gradient_step = GradientStep(networks.parameters(), optimizer)

    def scores(self, observation: Tree) -> Tensor:
        """Return the policy's logits."""
        logits: Tensor = self.actor(observation)
        return logits

    def update(self, batch: Batch, step: int) -> Updated:
        """Move V towards Q~, Q towards r + gamma V(s'), and the policy towards good actions."""
        for network in (self.q, self.v, self.actor):
            network.train()
        updated = self._gradient_step(self.loss, self, batch, step)
        if int(self.updates) % self.config.target_update_every == 0:
            self.target.load_state_dict(self.q.state_dict())
        return updated

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Return Adam, once for each thread."""
        return self._gradient_step.optimizers

    def policy_network(self) -> nn.Module:
        """Return the policy's logits as a module."""
        return self.actor
