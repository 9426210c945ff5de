"""Hy-Q for continuous actions: soft actor-critic on offline and online data together.

Soft actor-critic (Haarnoja et al. 2018) on the hybrid mix, as RLPD (Ball et al. 2023) found it to
work: an ensemble of critics with layer normalisation, a few of which, drawn anew for each update,
make the target (Chen et al. 2021). The loop is that of `HyQ`; where it maximises over actions, a
policy does so here:

     6  Act: a ~ pi(. | s)                                                       HySAC.act
    10  Draw a minibatch of D^nu and D^on                                        data/sampler.py
    11  One gradient step of every critic i on                                   critic_loss
            (Q_i(s, a) - r - gamma [min_{j in M} Q~_j(s', a') - alpha log pi(a' | s')])^2
        and, once every `updates_per_step` updates, of the policy on             actor_loss
            alpha log pi(a | s) - mean_i Q_i(s, a),    a ~ pi(. | s)
        and of the temperature on
            -log alpha (log pi(a | s) + H)
    12  Q~_i <- (1 - tau) Q~_i + tau Q_i                                         HySAC.update

Relatives are other losses for the same agent, as are those of a user's own.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hyq import losses
from hyq.actor_critic import Mode, Policy, as_policy
from hyq.agents.base import AdamConfig, Agent, Follower, GradientStep, Loss, Updated
from hyq.agents.building import ContinuousNetworks
from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.settings import check_interval, check_range
from hyq.core.trees import Tree
from hyq.data.sampler import Batch


@dataclass(frozen=True)
class ActorCriticConfig:
    """The settings of a policy and its critics; schedules are against online steps."""

    gamma: PiecewiseLinear = schedule(0.99)
    """Discount factor."""
    critics: int = 10
    """Q-functions in the ensemble."""
    target_critics: int = 2
    """How many of them, drawn anew for each update, the target is the minimum of."""
    layer_norm: bool = True
    """Layer normalisation in the critics, which keeps the values of unseen actions bounded."""
    target_rate: float = 0.005
    """tau: share of each update by which the target critics follow."""
    loss: Literal["huber", "squared"] = "squared"
    """Of the critics' TD errors."""
    value_range: tuple[float, float] | None = None
    """Bounds that targets are clipped to, where they are known."""

    def __post_init__(self) -> None:
        check_range("gamma", self.gamma, 0, 1)
        check_range("target_rate", self.target_rate, 0, 1)
        check_range("critics", self.critics, 1)
        check_range("target_critics", self.target_critics, 1, self.critics)
        check_interval("value_range", self.value_range)


@dataclass(frozen=True)
class HySACConfig(ActorCriticConfig):
    """The settings of soft actor-critic."""

    temperature: float = 1.0
    """Where the learned temperature alpha starts."""
    target_entropy: float | None = None
    """H: entropy of the policy that the temperature is learned to keep; minus half the number of
    action dimensions by default, as RLPD has it."""
    entropy_in_backup: bool = False
    """Count entropy to come as part of the value. RLPD leaves it out on several tasks: a reward of
    -1 a step is then worth as much as it says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise HyqError(f"temperature must be positive, got {self.temperature}")


def critic_loss(agent: "HySAC", batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the mean loss of the critics, and their mean absolute TD error, of each row."""
    with torch.no_grad():
        policy = agent.policy(batch.next_observation)
        a_t, log_pi = policy.sample()
        v_t = agent.target_value(batch.next_observation, a_t)
        if agent.config.entropy_in_backup:
            v_t = v_t - agent.log_alpha.exp() * log_pi
    return agent.regression(batch, v_t)


