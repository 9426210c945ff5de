"""How agents come to their networks: built, checked on made-up rows, and put on a device."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import gymnasium as gym
import torch
from torch import Tensor, nn

from hyq.actor_critic import Actor, CriticFactory, Critics, Mode, StackedCritics, as_policy
from hyq.agents.base import AdamConfig, OptimizerConfig
from hyq.core.errors import HyqError
from hyq.core.trees import Tree
from hyq.losses import chosen
from hyq.networks import (
    Autocast,
    EncoderFactory,
    NetworkFactory,
    check_network,
    made_up_rows,
    num_actions,
    tried,
)


class Networks(Protocol):
    """Builds the networks of one agent, so that IQL, say, is the same for both kinds of actions."""

    def policy(self) -> nn.Module:
        """Return a network of logits, or an actor that returns distributions."""
        ...

    def critics(self, members: int) -> nn.Module:
        """Return a module with forward(observation, action) -> (members, B)."""
        ...

    def value(self) -> nn.Module:
        """Return a network with a single output."""
        ...

    def greedy(self, policy: nn.Module) -> nn.Module:
        """Return a policy as it is saved: its scores of all actions, or its mode."""
        ...


@dataclass(frozen=True)
class DiscreteNetworks:
    """Networks of one output for each action."""

    make: NetworkFactory
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    optimizer: OptimizerConfig

    def policy(self) -> nn.Module:
        """Return a network with an output for each action: values or logits."""
        return self._build(self.action_space)

    def critics(self, members: int) -> nn.Module:
        """Return Q-networks that are evaluated at one action each."""
        return ActionValues([self.policy() for _ in range(members)])

    def value(self) -> nn.Module:
        """Return a network with a single output."""
        return self._build(gym.spaces.Discrete(1))

    def greedy(self, policy: nn.Module) -> nn.Module:
        """Return the policy itself: its outputs are scores."""
        return policy

    def _build(self, outputs: gym.Space[Any]) -> nn.Module:
        network = _placed(self.make(self.observation_space, outputs), self.optimizer)
        device = self.optimizer.device
        check_network(network, self.observation_space, num_actions(outputs), device)
        if not computes_in_bfloat16(network, self.optimizer):
            return network
        for parameter in network.parameters():
            parameter.data = parameter.data.bfloat16()
        return Autocast(network)


@dataclass(frozen=True)
class ContinuousNetworks:
    """An actor, critics of an observation and an action, and a value."""

    encoders: EncoderFactory
    action_space: gym.Space[Any]
    optimizer: AdamConfig
    make_actor: NetworkFactory | None = None
    """A user's own."""
    make_critic: CriticFactory | None = None
    """A user's own."""

    @property
    def actions(self) -> int:
        """Length of an action."""
        [length] = self.action_space.shape or ()
        return length

    def policy(self, *, squashed: bool = False) -> nn.Module:
        """Return an actor; see `Actor` for what is squashed."""
        space, device = self.encoders.space, self.optimizer.device
        if self.make_actor is None:
            return _placed(Actor(self.encoders(), self.actions, squashed=squashed), self.optimizer)
        actor = _placed(self.make_actor(space, self.action_space), self.optimizer)
        found = tried(actor, (made_up_rows(space, device),), f"observations of {space}")
        try:
            action = as_policy(found).mode
            likelihood = as_policy(found).log_prob(action)
        except (AttributeError, ValueError, NotImplementedError) as error:
            raise HyqError(
                "the network must return a distribution of torch.distributions over actions of "
                f"length {self.actions} within [-1, 1], it gave {type(found).__name__} ({error})"
            ) from error
        wanted = (2, self.actions)
        if action.shape != wanted or likelihood.shape != (2,) or (action.abs() > 1).any():
            raise HyqError(
                f"the network's distribution must have actions of shape {wanted} for 2 rows, within"
                f" [-1, 1], it has {tuple(action.shape)} from {action.min():g} to {action.max():g}"
            )
        return actor

    def critics(self, members: int, *, layer_norm: bool = False) -> nn.Module:
        """Return an ensemble of critics."""
        space, device = self.encoders.space, self.optimizer.device
        if self.make_critic is None:
            hidden = self.encoders.layers.hidden
            encoder = self.encoders(replace(self.encoders.layers, hidden=()))
            critics: nn.Module = Critics(
                encoder, self.actions, members, hidden, layer_norm=layer_norm
            )
        else:
            critics = StackedCritics(
                [self.make_critic(space, self.action_space) for _ in range(members)]
            )
        critics = _placed(critics, self.optimizer)
        inputs = made_up_rows(space, device), torch.zeros((2, self.actions), device=device)
        found = tried(critics, inputs, f"observations of {space} and actions")
        if not isinstance(found, Tensor) or found.shape != (members, 2):
            shape = tuple(found.shape[1:]) if isinstance(found, Tensor) else type(found).__name__
            raise HyqError(f"a critic must return a tensor (batch,), for 2 rows it gave {shape}")
        return critics

    def value(self) -> nn.Module:
        """Return a network with a single output."""
        return _placed(self.encoders.q_network(1), self.optimizer)

    def greedy(self, policy: nn.Module) -> nn.Module:
        """Return the policy's mode as a module."""
        return Mode(policy)


def greedy(policy: Any) -> Tensor:
    """Return the most likely action, given the logits of a network or an actor's distribution."""
    return policy.argmax(-1) if isinstance(policy, Tensor) else as_policy(policy).mode


class ActionValues(nn.Module):
    """Q-networks of discrete actions as critics: forward(observation, action) -> (members, B)."""

    def __init__(self, networks: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(networks)

    def forward(self, observation: Tree, action: Tensor) -> Tensor:
        """Return each member's value of each row's action."""
        return torch.stack([chosen(member(observation), action) for member in self.members])


def _placed(network: nn.Module, config: AdamConfig) -> nn.Module:
    """Put a network where it computes; raise where it has nothing to learn."""
    network = network.to(config.device)
    # With the channels of a pixel side by side, a CPU goes through convolutions a tenth faster.
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise HyqError("the network has no parameters to learn")
    return network


def computes_in_bfloat16(network: nn.Module, config: OptimizerConfig) -> bool:
    """Tell whether a network is to compute in bfloat16; emulated, it is tens of times slower."""
    if config.precision != "auto":
        return config.precision == "bfloat16"
    if not any(isinstance(module, nn.Conv2d) for module in network.modules()):
        return False  # small layers lose more to the conversions than they gain
    return has_bfloat16(config.device)


def has_bfloat16(device: str) -> bool:
    """Tell whether a device has bfloat16 arithmetic of its own."""
    if device.startswith("cuda"):
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    if device != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
