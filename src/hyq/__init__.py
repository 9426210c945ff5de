"""hyq: hybrid reinforcement learning, one policy from logged data and live interaction together.

train: From logs and an environment to a policy, in one call.
load: Open a saved dataset, or one that has a name.
Dataset: Offline data: whole episodes, or transitions in any order.
Episode: One episode of it.
DeepPolicy: A learned policy, to act with, to save and to export.
DeepConfig: Every setting of the training.
NetworkSpec: The layers of a network, a setting.
AdamSettings: The optimiser, a setting.
PiecewiseLinear: A setting that changes with the steps.
HyqError: A mistake the user can mend.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyq.algos.deep_config import DeepConfig
    from hyq.api import train
    from hyq.core.errors import HyqError
    from hyq.core.schedules import PiecewiseLinear
    from hyq.data.dataset import Dataset, Episode
    from hyq.models.learners import AdamSettings
    from hyq.models.networks import NetworkSpec
    from hyq.models.policy import DeepPolicy
    from hyq.runs.deep_data import load

__all__ = [
    "AdamSettings",
    "Dataset",
    "DeepConfig",
    "DeepPolicy",
    "Episode",
    "HyqError",
    "NetworkSpec",
    "PiecewiseLinear",
    "load",
    "train",
]

_HOMES = {
    "AdamSettings": "hyq.models.learners",
    "Dataset": "hyq.data.dataset",
    "DeepConfig": "hyq.algos.deep_config",
    "DeepPolicy": "hyq.models.policy",
    "Episode": "hyq.data.dataset",
    "HyqError": "hyq.core.errors",
    "NetworkSpec": "hyq.models.networks",
    "PiecewiseLinear": "hyq.core.schedules",
    "load": "hyq.runs.deep_data",
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
