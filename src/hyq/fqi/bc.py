"""Behaviour cloning: the maximum likelihood of the logged actions, one classifier for each step.

    pi_h = argmin over softmax policies of  - E_{(s, a) ~ D_h} log pi(a | s),    h = 0, ..., H-1

Rewards and the environment are never looked at, so it can be no better than the behaviour it
copies, and no better than chance where that behaviour was random. All H classifiers are trained
at once, each on minibatches of its own step.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array
from hyq.data.dataset import Dataset
from hyq.data.minibatch import StepSampler
from hyq.fqi.base import Snapshot, Step
from hyq.fqi.hyq_fqi import greedy_policy
from hyq.fqi.rollout import VectorEnv
from hyq.fqi.stack import Adam, Stack, action_count, as_tensor


@dataclass(frozen=True)
class BCConfig:
    """The settings of behaviour cloning."""

    iterations: int = 10
    """Iterations; each ends with a policy to judge."""
    updates: int = 100
    """Gradient steps in an iteration."""
    batch_size: int = 64
    """Rows of every step in a gradient step."""
    learning_rate: float = 3e-3
    """Adam's step size at first; it falls to zero over the run, linearly."""
    hidden: tuple[int, ...] = ()
    """Hidden units of each classifier; none makes it a logistic regression, which is convex."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot learn."""
        if min(self.iterations, self.updates, self.batch_size) < 1 or not self.learning_rate > 0:
            raise HyqError("iterations, updates, batch_size and learning_rate must be positive")


@dataclass(frozen=True)
class BCState:
    """Everything the next iteration depends on."""

    iteration: int
    parameters: torch.Tensor
    """Of all classifiers, flat."""
    adam: Adam


@dataclass(frozen=True)
class BC:
    """Behaviour cloning. Its metric is:

    * `negative_log_likelihood`: of the iteration's minibatches, in nats, averaged over steps; it
      starts near log(actions), and stays there where the data's actions are random.
    """

    config: BCConfig = BCConfig()

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: BCState | None = None
    ) -> Iterator[Step[BCState]]:
        """Descend the negative log-likelihood of every step's actions; `env` is never stepped."""
        config, rows = self.config, offline.transitions
        inputs = math.prod(rows.observation.shape[1:])
        stack = Stack(offline.horizon, inputs, config.hidden, action_count(env.single_action_space))
        sampler = StepSampler.of(offline)
        if state is None:
            initial = stack.initial(streams.generator("bc", "initial"))
            state = BCState(0, initial, Adam.fresh(initial))
        parameters, adam = state.parameters.clone().requires_grad_(), state.adam.copy()
        for t in range(state.iteration, config.iterations):
            started = time.perf_counter()
            rng, losses = streams.generator("bc", "minibatches", t), []
            for _ in range(config.updates):
                draw = sampler.draw(config.batch_size, rng)
                logits = stack(parameters, as_tensor(rows.observation[draw]).flatten(2))
                action = as_tensor(rows.action[draw]).flatten()
                # Summed over steps, so that each classifier learns as if it were alone.
                loss = cross_entropy(logits.flatten(0, 1), action) * offline.horizon
                left = 1.0 - adam.updates / (config.iterations * config.updates)
                adam.descend(parameters, loss, config.learning_rate * left)
                losses.append(loss.item() / offline.horizon)
            now = parameters.detach().clone()
            yield Step(
                state=BCState(t + 1, now, adam.copy()),
                iteration=t + 1,
                online_steps=0,
                policy=greedy_policy(stack.functions(now, offline.horizon)),
                metrics={"negative_log_likelihood": float(np.mean(losses))},
                seconds={"fit": time.perf_counter() - started},
            )

    def snapshot(self, state: BCState) -> Snapshot:
        """Keep the parameters, Adam's moments and the count of iterations."""
        arrays = {"parameters": state.parameters.numpy(), **state.adam.arrays()}
        return Snapshot({**arrays, "iteration": np.array(state.iteration)}, {})

    def restore(
        self, replaced: Mapping[str, Array], appended: Sequence[Mapping[str, Array]]
    ) -> BCState:
        """Take them back."""
        return BCState(
            int(replaced["iteration"]),
            torch.tensor(replaced["parameters"]),
            Adam.rebuild(replaced),
        )
