"""The environments, registered with Gymnasium under `hyq/` when this package is imported.

`gymnasium.make("hyq/Tabular-v0")` gives one lane and `gymnasium.make_vec("hyq/Tabular-v0", 32)`
gives 32 of them in one NumPy batch. Entry points are strings, so importing this costs nothing.
"""

import gymnasium as gym


def _register(name: str, single: str, vector: str) -> None:
    if name not in gym.registry:
        gym.register(
            id=name,
            entry_point=f"hyq.envs.{single}",
            vector_entry_point=f"hyq.envs.{vector}",
        )


_register(
    "hyq/CombinationLock-v0",
    "combination_lock:make_lock",
    "combination_lock:CombinationLockVector",
)
_register("hyq/Tabular-v0", "tabular:make_tabular", "tabular:make_tabular_vector")
_register("hyq/LinearMDP-v0", "linear:make_linear_mdp", "linear:make_linear_mdp_vector")
_register(
    "hyq/ConvexLinearMDP-v0",
    "linear:make_convex_linear_mdp",
    "linear:make_convex_linear_mdp_vector",
)
_register("hyq/LQR-v0", "lqr:make_lqr", "lqr:make_lqr_vector")
_register(
    "hyq/OfflineHard-v0",
    "offline_hard:make_offline_hard",
    "offline_hard:make_offline_hard_vector",
)
_register("hyq/Montezuma-v0", "montezuma:Montezuma", "montezuma:MontezumaVector")
