"""One run as data: everything it depends on, in a form that JSON holds."""

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import tyro

from hyq.algorithms import Configs, configure
from hyq.core.actions import ActionKind
from hyq.core.errors import HyqError
from hyq.core.settings import check_idle, decode, encode, encode_value

LONGEST_NAME = 200
"""Characters; file systems stop at 255 bytes, and copies of a name want an ending."""
EVALUATION = ("evaluation_episodes", "evaluate_every", "threshold", "stop_when_solved")
"""Fields that change what is measured, not what is learned."""


class Spec:
    """What all specs can do: be written as JSON, and read again."""

    def encoded(self) -> dict[str, Any]:
        """Return the spec as JSON holds it."""
        return encode(self)

    @classmethod
    def decoded(cls, encoded: Mapping[str, Any]) -> Self:
        """Undo `encoded`; raise for what this version does not know."""
        unknown = encoded.keys() - {part.name for part in fields(cls)}  # type: ignore[arg-type]
        if unknown:
            raise HyqError(
                f"the run has {', '.join(sorted(unknown))}, which this version of hyq does not "
                "know: use the version that its manifest names"
            )
        return decode(cls, encoded)


@dataclass(frozen=True)
class RunSpec(Spec):
    """One run of one deep algorithm. Equal specs are the same run."""

    env: str | None = None
    """Gymnasium id of the environment; `module:id` imports a module first."""
    data: str | None = None
    """Offline data: a saved dataset, files as 'hyq data import' takes them, or a name of 'hyq data
    list'."""
    algorithm: str = "hyq"
    """What learns: see 'hyq algorithms'."""
    preset: str = "default"
    """Settings to start from: default, paper-montezuma, cpu-montezuma or paper-small-montezuma; for
    continuous actions default or cpu."""
    seed: int = 0
    """Chooses every random number of the run."""
    settings: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)
    """Settings of the algorithm that differ from the preset, by name."""
    evaluation_episodes: int = 20
    """Episodes played at every evaluation, on environments of their own; 0 for none."""
    evaluate_every: int = 1
    """Records between two evaluations."""
    evaluation_epsilon: float = 0.0
    """Chance of a random action when evaluating."""
    start_from: str | None = None
    """Directory of a run of the same networks, whose weights this one begins with."""
    save_experience: bool = False
    """Keep what was collected as a dataset, in OUT/experience: the newest that fits into the
    buffer, with observations and rewards as they were learned from."""
    actions: ActionKind = "discrete"
    """Kind of the environment's actions, discrete or continuous: it decides which algorithms there
    are."""
    threshold: float | None = None
    """Mean return that counts as solved; its first confirmed evaluation is recorded."""
    stop_when_solved: bool = False
    """End the run there."""
    wrappers: tuple[str, ...] = ()
    """module:Class of wrappers around the environment, innermost first."""
    env_parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the environment."""
    processes: bool = False
    """Step the environments in processes of their own."""

    def __post_init__(self) -> None:
        given = {name: encode_value(value) for name, value in self.settings.items()}
        object.__setattr__(self, "settings", given)
        if self.seed < 0 or self.evaluation_episodes < 0 or self.evaluate_every < 1:
            raise HyqError("seed and evaluation_episodes must not be negative, nor the period 0")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise HyqError(f"a threshold must be a number, got {self.threshold}")
        if self.threshold is not None and not self.evaluation_episodes:
            raise HyqError("a threshold is reached in evaluations: set evaluation_episodes too")
        if self.stop_when_solved and self.threshold is None:
            raise HyqError("stop_when_solved needs a threshold to say what solved means")
        if not 0 <= self.evaluation_epsilon <= 1:
            raise HyqError(f"evaluation_epsilon must lie in [0, 1], got {self.evaluation_epsilon}")
        _ = self.configs

    @property
    def configs(self) -> Configs:
        """Every setting, decoded."""
        return configure(self.algorithm, self.preset, self.settings, self.actions)

    @property
    def length(self) -> tuple[str, int]:
        """What is counted until the run is over, online steps or updates, and how many."""
        settings = self.configs.encoded()
        counter = "updates" if "updates" in settings else "online_steps"
        return counter, settings[counter]

    @property
    def id(self) -> str:
        """A name that tells this run from others of a suite."""
        details = "".join(f"-{name}={value}" for name, value in self.settings.items())
        named = ("env", "data", "algorithm", "actions", "seed", "settings", "wrappers", *EVALUATION)
        details += changed_fields(self, named)
        data = self.data or "no-data"
        return as_file_name(f"{self.algorithm}-{self.env}-{data}{details}-s{self.seed}")

    @property
    def code(self) -> list[str]:
        """What it names that is imported: the environment and the wrappers."""
        return [*([self.env] if self.env else []), *self.wrappers]


def check_effects(spec: RunSpec, env: Any) -> None:
    """Raise for options of a run that would have no effect in its environment, or without one."""
    making = "wrappers", "env_parameters", "processes"
    evaluating = "evaluate_every", "evaluation_epsilon"
    if env is None:
        _check_usual(spec, "a run without an environment", *making, *evaluating, "threshold")
    elif not isinstance(env, str) and hasattr(env, "num_envs"):
        _check_usual(spec, "a vector environment, which is made already,", *making)
    if env is not None and not spec.evaluation_episodes:
        _check_usual(spec, "a run without evaluations", *evaluating)


def _check_usual(spec: RunSpec, what: str, *names: str) -> None:
    usual = RunSpec()
    check_idle(what, **{n: getattr(spec, n) != getattr(usual, n) for n in names})


def changed_fields(spec: Any, named: Collection[str]) -> str:
    """List fields that differ from their defaults, but for those that are named already."""
    text = ""
    for part in fields(spec):
        value = getattr(spec, part.name)
        usual = part.default_factory() if callable(part.default_factory) else part.default
        if part.name not in named and value != usual:
            text += f"-{part.name}={value}"
    return text


def as_file_name(text: str) -> str:
    """Replace what does not belong into the name of a directory, and what is too long for one."""
    name = "".join(c if c.isalnum() or c in "-=._" else "_" for c in text)
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{name[: LONGEST_NAME - len(digest) - 1]}-{digest}"
