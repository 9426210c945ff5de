"""The linear-quadratic regulator: continuous states and actions with an exact solution.

    x_{h+1} = A x_h + B u_h + noise,    r_h = -(x_h' Q x_h + u_h' R u_h),    h = 0, ..., H - 1.

Values are quadratic in the state, so Q* is linear in the monomials of (x, u): the paper's second
example of linear Bellman completeness.
"""

from dataclasses import dataclass
from typing import Any, Self

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, IntArray
from hyq.envs.batched import BatchedEnv, single


@dataclass(frozen=True, eq=False)
class RiccatiSolution:
    """A policy u = -gain_h x and its value V_h(x) = -(x' cost_h x + constant_h)."""

    cost: FloatArray
    """Shape (H + 1, n, n); the last is zero."""
    constant: FloatArray
    """What the noise costs from step h on, shape (H + 1,)."""
    gain: FloatArray
    """Shape (H, m, n)."""


@dataclass(frozen=True, eq=False)
class LinearQuadratic:
    """A finite-horizon regulator; x_0 ~ N(0, initial_scale^2 I)."""

    dynamics: FloatArray
    """A, shape (n, n)."""
    control: FloatArray
    """B, shape (n, m)."""
    state_cost: FloatArray
    """Q, shape (n, n), positive semi-definite."""
    action_cost: FloatArray
    """R, shape (m, m), positive definite."""
    horizon: int
    noise_scale: float
    """Standard deviation of the noise on each coordinate of the state."""
    initial_scale: float = 1.0

    def __post_init__(self) -> None:
        n, m = self.control.shape
        for name, size in (("dynamics", n), ("state_cost", n), ("action_cost", m)):
            shape = getattr(self, name).shape
            if shape != (size, size):
                raise HyqError(f"{name} must have shape {(size, size)}, got {shape}")
        if not all(np.allclose(cost, cost.T) for cost in (self.state_cost, self.action_cost)):
            raise HyqError("state_cost and action_cost must be symmetric")
        if np.linalg.eigvalsh(self.action_cost).min() <= 0:
            raise HyqError("action_cost must be positive definite: raise its smallest eigenvalue")
        if np.linalg.eigvalsh(self.state_cost).min() < -1e-12:
            raise HyqError("state_cost must be positive semi-definite")

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        *,
        state_dimension: int = 3,
        action_dimension: int = 2,
        horizon: int = 5,
        noise_scale: float = 0.05,
        spectral_radius: float = 0.9,
    ) -> Self:
        """Draw Gaussian dynamics rescaled to `spectral_radius`, with unit costs."""
        dynamics = rng.standard_normal((state_dimension, state_dimension))
        dynamics *= spectral_radius / np.abs(np.linalg.eigvals(dynamics)).max()
        control = rng.standard_normal((state_dimension, action_dimension))
        return cls(
            dynamics=dynamics,
            control=control / np.linalg.norm(control, axis=0),
            state_cost=np.eye(state_dimension),
            action_cost=np.eye(action_dimension),
            horizon=horizon,
            noise_scale=noise_scale,
        )

    def riccati(self, gain: FloatArray | None = None) -> RiccatiSolution:
        """Evaluate u = -gain_h x backwards, or without a gain find the best one on the way."""
        n, m = self.control.shape
        if gain is not None and gain.shape != (self.horizon, m, n):
            raise HyqError(f"gain must have shape {(self.horizon, m, n)}, got {gain.shape}")
        cost, constant = np.zeros((self.horizon + 1, n, n)), np.zeros(self.horizon + 1)
        gains = np.zeros((self.horizon, m, n)) if gain is None else gain
        for h in reversed(range(self.horizon)):
            after = cost[h + 1]
            if gain is None:
                through = self.control.T @ after
                curvature = self.action_cost + through @ self.control
                gains[h] = np.linalg.solve(curvature, through @ self.dynamics)
            closed_loop = self.dynamics - self.control @ gains[h]
            acting = gains[h].T @ self.action_cost @ gains[h]
            cost[h] = self.state_cost + acting + closed_loop.T @ after @ closed_loop
            constant[h] = constant[h + 1] + self.noise_scale**2 * np.trace(after)
        return RiccatiSolution(cost=cost, constant=constant, gain=gains)

    def policy_value(self, gain: FloatArray | None = None) -> float:
        """Return V^pi = E_{x ~ d_0} V^pi_0(x) of u = -gain_h x, shape (H, m, n)."""
        found = self.riccati(gain)
        return -float(self.initial_scale**2 * np.trace(found.cost[0]) + found.constant[0])

    def optimal_value(self) -> float:
        """Return V*."""
        return self.policy_value()


class LQREnv(BatchedEnv):
    """Copies of a regulator; the observation is the state x."""

    def __init__(self, num_envs: int, system: LinearQuadratic) -> None:
        n, m = system.control.shape
        self.system = system
        self.horizon = system.horizon
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (n,), dtype=np.float64)
        self.single_action_space = gym.spaces.Box(-np.inf, np.inf, (m,), dtype=np.float64)
        super().__init__(num_envs)

    def _initial_state(self, count: int) -> Array:
        shape = (count, len(self.system.dynamics))
        return self.system.initial_scale * self.np_random.standard_normal(shape)

    def _advance(self, state: Array, action: Array, h: IntArray) -> tuple[Array, FloatArray]:
        system = self.system
        cost = np.einsum("ni,ij,nj->n", state, system.state_cost, state)
        cost += np.einsum("ni,ij,nj->n", action, system.action_cost, action)
        noise = system.noise_scale * self.np_random.standard_normal(state.shape)
        return state @ system.dynamics.T + action @ system.control.T + noise, -cost

    def _observe(self, state: Array, h: IntArray) -> Array:
        return state.copy()


def make_lqr_vector(num_envs: int = 1, *, instance_seed: int = 0, **settings: Any) -> LQREnv:
    """Simulate the regulator that a seed names; `settings` are `LinearQuadratic.random`'s."""
    rng = Streams(instance_seed).generator("lqr-instance")
    return LQREnv(num_envs, LinearQuadratic.random(rng, **settings))


make_lqr = single(make_lqr_vector)
