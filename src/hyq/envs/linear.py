"""Random linear MDPs with known features, where the backup of any function is linear.

Each phi(s, a) is a point of the probability simplex of R^d (so it lies in the unit ball) and mixes
d "factors", each with its own next-state law mu_h and reward theta_h:

    P_h(s' | s, a) = <phi(s, a), mu_h(s')>,    E[R_h(s, a)] = <phi(s, a), theta_h>.

The Bellman backup of *any* f_{h+1} is then linear, with weights w = theta_h + mu_h max_a f_{h+1}.
With V_h = (H - h) / H, the weights in [0, V_{h+1}]^d are thus mapped into [0, V_h]^d. A ball of the
same radius at every step, as in the paper's definition of linear Bellman completeness, is mapped
out of itself by any positive reward.

The observation of a state is its feature matrix phi(s, .) of shape (actions, d), so that a linear
function class needs no table of states.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP, check_distributions
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, IntArray
from hyq.envs.batched import single
from hyq.envs.tabular import TabularEnv


@dataclass(frozen=True, eq=False)
class LinearMDP:
    """The factors of a linear MDP over finitely many states and actions."""

    features: FloatArray
    """phi(s, a), shape (S, A, d); each row lies on the simplex."""
    measures: FloatArray
    """mu_h, shape (H, d, S); each row is a next-state distribution."""
    reward_weights: FloatArray
    """theta_h, shape (H, d), in [0, 1/H] so that V_max = 1."""
    initial: FloatArray
    """d_0, shape (S,)."""

    def __post_init__(self) -> None:
        check_distributions("features", self.features)
        horizon = len(self.reward_weights)
        if self.reward_weights.min() < 0 or self.reward_weights.max() * horizon > 1 + 1e-9:
            raise HyqError(f"reward_weights must lie in [0, 1/H] = [0, {1 / horizon:g}]")

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        *,
        states: int = 10,
        actions: int = 4,
        dimension: int = 4,
        horizon: int = 5,
        concentration: float = 0.3,
    ) -> Self:
        """Draw factors; a smaller `concentration` makes features and measures more extreme."""
        return cls(
            features=rng.dirichlet(np.full(dimension, concentration), size=(states, actions)),
            measures=rng.dirichlet(np.full(states, concentration), size=(horizon, dimension)),
            reward_weights=rng.uniform(0.0, 1.0 / horizon, size=(horizon, dimension)),
            initial=rng.dirichlet(np.ones(states)),
        )

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The same MDP written out in full, for exact values."""
        return FiniteMDP(
            transition=np.einsum("sad,hdt->hsat", self.features, self.measures),
            reward=np.einsum("sad,hd->hsa", self.features, self.reward_weights),
            initial=self.initial,
        )

    @property
    def dimension(self) -> int:
        """The number of features d."""
        return int(self.features.shape[-1])

    @property
    def weight_bound(self) -> float:
        """Bound the weights of Q*, and of T f_{h+1} for all f_{h+1} with values in [0, V_{h+1}].

        They lie in [0, V_h]^d with V_h <= V_max = 1, so none is longer than sqrt(d). This is no B_W
        of the paper's definition: T maps some weights of this length to longer ones.
        """
        return float(np.sqrt(self.dimension))

    def optimal_weights(self) -> FloatArray:
        """Return w*_h with Q*_h = <w*_h, phi>, shape (H, d)."""
        value_next = np.einsum("hdt,ht->hd", self.measures, self.mdp.optimal_v()[1:])
        return self.reward_weights + value_next


class LinearMDPEnv(TabularEnv):
    """Copies of a linear MDP with finitely many actions."""

    def __init__(self, num_envs: int, linear: LinearMDP) -> None:
        self.linear = linear
        space = gym.spaces.Box(0.0, 1.0, shape=linear.features.shape[1:], dtype=np.float64)
        super().__init__(num_envs, linear.mdp, observation_space=space)

    def _observe(self, state: Array, h: IntArray) -> Array:
        return self.linear.features[state]


def random_linear_mdp(instance_seed: int = 0, **settings: Any) -> LinearMDP:
    """Draw the linear MDP that a seed names; `settings` are those of `LinearMDP.random`."""
    return LinearMDP.random(Streams(instance_seed).generator("linear-mdp-instance"), **settings)


def make_linear_mdp_vector(num_envs: int = 1, **settings: Any) -> LinearMDPEnv:
    """Simulate a random linear MDP; `settings` are those of `random_linear_mdp`."""
    return LinearMDPEnv(num_envs, random_linear_mdp(**settings))


make_linear_mdp = single(make_linear_mdp_vector)
