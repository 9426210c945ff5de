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

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array
from hyq.data.dataset import Dataset
from hyq.data.minibatch import StepSampler
from hyq.fqi.base import Snapshot, Step
from hyq.fqi.classes import GreedyPolicy, num_actions
from hyq.fqi.networks import StepNetworks, as_tensor
from hyq.fqi.rollout import VectorEnv
from hyq.losses import conservative_penalty


@dataclass(frozen=True)
class BCConfig:
    """The settings of behaviour cloning."""

    iterations: int = 10
    """Iterations; each ends with a policy to evaluate."""
    updates: int = 100
    """Gradient steps in an iteration."""
    batch_size: int = 64
    """Rows of every step in a gradient step."""
    learning_rate: float = 3e-3
    """Adam's step size at first; it falls to zero over the run, linearly."""
    hidden: tuple[int, ...] = ()
    """Hidden units of each classifier; none makes it a logistic regression, which is convex."""

    def __post_init__(self) -> None:
        """Validate the settings."""
        if min(self.iterations, self.updates, self.batch_size) < 1 or not self.learning_rate > 0:
            raise HyqError("iterations, updates, batch_size and learning_rate must be positive")


BCState = Mapping[str, Array]
"""The network, its optimiser and the count of iterations, as named arrays."""


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
        config, data = self.config, offline.by_step()
        rows = data.transitions
        inputs = math.prod(rows.observation.shape[1:])
        networks = StepNetworks(
            data.horizon,
            inputs,
            config.hidden,
            num_actions(env.single_action_space),
            learning_rate=config.learning_rate,
            seed=streams.integer("bc", "initial"),
        )
        sampler, begin = StepSampler.of(data), 0
        if state is not None:
            networks.restore(state)
            begin = int(state["iteration"])
        for t in range(begin, config.iterations):
            started = time.perf_counter()
            rng, losses = streams.generator("bc", "minibatches", t), []
            for update in range(t * config.updates, (t + 1) * config.updates):
                draw = sampler.draw(config.batch_size, rng)
                logits = networks.online(as_tensor(rows.observation[draw]).flatten(2))
                loss = conservative_penalty(logits, as_tensor(rows.action[draw])).mean()
                left = 1.0 - update / (config.iterations * config.updates)
                networks.optimizer.param_groups[0]["lr"] = config.learning_rate * left
                # Summed over steps, so that each classifier learns as if it were alone.
                networks.descend(loss * data.horizon)
                losses.append(loss.item())
            yield Step(
                state=networks.arrays(iteration=t + 1),
                iteration=t + 1,
                online_steps=0,
                policy=GreedyPolicy(networks.functions(data.horizon)),
                metrics={"negative_log_likelihood": float(np.mean(losses))},
                seconds={"fit": time.perf_counter() - started},
            )

    def snapshot(self, state: BCState) -> Snapshot:
        """Keep everything: it is made anew in every iteration."""
        return Snapshot(state, {})

    def restore(
        self, replaced: Mapping[str, Array], appended: Sequence[Mapping[str, Array]]
    ) -> BCState:
        """Take it back."""
        return replaced
