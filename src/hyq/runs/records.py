"""The directory of one run: what was requested, what happened, and how it ended.

manifest.json    the spec, command, versions, commit and data, written before anything runs
records.jsonl    one line an iteration, only ever appended to
checkpoint/      everything needed to resume; removed at the end, unless it is to be kept
summary.json     the result, written last: a run that has one is finished
"""

import contextlib
import fcntl
import json
import math
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

from hyq.core.arrays import save_arrays
from hyq.core.errors import HyqError, in_one_line
from hyq.core.files import (
    DAMAGE,
    append_line,
    at_once,
    check_free,
    check_plain,
    json_digest,
    new_directory,
    parse_json,
    raising_damage,
    read_bytes,
    read_json,
    remove_drafts,
    write_json,
)
from hyq.core.settings import decode_value
from hyq.core.types import Array
from hyq.data.dataset import Dataset
from hyq.runs.lock_spec import LockRun
from hyq.runs.spec import RunSpec

RECORDS, LINK, HEAD = "records.jsonl", "chain", "last_record"
MOST_RECORDS = 1 << 30
NEEDED = ("solved", "eval_return", "online_steps", "wall_seconds")
"""What a summary is nothing without."""
SPECS: dict[str, Any] = {
    "lock": LockRun,
    **dict.fromkeys(("train", "deep", "rnd"), RunSpec),  # the last two are of earlier versions
}
"""What describes a run of each experiment."""
MEASURED_PACKAGES = ("hyq", "gymnasium", "numpy", "scipy", "torch")


@dataclass(frozen=True)
class Progress:
    """What a run reports after every record."""

    row: dict[str, Any]
    """The record."""
    summary: dict[str, Any] | None
    """The result, with the last record."""


