"""hyq: hybrid reinforcement learning, one policy from logged data and live interaction together.

train: From logs and an environment to a policy, in one call.
load_logs: Open saved logs of either kind, or those of a name.
Dataset: Logged transitions in any order.
Episodes: Logged episodes in the order of time.
Episode: One of them.
DeepPolicy: A learned policy, to act with, to save and to export.
DeepConfig: Every setting of the training.
NetworkSpec: The layers of a network, a setting.
AdamSettings: The optimiser, a setting.
PiecewiseLinear: A setting that changes with the steps.
HyqError: A mistake the user can mend.
"""

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyq.algos.deep_config import DeepConfig
    from hyq.api import load_logs, train
    from hyq.core.errors import HyqError
    from hyq.core.schedules import PiecewiseLinear
    from hyq.data.dataset import Dataset
    from hyq.data.episodes import Episode, Episodes
    from hyq.models.learners import AdamSettings
    from hyq.models.networks import NetworkSpec
    from hyq.models.policy import DeepPolicy

__all__ = [
    "AdamSettings",
    "Dataset",
    "DeepConfig",
    "DeepPolicy",
    "Episode",
    "Episodes",
    "HyqError",
    "NetworkSpec",
    "PiecewiseLinear",
    "load_logs",
    "train",
]

_HOMES = {
    "AdamSettings": "hyq.models.learners",
    "Dataset": "hyq.data.dataset",
    "DeepConfig": "hyq.algos.deep_config",
    "DeepPolicy": "hyq.models.policy",
    "Episode": "hyq.data.episodes",
    "Episodes": "hyq.data.episodes",
    "HyqError": "hyq.core.errors",
    "NetworkSpec": "hyq.models.networks",
    "PiecewiseLinear": "hyq.core.schedules",
    "load_logs": "hyq.api",
    "train": "hyq.api",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import hyq` alone costs nothing."""
    if name == "__version__":
        return version("hyq")
    if name not in _HOMES:
        raise AttributeError(f"module 'hyq' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List what can be had from here, imported yet or not."""
    return sorted({*globals(), *__all__, "__version__"})


class _RegisterWithGymnasium(MetaPathFinder):
    """Registers the environments once Gymnasium has been imported, which takes NumPy with it.

    `import hyq` alone stays cheap that way, and `gymnasium.make("hyq/...")` works after it,
    whichever of the two is imported first. Gymnasium itself looks for no plugins.
    """

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                import_module("hyq.envs")

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    import_module("hyq.envs")
else:
    sys.meta_path.insert(0, _RegisterWithGymnasium())
