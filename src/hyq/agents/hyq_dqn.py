"""Discounted deep Hy-Q (Algorithm 3 of the paper): Q-learning on offline and online data together.

The loop, in `hyq.trainer`, is the paper's:

     1  Input: offline data D^nu, buffer sizes, update periods, beta, epsilon    the configs
     2  Initialize f_theta and the target f~                                     HyQ.__init__
     5  For each step t:
     6    Act epsilon-greedily on f_theta                                        HyQ.act
     7-8  Step the environment, store the transition in D^on                     the collector
     9    Every update_every steps (n_value):
    10      Draw a minibatch, of D^nu with probability beta and else of D^on     data/sampler.py
    11      One gradient step on the Bellman error of f_theta against f~         HyQ.update
    12    Every target_update_every steps (n_target): f~ <- f_theta              HyQ.update

The loss is `hyq_loss`. Those of DQfD, CQL and the rest are functions like it, and so is one of a
user's own.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hyq import losses
from hyq.agents.base import Agent, GradientStep, Loss, OptimizerConfig, Updated
from hyq.agents.building import Networks
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.settings import check_interval, check_range
from hyq.core.trees import Tree
from hyq.data.sampler import Batch


@dataclass(frozen=True)
class HyQConfig:
    """The settings of Q-learning; schedules are against online steps, or updates without any."""

    gamma: PiecewiseLinear = schedule(0.99)
    """Discount factor. Starting with a short horizon and lengthening it is faster than a long one
    from the start (François-Lavet et al. 2015)."""
    target_update_every: int = 50
    """Online steps between two copies to the target network (the paper's n_target); an update of
    pretraining counts as `update_every` steps."""
    loss: Literal["huber", "squared"] = "huber"
    """The paper prints the squared loss; Huber is quadratic near zero and linear beyond one."""
    double: bool = True
    """Let the network choose the action that the target network values."""
    value_range: tuple[float, float] | Literal["rewards"] | None = "rewards"
    """Bounds that targets are clipped to, as the paper's class is within [0, V_max]. rewards: what
    the smallest and the largest reward stored so far could add up to, r / (1 - gamma), and 0. None
    sets no bounds: values can then feed on themselves where the data says nothing, as they do on
    random play of CartPole."""
    cql_weight: PiecewiseLinear = schedule(0.0)
    """Weight of CQL's penalty on offline rows, which lowers the actions that the data did not take.
    The paper has none. Let it end at 0: the values are then Q-learning's own."""

    def __post_init__(self) -> None:
        check_range("gamma", self.gamma, 0, 1)
        check_range("cql_weight", self.cql_weight, 0)
        check_range("target_update_every", self.target_update_every, 1)
        check_interval("value_range", self.value_range)


def hyq_loss(agent: "HyQ", batch: Batch) -> tuple[Tensor, Tensor]:
    """Return (f(s, a) - r - gamma f~(s', a'))^2 of each row, or its Huber form, and the TD error.

    Algorithm 3, line 11; a' maximises f(s', .) in double Q-learning, f~(s', .) without.
    """
    q_tm1 = agent.network(batch.observation)
    td_error = agent.td_error(q_tm1, batch)
    return agent.with_penalty(agent.robust(td_error), q_tm1, batch), td_error


class HyQ(Agent):
    """A Q-network, its target network, and the loss that trains it."""

    def __init__(
        self,
        config: HyQConfig,
        optimizer: OptimizerConfig,
        networks: Networks,
        *,
        steps_per_update: float = 1,
        loss: Loss = hyq_loss,
    ) -> None:
        """Build f_theta and its target (Algorithm 3, line 2).

        Args:
            config: The settings of Q-learning.
            optimizer: Adam's, and where to compute.
            networks: Builds the Q-network.
            steps_per_update: Online steps for each update, in which target updates are counted.
            loss: The loss and the TD error of each row, given (agent, batch).
        """
        super().__init__()
        self.config, self.loss = config, loss
        self.network = networks.policy()
        self.target = copy.deepcopy(self.network).requires_grad_(False).eval()
        self.robust = losses.ROBUST[config.loss]
        self.step = 0
        """The online step of the newest update, which schedules are read at."""
        self._target_period = max(1, round(config.target_update_every / steps_per_update))
        self._gradient_step = GradientStep(self.network.parameters(), optimizer)

    def act(self, observation: Tree, *, explore: bool = False) -> Tensor:
        """Return the maximiser of f(s, .) (Algorithm 3, line 6); epsilon is the trainer's."""
        action: Tensor = self.network(observation).argmax(-1)
        return action

    def value(self, observation: Tree) -> Tensor:
        """Return the maximum of f(s, .)."""
        value: Tensor = self.network(observation).amax(-1)
        return value

    def update(self, batch: Batch, step: int) -> Updated:
        """Take one gradient step, and now and then copy f to f~ (Algorithm 3, lines 11 and 12)."""
        self.step = step
        self.network.train()
        updated = self._gradient_step(self.loss, self, batch, step)
        self.updates.add_(1)
        if int(self.updates) % self._target_period == 0:
            self.target.load_state_dict(self.network.state_dict())
        return updated

    def td_error(self, q_tm1: Tensor, batch: Batch) -> Tensor:
        """Return r + gamma f~(s', a') - f(s, a) of each row, given f(s, .)."""
        bounds = self.config.value_range
        with torch.no_grad():
            q_t = self.target(batch.next_observation)
            selector = self.network(batch.next_observation) if self.config.double else None
        return losses.q_learning(
            q_tm1,
            batch.action,
            batch.reward,
            batch.discount,
            q_t,
            selector,
            batch.value_range if isinstance(bounds, str) else bounds,
        )

    def with_penalty(self, loss: Tensor, q_tm1: Tensor, batch: Batch) -> Tensor:
        """Add CQL's penalty to the loss of offline rows, where it has a weight."""
        weight = self.config.cql_weight(self.step)
        if not weight:
            return loss
        return loss + weight * batch.offline * losses.conservative_penalty(q_tm1, batch.action)

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Return Adam."""
        return {"adam": self._gradient_step.optimizer}

    def policy_network(self) -> nn.Module:
        """Return f."""
        return self.network
