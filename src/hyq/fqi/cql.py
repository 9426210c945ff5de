"""Conservative Q-learning, the DQN variant (Kumar et al. 2020), on offline data alone.

    L(theta) = alpha E_D [ log sum_a exp Q(s, a) - Q(s, a_data) ]               CQL penalty
             + E_D [ (Q(s, a_data) - r - gamma max_a' Q_target(s', a'))^2 ]     Bellman error
    target <- (1 - tau) target + tau theta                                      after each step

The first term pulls Q down wherever the data has no actions, so that the greedy policy stays near
the behaviour that made it. Where the logged actions are uniform it tells no action from another,
and what is left is fitted Q-iteration, which trusts values of states it has never seen.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hyq.core.choices import check_choices
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array, Transitions
from hyq.data.dataset import Dataset
from hyq.data.minibatch import StepSampler
from hyq.fqi.base import Snapshot, Step
from hyq.fqi.classes import GreedyPolicy, num_actions
from hyq.fqi.networks import StepNetworks, as_tensor, at_next_step
from hyq.fqi.rollout import VectorEnv
from hyq.losses import chosen, conservative_penalty, squared_loss


@dataclass(frozen=True)
class CQLConfig:
    """The settings of CQL; the defaults are the paper's."""

    iterations: int = 40
    """Iterations; each ends with a policy to evaluate."""
    updates: int = 150
    """Gradient steps in an iteration."""
    networks: Literal["shared", "per-step"] = "shared"
    """One network for all steps, which must read the step off the observation, or one for each."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden units of each network."""
    batch_size: int = 512
    """Rows in a gradient step; networks of their own divide them evenly."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    discount: float = 0.99
    """gamma."""
    tau: float = 0.01
    """How far the target network moves towards the network at every gradient step."""
    alpha: float = 0.1
    """CQL weight; 0 is offline DQN."""

    def __post_init__(self) -> None:
        """Validate the settings."""
        if min(self.iterations, self.updates, self.batch_size) < 1 or not self.learning_rate > 0:
            raise HyqError("iterations, updates, batch_size and learning_rate must be positive")
        check_choices(self)
        if not (0 < self.tau <= 1 and 0 <= self.discount <= 1 and self.alpha >= 0):
            raise HyqError(
                "tau must lie in (0, 1], discount in [0, 1], and alpha must not be negative; "
                f"got {self.tau}, {self.discount} and {self.alpha}"
            )


CQLState = Mapping[str, Array]
"""Both networks, the optimiser and the count of iterations, as named arrays."""


@dataclass(frozen=True)
class CQL:
    """CQL-DQN. Its metrics, averaged over the iteration's minibatches, are:

    * `offline_residual`: root mean squared temporal-difference error;
    * `penalty`: the regulariser before alpha; log(actions) where Q tells no action from another;
    * `value`: max_a Q_target(s', a'), which diverges where the penalty is too weak.
    """

    config: CQLConfig = CQLConfig()

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: CQLState | None = None
    ) -> Iterator[Step[CQLState]]:
        """Descend the loss on minibatches of the data; `env` is never stepped."""
        config, data = self.config, offline.by_step()
        horizon = data.horizon
        per_step = config.networks == "per-step"
        sampler = StepSampler.of(data) if per_step else StepSampler.counted([len(data)])
        networks = StepNetworks(
            len(sampler.count),
            math.prod(data.transitions.observation.shape[1:]),
            config.hidden,
            num_actions(env.single_action_space),
            learning_rate=config.learning_rate,
            seed=streams.integer("cql", "initial"),
        )
        members, begin = len(sampler.count), 0
        each = -(-config.batch_size // members)
        if state is not None:
            networks.restore(state)
            begin = int(state["iteration"])
        for t in range(begin, config.iterations):
            started = time.perf_counter()
            rng, means = streams.generator("cql", "minibatches", t), []
            for _ in range(config.updates):
                draw = sampler.draw(each, rng)
                rows, last = data.transitions[draw], data.step[draw] == horizon - 1
                squared, penalty, value = cql_terms(networks, rows, last, config)
                loss = squared.mean() + config.alpha * penalty.mean()
                # Summed over networks, so that each learns as if it were alone.
                networks.descend(loss * members, config.tau)
                means.append([x.mean().item() for x in (squared, penalty, value)])
            squares, penalties, values = np.mean(means, axis=0).tolist()
            yield Step(
                state=networks.arrays(iteration=t + 1),
                iteration=t + 1,
                online_steps=0,
                policy=GreedyPolicy(networks.functions(horizon)),
                metrics={
                    "offline_residual": math.sqrt(squares),
                    "penalty": penalties,
                    "value": values,
                },
                seconds={"fit": time.perf_counter() - started},
            )

    def snapshot(self, state: CQLState) -> Snapshot:
        """Keep everything: it is made anew in every iteration."""
        return Snapshot(state, {})

    def restore(
        self, replaced: Mapping[str, Array], appended: Sequence[Mapping[str, Array]]
    ) -> CQLState:
        """Take it back."""
        return replaced


def cql_terms(
    networks: StepNetworks, rows: Transitions, last: Array, config: CQLConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Return squared TD errors, penalties and bootstrap values of rows shaped (networks, n, ...).

    Rows marked `last` happened at step H - 1, beyond which Q is zero, terminated or not.
    """
    with torch.no_grad():
        v_t = at_next_step(networks.target, as_tensor(rows.next_observation).flatten(2)).amax(-1)
        discount_t = config.discount * as_tensor(rows.discount * ~last)
        target_tm1 = as_tensor(rows.reward) + discount_t * v_t
    q_tm1 = networks.online(as_tensor(rows.observation).flatten(2))
    a_tm1 = as_tensor(rows.action)
    squared = squared_loss(chosen(q_tm1, a_tm1) - target_tm1)
    return squared, conservative_penalty(q_tm1, a_tm1), v_t
