"""Networks for continuous actions: policies that are distributions, and ensembles of critics.

Actions have one axis and lie within [-1, 1]; the collector and the saved policy bring them to the
environment's range. A user's own actor is a module with forward(observation) -> a distribution of
`torch.distributions` over such actions; a critic of their own has forward(observation, action) ->
(B,), and as many of it as the settings say are stacked.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from hyq.core.trees import Tree
from hyq.ensembles import Ensemble
from hyq.linear import Linear
from hyq.networks import Encoder, SameInBothModes

CriticFactory = Callable[[gym.Space[Any], gym.Space[Any]], nn.Module]
"""A function of (observation_space, action_space) that returns one critic."""
LOG_STD = (-5.0, 2.0)
"""Smallest and largest logarithm of a policy's standard deviation."""
HALF_LOG_TAU = math.log(2 * math.pi) / 2


class Policy(Protocol):
    """A distribution over actions for each row, as the actors here return it."""

    @property
    def mode(self) -> Tensor:
        """The action without exploration."""
        ...

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return an action for each row, which gradients pass through, and its log pi."""
        ...

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log pi of given actions, one number a row."""
        ...


class TanhNormal:
    """The hyperbolic tangent of a normal distribution (Haarnoja et al. 2018, appendix C)."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        """Take mean and standard deviation before the squashing, each (B, d)."""
        self.mean, self.log_std = mean, log_std

    @property
    def mode(self) -> Tensor:
        """The squashed mean."""
        return self.mean.tanh()

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return an action for each row, and its log pi."""
        noise = torch.randn_like(self.mean)
        before = self.mean + self.log_std.exp() * noise
        return before.tanh(), self._log_prob(before, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log pi of actions; those at a bound count as just within it."""
        before = value.clamp(-0.999, 0.999).atanh()
        return self._log_prob(before, (before - self.mean) * (-self.log_std).exp())

    def _log_prob(self, before: Tensor, noise: Tensor) -> Tensor:
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2x)), which does not cancel for large x.
        stretch = 2 * (math.log(2) - before - softplus(-2 * before))
        return (-noise.square() / 2 - self.log_std - HALF_LOG_TAU - stretch).sum(-1)


class ClippedNormal:
    """A normal distribution around a squashed mean; samples are clipped to the bounds.

    Unlike `TanhNormal` it has a finite likelihood at the bounds, where logged actions often are.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        """Take the mean before the squashing, and the standard deviation after it."""
        self.mode, self.log_std = mean.tanh(), log_std

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return an action for each row, and its log pi before it is clipped."""
        action = self.mode + self.log_std.exp() * torch.randn_like(self.mode)
        return action.clamp(-1.0, 1.0), self.log_prob(action)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log pi of actions."""
        noise = (value - self.mode) * (-self.log_std).exp()
        return (-noise.square() / 2 - self.log_std - HALF_LOG_TAU).sum(-1)


class TorchPolicy:
    """A distribution of `torch.distributions`, as a user's own actor returns it."""

    def __init__(self, distribution: torch.distributions.Distribution) -> None:
        self._distribution = distribution

    @property
    def mode(self) -> Tensor:
        """Its mode; of what it transforms, as by a hyperbolic tangent, the transformed mode."""
        distribution = self._distribution
        if isinstance(distribution, torch.distributions.Independent):
            return TorchPolicy(distribution.base_dist).mode
        if not isinstance(distribution, torch.distributions.TransformedDistribution):
            return distribution.mode
        value = TorchPolicy(distribution.base_dist).mode
        for transform in distribution.transforms:
            value = transform(value)
        return value

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return an action for each row, and its log pi."""
        action = self._distribution.rsample()
        return action, self.log_prob(action)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log pi of actions."""
        found: Tensor = self._distribution.log_prob(value)
        return found.sum(-1) if found.ndim == value.ndim else found


def as_policy(found: Any) -> Policy:
    """Return what an actor gave as a `Policy`."""
    if isinstance(found, torch.distributions.Distribution):
        return TorchPolicy(found)
    policy: Policy = found
    return policy


class Actor(SameInBothModes):
    """A policy network: forward(observation) -> a distribution over actions."""

    def __init__(self, encoder: Encoder, actions: int, *, squashed: bool) -> None:
        """Put mean and standard deviation on an encoder.

        Args:
            encoder: What sees the observation.
            actions: Length of an action.
            squashed: Return `TanhNormal`, whose spread depends on the observation; otherwise
                `ClippedNormal`, whose spread does not.
        """
        super().__init__()
        self.encoder, self.squashed, self.actions = encoder, squashed, actions
        self.outputs = Linear(encoder.width, 2 * actions if squashed else actions)
        self.log_std = None if squashed else nn.Parameter(torch.zeros(actions))

    def forward(self, observation: Tree) -> TanhNormal | ClippedNormal:
        """Return the distribution of each row."""
        outputs: Tensor = self.outputs(self.encoder(observation))
        if self.log_std is not None:
            return ClippedNormal(outputs, self.log_std.clamp(*LOG_STD).expand_as(outputs))
        mean, log_std = outputs.chunk(2, -1)
        return TanhNormal(mean, log_std.clamp(*LOG_STD))


class Mode(nn.Module):
    """An actor without its exploration: forward(observation) -> actions (B, d)."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, observation: Tree) -> Tensor:
        """Return the mode of each row's distribution."""
        return as_policy(self.actor(observation)).mode


class Critics(SameInBothModes):
    """An ensemble of Q-functions: forward(observation, action) -> (members, B).

    All layers but convolutions are each member's own, in one batched product for all of them.
    """

    def __init__(
        self,
        encoder: Encoder,
        actions: int,
        members: int,
        hidden: Sequence[int],
        *,
        layer_norm: bool,
    ) -> None:
        """Put the members on an encoder without hidden layers."""
        super().__init__()
        self.encoder = encoder
        inputs = encoder.width + actions
        self.members = Ensemble(members, inputs, hidden, 1, layer_norm=layer_norm)

    def forward(self, observation: Tree, action: Tensor, members: Tensor | None = None) -> Tensor:
        """Return each member's value of each row, or those of the members that are named."""
        inputs = torch.cat((self.encoder(observation), action), -1)
        values: Tensor = self.members(inputs, members)
        return values.squeeze(-1)


class StackedCritics(nn.Module):
    """Critics of a user's, each with parameters of its own, run as one: see `torch.func`."""

    def __init__(self, critics: Sequence[nn.Module]) -> None:
        """Stack the parameters of modules that are alike."""
        super().__init__()
        learned = {name for name, _ in critics[0].named_parameters()}
        self._names = {name.replace(".", "/"): name for name in critics[0].state_dict()}
        """Names without dots, which those of parameters may not have, and the originals."""
        for name, original in self._names.items():
            stacked = torch.stack([critic.state_dict()[original] for critic in critics])
            if original in learned:
                self.register_parameter(name, nn.Parameter(stacked))
            else:
                self.register_buffer(name, stacked)
        # In a tuple, because its own parameters are none of this module's: they are never used.
        self._skeleton = (critics[0],)

    def forward(self, observation: Tree, action: Tensor, members: Tensor | None = None) -> Tensor:
        """Return each member's value of each row, or those of the members that are named."""
        skeleton = self._skeleton[0].train(self.training)
        state = {original: getattr(self, name) for name, original in self._names.items()}
        if members is not None:
            state = {original: stacked[members] for original, stacked in state.items()}
        values: Tensor = torch.func.vmap(
            lambda own: torch.func.functional_call(skeleton, own, (observation, action)),
            randomness="different",
        )(state)
        return values


def log_likelihood(policy: Any, action: Tensor) -> Tensor:
    """Return log pi(a | s), given the logits of a network or the distribution of an actor."""
    if isinstance(policy, Tensor):
        return policy.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return as_policy(policy).log_prob(action)
