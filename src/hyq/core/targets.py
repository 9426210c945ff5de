"""Targets and derivatives of losses, in NumPy."""

import numpy as np

from hyq.core.types import FloatArray, IntArray


def bootstrap_target(
    r_t: FloatArray, discount_t: FloatArray, q_t: FloatArray, q_t_selector: FloatArray
) -> FloatArray:
    """Return the target of discounted Hy-Q (Algorithm 3): r + gamma f~(s', a').

    a' maximises `q_t_selector` (rows, A): the target network's own values `q_t` as the paper
    prints it, or the online network's for double Q-learning (van Hasselt et al. 2016).
    """
    return r_t + discount_t * q_t[np.arange(len(q_t)), q_t_selector.argmax(axis=1)]


def huber_slope(error: FloatArray) -> FloatArray:
    """Return the derivative of the Huber loss, quadratic within one of zero and linear beyond."""
    return np.clip(error, -1.0, 1.0)


def expectile_slope(error: FloatArray, expectile: float) -> FloatArray:
    """Return the derivative in v of |expectile - 1(u < 0)| u^2 / 2 with u = `error` = target - v.

    The asymmetric squared loss of implicit Q-learning (Kostrikov et al. 2022, equation 5).
    """
    return -np.where(error < 0, 1.0 - expectile, expectile) * error


def softmax(logits: FloatArray) -> FloatArray:
    """Return the softmax of each row."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def signed_log(reward: FloatArray) -> FloatArray:
    """Compress rewards of very different sizes: sign(r) log(1 + |r|)."""
    return np.sign(reward) * np.log1p(np.abs(reward))


def log_likelihood_slope(logits: FloatArray, action: IntArray) -> FloatArray:
    """Return the derivative in the logits of -log softmax(logits)[action], row by row.

    The loss of behaviour cloning, and the penalty of CQL(H) where the logits are Q-values.
    """
    slope = softmax(logits)
    slope[np.arange(len(slope)), action] -= 1.0
    return slope


def large_margin_slope(q_tm1: FloatArray, a_tm1: IntArray, margin: float) -> FloatArray:
    """Return the derivative in `q_tm1` (rows, A) of `large_margin_loss`.

    One for the action that would have to be beaten, minus one for the demonstrated action, and
    nothing where that is the same.
    """
    every = np.arange(len(q_tm1))
    raised = q_tm1 + margin
    raised[every, a_tm1] -= margin
    slope = np.zeros_like(q_tm1)
    slope[every, raised.argmax(axis=1)] += 1.0
    slope[every, a_tm1] -= 1.0
    return slope
