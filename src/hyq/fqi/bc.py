"""Behaviour cloning: the maximum likelihood of the logged actions, one classifier for each step.

    pi_h = argmin over softmax policies of  - E_{(s, a) ~ D_h} log pi(a | s),    h = 0, ..., H-1

Rewards and the environment are never looked at, so it can be no better than the behaviour it
copies, and no better than chance where that behaviour was random. All H classifiers are trained
at once, each on minibatches of its own step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset
from hyq.data.minibatch import StepSampler
from hyq.fqi.base import Step
from hyq.fqi.networks import NetworkConfig, NetworkState, as_tensor, iterate, make_networks
from hyq.fqi.rollout import VectorEnv
from hyq.losses import conservative_penalty


@dataclass(frozen=True)
class BCConfig(NetworkConfig):
    """The settings of behaviour cloning; without hidden units it is a convex problem."""

    learning_rate: float = 3e-3
    """Adam's step size at first; it falls to zero over the run, linearly."""
    batch_size: int = 64
    """Rows of every step in a gradient step."""


@dataclass(frozen=True)
class BC:
    """Behaviour cloning. Its metric is:

    * `negative_log_likelihood`: of the iteration's minibatches, in nats, averaged over steps; it
      starts near log(actions), and stays there where the data's actions are random.
    """

    config: BCConfig = BCConfig()
    restore = staticmethod(NetworkState.restore)

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: NetworkState | None = None
    ) -> Iterator[Step[NetworkState]]:
        """Descend the negative log-likelihood of every step's actions; `env` is never stepped."""
        config, data, streams = self.config, offline.by_step(), streams.below("bc")
        rows, sampler = data.transitions, StepSampler.of(data)
        networks = make_networks(config, env, data, streams)

        def update(rng: np.random.Generator, number: int) -> list[float]:
            draw = sampler.draw(config.batch_size, rng)
            logits = networks.online(as_tensor(rows.observation[draw]).flatten(2))
            loss = conservative_penalty(logits, as_tensor(rows.action[draw])).mean()
            left = 1.0 - number / (config.iterations * config.updates)
            networks.optimizer.param_groups[0]["lr"] = config.learning_rate * left
            # Summed over steps, so that each classifier learns as if it were alone.
            networks.descend(loss * data.horizon)
            return [loss.item()]

        return iterate(
            config,
            networks,
            data.horizon,
            streams,
            state,
            prepare=lambda online: update,
            metrics=lambda means: {"negative_log_likelihood": means[0]},
        )
