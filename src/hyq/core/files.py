"""Writing so that a kill, a full disk or a second writer can never leave half a result."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hyq.core.errors import HyqError


def check_free(path: Path) -> None:
    """Raise for a path that exists already."""
    if path.exists():
        raise HyqError(f"{path} exists already: choose another path, or remove it first")


def check_writable(path: Path) -> None:
    """Make the directory of a file that is going to be written, before time is spent on it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HyqError(f"cannot write {path}: {error.strerror}") from None
    if path.is_dir():
        raise HyqError(f"cannot write {path}: it is a directory, so name a file in it")


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Fill a hidden sibling of `path`, then rename it into place; never replace anything."""
    check_free(path)
    with _disk_full_as_error(path, errno.ENOENT):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    with _disk_full_as_error(path):
        try:
            yield draft
            draft.chmod(0o755)
            try:
                os.rename(draft, path)
            except OSError:
                # Another process may have put something there since the check.
                check_free(path)
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that the file `path` stands for; wait while another process holds it.

    The file stays, because to remove it would let two processes hold locks of one name.
    """
    with _disk_full_as_error(path, errno.ENOENT):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("ab")
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


DRAFT = ".draft"
"""Ending of what is being written; where there is one writer, a kill left what another finds."""


def remove_drafts(directory: Path) -> None:
    """Remove what kills have left, from a directory that no other process writes to."""
    for draft in directory.rglob(f".*{DRAFT}"):
        draft.unlink()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing, replacing what was there."""
    with _disk_full_as_error(path, errno.ENOENT):
        # A name of its own, so that two who write the same file do not write into one draft.
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}{DRAFT}")
        try:
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def append_line(path: Path, line: str) -> None:
    """Append one line; a fragment that a kill left at the end is cut off first."""
    with _disk_full_as_error(path), path.open("a+b") as file:
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        try:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            file.truncate(whole)
            raise


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise HyqError(f"{path} is missing: is its directory the right one?") from None
    except ValueError:
        raise HyqError(f"{path} is damaged: it is not valid JSON") from None
    if not isinstance(content, dict):
        raise HyqError(f"{path} is damaged: it should hold a JSON object")
    return content


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _disk_full_as_error(path: Path, *more: int) -> Iterator[None]:
    """Say in one line that `path` cannot be written, for the usual reasons and those in `more`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HyqError(f"no space left to write {path}: free some disk space") from None
        if error.errno in (errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EEXIST, *more):
            raise HyqError(f"cannot write {path}: {error.strerror}") from None
        raise
