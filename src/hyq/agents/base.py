"""What the trainer needs of an agent, and the gradient step that all agents take."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hyq.core.errors import HyqError
from hyq.core.optimizers import load_moments
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.trees import Tree, flatten, subtree
from hyq.data.sampler import Batch

Precision = Literal["auto", "float32", "bfloat16"]
Loss = Callable[[Any, Batch], tuple[Tensor, Tensor]]
"""A function of (agent, batch) that returns the loss and the TD error of each row."""
MASTER = "master"
"""Name of a float32 master among an optimiser's moments in a saved state."""


@dataclass(frozen=True)
class AdamConfig:
    """Adam, on whatever hardware."""

    learning_rate: PiecewiseLinear = schedule(1e-3)
    """Of Adam, against online steps, or updates where nothing is acted."""
    adam_epsilon: float = 1e-8
    """Added to the root of Adam's second moments."""
    weight_decay: float = 0.0
    """Coefficient of the L2 penalty, whose gradient is added after the clipping."""
    max_gradient_norm: float = 10.0
    """Gradients that are longer are shortened to it."""
    device: str = "cpu"
    """Where the networks are: cpu, cuda, ..."""
    threads: int = 1
    """Threads that share PyTorch's arithmetic, a core each."""

    def __post_init__(self) -> None:
        if not (self.adam_epsilon > 0 and self.weight_decay >= 0 and self.max_gradient_norm > 0):
            raise HyqError(
                "adam_epsilon and max_gradient_norm must be positive and weight_decay not negative,"
                f" got {self.adam_epsilon}, {self.max_gradient_norm} and {self.weight_decay}"
            )
        if self.learning_rate.range[0] < 0 or self.threads < 1:
            raise HyqError("learning_rate must not be negative, and threads at least 1")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise HyqError(f"no device {self.device!r} on this machine: {reason}") from None


@dataclass(frozen=True)
class OptimizerConfig(AdamConfig):
    """Adam, and the arithmetic of Q-networks."""

    precision: Precision = "auto"
    """Arithmetic of the layers; auto takes bfloat16 for convolutions where the processor has it."""


class Agent(nn.Module, ABC):
    """An algorithm: it acts and learns, and knows no environment, no replay and no disk.

    Its networks are submodules, so `state_dict` holds them; `state` adds the optimisers.
    """

    updates: Tensor
    """Gradient steps taken, a count that is saved with the networks."""
    stochastic = False
    """Whether its policy samples actions to explore; others are explored by the trainer alone."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @abstractmethod
    def act(self, observation: Tree, *, explore: bool = False) -> Tensor:
        """Return an action for each row; where it has several, `explore` samples one."""

    @abstractmethod
    def value(self, observation: Tree) -> Tensor:
        """Return the value predicted for each row; where there is none, a likelihood."""

    @abstractmethod
    def update(self, batch: Batch, step: int) -> "Updated":
        """Take one gradient step at an online step."""

    @abstractmethod
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Return the optimisers by name."""

    @abstractmethod
    def policy_network(self) -> nn.Module:
        """Return the module of the greedy policy: scores (B, actions), or actions (B, d)."""

    def renew_masters(self) -> None:
        """Let optimisers step the weights as they are now, after they were set from outside."""
        for part in vars(self).values():
            if isinstance(part, GradientStep):
                part.renew_masters()

    def state(self) -> dict[str, Tensor]:
        """Return everything the agent depends on, as named tensors."""
        return training_state(self, self.optimizers())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Undo `state`."""
        load_training_state(self, self.optimizers(), state)


class Follower:
    """Moves a target network towards its network: w~ <- (1 - rate) w~ + rate w."""

    def __init__(self, target: nn.Module, network: nn.Module, rate: float) -> None:
        self._rate = rate
        self._targets: list[Tensor] = [*target.parameters()]
        self._newest: list[Tensor] = [*network.parameters()]
        self._buffers = list(zip(target.buffers(), network.buffers(), strict=True))

    @torch.no_grad()
    def __call__(self) -> None:
        """Move once; what is counted and not learned is copied."""
        torch._foreach_lerp_(self._targets, self._newest, self._rate)
        for kept, newest in self._buffers:
            kept.copy_(newest)


def training_state(
    networks: nn.Module, optimizers: Mapping[str, torch.optim.Optimizer]
) -> dict[str, Tensor]:
    """Return networks, their optimisers' moments, and masters of weights, as named tensors."""
    state = {f"networks.{name}": tensor for name, tensor in networks.state_dict().items()}
    for name, optimizer in optimizers.items():
        masters = {f"{n}.{MASTER}": p.detach() for n, p in enumerate(_masters(networks, optimizer))}
        moments = flatten(optimizer.state_dict()["state"]) | masters
        state |= {f"optimizers.{name}.{key}": tensor for key, tensor in moments.items()}
    # Plain arrays have no bfloat16, and float32 holds every number of it.
    return {n: t.float() if t.dtype == torch.bfloat16 else t for n, t in state.items()}


