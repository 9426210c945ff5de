"""Writing so that a kill, a full disk or a second writer can never leave half a result."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from hyq.core.errors import HyqError, in_one_line

DRAFT = ".draft"
"""Ending of what is being written; where there is one writer, a kill left what another finds."""
CHECKSUM = "checksum"
"""Key of a JSON object's checksum."""
DAMAGE = (
    *(ArithmeticError, AssertionError, AttributeError),
    *(LookupError, RuntimeError, TypeError, ValueError),
)
"""What code raises that is given another content than was written."""
MOST_BYTES, MOST_JSON, MOST_NESTED = 16 << 30, 64 << 20, 32
"""Sizes of files, of JSON, and its depth; beyond these a file was not written here."""


def check_free(path: Path) -> None:
    """Raise for a path that exists already, or that none can have."""
    if "\0" in str(path):
        raise HyqError(f"no path can be {str(path)!r}")
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
        for left in path.parent.glob(f".{glob.escape(path.name)}.*{DRAFT}"):
            with (
                contextlib.suppress(OSError),
                locked_directory(left),
            ):  # what is being filled is locked
                shutil.rmtree(left)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=DRAFT, dir=path.parent))
    with _disk_full_as_error(path), locked_directory(draft):
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


def lock_directory(directory: Path, *, wait: bool) -> int:
    """Lock a directory that is no link, for as long as the descriptor that is returned is open."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if os.fstat(descriptor).st_nlink == 0:
            raise FileNotFoundError(directory)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def locked_directory(directory: Path) -> Iterator[None]:
    """Lock a directory, or raise where another process has."""
    descriptor = lock_directory(directory, wait=False)
    try:
        yield
    finally:
        os.close(descriptor)


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


def check_plain(directory: Path) -> None:
    """Raise for anything in a directory but files and directories.

    What is written there would otherwise end where a symbolic link leads, which the maker of the
    directory may have chosen; and to open a pipe may take for ever.
    """
    for path in (directory, *directory.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # a draft that another process has renamed
            kind = path.lstat().st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or path == directory):
                raise HyqError(
                    f"{path} is a link or a device: nothing is written here until it is gone"
                )


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
    """Write a JSON object with its checksum, whole or not at all."""
    plain = json.loads(json.dumps(content))
    plain.pop(CHECKSUM, None)
    plain[CHECKSUM] = json_digest(plain)
    write_bytes(path, (json.dumps(plain, indent=2) + "\n").encode())


def json_digest(content: Any) -> str:
    """Return a checksum of what JSON holds, however it is laid out."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def append_line(path: Path, line: str) -> None:
    """Append one line; a fragment that a kill left at the end is cut off first."""
    with _disk_full_as_error(path), open(path, "a+b", opener=_not_a_link) as file:
        whole = file.seek(0, os.SEEK_END)
        if whole and os.pread(file.fileno(), 1, whole - 1) != b"\n":
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


def _not_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; a pipe or a device is none."""
    with raising_damage(path), open(path, "rb", opener=at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise HyqError(f"{path} is not a file")
        yield file


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a file of so many bytes at most."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise HyqError(f"{path} is too large: {size:,} bytes, where {most:,} may be")
        return file.read()


def read_text(path: Path) -> str:
    """Read a text that anybody may have written."""
    return read_bytes(path, MOST_JSON).decode(errors="replace")


def at_once(path: str, flags: int) -> int:
    """Open a file for reading; a pipe without a writer would wait."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextlib.contextmanager
def raising_damage(path: Path) -> Iterator[None]:
    """Say in one line that what a file holds is not what was written there."""
    try:
        yield
    except FileNotFoundError:
        raise HyqError(f"{path} is missing: is its directory the right one?") from None
    except OSError as error:
        raise HyqError(f"cannot read {path}: {error.strerror}") from None
    except DAMAGE as error:
        raise HyqError(f"{path} is damaged: {in_one_line(error)}") from None


def read_json(path: Path, *, signed: bool = False) -> dict[str, Any]:
    """Read a JSON object and check it; one that must be `signed` has a checksum."""
    content = parse_json(path, read_bytes(path, MOST_JSON))
    digest = content.pop(CHECKSUM, None)
    if digest is None:  # damage may have changed the name of a checksum
        others = [n for n, value in content.items() if isinstance(value, str) and len(value) == 32]
        signed |= any(
            content[other] == json_digest({n: v for n, v in content.items() if n != other})
            for other in others
        )
    if (signed or digest is not None) and digest != json_digest(content):
        raise HyqError(f"{path} is damaged: its content is not what was written")
    return content


def parse_json(path: Path, text: bytes) -> dict[str, Any]:
    """Parse a JSON object that is nested no deeper than anything here writes."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise HyqError(f"{path} is damaged: it is not valid JSON") from None
    if not isinstance(content, dict):
        raise HyqError(f"{path} is damaged: it should hold a JSON object")
    level: list[Any] = [content]
    for _ in range(MOST_NESTED):
        inner = [part.values() if isinstance(part, dict) else part for part in level]
        level = [one for part in inner for one in part if isinstance(one, dict | list)]
    if level:
        raise HyqError(f"{path} is damaged: it is nested too deeply")
    return content


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


@contextlib.contextmanager
def _disk_full_as_error(path: Path, *more: int) -> Iterator[None]:
    """Say in one line that `path` cannot be written, for the usual reasons and those in `more`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise HyqError(f"no space left to write {path}: free some disk space") from None
        if error.errno in (
            errno.EACCES,
            errno.EROFS,
            errno.ENOTDIR,
            errno.EEXIST,
            errno.ELOOP,
            errno.ENAMETOOLONG,
            errno.ENXIO,
            *more,
        ):
            raise HyqError(f"cannot write {path}: {error.strerror}") from None
        raise
