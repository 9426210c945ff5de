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
    """The optimal value V*_h(x) = -(x' cost_h x + constant_h) and policy u = -gain_h x."""

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

    def riccati(self) -> RiccatiSolution:
        """Solve for the optimal policy and its value by the backward Riccati recursion."""
        n, m = self.control.shape
        cost = np.zeros((self.horizon + 1, n, n))
        constant = np.zeros(self.horizon + 1)
        gain = np.zeros((self.horizon, m, n))
        for h in reversed(range(self.horizon)):
            after = cost[h + 1]
            through_control = self.control.T @ after
            gain[h] = np.linalg.solve(
                self.action_cost + through_control @ self.control, through_control @ self.dynamics
            )
            closed_loop = self.dynamics - self.control @ gain[h]
            cost[h] = self.state_cost + self.dynamics.T @ after @ closed_loop
            cost[h] = (cost[h] + cost[h].T) / 2
            constant[h] = constant[h + 1] + self.noise_scale**2 * np.trace(after)
        return RiccatiSolution(cost=cost, constant=constant, gain=gain)

    def optimal_value(self) -> float:
        """Return V* = E_{x ~ d_0} V*_0(x)."""
        solution = self.riccati()
        return -self._expected_initial(solution.cost[0]) - float(solution.constant[0])

    def policy_value(self, gain: FloatArray) -> float:
        """Return V^pi of u = -gain_h x, gain of shape (H, m, n)."""
        n, m = self.control.shape
        if gain.shape != (self.horizon, m, n):
            raise HyqError(f"gain must have shape {(self.horizon, m, n)}, got {gain.shape}")
        cost, constant = np.zeros((n, n)), 0.0
        for k in gain[::-1]:
            closed_loop = self.dynamics - self.control @ k
            constant += self.noise_scale**2 * float(np.trace(cost))
            cost = self.state_cost + k.T @ self.action_cost @ k + closed_loop.T @ cost @ closed_loop
        return -self._expected_initial(cost) - constant

    def _expected_initial(self, cost: FloatArray) -> float:
        return self.initial_scale**2 * float(np.trace(cost))


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
