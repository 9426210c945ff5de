"""The temporal-difference maths: pure, shape-checked, time-indexed functions.

Names follow the convention `x_tm1` for what was known before the transition and `x_t` for what it
revealed, so that `r_t + discount_t * v_t` reads as the paper's `r + max_a' f_{h+1}(s', a')`.
"""

import numpy as np
import torch

from hyq.core.types import FloatArray


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
