"""DQfD, deep Q-learning from demonstrations (Hester et al. 2018): Hy-Q with a margin on the data.

    J = J_DQ + lambda_1 J_n + lambda_2 J_E

J_DQ is the single-step Bellman error and J_n the n-step one. J_E, on offline rows alone, puts the
demonstrated action ahead of all others by a margin. Their fourth term, an L2 penalty, is the
optimiser's weight decay.
"""

from dataclasses import dataclass

from torch import Tensor

from hyq import losses
from hyq.agents.hyq_dqn import HyQ, HyQConfig
from hyq.core.settings import check_range
from hyq.data.sampler import Batch


@dataclass(frozen=True)
class DQfDConfig(HyQConfig):
    """The settings of DQfD beside those of Q-learning."""

    margin: float = 0.8
    """How far demonstrated actions should be ahead of all others."""
    margin_weight: float = 1.0
    """lambda_2: weight of the margin loss."""
    n_step_weight: float = 1.0
    """lambda_1: weight of the n-step loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("margin", "margin_weight", "n_step_weight"):
            check_range(name, getattr(self, name), 0)


def dqfd_loss(agent: HyQ, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the three losses of each row, added up; priorities follow the single-step TD error."""
    config, single = agent.config, batch.one_step
    assert isinstance(config, DQfDConfig)
    assert single is not None, "the sampler adds single-step rows"
    q_tm1 = agent.network(batch.observation)
    td_error = agent.td_error(q_tm1, single)
    n_step = agent.td_error(q_tm1, batch)
    margin = losses.large_margin_loss(q_tm1, batch.action, config.margin)
    loss = (
        agent.robust(td_error)
        + config.n_step_weight * agent.robust(n_step)
        + config.margin_weight * batch.offline * margin
    )
    return agent.with_penalty(loss, q_tm1, batch), td_error
