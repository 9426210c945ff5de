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
    shapes = {array.shape for array in (r_t, discount_t, v_t)}
    if len(shapes) != 1 or r_t.ndim != 1:
        raise ValueError(f"expected vectors of one length, got {shapes}")
    return np.clip(r_t + discount_t * v_t, *value_range)