@dataclass(frozen=True)
class RunDirectory:
    """A run on disk."""

    path: Path

    @classmethod
    def create(cls, path: Path, manifest: Mapping[str, Any]) -> "RunDirectory":
        """Start a new run; records are never overwritten."""
        cls.check_free(path)
        with new_directory(path) as draft:
            write_json(draft / "manifest.json", {**manifest, LINK: True, **circumstances()})
        return cls(path)

    @classmethod
    def check_free(cls, path: Path) -> None:
        """Raise for a path that is taken, before time is spent on what would be there."""
        if is_run(path) and cls(path).summary is None:
            raise HyqError(
                f"{path} holds an unfinished run: 'hyq resume {path}', or choose another"
            )
        check_free(path)

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Open a run that exists."""
        if not is_run(path):
            raise HyqError(f"{path} is not a run: it has no manifest.json of one")
        return cls(path)

    @classmethod
    def unfinished(cls, path: Path) -> "RunDirectory":
        """Open a run that can be resumed."""
        directory = cls.open(path)
        if directory.summary is not None:
            raise HyqError(f"{path} is finished: its result is in {path / 'summary.json'}")
        return directory

    def check_data(self, described: Mapping[str, Any] | None) -> None:
        """Raise where the run began with other offline data."""
        with raising_damage(self.path / "manifest.json"):
            began = (self.manifest["dataset"] or {}).get("sha256")
        if (described or {}).get("sha256") != began:
            raise HyqError(f"the offline data of {self.path} has changed since the run began")

    def check_spec(self, encoded: Mapping[str, Any]) -> None:
        """Raise where the run is another than a suite has in this place."""
        if self.manifest.get("spec") != json.loads(json.dumps(encoded)):
            raise HyqError(f"{self.path} is another run than the suite's: remove it")

    @property
    def manifest(self) -> dict[str, Any]:
        """What was requested: the run's spec, and how it was started."""
        path = self.path / "manifest.json"
        found = read_json(path)
        check_manifest(path, found)
        return found

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, or None while the run is unfinished."""
        found = self._summary()
        return found and {name: value for name, value in found.items() if name != HEAD}

    def _summary(self) -> dict[str, Any] | None:
        path = self.path / "summary.json"
        if not path.exists():
            return None
        found = read_json(path)
        check_kinds(path, found, NEEDED if self.manifest.get("experiment") in SPECS else ())
        return found

    @property
    def checkpoint(self) -> Path:
        """Where the state is kept until the run ends."""
        return self.path / "checkpoint"

    @property
    def keeps_checkpoint(self) -> bool:
        """Whether the last state stays on disk, so that the run can be made longer."""
        return bool(self.manifest.get("keep_checkpoint"))

    def finish(
        self, summary: Mapping[str, Any], learned: Mapping[str, Array] | None = None
    ) -> None:
        """Write what was learned and then the result, after which no run needs its checkpoint."""
        if learned is not None:
            save_arrays(self.path / "final.safetensors", learned)
        write_json(self.path / "summary.json", {**summary, HEAD: self._records.read()[1]})
        if not self.keeps_checkpoint:
            shutil.rmtree(self.checkpoint, ignore_errors=True)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records so far; a last line cut short by a kill does not count."""
        rows, head = self._records.read()
        ended = self._summary()
        if ended is not None and ended.get(HEAD, head) != head:
            raise HyqError(f"{self.path / RECORDS} is damaged: its last lines are missing")
        # On the lock every record has been evaluated; a run that has not begun has no manifest.
        on_lock = bool(rows) and self.manifest.get("experiment") == "lock"
        evaluated = ("eval_return",) if on_lock else ()
        for row in rows:
            check_kinds(self.path / RECORDS, row, ("iteration", "online_steps", *evaluated))
        return rows

    @cached_property
    def _records(self) -> "Records":
        # The first runs had no chain of records.
        return Records(self.path / RECORDS, lambda: LINK in self.manifest)

    def append(self, row: Mapping[str, Any]) -> None:
        """Record one iteration, unless a run that was killed right after had recorded it."""
        self._records.append(row)

    def check_recorded(self, iteration: int) -> None:
        """Raise where records are missing that a checkpoint was saved after."""
        rows = self.rows
        if len(rows) < iteration:
            raise HyqError(
                f"{self.path / RECORDS} is damaged: it has {len(rows)} lines, where the checkpoint "
                f"was saved after {iteration}"
            )

    @contextlib.contextmanager
    def only_writer(self) -> Iterator[None]:
        """Hold the run for this process, so that two never write to it at once."""
        with open(self.path / "manifest.json", opener=at_once) as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HyqError(f"{self.path} is being written by another process") from None
            check_plain(self.path)
            remove_drafts(self.path)
            yield


class Records:
    """A file of rows that is only ever appended to, in which damage is noticed.

    Each line ends with a link, a checksum of the row and of the link before it, so that a line that
    is changed, lost, doubled or moved is noticed.
    """

    def __init__(self, path: Path, linked: Callable[[], bool] = lambda: False) -> None:
        self._path, self._linked = path, linked
        """The file, and whether its first line must have a link, which is called if it has none."""
        self._size, self._done, self._head = 0, set[str](), ""
        """What the file was like when it was last appended to."""

    def read(self) -> tuple[list[dict[str, Any]], str]:
        """Return the rows, and the link that the last line ends with."""
        head, rows, path = "", list[dict[str, Any]](), self._path
        lines = read_bytes(path, MOST_RECORDS).split(b"\n")[:-1] if path.exists() else []
        for number, line in enumerate(lines, start=1):
            row = parse_json(path, line)
            link = row.pop(LINK, None)
            if link is not None or head or self._linked():
                head = _link(head, row)
                if link != head:
                    raise HyqError(
                        f"{path} is damaged at line {number}: it was changed, or others before it "
                        "were lost, doubled or moved"
                    )
            rows.append(row)
        return rows, head

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row, unless there is one of its iteration."""
        path, iteration = self._path, repr(row.get("iteration"))
        if self._size != (path.stat().st_size if path.exists() else 0):
            # Another process wrote to it; a long run does not read it all for every record.
            rows, self._head = self.read()
            self._done = {repr(row.get("iteration")) for row in rows}
        if "iteration" not in row or iteration not in self._done:
            head, line = chained(self._head, row)
            append_line(path, line)
            self._head = head
            self._done.add(iteration)
        self._size = path.stat().st_size


def chained(head: str, row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the next link of the chain of records, and the line that ends with it."""
    plain = json.loads(json.dumps(row))
    link = _link(head, plain)
    return link, json.dumps({**plain, LINK: link})


