"""The targets of fitted Q-iteration: `x_tm1` is known before the transition, `x_t` after it.

Thus `r_t + discount_t * v_t` reads as the paper's `r + max_a' f_{h+1}(s', a')`.
"""

import numpy as np

from hyq.core.types import FloatArray


def optimality_target(
    r_t: FloatArray, discount_t: FloatArray, v_t: FloatArray, value_range: tuple[float, float]
) -> FloatArray:
    """Return the target of Hy-Q's FQI step (Algorithm 1, line 7): r + max_a' f_{h+1}(s', a').

    `v_t` is max_a' f_{h+1}(s', a'). The target is kept inside `value_range`, [0, V_max] in
    the paper, so that one bad fit cannot push values out of the class and down the chain.
    """
    _same_length(r_t, discount_t, v_t)
    return np.clip(r_t + discount_t * v_t, *value_range)


def td_error(q_tm1: FloatArray, target_tm1: FloatArray) -> FloatArray:
    """Return the sampled Bellman residual f_h(s, a) - (r + max_a' f_{h+1}(s', a'))."""
    _same_length(q_tm1, target_tm1)
    return q_tm1 - target_tm1


def _same_length(*arrays: FloatArray) -> None:
    if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
        raise ValueError(f"expected vectors of one length, got {[a.shape for a in arrays]}")


def softmax(logits: FloatArray) -> FloatArray:
    """Return the softmax of each row."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
