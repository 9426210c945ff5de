"""Random problems for property tests, degenerate ones included."""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from hypothesis import strategies as st

from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray
from hyq.envs.linear import LinearMDP
from hyq.theory.transfer import check_pair

seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Instance:
    """An MDP, a policy with its occupancy, and offline distributions."""

    mdp: FiniteMDP
    policy: FloatArray
    occupancy: FloatArray
    nu: FloatArray
    rng: np.random.Generator


def random_policy(mdp: FiniteMDP, rng: np.random.Generator) -> FloatArray:
    """Draw a policy: optimal, deterministic or mixed, sometimes without some actions."""
    kind = rng.integers(4)
    if kind == 0:
        return mdp.greedy_policy(mdp.optimal_q())
    if kind == 1:
        return mdp.greedy_policy(rng.random(mdp.reward.shape))
    return rng.dirichlet(np.full(mdp.actions, 0.3 if kind == 2 else 3.0), size=mdp.reward.shape[:2])


def random_data(mdp: FiniteMDP, occupancy: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw nu: anything, an occupancy, a mixture with pi's, pi's own, or one that misses pairs."""
    kind = rng.integers(5)
    cells = mdp.states * mdp.actions
    anything = rng.dirichlet(np.full(cells, 0.5), size=mdp.horizon).reshape(occupancy.shape)
    if kind == 0:
        return anything
    if kind == 1:
        return mdp.occupancy(random_policy(mdp, rng))
    if kind == 2:
        share = rng.uniform(0.05, 1.0)
        return share * occupancy + (1 - share) * anything
    if kind == 3:
        return occupancy.copy()
    holes = np.where(rng.random(anything.shape) < 0.3, 0.0, anything + 1e-3)
    holes[:, 0, 0] += 1e-3
    return holes / holes.sum(axis=(1, 2), keepdims=True)


def random_instance(seed: int) -> Instance:
    """Draw a small tabular problem; a third of them have nearly deterministic transitions."""
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP.random(
        rng,
        states=int(rng.integers(1, 5)),
        actions=int(rng.integers(1, 4)),
        horizon=int(rng.integers(1, 5)),
        concentration=float(rng.choice([0.01, 0.3, 1.0])),
    )
    policy = random_policy(mdp, rng)
    occupancy = mdp.occupancy(policy)
    return Instance(mdp, policy, occupancy, random_data(mdp, occupancy, rng), rng)


def random_linear(seed: int) -> tuple[LinearMDP, Instance]:
    """Draw a linear MDP; its data may leave feature directions out."""
    rng = np.random.default_rng(seed)
    linear = LinearMDP.random(
        rng,
        states=int(rng.integers(2, 7)),
        actions=int(rng.integers(1, 4)),
        dimension=int(rng.integers(1, 5)),
        horizon=int(rng.integers(1, 5)),
    )
    policy = random_policy(linear.mdp, rng)
    occupancy = linear.mdp.occupancy(policy)
    nu = random_data(linear.mdp, occupancy, rng)
    return linear, Instance(linear.mdp, policy, occupancy, nu, rng)


def random_product_class(instance: Instance, members: int) -> FloatArray:
    """Draw a finite product class with Q* in it, shape (H, K, S, A), values in [0, 1]."""
    mdp, rng = instance.mdp, instance.rng
    tables = rng.random((mdp.horizon, members, mdp.states, mdp.actions))
    tables[:, 0] = mdp.optimal_q()
    return tables


def enumerate_product(tables: FloatArray) -> FloatArray:
    """Write a product class, shape (H, K, S, A), out as a joint one, shape (K^H, H, S, A)."""
    horizon, members = tables.shape[:2]
    choices = np.array(list(product(range(members), repeat=horizon)))
    return tables[np.arange(horizon), choices]


def joint_transfer(residuals: FloatArray, occupancy: FloatArray, nu: FloatArray) -> float:
    """C_pi of a joint class by trying every function; `residuals` has shape (K, H, S, A)."""
    check_pair(occupancy, nu)
    numerator = np.einsum("hsa,khsa->k", occupancy, residuals)
    cost = np.einsum("hsa,khsa->k", nu, residuals**2)
    if np.any((cost <= 1e-12) & (numerator > math.sqrt(1e-12))):
        return math.inf
    counts = (numerator > 0) & (cost > 1e-12)
    ratios = numerator[counts] / np.sqrt(cost[counts])
    return float(ratios.max(initial=0.0))
