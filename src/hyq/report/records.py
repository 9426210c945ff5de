"""What every report starts from: the records of runs and of suites, and the names of algorithms."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hyq.core.errors import HyqError
from hyq.core.files import read_text
from hyq.envs import SPARSE_TASKS
from hyq.runs.records import RunDirectory, is_run, read_suite
from hyq.runs.suites import OFFLINE_ALGORITHMS

Item = TypeVar("Item")
Key = TypeVar("Key")
OTHER_COLOR = "#555555"
ALGORITHMS = {
    "hyq": ("Hy-Q", "#1f6f8b"),
    "hyq+cql": ("Hy-Q + CQL penalty", "#b8860b"),
    "bc": ("BC", "#8d99ae"),
    "cql": ("CQL", "#e09f3e"),
    "offline-fqi": ("FQI, offline only", "#6a994e"),
    "online-only": ("Hy-Q, online only", "#9a031e"),
    "warm-start": ("warm start, then online", "#7b2cbf"),
    "dqfd": ("DQfD", "#d0408c"),
    "hyq-adam": ("Hy-Q by Adam", OTHER_COLOR),
    "cql-block": ("CQL, Hy-Q's class", OTHER_COLOR),
    "dqfd-block": ("DQfD, Hy-Q's class", OTHER_COLOR),
    "briee": ("BRIEE", "#333333"),
    "dqn": ("DQN, online only", "#9a031e"),
    "offline-dqn": ("DQN, offline only", "#6a994e"),
    "offline": ("Q-learning, offline only", "#6a994e"),
    "iql": ("IQL", "#7b2cbf"),
    "rnd": ("RND", "#7b2cbf"),
    "sac": ("SAC, online only", "#9a031e"),
    "calql": ("Cal-QL", "#e09f3e"),
    "awac": ("AWAC", "#6a994e"),
    "ddpgfd": ("DDPGfD", "#d0408c"),
    "td3bc": ("TD3+BC", "#333333"),
}
"""Name and colour of each algorithm, in the order of tables and legends."""
NAMED = ("seed", "algorithm", "data", "env", "horizon", "threads")
"""Parts of a spec that are no setting of the algorithm, or change nothing but the time it takes."""


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


def differences(runs: Sequence["RunResult"]) -> list[dict[str, str]]:
    """Return, of each run, the settings in which it differs from most of the others, as JSON.

    Seeds, and what names a run anyway, are left out.
    """
    specs = [
        {n: json.dumps(v) for n, v in run.settings.items() if v is not None and n not in NAMED}
        for run in runs
    ]
    usual = {
        name: Counter(spec.get(name, "null") for spec in specs).most_common(1)[0][0]
        for name in dict.fromkeys(name for spec in specs for name in spec)
    }
    return [
        {name: spec.get(name, "null") for name in usual if spec.get(name, "null") != usual[name]}
        for spec in specs
    ]


def in_words(changed: Mapping[str, str]) -> str:
    """Say which settings are others, in the words of a legend."""
    parts = []
    for name, value in changed.items():
        words = name.replace("anti_reward", "anti-reward").replace("_", " ")
        found = json.loads(value)
        shown = f"{found:g}" if isinstance(found, int | float) else str(found)
        parts.append(f"{words} {shown}")
    return ", ".join(parts)


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
    def acts(self) -> bool:
        """Whether it has taken a step in its environment."""
        return self.on_lock or any(row["online_steps"] for row in self.rows)

    @property
    def environment(self) -> str:
        """Name of the environment."""
        if self.on_lock:
            return f"lock, H = {self.setting('horizon')}"
        return str(self.setting("env") or "no environment")

    def points(self, y: str, x: str = "online_steps") -> tuple[list[float], list[float]]:
        """Return two columns of the records, where the second has a value: the last at every x."""
        found = {row[x]: row[y] for row in self.rows if row.get(y) is not None}
        return list(found), list(found.values())


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """List runs: those given, and all that are anywhere in the directories given."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = [] if is_run(path) else sorted(path.rglob("manifest.json"))
        places = [one.parent for one in inside if is_run(one.parent)]
        found |= dict.fromkeys(places or [path])
    return list(found)


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
    def state(self) -> str:
        """Say how many runs there are, and how many are not shown as they will end."""
        under_way = sum(bool(run.rows) and run.summary is None for run in self.runs)
        text = f"{len(self.manifest['runs'])} runs."
        if self.missing:
            text += f" {self.missing} of them are under way or still to come."
        if under_way:
            text += f" Of those, {under_way} are shown as far as they are."
        return text + f" {len(self.failures)} failed: see below." * bool(self.failures)

    @property
    def not_begun(self) -> list[str]:
        """Names of the algorithms of which nothing is recorded yet."""
        begun = {run.setting("algorithm") for run in self.runs if run.rows}
        planned = (
            max((one for one in ALGORITHMS if name.startswith(f"{one}-")), key=len, default="")
            for name in self.manifest["runs"]
        )
        return [algorithm_name(one) for one in dict.fromkeys(planned) if one and one not in begun]

    @property
    def missing(self) -> int:
        """Number of runs that have neither result nor error yet."""
        finished = sum(run.summary is not None for run in self.runs)
        return len(self.manifest["runs"]) - finished - len(self.failures)