def actor_loss(agent: "HySAC", batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the losses of the policy and of the temperature, added up, and the entropy."""
    action, log_pi = agent.policy(batch.observation).sample()
    q = agent.critic(batch.observation, action).mean(0)
    temperature = -agent.log_alpha * (log_pi + agent.target_entropy).detach()
    return agent.log_alpha.exp().detach() * log_pi - q + temperature, -log_pi.detach()


class HySAC(Agent):
    """A policy, its critics, their target networks, and the temperature."""

    config: HySACConfig

    def __init__(
        self,
        config: ActorCriticConfig,
        optimizer: AdamConfig,
        networks: ContinuousNetworks,
        *,
        steps_per_update: float = 1,
        loss: Loss = critic_loss,
        actor_loss: Loss = actor_loss,
        squashed: bool = True,
        stochastic: bool = True,
        actor_every: int = 1,
    ) -> None:
        """Build all networks (Algorithm 3, line 2).

        Args:
            config: The settings.
            optimizer: Adam's, for the critics and for the policy.
            networks: Builds actor and critics.
            steps_per_update: Online steps for each update; below one, the policy is updated once
                for each step.
            loss: Of the critics: loss and TD error of each row, given (agent, batch).
            actor_loss: Of the policy.
            squashed: Whether the policy is `TanhNormal`; otherwise it is `ClippedNormal`.
            stochastic: Whether it explores by sampling; a policy that does not has noise added.
            actor_every: Updates of the critics for each of the policy, where that is not by step.
        """
        super().__init__()
        self.config = config  # type: ignore[assignment]  # a relative's losses need its own
        self.loss, self.actor_loss, self.stochastic = loss, actor_loss, stochastic
        self.step = 0
        """The online step of the newest update, which schedules are read at."""
        self.actor = networks.policy(squashed=squashed)
        self.critic = networks.critics(config.critics, layer_norm=config.layer_norm)
        self.target = copy.deepcopy(self.critic).requires_grad_(False).eval()
        self._follow = Follower(self.target, self.critic, config.target_rate)
        self.actions = networks.actions
        start = config.temperature if isinstance(config, HySACConfig) else 1.0
        self.log_alpha = nn.Parameter(torch.tensor(start, device=optimizer.device).log())
        self.robust = losses.ROBUST[config.loss]
        self._members: Tensor | None = None
        """The critics that make the target of the current update, where it is not all of them."""
        self._actor_every = max(actor_every, round(1 / steps_per_update))
        self._critic_step = GradientStep(self.critic.parameters(), optimizer)
        learned = [*self.actor.parameters()]
        if isinstance(config, HySACConfig):
            learned.append(self.log_alpha)
        self._actor_step = GradientStep(learned, optimizer)

    @property
    def target_entropy(self) -> float:
        """H."""
        chosen = self.config.target_entropy
        return -self.actions / 2 if chosen is None else chosen

    def policy(self, observation: Tree) -> Policy:
        """Return pi(. | s)."""
        return as_policy(self.actor(observation))

    def act(self, observation: Tree, *, explore: bool = False) -> Tensor:
        """Return the policy's mode, or a sample of it."""
        policy = self.policy(observation)
        if not (explore and self.stochastic):
            return policy.mode
        action, _ = policy.sample()
        return action

    def value(self, observation: Tree) -> Tensor:
        """Return the mean value of the policy's mode."""
        values: Tensor = self.critic(observation, self.policy(observation).mode)
        return values.mean(0)

    def target_value(self, observation: Tree, action: Tensor) -> Tensor:
        """Return the smallest of some target critics' values."""
        values: Tensor = self.target(observation, action, self._members)
        return values.amin(0)

    def regression(self, batch: Batch, v_t: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and TD error of each row, given the values of the next observations."""
        q_tm1 = self.critic(batch.observation, batch.action)
        bounds = self.config.value_range
        td_error = losses.ensemble_td_learning(q_tm1, batch.reward, batch.discount, v_t, bounds)
        return self.robust(td_error).mean(0), td_error.abs().mean(0)

    def update(self, batch: Batch, step: int) -> Updated:
        """Take a step of the critics, and now and then of the policy (lines 11 and 12)."""
        self.step = step
        if self.config.target_critics < self.config.critics:
            self._members = torch.randperm(self.config.critics)[: self.config.target_critics]
        self.actor.train()
        self.critic.train()
        updated = self._critic_step(self.loss, self, batch, step)
        self._follow()
        self.updates.add_(1)
        if int(self.updates) % self._actor_every == 0:
            self._actor_step(self.actor_loss, self, batch, step)
        return updated

    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Return the optimisers of critics and policy."""
        return {"critic": self._critic_step.optimizer, "actor": self._actor_step.optimizer}

    def policy_network(self) -> nn.Module:
        """Return the policy without its exploration."""
        return Mode(self.actor)
