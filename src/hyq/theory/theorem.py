"""The right-hand sides of Theorem 1 and Corollary 1, with every constant of their proofs.

The constants are those of the corrected proof (docs/theory.md): the class has a range for every
step, which makes it complete and bounds the regression targets, and an infinite class pays for the
grid that stands for it.
"""

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
    largest: float
    """R: every f of the class and every target r + max f lies in [0, R]. V_max for the class of
    `largest_returns`; V_max + 1 for other classes in [0, V_max] when rewards are random."""
    length: float
    """B_X B_W of the bilinear model."""
    log_class: float = 0.0
    """log |F| of the whole product class, if it is finite."""
    parameters: int = 0
    """For an infinite class: how many numbers name a function, all steps together. Moving each by a
    share x of its range moves no value by more than x R."""
    delta: float = 0.05


def cumulative_bound(setting: Setting, iterations: int, m_off: int, m_on: int = 1) -> float:
    """Bound sum_t V^{pi^e} - V^{pi^t} with probability 1 - delta (the display before equation 10).

    The paper's proof treats f^1 = 0 as a regression's answer, which it is not; its first policy
    costs at most R, which is added. An infinite class is covered by T values a parameter, at most
    R / 2T from any function; over n samples that costs the regression 20 R (R / 2T) n.
    """
    s, t = setting, iterations
    log_term = math.log(2 * s.horizon * t / s.delta) + s.log_class + s.parameters * math.log(t)
    cover = 10 * (m_off / t + m_on) if s.parameters else 0.0
    error = s.largest * math.sqrt(256 * log_term + cover)
    potential = math.log1p(t / s.rank)
    offline = s.transfer * t * error * math.sqrt(s.horizon / m_off)
    online = error * math.sqrt(2 * s.rank * s.horizon**2 * t / m_on * potential)
    rest = s.horizon * s.length * math.sqrt(2 * s.rank * t * potential)
    return s.largest + offline + online + rest


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
