"""The directory of one run: what was asked, what happened, and how it ended.

manifest.json    the spec, command, versions, commit and data, written before anything runs
records.jsonl    one line an iteration, only ever appended to
checkpoint/      everything needed to resume; removed at the end, unless it is to be kept
summary.json     the result, written last: a run that has one is finished
"""

import contextlib
import fcntl
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hyq.core.arrays import save_arrays
from hyq.core.errors import HyqError
from hyq.core.files import (
    append_line,
    check_free,
    new_directory,
    read_json,
    remove_drafts,
    write_json,
)
from hyq.data.dataset import Dataset
from hyq.fqi.base import Snapshot

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
            write_json(draft / "manifest.json", {**manifest, **circumstances()})
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
        began = self.manifest["dataset"]
        if (described or {}).get("sha256") != (began or {}).get("sha256"):
            raise HyqError(f"the offline data of {self.path} has changed since the run began")

    @property
    def manifest(self) -> dict[str, Any]:
        """What was asked."""
        return read_json(self.path / "manifest.json")

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, or None while the run is unfinished."""
        path = self.path / "summary.json"
        return read_json(path) if path.exists() else None

    @property
    def checkpoint(self) -> Path:
        """Where the state is kept until the run ends."""
        return self.path / "checkpoint"

    @property
    def keeps_checkpoint(self) -> bool:
        """Whether the last state stays on disk, so that the run can be made longer."""
        return bool(self.manifest.get("keep_checkpoint"))

    def finish(self, summary: Mapping[str, Any], learned: Snapshot | None = None) -> None:
        """Write what was learned and then the result, after which no run needs its checkpoint."""
        if learned is not None:
            save_arrays(self.path / "final.safetensors", learned.replaced)
        write_json(self.path / "summary.json", summary)
        if not self.keeps_checkpoint:
            shutil.rmtree(self.checkpoint, ignore_errors=True)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records so far; a last line cut short by a kill does not count."""
        path = self.path / "records.jsonl"
        if not path.exists():
            return []
        whole_lines = path.read_text().split("\n")[:-1]
        return [json.loads(line) for line in whole_lines]

    def append(self, row: Mapping[str, Any]) -> None:
        """Record one iteration, unless a run that was killed right after had recorded it."""
        if all(row["iteration"] != earlier["iteration"] for earlier in self.rows):
            append_line(self.path / "records.jsonl", json.dumps(row))

    @contextlib.contextmanager
    def only_writer(self) -> Iterator[None]:
        """Hold the run for this process, so that two never write to it at once."""
        with (self.path / "manifest.json").open() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HyqError(f"{self.path} is being written by another process") from None
            remove_drafts(self.path)
            yield


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
