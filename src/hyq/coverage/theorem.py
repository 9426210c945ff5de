"""The right-hand sides of Theorem 1 and Corollary 1, with every constant of their proofs."""

import math
from dataclasses import dataclass

from hyq.core.errors import HyqError


@dataclass(frozen=True)
class Setting:
    """What the bound depends on besides T."""

    transfer: float
    """C_pi of the comparator."""
    rank: int
    """d, the bilinear rank."""
    horizon: int
    v_max: float
    log_class: float
    """log |F|, of the whole product class; for an infinite class, of a cover of it."""
    length: float
    """B_X B_W of the bilinear model."""
    delta: float = 0.05


def cumulative_bound(setting: Setting, iterations: int, m_off: int, m_on: int = 1) -> float:
    """Bound sum_t V^{pi^e} - V^{pi^t} with probability 1 - delta (the display before equation 10).

    The paper's proof treats f^1 = 0 as a regression's answer, which it is not; its first policy
    costs at most V_max, which is added.
    """
    s, t = setting, iterations
    log_term = math.log(2 * s.horizon * t / s.delta) + s.log_class
    potential = math.log1p(t / s.rank)
    offline = 16 * s.v_max * s.transfer * t * math.sqrt(s.horizon * log_term / m_off)
    online = 16 * s.v_max * math.sqrt(2 * s.rank * s.horizon**2 * t / m_on * potential * log_term)
    rest = s.horizon * s.length * math.sqrt(2 * s.rank * t * potential)
    return s.v_max + offline + online + rest


def sample_complexity(setting: Setting, epsilon: float) -> int:
    """Return the online and offline samples after which the average policy is epsilon-optimal.

    Corollary 1, with its constants: the smallest T whose bound, with m_off = T for every step and
    m_on = 1, is at most epsilon T; 2 H T samples in all.
    """
    if not epsilon > 0 or math.isinf(setting.transfer):
        raise HyqError(
            f"no number of samples is enough for epsilon {epsilon} and C_pi {setting.transfer}"
        )
    low, high = 1, 2
    while cumulative_bound(setting, high, high) > epsilon * high:
        low, high = high, 2 * high
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        if cumulative_bound(setting, middle, middle) > epsilon * middle:
            low = middle
        else:
            high = middle
    return 2 * setting.horizon * high


def cover_size(dimension: int, horizon: int, radius: float, resolution: float) -> float:
    """Return log |F| of the grid that the paper puts over linear classes of `dimension` weights."""
    return horizon * dimension * math.log1p(2.0 * radius / resolution)
