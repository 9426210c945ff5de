"""Behaviour cloning: the maximum likelihood of the logged actions, without any reward.

Discrete actions are classified; of continuous ones a normal distribution is learned.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hyq.actor_critic import log_likelihood
from hyq.agents.base import AdamConfig, Agent, GradientStep, Loss, Updated
from hyq.agents.building import Networks, greedy
from hyq.core.trees import Tree
from hyq.data.sampler import Batch


@dataclass(frozen=True)
class BCConfig:
    """Behaviour cloning has no settings of its own."""


def bc_loss(agent: "BC", batch: Batch) -> tuple[Tensor, Tensor]:
    """Return -log pi(a | s) of each row, twice: it is the error that is watched, too."""
    loss = -log_likelihood(agent.network(batch.observation), batch.action)
    return loss, loss


class BC(Agent):
    """A policy network."""

    def __init__(
        self,
        config: BCConfig,
        optimizer: AdamConfig,
        networks: Networks,
        *,
        steps_per_update: float = 1,
        loss: Loss = bc_loss,
    ) -> None:
        """Build the policy; see `HyQ` for the arguments."""
        super().__init__()
        self.config, self.loss = config, loss
        self.network, self._greedy = networks.policy(), networks.greedy
        self._gradient_step = GradientStep(self.network.parameters(), optimizer)

    def act(self, observation: Tree, *, explore: bool = False) -> Tensor:
        """Return the most likely action."""
        return greedy(self.network(observation))

    def value(self, observation: Tree) -> Tensor:
        """Return the likelihood of the most likely action: cloning predicts no return."""
        policy = self.network(observation)
        return log_likelihood(policy, greedy(policy)).exp()

    def update(self, batch: Batch, step: int) -> Updated:
        """Take one step towards the logged actions."""
        self.network.train()
        self.updates.add_(1)
        return self._gradient_step(self.loss, self, batch, step)

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Return Adam."""
        return {"adam": self._gradient_step.optimizer}

    def policy_network(self) -> nn.Module:
        """Return the policy without chance."""
        return self._greedy(self.network)
