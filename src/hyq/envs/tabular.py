"""Any finite MDP as an environment: the simplest place to check that learning is right."""

from typing import Any, Literal

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.seeding import Streams
from hyq.core.settings import decode_value
from hyq.core.types import Array, FloatArray, IntArray
from hyq.envs.batched import BatchedEnv, single

RewardNoise = Literal["none", "bernoulli"]


class TabularEnv(BatchedEnv):
    """Copies of a `FiniteMDP`; the observation is the state's index, unless a subclass shows more.

    Such a subclass overrides `_observe` and gives the `observation_space`.
    """

    def __init__(
        self,
        num_envs: int,
        mdp: FiniteMDP,
        reward_noise: RewardNoise = "none",
        observation_space: gym.Space[Any] | None = None,
    ) -> None:
        decode_value("reward_noise", RewardNoise, reward_noise)
        if reward_noise == "bernoulli" and not (0 <= mdp.reward.min() <= mdp.reward.max() <= 1):
            raise HyqError("bernoulli rewards need means in [0, 1]: rescale the MDP's rewards")
        self.mdp = mdp
        self.horizon = mdp.horizon
        self.single_observation_space = observation_space or gym.spaces.Discrete(mdp.states)
        self.single_action_space = gym.spaces.Discrete(mdp.actions)
        super().__init__(num_envs)
        self._bernoulli = reward_noise == "bernoulli"

    def _initial_state(self, count: int) -> Array:
        return draw_index(np.tile(self.mdp.initial, (count, 1)), self.np_random)

    def _advance(self, state: Array, action: Array, h: IntArray) -> tuple[Array, FloatArray]:
        mean: FloatArray = self.mdp.reward[h, state, action]
        next_state = draw_index(self.mdp.transition[h, state, action], self.np_random)
        if self._bernoulli:
            return next_state, (self.np_random.random(len(mean)) < mean).astype(np.float64)
        return next_state, mean

    def _observe(self, state: Array, h: IntArray) -> Array:
        return state.copy()


def make_tabular_vector(
    num_envs: int = 1,
    *,
    instance_seed: int = 0,
    reward_noise: RewardNoise = "none",
    **settings: Any,
) -> TabularEnv:
    """Simulate the random MDP that a seed names; `settings` are those of `FiniteMDP.random`."""
    mdp = FiniteMDP.random(Streams(instance_seed).generator("tabular-instance"), **settings)
    return TabularEnv(num_envs, mdp, reward_noise)


make_tabular = single(make_tabular_vector)


def draw_index(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw an index from each row: the first whose cumulative probability exceeds a uniform one."""
    cumulative = np.cumsum(probabilities, axis=-1)
    # Divided by the total, so that rounding never leaves a gap below one.
    cumulative = cumulative / cumulative[:, -1:]
    return (cumulative <= rng.random((len(cumulative), 1))).sum(axis=-1)
