"""Behaviour cloning: the maximum likelihood of the logged actions, one classifier for each step.

    pi_h = argmin over softmax policies of  - E_{(s, a) ~ D_h} log pi(a | s),    h = 0, ..., H-1

Rewards and the environment are never looked at, so it can be no better than the behaviour it
copies, and no better than chance where that behaviour was random. All H classifiers are trained
at once, each on minibatches of its own step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset
from hyq.fqi.base import State, Step
from hyq.fqi.networks import Minibatch, NetworkConfig, StepNetworks, learn
from hyq.fqi.rollout import VectorEnv
from hyq.losses import conservative_penalty


@dataclass(frozen=True)
class BCConfig(NetworkConfig):
    """The settings of behaviour cloning; without hidden units it is a convex problem."""

    learning_rate: float = 3e-3
    """Adam's step size at first; it falls to zero over the run, linearly."""
    batch_size: int = 64
    """Rows of every step in a gradient step."""

    def rows(self, members: int) -> int:
        """Return the rows that each network gets."""
        return self.batch_size


@dataclass(frozen=True)
class BC:
    """Behaviour cloning. Its metric is:

    * `negative_log_likelihood`: of the iteration's minibatches, in nats, averaged over steps; it
      starts near log(actions), and stays there where the data's actions are random.
    """

    config: BCConfig = BCConfig()

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: State | None = None
    ) -> Iterator[Step]:
        """Descend the negative log-likelihood of every step's actions; `env` is never stepped."""
        return learn(self.config, env, offline, streams.below("bc"), state, bc_loss, falling=True)


def bc_loss(networks: StepNetworks, batch: Minibatch) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the negative log-likelihood, summed over networks: each learns as if it were alone."""
    loss = conservative_penalty(networks.online(batch.observation), batch.action)
    return loss.mean() * networks.online.members, {"negative_log_likelihood": loss}
