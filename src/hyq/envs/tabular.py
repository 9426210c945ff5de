"""Any finite MDP as an environment: the simplest place to check that learning is right."""

from typing import Literal

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.seeding import Streams
from hyq.core.settings import decode_value
from hyq.core.types import Array, FloatArray, IntArray
from hyq.envs.batched import BatchedEnv, single

RewardNoise = Literal["none", "bernoulli"]


class RowSampler:
    """Draws next states and initial states of a `FiniteMDP` by inverting cumulative rows."""

    def __init__(self, mdp: FiniteMDP) -> None:
        self._transition = _cumulative(mdp.transition)
        self._initial = _cumulative(mdp.initial)

    def initial(self, rng: np.random.Generator, count: int) -> IntArray:
        """Draw `count` states from d_0."""
        return _invert(np.broadcast_to(self._initial, (count, len(self._initial))), rng)

    def next_state(
        self, rng: np.random.Generator, h: IntArray, state: IntArray, action: IntArray
    ) -> IntArray:
        """Draw s' ~ P_h(s, a) for each row."""
        return _invert(self._transition[h, state, action], rng)


class TabularEnv(BatchedEnv):
    """Copies of a `FiniteMDP`; the observation is the state's index."""

    def __init__(self, num_envs: int, mdp: FiniteMDP, reward_noise: RewardNoise = "none") -> None:
        decode_value("reward_noise", RewardNoise, reward_noise)
        if reward_noise == "bernoulli" and not (0 <= mdp.reward.min() <= mdp.reward.max() <= 1):
            raise HyqError("bernoulli rewards need means in [0, 1]: rescale the MDP's rewards")
        self.mdp = mdp
        self.horizon = mdp.horizon
        self.single_observation_space = gym.spaces.Discrete(mdp.states)
        self.single_action_space = gym.spaces.Discrete(mdp.actions)
        super().__init__(num_envs)
        self._sampler = RowSampler(mdp)
        self._bernoulli = reward_noise == "bernoulli"

    def _initial_state(self, count: int) -> Array:
        return self._sampler.initial(self.np_random, count)

    def _advance(self, state: Array, action: Array, h: IntArray) -> tuple[Array, FloatArray]:
        mean: FloatArray = self.mdp.reward[h, state, action]
        next_state = self._sampler.next_state(self.np_random, h, state, action)
        if self._bernoulli:
            return next_state, (self.np_random.random(len(mean)) < mean).astype(np.float64)
        return next_state, mean

    def _observe(self, state: Array, h: IntArray) -> Array:
        return state.copy()


def make_tabular_vector(
    num_envs: int = 1,
    *,
    states: int = 5,
    actions: int = 3,
    horizon: int = 5,
    instance_seed: int = 0,
    reward_noise: RewardNoise = "none",
) -> TabularEnv:
    """Simulate the random MDP that `instance_seed` names."""
    rng = Streams(instance_seed).generator("tabular-instance")
    mdp = FiniteMDP.random(rng, states=states, actions=actions, horizon=horizon)
    return TabularEnv(num_envs, mdp, reward_noise)


make_tabular = single(make_tabular_vector)


def _cumulative(rows: FloatArray) -> FloatArray:
    """Cumulate, dividing by the total so that rounding never leaves a gap below one."""
    cumulative = np.cumsum(rows, axis=-1)
    return cumulative / cumulative[..., -1:]


def _invert(cumulative: FloatArray, rng: np.random.Generator) -> IntArray:
    """Pick the first index whose cumulative probability exceeds a uniform draw, row by row."""
    return (cumulative <= rng.random((len(cumulative), 1))).sum(axis=-1)
