"""What every report starts from: the records of runs and of suites, and the names of algorithms."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hyq.core.errors import HyqError
from hyq.core.files import read_text
from hyq.envs import SPARSE_TASKS
from hyq.runs.records import RunDirectory, read_suite
from hyq.runs.suites import OFFLINE_ALGORITHMS

Item = TypeVar("Item")
Key = TypeVar("Key")
ALGORITHMS = {
    "hyq": ("Hy-Q", "#1f6f8b"),
    "hyq+cql": ("Hy-Q + CQL penalty", "#b8860b"),
    "bc": ("BC", "#8d99ae"),
    "cql": ("CQL", "#e09f3e"),
    "offline-fqi": ("FQI, offline only", "#6a994e"),
    "online-only": ("Hy-Q, online only", "#9a031e"),
    "warm-start": ("warm start, then online", "#7b2cbf"),
    "dqfd": ("DQfD", "#d1495b"),
    "briee": ("BRIEE", "#333333"),
    "dqn": ("DQN, online only", "#9a031e"),
    "offline-dqn": ("DQN, offline only", "#6a994e"),
    "offline": ("Q-learning, offline only", "#6a994e"),
    "iql": ("IQL", "#7b2cbf"),
    "rnd": ("RND", "#7b2cbf"),
    "sac": ("SAC, online only", "#9a031e"),
    "calql": ("Cal-QL", "#e09f3e"),
    "awac": ("AWAC", "#6a994e"),
    "ddpgfd": ("DDPGfD", "#d1495b"),
    "td3bc": ("TD3+BC", "#333333"),
}
"""Name and colour of each algorithm, in the order of tables and legends."""
OTHER_COLOR = "#555555"


def algorithm_name(algorithm: str, actions: str = "discrete") -> str:
    """Return what the field calls an algorithm; a user's own keeps its name."""
    if (algorithm, actions) == ("hyq", "continuous"):
        return "Hy-SAC"
    return ALGORITHMS.get(algorithm, (algorithm, ""))[0]


def algorithm_color(algorithm: str) -> str:
    """Return the colour of an algorithm's curves."""
    return ALGORITHMS.get(algorithm, ("", OTHER_COLOR))[1]


def is_offline(algorithm: str) -> bool:
    """Tell whether an algorithm never acts, and so has no curve."""
    return algorithm in OFFLINE_ALGORITHMS


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Collect items by a key, in the order in which the keys come up."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def add_success(row: dict[str, Any], limit: int) -> dict[str, Any]:
    """Add the share of episodes that succeeded to a record: they cost less than the time limit."""
    returns = row.get("eval_returns")
    if not returns:
        return row
    return {**row, "success": sum(value > -limit for value in returns) / len(returns)}


def is_deep(manifest: Mapping[str, Any]) -> bool:
    """Tell the training of a deep agent from an experiment by step, by a run's manifest."""
    return manifest["experiment"] in ("deep", "rnd", "train")


@dataclass(frozen=True)
class RunResult:
    """The records of one run, finished or not."""

    spec: dict[str, Any]
    rows: list[dict[str, Any]]
    summary: dict[str, Any] | None
    experiment: str = "train"

    @classmethod
    def read(cls, path: Path) -> "RunResult":
        """Read a run's directory."""
        run = RunDirectory.open(path)
        manifest = run.manifest
        if not (is_deep(manifest) or manifest["experiment"] == "lock"):
            raise HyqError(f"{path} is a run of {manifest['experiment']!r}, which has no report")
        spec, rows = manifest["spec"], run.rows
        limit = SPARSE_TASKS.get(spec.get("env"))
        if limit is not None and not (spec["env_parameters"] or spec["wrappers"]):
            rows = [add_success(row, limit) for row in rows]
        return cls(spec, rows, run.summary, manifest["experiment"])

    @property
    def settings(self) -> dict[str, Any]:
        """The spec as one flat dictionary, wherever its settings are stored."""
        flat = {**self.spec, **self.spec.get("settings", {})}
        flat.pop("settings", None)
        return flat

    def setting(self, name: str, default: Any = None) -> Any:
        """Read one value of the run's spec."""
        return self.settings.get(name, default)

    @property
    def on_lock(self) -> bool:
        """Whether it is of the combination lock, where returns lie in [0, 1]."""
        return self.experiment == "lock"

    @property
    def environment(self) -> str:
        """Name of the environment."""
        if self.on_lock:
            return f"lock, H = {self.setting('horizon')}"
        return str(self.setting("env") or "no environment")

    def points(self, y: str, x: str = "online_steps") -> tuple[list[float], list[float]]:
        """Return two columns of the records, where the second has a value."""
        rows = [row for row in self.rows if row.get(y) is not None]
        return [row[x] for row in rows], [row[y] for row in rows]


@dataclass(frozen=True)
class SuiteRecords:
    """What a suite's directory holds."""

    path: Path
    manifest: dict[str, Any]
    runs: list[RunResult]
    """Those that have begun, in the order of the suite."""
    failures: dict[str, str]
    """Errors by run id."""

    @classmethod
    def read(cls, path: Path) -> "SuiteRecords":
        """Read whatever has been recorded so far."""
        manifest = read_suite(path)
        begun = [path / "runs" / name for name in manifest["runs"]]
        runs = [RunResult.read(one) for one in begun if (one / "manifest.json").exists()]
        failures = {p.stem: read_text(p) for p in sorted((path / "failures").glob("*.txt"))}
        if not any(run.rows for run in runs):
            raise HyqError(f"{path} has no records to report yet")
        return cls(path, manifest, runs, failures)

    @property
    def missing(self) -> int:
        """Number of runs that have neither result nor error yet."""
        finished = sum(run.summary is not None for run in self.runs)
        return len(self.manifest["runs"]) - finished - len(self.failures)
