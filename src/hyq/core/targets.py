"""The temporal-difference maths: pure, shape-checked, time-indexed functions.

Names follow the convention `x_tm1` for what was known before the transition and `x_t` for what it
revealed, so that `r_t + discount_t * v_t` reads as the paper's `r + max_a' f_{h+1}(s', a')`.
"""

import numpy as np
import torch

from hyq.core.types import FloatArray, IntArray


def optimality_target(
    r_t: FloatArray, discount_t: FloatArray, v_t: FloatArray, value_range: tuple[float, float]
) -> FloatArray:
    """Regression target of Hy-Q's FQI step (Algorithm 1, line 7): r + max_a' f_{h+1}(s', a').

    `v_t` is max_a' f_{h+1}(s', a'). The target is kept inside `value_range`, [0, V_max] in
    the paper, so that one bad fit cannot push values out of the class and down the chain.
    """
    _same_length(r_t, discount_t, v_t)
    return np.clip(r_t + discount_t * v_t, *value_range)


def td_error(q_tm1: FloatArray, target_tm1: FloatArray) -> FloatArray:
    """Sampled Bellman residual f_h(s, a) - (r + max_a' f_{h+1}(s', a'))."""
    _same_length(q_tm1, target_tm1)
    return q_tm1 - target_tm1


def chosen(q_tm1: torch.Tensor, a_tm1: torch.Tensor) -> torch.Tensor:
    """Return Q(s, a): the entries of `q_tm1` (..., A) at the actions `a_tm1` (...)."""
    return q_tm1.gather(-1, a_tm1[..., None])[..., 0]


def conservative_penalty(q_tm1: torch.Tensor, a_tm1: torch.Tensor) -> torch.Tensor:
    """Regulariser of CQL(H) (Kumar et al. 2020, equation 4): log sum_a exp Q(s, a) - Q(s, a_data).

    It is the negative log-likelihood of the logged action under the softmax policy of Q.
    """
    return q_tm1.logsumexp(-1) - chosen(q_tm1, a_tm1)


def large_margin_loss(q_tm1: torch.Tensor, a_tm1: torch.Tensor, margin: float) -> torch.Tensor:
    """Supervised loss of DQfD (Hester et al. 2018): max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E).

    l(a_E, a) is `margin` for a different from the demonstrated action a_E, and zero for a_E.
    """
    demonstrated = torch.nn.functional.one_hot(a_tm1, q_tm1.shape[-1])
    return (q_tm1 + margin * (1 - demonstrated)).amax(-1) - chosen(q_tm1, a_tm1)


def _same_length(*arrays: FloatArray) -> None:
    if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
        raise ValueError(f"expected vectors of one length, got {[a.shape for a in arrays]}")


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
