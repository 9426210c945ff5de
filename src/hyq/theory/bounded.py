"""C_pi of the class of tables with values in [0, V_max], where bounds may bind.

One V_max for all steps is the paper's class, which is not complete; `largest_returns` has bounds
for each (h, s, a) that make it so.

If Q* is positive wherever pi goes and rewards are not negative, the bounds do not matter: f =
Q* - small steps along the optimal residual d / nu stays inside them, and C_pi is that of all
functions. Otherwise the class is a polytope and f -> T f_{h+1} is linear on each of the pieces on
which one action is greedy in every state. On a piece, C_pi is the maximum of a linear function over
a norm, and setting the linear function to one and minimising the norm is a convex programme.
"""

import math
from itertools import product

import numpy as np
from scipy.optimize import linprog, nnls

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray, IntArray
from hyq.theory.transfer import check_pair, tabular_transfer

_PIECES = 4096
_FLOOR = 1e-7
"""Weight of what costs nothing, so that the programme has one solution."""


def bounds_do_not_bind(mdp: FiniteMDP, occupancy: FloatArray, v_max: float | FloatArray) -> bool:
    """Say whether [0, V_max] leaves C_pi as it is for the class of all functions."""
    q = mdp.optimal_q()
    inside = (q[occupancy > 0] > 0).all() and (q <= v_max).all()
    return bool(inside and mdp.reward.min() >= 0)


def bounded_transfer(
    mdp: FiniteMDP, occupancy: FloatArray, nu: FloatArray, v_max: float | FloatArray = 1.0
) -> float:
    """C_pi of F_h = {f : 0 <= f <= v_max}; exact, for MDPs small enough where the bounds bind.

    `v_max` is one bound for all, or an array of shape (H, S, A).
    """
    check_pair(occupancy, nu)
    if bounds_do_not_bind(mdp, occupancy, v_max):
        return tabular_transfer(occupancy, nu)
    choices = mdp.states * (mdp.horizon - 1)
    if mdp.actions**choices > _PIECES:
        raise HyqError(
            f"the class's bounds bind and {mdp.actions}^{choices} greedy policies are "
            "too many to try: use a smaller MDP, or tabular_transfer for an upper bound"
        )
    best = 0.0
    for greedy in product(range(mdp.actions), repeat=choices):
        # The greedy action of step 0 is never used, so one policy stands for all of them.
        table = np.zeros((mdp.horizon, mdp.states), dtype=np.int64)
        table[1:] = np.reshape(greedy, (mdp.horizon - 1, mdp.states))
        piece = _inequalities(mdp, table, v_max)
        best = max(best, _piece_transfer(piece, occupancy.ravel(), nu.ravel()))
    return best


def _inequalities(mdp: FiniteMDP, greedy: IntArray, v_max: float | FloatArray) -> FloatArray:
    """Return rows r with r . (g, t) >= 0 that hold for the f of one piece, and for no others.

    With given greedy actions f = Q - L g, where Q is their own value function and L invertible. For
    f = x / t, everything that is required of f is a linear inequality in (residual g, scale t).
    """
    h, s, a = mdp.reward.shape
    policy = np.eye(a)[greedy]
    cells = h * s * a
    move = np.zeros((h, s * a, h, s * a))
    for step in range(h - 1):
        law = np.einsum("sat,tb->satb", mdp.transition[step], policy[step + 1])
        move[step, :, step + 1] = law.reshape(s * a, s * a)
    back = np.linalg.inv(np.eye(cells) - move.reshape(cells, cells))
    x = np.hstack([-back, (back @ mdp.reward.ravel())[:, None]])
    top = np.zeros((cells, cells + 1))
    top[:, -1] = np.broadcast_to(v_max, mdp.reward.shape).ravel()
    chosen = np.eye(cells).reshape(h, s, a, cells)
    at_greedy = np.take_along_axis(chosen, greedy[:, :, None, None], axis=2)
    greedier = (at_greedy - chosen)[1:].reshape(-1, cells) @ x
    return np.vstack([x, top - x, greedier, np.eye(cells + 1)[-1:]])


def _piece_transfer(inequality: FloatArray, occupancy: FloatArray, nu: FloatArray) -> float:
    """Maximise <d, g> / ||g||_nu over a piece."""
    gain = np.append(occupancy, 0.0)
    # Some f may gain on pi and have no residual on the data.
    bounds = [(None, None) if free else (0.0, 0.0) for free in nu <= 0]
    nothing = np.zeros(len(inequality))
    found = linprog(-gain, A_ub=-inequality, b_ub=nothing, bounds=[*bounds, (0.0, 1.0)])
    if found.status == 3 or (found.success and -found.fun > 1e-9):
        return math.inf
    # min ||y|| with <d, g> >= 1, for y = (sqrt(nu) g, t): Lawson and Hanson's least distance
    # programme, whose solution is the residual of a non-negative least-squares problem.
    weight = np.sqrt(np.append(np.maximum(nu, _FLOOR**2), _FLOOR**2))
    rows = np.vstack([inequality, gain]) / weight
    scale = np.linalg.norm(rows, axis=1) + 1e-300
    rows, bound = rows / scale[:, None], np.append(nothing, 1.0) / scale
    matrix, target = np.vstack([rows.T, bound]), np.append(np.zeros(rows.shape[1]), 1.0)
    residual = matrix @ nnls(matrix, target)[0] - target
    if np.linalg.norm(residual) < 1e-9:
        return 0.0
    g = (-residual[:-1] / residual[-1] / weight)[:-1]
    numerator, cost = float(occupancy @ g), float(nu @ g**2)
    return numerator / math.sqrt(cost) if numerator > 0 and cost > 0 else 0.0