def load_training_state(
    networks: nn.Module,
    optimizers: Mapping[str, torch.optim.Optimizer],
    state: Mapping[str, Tensor],
) -> None:
    """Undo `training_state`."""
    networks.load_state_dict(subtree("networks", state))
    for name, optimizer in optimizers.items():
        moments = subtree(f"optimizers.{name}", state)
        for number, master in enumerate(_masters(networks, optimizer)):
            saved = moments.pop(f"{number}.{MASTER}")
            if saved.shape != master.shape:
                raise ValueError(f"a weight has the shape {tuple(saved.shape)}")
            master.data.copy_(saved)
        load_moments(optimizer, moments)


def _masters(networks: nn.Module, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Return the parameters of an optimiser, unless they are the network's own."""
    [group] = optimizer.param_groups
    own = {id(parameter) for parameter in networks.parameters()}
    parameters: list[nn.Parameter] = group["params"]
    return [] if id(parameters[0]) in own else parameters


@dataclass(frozen=True)
class Updated:
    """What one gradient step saw, still on the agent's device."""

    td_error: Tensor
    """Of each row."""
    loss: Tensor
    """Of each row."""
    gradient_norm: float
    """Before it was clipped."""


class GradientStep:
    """One step of Adam on a mean of row losses: backward, clip, step.

    Parameters in bfloat16 have masters in float32 that Adam steps, since most steps are too small
    to change the eight digits of a bfloat16 number; the parameters are the masters, rounded.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], config: AdamConfig) -> None:
        """Make the optimiser."""
        self._config, self._parameters = config, list(parameters)
        self._masters = self._parameters
        if any(parameter.dtype == torch.bfloat16 for parameter in self._parameters):
            self._masters = [nn.Parameter(p.detach().float()) for p in self._parameters]
        self.optimizer = torch.optim.Adam(
            self._masters,
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def renew_masters(self) -> None:
        """Take the masters from the parameters."""
        if self._masters is not self._parameters:
            with torch.no_grad():
                torch._foreach_copy_([*self._masters], [*self._parameters])

    def __call__(self, loss: Loss, agent: Agent, batch: Batch, step: int) -> Updated:
        """Minimise the mean over rows of importance weight times loss."""
        losses, td_error = loss(agent, batch)
        if losses.shape != batch.weight.shape or td_error.shape != batch.weight.shape:
            raise HyqError(
                f"a loss must return two tensors of shape ({len(batch)},), the loss and the TD "
                f"error of each row, got {tuple(losses.shape)} and {tuple(td_error.shape)}"
            )
        found = torch.autograd.grad(
            losses, self._parameters, batch.weight / len(batch), materialize_grads=True
        )
        gradients = [_laid_out_as(*pair) for pair in zip(self._masters, found, strict=True)]
        norm = math.hypot(*map(float, torch._foreach_norm(gradients)))
        if norm > (longest := self._config.max_gradient_norm):
            gradients = list(torch._foreach_mul(gradients, longest / norm))
        for master, gradient in zip(self._masters, gradients, strict=True):
            master.grad = gradient
        [group] = self.optimizer.param_groups
        group["lr"] = self._config.learning_rate(step)
        self.optimizer.step()
        if self._masters is not self._parameters:
            with torch.no_grad():
                torch._foreach_copy_([*self._parameters], [*self._masters])
        return Updated(td_error.detach(), losses.detach(), norm)


def _laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Return a gradient of the parameter's type that lies in memory as it does.

    Fused Adam goes through memory in its order, whatever the strides say.
    """
    if gradient.stride() == parameter.stride() and gradient.dtype == parameter.dtype:
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
