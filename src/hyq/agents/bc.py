"""Behaviour cloning: the maximum likelihood of the logged actions, without any reward."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from hyq import losses
from hyq.agents.base import Agent, GradientStep, Loss, OptimizerConfig, Updated, build_network
from hyq.core.trees import Tree
from hyq.data.sampler import Batch
from hyq.networks import NetworkFactory


@dataclass(frozen=True)
class BCConfig:
    """Behaviour cloning has no settings of its own."""


def bc_loss(agent: "BC", batch: Batch) -> tuple[Tensor, Tensor]:
    """Return -log pi(a | s) of each row, twice: it is the error that is watched, too."""
    loss = losses.conservative_penalty(agent.network(batch.observation), batch.action)
    return loss, loss


class BC(Agent):
    """A classifier of actions."""

    def __init__(
        self,
        config: BCConfig,
        optimizer: OptimizerConfig,
        make_network: NetworkFactory,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        update_every: int = 1,
        loss: Loss = bc_loss,
    ) -> None:
        """Build the classifier; see `HyQ` for the arguments."""
        super().__init__()
        self.config, self.loss = config, loss
        self.network = build_network(make_network, observation_space, action_space, optimizer)
        self._gradient_step = GradientStep(self.network.parameters(), optimizer)

    def scores(self, observation: Tree) -> Tensor:
        """Return the logits of the actions."""
        logits: Tensor = self.network(observation)
        return logits

    def update(self, batch: Batch, step: int) -> Updated:
        """Take one step towards the logged actions."""
        self.network.train()
        return self._gradient_step(self.loss, self, batch, step)

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Return Adam, once for each thread."""
        return self._gradient_step.optimizers

    def policy_network(self) -> nn.Module:
        """Return the classifier."""
        return self.network
