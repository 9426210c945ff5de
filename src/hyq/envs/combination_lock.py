"""The rich-observation combination lock (the paper's first benchmark).

Three latent states a step: two good ones, each with a secret good action that leads to one of the
good states of the next step, and a bad one that absorbs. Every mistake falls into the bad state.
Reward 1 waits at the end of the good chain; a small *anti-shaped* reward pays for falling. What the
agent sees is a noisy, rotated code of the latent state and the time.

The text of the paper pays the anti-shaped reward on every fall; the setting its authors released,
which made the paper's figure, pays it with probability one half. `anti_reward_probability` chooses.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from scipy.linalg import hadamard

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.seeding import Streams
from hyq.core.settings import check_choices, check_positive, check_range
from hyq.core.types import Array, FloatArray, IntArray
from hyq.envs.batched import BatchedEnv, single

LATENTS = 3
BAD = 2
DENSE_REWARD = 0.1
GAIN = 6.0
"""Of the layers of the nonlinear emission: most hidden units leave the linear part of tanh."""
Emission = Literal["shared", "per-step", "nonlinear"]


@dataclass(frozen=True)
class LockSpec:
    """Every parameter of a lock. Two locks with equal specs are the same MDP."""

    horizon: int = 100
    actions: int = 10
    switch_probability: float = 0.5
    """Chance that a good action leads to the *other* good state."""
    anti_reward: float = 0.1
    """Paid for falling from a good state into the bad one."""
    anti_reward_probability: float = 0.5
    """Chance that a fall is paid: 0.5 as released, 1.0 as the paper's text has it."""
    noise: float = 0.1
    """Standard deviation of the Gaussian noise on every coordinate before rotation."""
    rotate: bool = True
    """Multiply observations by a Hadamard matrix, which hides the coordinates."""
    emission: Emission = "shared"
    """One code of the latent states for all steps ("shared"), as in the paper; codes of its own for
    every step, rows of a random orthogonal matrix ("per-step"); or the unrotated shared code seen
    through a fixed random network of two layers ("nonlinear")."""
    dense: bool = False
    """Pay 0.1 for every good step, and nothing for falling."""
    variable_latent: bool = False
    """Redraw the latent state from a softmax of its own noisy code after each observation."""
    temperature: float = 0.1
    """Temperature of that softmax."""
    instance_seed: int = 0
    """Chooses the good actions."""

    def __post_init__(self) -> None:
        check_range("horizon", self.horizon, 1)
        check_range("actions", self.actions, 2)
        for name in ("switch_probability", "anti_reward_probability", "anti_reward"):
            check_range(name, getattr(self, name), 0, 1)
        check_range("noise", self.noise, 0)
        check_positive(self, "temperature")
        check_choices(self)
        if self.emission != "shared" and not self.rotate:
            raise HyqError("only the shared emission can go without rotation: leave rotate on")

    @property
    def observation_dim(self) -> int:
        """Length of an observation: latent and time codes, padded to a power of two."""
        return 1 << math.ceil(math.log2(self.horizon + 1 + LATENTS))

    @property
    def max_return(self) -> float:
        """V_max: the largest return of an episode."""
        return 1.0 + (DENSE_REWARD * (self.horizon - 1) if self.dense else 0.0)

    @property
    def optimal_return(self) -> float:
        """V*, or its bound V_max where no exact value is known (`variable_latent`)."""
        return self.max_return if self.variable_latent else self.latent_mdp().optimal_value()

    def good_actions(self) -> IntArray:
        """Return the secret: an (H, 2) table of the good action of each good state."""
        rng = Streams(self.instance_seed).generator("combination-lock", "good-actions")
        return rng.integers(self.actions, size=(self.horizon, 2))

    def latent_mdp(self) -> FiniteMDP:
        """Return the lock over its latent states, exactly."""
        if self.variable_latent:
            raise HyqError("a lock with variable_latent has no finite latent MDP")
        h, a, p = self.horizon, self.actions, self.switch_probability
        transition = np.zeros((h, LATENTS, a, LATENTS))
        reward = np.zeros((h, LATENTS, a))
        transition[..., BAD] = 1.0
        if not self.dense:
            reward[:, :BAD] = self.anti_reward * self.anti_reward_probability
        steps, good = np.arange(h), self.good_actions()
        for latent in range(BAD):
            after = (1 - p) * np.eye(LATENTS)[latent] + p * np.eye(LATENTS)[1 - latent]
            transition[steps, latent, good[:, latent]] = after
            reward[steps, latent, good[:, latent]] = DENSE_REWARD if self.dense else 0.0
            reward[-1, latent, good[-1, latent]] = 1.0
        return FiniteMDP(transition, reward, np.array([0.5, 0.5, 0.0]))


