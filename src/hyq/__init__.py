"""hyq: hybrid reinforcement learning, one policy from logged data and live interaction together.

train: From data and an environment to a policy, in one call.
resume: Resume a run that was interrupted.
load: Open saved offline data, or make the dataset of a name.
Dataset: Logged episodes, or transitions in any order.
Episode: One logged episode.
Policy: A learned policy, to act with, to save and to export.
PiecewiseLinear: A setting that changes with the steps.
HyqError: A mistake the user can mend.
"""

import os
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyq.api import resume, train
    from hyq.core.errors import HyqError
    from hyq.core.schedules import PiecewiseLinear
    from hyq.data.dataset import Dataset, Episode
    from hyq.policy import Policy
    from hyq.runs.named_data import load

# PyTorch's threads wait for one another busily, for so long that beside another busy program
# they are slower by far than one. It has to be said before PyTorch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__all__ = [
    "Dataset",
    "Episode",
    "HyqError",
    "PiecewiseLinear",
    "Policy",
    "load",
    "resume",
    "train",
]

_HOMES = {
    "Dataset": "hyq.data.dataset",
    "Episode": "hyq.data.dataset",
    "HyqError": "hyq.core.errors",
    "PiecewiseLinear": "hyq.core.schedules",
    "Policy": "hyq.policy",
    "load": "hyq.runs.named_data",
    "resume": "hyq.api",
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
