"""Code that a file names: imported only where the user named it, or made the file.

A run, a policy or a video names its environment and wrappers as `module:name`, and to import a
module is to run it. Modules of the libraries that environments here come from are taken to be
harmless where they are installed. Others need the user's word, or the signature that the user's own
files carry: a hash of what they name, and of where it lies, under a key that only the user has.
"""

import contextlib
import hashlib
import hmac
import importlib.util
import json
import os
import secrets
import sys
import sysconfig
from collections.abc import Collection, Iterable
from pathlib import Path

import gymnasium as gym

from hyq.core.errors import HyqError

LIBRARIES = ("gymnasium", "gymnasium_robotics", "metaworld", "minigrid", "ogbench")
Trust = bool | Collection[str]
"""Whether all code that a file names may be imported, or which names may be."""


def check_trusted(
    names: Iterable[str],
    source: object,
    signature: object,
    trust: Trust,
    remedy: str = "say so with --trust (trust=True in Python)",
) -> None:
    """Raise where a file names code that may be anybody's; `names` may be of no code at all."""
    foreign = _foreign(names)
    if trust is True or not foreign or (trust and set(foreign) <= set(trust)):
        return
    if isinstance(signature, str) and hmac.compare_digest(signature, sign(foreign) or "-"):
        return
    raise HyqError(
        f"{source} would import {', '.join(foreign)}, and was not made by you on this machine: "
        f"if you trust that code, {remedy}"
    )


def sign(names: Iterable[str]) -> str | None:
    """Return the user's signature of code that a file names, or None where there is nothing."""
    foreign = _foreign(names)
    if not foreign or (key := _key()) is None:
        return None
    placed = [[name, _origin(_module(name) or _registered(name))] for name in foreign]
    return hmac.new(key, json.dumps(placed).encode(), hashlib.sha256).hexdigest()


def _foreign(names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if not _is_known(name)})


def _is_known(name: str) -> bool:
    if module := _module(name):
        return module == "hyq" or (module in LIBRARIES and _is_installed(module))
    # Gymnasium registers environments of libraries that need not be installed: what is found in
    # their place, the working directory for instance, is anybody's.
    package = _registered(name)
    return package in sys.modules or not _origin(package) or _is_installed(package)


def _module(name: str) -> str:
    """Return the package that a name has imported: that of `package.module:name`, if any."""
    module, _, rest = name.rpartition(":")
    return "minigrid" if rest.startswith("MiniGrid-") and not module else module.partition(".")[0]


def _registered(name: str) -> str:
    """Return the package of the environment that Gymnasium knows by a name, if any."""
    entry = getattr(gym.registry.get(name), "entry_point", None)
    return entry.partition(":")[0].partition(".")[0] if isinstance(entry, str) else ""


def _is_installed(package: str) -> bool:
    places = [Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")]
    origin = Path(_origin(package))
    return any(origin.is_relative_to(place) for place in places)


def _origin(package: str) -> str:
    """Return where a package would be imported from, without importing it."""
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        found = importlib.util.find_spec(package)
        if found is not None:
            return os.path.realpath(
                found.origin or next(iter(found.submodule_search_locations or ()), "")
            )
    return ""


def _key() -> bytes | None:
    """Read the user's key, or make it; None where it cannot be kept, or others could read it."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    path = Path(home) / "hyq" / "key"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(file, "wb") as new:
                new.write(secrets.token_bytes(32))
        about = path.stat()
        if about.st_uid != os.getuid() or about.st_mode & 0o077:
            print(f"hyq: {path} can be read by others: remove it", file=sys.stderr)
            return None
        key = path.read_bytes()
        return key if len(key) == 32 else None
    except (OSError, RuntimeError):
        return None
