"""The pair of MDPs on which offline RL alone must fail ("Why don't offline RL methods work?").

M1 and M2 share their dynamics: from A, action L leads to B and R leads to C. At B both actions pay
1; at C only one action pays, R in M1 and L in M2. Data that covers A and B covers an optimal policy
of both MDPs, yet cannot tell them apart; a greedy policy that breaks the tie at A towards C then
acts blindly there, unless it goes and looks.
"""

from typing import Final, Literal

import numpy as np

from hyq.core.mdp import FiniteMDP
from hyq.core.settings import decode_value
from hyq.envs.batched import single
from hyq.envs.tabular import TabularEnv

Variant = Literal["M1", "M2"]

A, B, C = 0, 1, 2
"""The states; every episode starts in A."""
L, R = 0, 1
"""The actions."""

_PAYING_ACTION_AT_C: Final[dict[Variant, int]] = {"M1": R, "M2": L}


def offline_hard_mdp(variant: Variant) -> FiniteMDP:
    """Write out M1 or M2 (H = 2; rewards are paid on the second step, so V_max = 1)."""
    decode_value("variant", Variant, variant)
    transition = np.zeros((2, 3, 2, 3))
    transition[:, A, L, B] = 1.0
    transition[:, A, R, C] = 1.0
    transition[:, B, :, B] = 1.0
    transition[:, C, :, C] = 1.0
    reward = np.zeros((2, 3, 2))
    reward[1, B, :] = 1.0
    reward[1, C, _PAYING_ACTION_AT_C[variant]] = 1.0
    return FiniteMDP(transition=transition, reward=reward, initial=np.eye(3)[A])


def make_offline_hard_vector(num_envs: int = 1, variant: Variant = "M1") -> TabularEnv:
    """Simulate M1 or M2."""
    return TabularEnv(num_envs, offline_hard_mdp(variant))


make_offline_hard = single(make_offline_hard_vector)