class CombinationLockVector(BatchedEnv):
    """Many copies of one lock. Its state is the latent state; observations never contain it."""

    def __init__(self, num_envs: int = 1, **parameters: Any) -> None:
        self.lock = LockSpec(**parameters)
        self.horizon = self.lock.horizon
        dim = self.lock.observation_dim
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (dim,), np.float32)
        self.single_action_space = gym.spaces.Discrete(self.lock.actions)
        super().__init__(num_envs)
        self._good = self.lock.good_actions()
        # A rotation maps isotropic noise to isotropic noise, so the noise is drawn already rotated
        # (sqrt(dim) larger, as the matrix is not normalised) and only the codes need the matrix.
        rotated = self.lock.rotate and self.lock.emission != "nonlinear"
        scale = math.sqrt(dim) if rotated else 1.0
        self._noise_scale = scale * self.lock.noise
        rng = Streams(self.lock.instance_seed).generator("combination-lock", "emission")
        if self.lock.emission == "per-step":
            matrices = rng.normal(size=(self.horizon + 1, dim, LATENTS + 1))
            rows = scale * np.linalg.qr(matrices)[0].swapaxes(1, 2)
            latent, time = rows[:, :LATENTS], rows[:, LATENTS:]
        else:
            basis = hadamard(dim) if rotated else np.eye(dim)
            latent, time = basis[None, :LATENTS], basis[LATENTS : LATENTS + self.horizon + 1, None]
        self._latent_code = np.broadcast_to(latent, (self.horizon + 1, LATENTS, dim))
        self._code = (latent + time).astype(np.float32)
        self._layers = np.zeros((0, dim, dim), np.float32)
        if self.lock.emission == "nonlinear":
            self._layers = np.linalg.qr(rng.normal(size=(2, dim, dim)))[0].astype(np.float32)
        # Torch draws normals twice as fast as NumPy; they are most of a step's cost.
        self._noise = torch.Generator()

    @property
    def latent(self) -> IntArray:
        """The latent state of each copy: for experts and diagnostics, never for agents."""
        return self._state

    def expert_action(self) -> IntArray:
        """Return the good action of each copy; in the bad state, that of the second good one."""
        return self._good[self._h, np.minimum(self._state, 1)]

    def place(self, latent: IntArray, h: int) -> Array:
        """Put every copy into a latent state at step `h` and observe it (for making data)."""
        self._state = latent.copy()
        self._h = np.full(self.num_envs, h)
        return self._observe(self._state, self._h)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start every copy in one of the two good states."""
        if seed is not None:
            self._noise.manual_seed(Streams(seed).integer("observation-noise"))
        return super().reset(seed=seed, options=options)

    def _initial_state(self, count: int) -> IntArray:
        return self.np_random.integers(2, size=count)

    def _advance(self, state: IntArray, action: Array, h: IntArray) -> tuple[IntArray, FloatArray]:
        lock, rng = self.lock, self.np_random
        was_good = state != BAD
        advances = was_good & (action == self._good[h, np.minimum(state, 1)])
        switches = rng.random(len(state)) < lock.switch_probability
        next_state = np.where(advances, np.where(switches, 1 - state, state), BAD)
        if lock.dense:
            reward = DENSE_REWARD * advances
        else:
            paid = rng.random(len(state)) < lock.anti_reward_probability
            reward = lock.anti_reward * (was_good & ~advances & paid)
        return next_state, np.where(advances & (h == self.horizon - 1), 1.0, reward)

    def _observe(self, state: IntArray, h: IntArray) -> FloatArray:
        noise = torch.empty((len(state), self._code.shape[-1]))
        observation = noise.normal_(0.0, self._noise_scale, generator=self._noise).numpy()
        observation += self._code[h, state]
        if self.lock.variable_latent and h.any():
            state[h > 0] = self._redraw(observation, h)[h > 0]
        if len(self._layers):
            inner, outer = self._layers
            return GAIN * np.tanh(GAIN * observation @ inner) @ outer
        return observation

    def _redraw(self, observation: FloatArray, h: IntArray) -> IntArray:
        code = self._latent_code[h]
        coordinates = np.einsum("nd,nkd->nk", observation, code) / np.square(code[0, 0]).sum()
        # The Gumbel trick: the argmax of logits plus Gumbel noise is a draw from their softmax.
        gumbel = self.np_random.gumbel(size=coordinates.shape)
        return np.argmax(coordinates / self.lock.temperature + gumbel, axis=1)


make_lock = single(CombinationLockVector)
