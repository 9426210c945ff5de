"""Networks trained by gradient steps: one for every step of an episode, or one for all steps."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hyq.core.seeding import Streams, torch_seed
from hyq.core.settings import check_choices, check_positive
from hyq.core.trees import flatten, subtree
from hyq.core.types import Array
from hyq.data.online import Batch, OnlineStore
from hyq.data.steps import StepView
from hyq.ensembles import Ensemble
from hyq.fqi.base import Snapshot, Step
from hyq.fqi.classes import GreedyPolicy, num_actions
from hyq.fqi.mlp import MLPFunction, member_functions
from hyq.fqi.rollout import VectorEnv


@dataclass(frozen=True)
class NetworkConfig:
    """The settings of every method that descends a loss of networks."""

    iterations: int = 10
    """Iterations; each ends with a policy to evaluate."""
    updates: int = 100
    """Gradient steps in an iteration."""
    batch_size: int = 64
    """Rows in a gradient step; networks of their own divide them evenly."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    hidden: tuple[int, ...] = ()
    """Hidden units of each network; none makes it linear."""
    networks: Literal["shared", "per-step"] = "per-step"
    """One network for all steps, which must read the step off the observation, or one for each."""

    def __post_init__(self) -> None:
        check_positive(self, "iterations", "updates", "batch_size", "learning_rate")
        check_choices(self)


@dataclass(frozen=True)
class NetworkState:
    """Everything the next iteration depends on."""

    arrays: Mapping[str, Array]
    """Networks, optimiser and counters."""
    online: OnlineStore
    appended: Mapping[str, Array]
    """What the newest iteration collected."""

    def snapshot(self) -> Snapshot:
        """Keep networks, optimiser and counters; append what was collected."""
        return Snapshot(self.arrays, self.appended)

    @classmethod
    def restore(
        cls, replaced: Mapping[str, Array], appended: Sequence[Mapping[str, Array]]
    ) -> "NetworkState":
        """Undo `snapshot`."""
        return cls(replaced, OnlineStore.rebuild(p for p in appended if len(p["counts"])), {})


class StepNetworks(nn.Module):
    """An ensemble with one member for each step (or for all), its target network and Adam."""

    def __init__(
        self,
        members: int,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        learning_rate: float,
        seed: int,
    ) -> None:
        super().__init__()
        with torch_seed(seed):
            self.online = Ensemble(members, inputs, hidden, outputs)
        self.target = deepcopy(self.online).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), learning_rate, fused=True)

    def descend(self, loss: Tensor, tau: float = 0.0) -> None:
        """Take one step down the gradient; then move the target network by the share `tau`."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if not tau:
            return
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.online.parameters(), strict=True):
                old.lerp_(new, tau)

    def functions(self, horizon: int) -> tuple[MLPFunction, ...]:
        """Return f_0, ..., f_{H-1} as they are now; a single member serves every step."""
        return member_functions(self.online) * (horizon // self.online.members)

    def arrays(self, **counts: int) -> dict[str, Array]:
        """Copy networks and optimiser, with the counts of a run, as named arrays."""
        moments = flatten(self.optimizer.state_dict()["state"], "optimizer.")
        arrays = {name: t.numpy().copy() for name, t in (self.state_dict() | moments).items()}
        return arrays | {name: np.array(count) for name, count in counts.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Load what `arrays` copied."""
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        self.load_state_dict({name: tensors[name] for name in self.state_dict()})
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in subtree("optimizer", tensors).items():
            index, _, part = name.partition(".")
            moments.setdefault(int(index), {})[part] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def at_next_step(network: Ensemble, next_observation: Tensor) -> Tensor:
    """Evaluate what step h led to by member h + 1; a single member evaluates its own.

    What comes after the last step wraps around to the first member: the caller masks it.
    """
    return network(next_observation.roll(1, 0)).roll(-1, 0)


def as_tensor(array: Array) -> Tensor:
    """Convert an array: floats to single precision, integers to indices."""
    kind = torch.float32 if np.issubdtype(array.dtype, np.floating) else torch.int64
    return torch.as_tensor(array).to(kind)


Update = Callable[[np.random.Generator, int], Sequence[float]]
"""Takes one gradient step, of a number counted through the run; returns parts of its loss."""


def make_networks(
    config: NetworkConfig, env: VectorEnv, data: StepView, streams: Streams
) -> StepNetworks:
    """Make what a config describes, for the observations of `data` and the actions of `env`."""
    return StepNetworks(
        data.horizon if config.networks == "per-step" else 1,
        math.prod(data.transitions.observation.shape[1:]),
        config.hidden,
        num_actions(env.single_action_space),
        learning_rate=config.learning_rate,
        seed=streams.integer("initial"),
    )


def iterate(
    config: NetworkConfig,
    networks: StepNetworks,
    horizon: int,
    streams: Streams,
    state: NetworkState | None,
    prepare: Callable[[OnlineStore], Update],
    metrics: Callable[[list[float]], Mapping[str, float]],
    collect: Callable[[int], tuple[Batch, int] | None] | None = None,
) -> Iterator[Step[NetworkState]]:
    """Alternate between collecting, for methods that do, and gradient steps.

    `prepare` makes the update of an iteration from the online data; `metrics` names the means of
    what its updates return; `collect` acts in iteration t, or returns None where it is too early.
    """
    begin, samples, online = 0, 0, OnlineStore()
    if state is not None:
        networks.restore(state.arrays)
        begin, samples = int(state.arrays["iteration"]), int(state.arrays["online_steps"])
        online = state.online
    for t in range(begin, config.iterations):
        started = time.perf_counter()
        appended: Mapping[str, Array] = {}
        if collect is not None:
            found = collect(t)
            appended = {"counts": np.zeros(0, np.int64)}
            if found is not None:
                online, samples = online + found[0], samples + found[1]
                appended = online.newest()
        collected = time.perf_counter()
        update, rng = prepare(online), streams.generator("minibatches", t)
        numbers = range(t * config.updates, (t + 1) * config.updates)
        means = np.mean([update(rng, number) for number in numbers], axis=0).tolist()
        arrays = networks.arrays(iteration=t + 1, online_steps=samples)
        yield Step(
            state=NetworkState(arrays, online, appended),
            iteration=t + 1,
            online_steps=samples,
            policy=GreedyPolicy(networks.functions(horizon)),
            metrics=metrics(means),
            seconds={"collect": collected - started, "fit": time.perf_counter() - collected},
        )
