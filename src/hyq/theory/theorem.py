"""The right-hand sides of the paper's theorems and corollaries, with all constants of their proofs.

The constants are those of the corrected proof (docs/theory.md): the class has a range for every
step, which makes it complete and bounds the regression targets, and an infinite class pays for the
grid that stands for it.
"""

import math
from dataclasses import dataclass, replace

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
    actions: int = 1
    """|A| for Algorithm 2, whose online actions are uniform; 1 for Algorithm 1."""
    log_class: float = 0.0
    """log |F| of the whole product class, if it is finite."""
    parameters: int = 0
    """For an infinite class: how many numbers name a function, all steps together."""
    spread: float = 1.0
    """Moving each of these by a share x of its range moves no value by more than x R times this."""
    delta: float = 0.05


def linear_setting(
    transfer: float, dimension: int, horizon: int, reward: float = 1.0, delta: float = 0.05
) -> Setting:
    """Return the setting of linear Bellman-complete models with features of length at most one.

    The class is the one that docs/theory.md proves complete, V_h = (H - h) r_max for the largest
    `reward` r_max: weights of length at most sqrt(d) V_h and values in [0, V_h]. Residuals are
    differences of two such functions, and mean features are at most one long.
    """
    largest, width = horizon * reward, math.sqrt(dimension)
    return Setting(
        transfer,
        dimension,
        horizon,
        largest,
        length=2 * width * largest,
        parameters=dimension * horizon,
        # Weights in [-sqrt(d) V, sqrt(d) V], and features whose entries add up to sqrt(d) at most.
        spread=2.0 * dimension,
        delta=delta,
    )


def low_rank_setting(
    transfer: float,
    dimension: int,
    horizon: int,
    actions: int,
    log_features: float,
    reward: float = 1.0,
    delta: float = 0.05,
) -> Setting:
    """Return the setting of Algorithm 2 in low-rank MDPs; `log_features` is log |Phi|.

    Every step chooses its features from Phi. What V-type surprise is linear in are the features of
    the step before; the measures mu take residuals, of R at most, to weights of sqrt(d) R.
    """
    known = linear_setting(transfer, dimension, horizon, reward, delta)
    return replace(
        known,
        actions=actions,
        log_class=horizon * log_features,
        length=math.sqrt(dimension) * known.largest,
    )


def cumulative_bound(setting: Setting, iterations: int, m_off: int, m_on: int = 1) -> float:
    """Bound sum_t V^{pi^e} - V^{pi^t} with probability 1 - delta, for Algorithm 1 or 2.

    These are the displays before equation 10 and before the V-type's last. The paper's proof treats
    f^1 = 0 as a regression's solution, which it is not; its first policy costs at most R, which is
    added.
    """
    s, t = setting, iterations
    error, potential = _error(s, t, m_off, m_on), math.log1p(t / s.rank)
    offline = s.transfer * t * error * math.sqrt(s.horizon / m_off)
    online = error * math.sqrt(2 * s.rank * s.horizon**2 * s.actions * t / m_on * potential)
    rest = s.horizon * s.length * math.sqrt(2 * s.rank * t * potential)
    return s.largest + offline + online + rest


def eluder_bound(setting: Setting, iterations: int, m_off: int, m_on: int, gamma: float) -> float:
    """Bound the same for Algorithm 1 where `rank` is the Bellman eluder dimension d at `gamma`.

    Lemma 41 of Jin et al. (2021), as docs/theory.md corrects it, with constants: if the squares
    that come before stay below beta, k residuals of at most R add up to no more than
    2 sqrt(d beta k) + min(k, d) R + k gamma. (At most (beta / x^2 + 1) d of them exceed x > gamma,
    so the i-th largest beyond the first d is at most sqrt(d beta / (i - d)).)
    """
    s, t = setting, iterations
    error = _error(s, t, m_off, m_on)
    step = 2 * error * math.sqrt(s.rank * t / m_on) + min(t, s.rank) * s.largest + t * gamma
    return s.largest + s.transfer * t * error * math.sqrt(s.horizon / m_off) + s.horizon * step


def _error(setting: Setting, iterations: int, m_off: int, m_on: int) -> float:
    """Return the root of the FQI guarantee: no sum of squared residuals over samples is larger.

    An infinite class is covered by T values for a parameter (and `spread` times as many), at most
    R / 2T from any function; over n samples that costs the regression 20 R (R / 2T) n.
    """
    s, t = setting, iterations
    log_term = math.log(2 * s.horizon * t / s.delta) + s.log_class
    log_term += s.parameters * math.log(s.spread * t)
    cover = 10 * (m_off / t + m_on) if s.parameters else 0.0
    return s.largest * math.sqrt(256 * log_term + cover)


def sample_complexity(setting: Setting, epsilon: float) -> int:
    """Return the online and offline samples after which the average policy is epsilon-optimal.

    Corollary 1, or the V-type's, with its constants: the smallest T whose bound, with m_off = T for
    every step and m_on = |A| (1 for Algorithm 1), is at most epsilon T; (1 + m_on) H T samples.
    Samples are the tuples that are kept: roll-ins of the V-type cost more transitions.
    """
    if not epsilon > 0 or math.isinf(setting.transfer):
        raise HyqError(
            f"no number of samples is enough for epsilon {epsilon} and C_pi {setting.transfer}"
        )

    def enough(t: int) -> bool:
        return cumulative_bound(setting, t, t, setting.actions) <= epsilon * t

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return (1 + setting.actions) * setting.horizon * high