def _link(head: str, row: Mapping[str, Any]) -> str:
    return json_digest([head, row])[:16]


def check_kinds(path: Path, content: Mapping[str, Any], needed: Collection[str] = ()) -> None:
    """Raise where values that are computed with are missing, or are not what is written here."""
    if missing := [name for name in needed if name not in content]:
        raise HyqError(f"{path} is damaged: it has no {missing[0]}")
    for name, fits in KINDS.items():
        if name in content and not fits(content[name]):
            raise HyqError(f"{path} is damaged: {name} is {content[name]!r:.40}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value) and abs(value) < 1e30


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _are_episodes(value: Any) -> bool:
    return isinstance(value, list) and all(_are_numbers(one) and len(one) == 3 for one in value)


KINDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("iteration", "online_steps", "updates", "offline_samples"), _is_count),
    **dict.fromkeys(("eval_return", "peak_return", "recent_return"), _is_number_or_none),
    "wall_seconds": _is_number,
    "solved": lambda value: isinstance(value, bool),
    "solved_at": lambda value: value is None or _is_count(value),
    "eval_returns": _are_numbers,
    "episodes": _are_episodes,
    "seconds": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
}
"""Of the values that reports and runs compute with, whether they can be."""


def check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise where the spec of a run, of this version or an earlier one, has other types."""
    experiment = manifest.get("experiment")
    if not isinstance(experiment, str):
        raise HyqError(f"{path} is damaged: experiment is {experiment!r:.40}")
    if experiment not in SPECS:
        return
    kinds = get_type_hints(SPECS[experiment])
    try:
        for name, value in manifest["spec"].items():
            # Earlier versions kept an environment's parameters as text.
            if name in kinds and not (name == "env_parameters" and isinstance(value, str)):
                decode_value(name, kinds[name], value)
    except (HyqError, *DAMAGE) as error:
        raise HyqError(f"{path} is damaged: {in_one_line(error)}") from None


def read_suite(path: Path) -> dict[str, Any]:
    """Read what a suite's directory is of: its name and title, and the names of its runs."""
    found = read_json(path / "suite.json")
    runs = found.get("runs")
    names = [found.get("suite"), found.get("title"), *(runs if isinstance(runs, list) else [None])]
    if not all(isinstance(name, str) for name in names) or any(
        name in ("", ".", "..") or Path(name).name != name for name in names[2:]
    ):
        raise HyqError(f"{path / 'suite.json'} is damaged: it does not name a suite and its runs")
    return found


def describe(dataset: Dataset | None) -> dict[str, Any] | None:
    """Return what a manifest says of the offline data."""
    if dataset is None:
        return None
    described = {"sha256": dataset.digest(), "transitions": len(dataset)}
    return {**described, "provenance": dict(dataset.provenance)}


def circumstances() -> dict[str, Any]:
    """Return what a result depends on besides its spec."""
    return {
        "command": ["hyq", *sys.argv[1:]],
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in MEASURED_PACKAGES},
        "commit": _commit(),
        "machine": platform.machine(),
    }


def _commit() -> str | None:
    """Name the commit of the code that runs, when it runs from a git checkout."""
    here = Path(__file__).parents[3]

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if not (here / ".git").exists():
            return None
        return git("rev-parse", "HEAD") + ("-dirty" * bool(git("status", "--porcelain", "src")))
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None


def is_run(path: Path) -> bool:
    """Tell a run from another directory; datasets have manifests too."""
    manifest = path / "manifest.json"
    return manifest.is_file() and "experiment" in read_json(manifest)
