"""How much each transition counts, so that neither source is ever forgotten."""

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import FloatArray


def mixing_weights(offline: int, online: int, offline_share: float | None) -> FloatArray:
    """Weigh `offline` rows followed by `online` rows so that the offline ones hold their share.

    The share is exact whatever the two counts are: as online data grows, each offline row weighs
    relatively more, which is the balance that keeps Hy-Q from forgetting (section 3 of the paper).
    `None` pools the rows with equal weights, as Algorithm 1 does with m_off = T and m_on = 1.
    """
    if offline_share is not None and not 0.0 <= offline_share <= 1.0:
        raise HyqError(f"offline_share must lie in [0, 1], got {offline_share}")
    if offline + online == 0:
        raise HyqError("a step has neither offline nor online data to learn from")
    if offline_share is None:
        offline_share = offline / (offline + online)
    if online == 0 or offline == 0:
        offline_share = float(online == 0)
    weights = np.empty(offline + online)
    weights[:offline] = offline_share / max(offline, 1)
    weights[offline:] = (1.0 - offline_share) / max(online, 1)
    return weights
