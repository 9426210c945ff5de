"""The environments, registered with Gymnasium under `hyq/` when this package is imported.

`gymnasium.make("hyq/Tabular-v0")` gives one environment and `gymnasium.make_vec("hyq/Tabular-v0",
32)` gives 32 in one NumPy batch. Entry points are strings, so importing this costs nothing.
"""

from typing import Any

import gymnasium as gym

_ENTRY_POINTS = {
    "CombinationLock": ("combination_lock:make_lock", "combination_lock:CombinationLockVector"),
    "Tabular": ("tabular:make_tabular", "tabular:make_tabular_vector"),
    "LinearMDP": ("linear:make_linear_mdp", "linear:make_linear_mdp_vector"),
    "LQR": ("lqr:make_lqr", "lqr:make_lqr_vector"),
    "OfflineHard": ("offline_hard:make_offline_hard", "offline_hard:make_offline_hard_vector"),
    "Montezuma": ("montezuma:Montezuma", "montezuma:MontezumaVector"),
}

_CONTROL: dict[str, tuple[str, dict[str, Any], int]] = {
    "PointMazeUMaze": ("make_point_maze", {"maze": "umaze", "action_repeat": 3}, 120),
    "PointMazeMedium": ("make_point_maze", {"maze": "medium", "action_repeat": 4}, 150),
    "FetchPush": ("make_fetch", {"task": "push"}, 50),
    "FetchPickAndPlace": ("make_fetch", {"task": "pick-and-place"}, 50),
    "MetaWorld": ("make_metaworld", {}, 100),  # any task, by its name
    "MetaWorldReach": ("make_metaworld", {"task": "reach"}, 100),
    "MetaWorldPush": ("make_metaworld", {"task": "push"}, 100),
    "MetaWorldDrawerOpen": ("make_metaworld", {"task": "drawer-open"}, 100),
    "MetaWorldDoorOpen": ("make_metaworld", {"task": "door-open"}, 100),
    "MetaWorldButtonPress": ("make_metaworld", {"task": "button-press"}, 100),
    "MetaWorldWindowOpen": ("make_metaworld", {"task": "window-open"}, 100),
    "OGBenchCube": ("make_ogbench", {"task": "cube"}, 100),
    "OGBenchScene": ("make_ogbench", {"task": "scene"}, 150),
}
"""Tasks of `control`: the function that makes each, its settings, and the longest episode."""
SPARSE_TASKS = {f"hyq/{_name}-v0": _steps for _name, (_, _, _steps) in _CONTROL.items()}
"""Their ids, and what an episode costs that does not succeed: one that does costs less."""


def _register(name: str, entry_point: str, **how: Any) -> None:
    if f"hyq/{name}-v0" not in gym.registry:
        gym.register(f"hyq/{name}-v0", f"hyq.envs.{entry_point}", **how)


for _name, (_single, _vector) in _ENTRY_POINTS.items():
    _register(_name, _single, vector_entry_point=f"hyq.envs.{_vector}")
for _name, (_maker, _settings, _steps) in _CONTROL.items():
    _register(_name, f"control:{_maker}", kwargs=_settings, max_episode_steps=_steps)
