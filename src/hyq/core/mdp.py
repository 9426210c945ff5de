"""Exact finite-horizon MDPs: the ground truth that learning is measured against.

Everything the paper's Preliminaries define as an expectation (Q*, V*, Q^pi, V^pi, the occupancy
d_h^pi and the Bellman operator T) is a few matrix products when states and actions are finite.
Transitions and rewards may depend on the step h, as the optimal policy does anyway.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import FloatArray

_ROW_SUM_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A finite-horizon MDP M(S, A, H, R, P, d_0) written out as arrays.

    Policies are arrays of shape (H, S, A) whose last axis is a distribution over actions.
    """

    transition: FloatArray
    """P_h(s' | s, a), shape (H, S, A, S)."""
    reward: FloatArray
    """Mean reward E[R_h(s, a)], shape (H, S, A)."""
    initial: FloatArray
    """d_0, shape (S,)."""

    def __post_init__(self) -> None:
        for name in ("transition", "reward", "initial"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.reward.ndim != 3 or 0 in self.reward.shape:
            raise HyqError(f"reward must have shape (H, S, A), got {self.reward.shape}")
        states = self.reward.shape[1]
        if self.transition.shape != (*self.reward.shape, states):
            raise HyqError(
                f"transition must have shape {(*self.reward.shape, states)} to match reward, "
                f"got {self.transition.shape}"
            )
        if self.initial.shape != (states,):
            raise HyqError(f"initial must have shape {(states,)}, got {self.initial.shape}")
        if not np.isfinite(self.reward).all():
            raise HyqError("reward must be finite everywhere")
        check_distributions("transition", self.transition)
        check_distributions("initial", self.initial)

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        *,
        states: int = 5,
        actions: int = 3,
        horizon: int = 5,
        concentration: float = 1.0,
    ) -> Self:
        """Draw an MDP with Dirichlet transitions and uniform rewards in [0, 1/H], so V_max = 1.

        A smaller `concentration` makes transitions closer to deterministic.
        """
        alpha = np.full(states, concentration)
        return cls(
            transition=rng.dirichlet(alpha, size=(horizon, states, actions)),
            reward=rng.uniform(0.0, 1.0 / horizon, size=(horizon, states, actions)),
            initial=rng.dirichlet(np.ones(states)),
        )

    @property
    def horizon(self) -> int:
        """H, the number of steps in an episode."""
        return len(self.reward)

    @property
    def states(self) -> int:
        """The number of states."""
        return len(self.initial)

    @property
    def actions(self) -> int:
        """The number of actions."""
        return int(self.reward.shape[2])

    def bellman(self, h: int, f_next: FloatArray | None) -> FloatArray:
        """Apply the Bellman operator: (T f_{h+1})(s, a) = E[R] + E_{s'} max_a' f_{h+1}(s', a').

        `f_next` has shape (S, A); None stands for f_H = 0.
        """
        value = np.zeros(self.states) if f_next is None else f_next.max(axis=-1)
        return self._backup(h, value)

    def optimal_q(self) -> FloatArray:
        """Return Q*, shape (H, S, A)."""
        q = np.empty_like(self.reward)
        f_next: FloatArray | None = None
        for h in reversed(range(self.horizon)):
            q[h] = f_next = self.bellman(h, f_next)
        return q

    def optimal_v(self) -> FloatArray:
        """Return V*, shape (H + 1, S); the last row is V*_H = 0."""
        return np.concatenate([self.optimal_q().max(axis=-1), np.zeros((1, self.states))])

    def optimal_value(self) -> float:
        """Return V* = E_{s ~ d_0} V*_0(s)."""
        return float(self.initial @ self.optimal_v()[0])

    def policy_q(self, policy: FloatArray) -> FloatArray:
        """Return Q^pi, shape (H, S, A)."""
        self._check_policy(policy)
        q = np.empty_like(self.reward)
        v_next = np.zeros(self.states)
        for h in reversed(range(self.horizon)):
            q[h] = self._backup(h, v_next)
            v_next = (policy[h] * q[h]).sum(axis=-1)
        return q

    def value(self, policy: FloatArray) -> float:
        """Return V^pi = E_{s ~ d_0} V^pi_0(s)."""
        return float(self.initial @ (policy[0] * self.policy_q(policy)[0]).sum(axis=-1))

    def occupancy(self, policy: FloatArray) -> FloatArray:
        """Return d_h^pi(s, a), the law of (s_h, a_h) under `policy`, shape (H, S, A)."""
        self._check_policy(policy)
        occupancy = np.empty_like(self.reward)
        state_law = self.initial
        for h in range(self.horizon):
            occupancy[h] = state_law[:, None] * policy[h]
            state_law = np.tensordot(occupancy[h], self.transition[h], axes=2)
        return occupancy

    def greedy_policy(self, q: FloatArray) -> FloatArray:
        """Return pi^f for f = `q`, one-hot of shape (H, S, A); the lowest action wins ties."""
        return np.eye(self.actions)[q.argmax(axis=-1)]

    def uniform_policy(self) -> FloatArray:
        """Return the policy that picks every action equally often."""
        return np.full_like(self.reward, 1.0 / self.actions)

    def _backup(self, h: int, v_next: FloatArray) -> FloatArray:
        return self.reward[h] + self.transition[h] @ v_next

    def _check_policy(self, policy: FloatArray) -> None:
        if policy.shape != self.reward.shape:
            raise HyqError(f"a policy must have shape {self.reward.shape}, got {policy.shape}")
        check_distributions("policy", policy)


def check_distributions(name: str, rows: FloatArray) -> None:
    """Raise unless the last axis of `rows` holds probability distributions."""
    if not (np.isfinite(rows).all() and (rows >= 0.0).all()):
        raise HyqError(f"{name} must hold finite, non-negative probabilities")
    error = np.abs(rows.sum(axis=-1) - 1.0).max()
    if error > _ROW_SUM_TOLERANCE:
        raise HyqError(f"{name} must sum to one over its last axis (off by {error:.2g})")
