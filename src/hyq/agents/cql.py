"""Conservative Q-learning (Kumar et al. 2020) for discrete actions: Hy-Q's loss plus a penalty.

    alpha (log sum_a exp Q(s, a) - Q(s, a_data)) + (Q(s, a_data) - r - gamma Q~(s', a'))^2

It learns from offline data alone. `alpha` is Hy-Q's `cql_weight`, which CQL sets to 1 by default,
as d3rlpy's discrete CQL does: the loss is `hyq_loss`, so a difference in results is the penalty's.
"""

from dataclasses import dataclass

from hyq.agents.hyq_dqn import HyQConfig
from hyq.core.schedules import PiecewiseLinear, schedule


@dataclass(frozen=True)
class CQLConfig(HyQConfig):
    """The settings of Q-learning, with the penalty switched on."""

    cql_weight: PiecewiseLinear = schedule(1.0)
    """alpha, against updates."""
