"""Damage: ways to change a file, and values that nobody would write."""

import contextlib
import json
import math
import os
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.files import read_json, write_json
from hyq.runs.records import chained

HUGE = [math.nan, math.inf, -1, 0, 10**12, 2**63, 1e308, "", "x" * 5000, None, True, [], {}, [[]]]
TEXT = ["evil:CartPole-v1", "os:system", "../../etc/passwd", "\x1b[2J", "[/bold]", "{{7*7}}", "\0"]
CODE = ("env", "wrappers", "env_parameters", "algorithm", "network", "kind")
"""Keys whose values may name code."""

# Mutations of files. Each returns whether the file is *crafted*: whole, but with another content.


def flip(path: Path, rng: random.Random) -> bool:
    """Change one bit."""
    content = bytearray(path.read_bytes() or b"x")
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return False


def cut(path: Path, rng: random.Random) -> bool:
    """Lose the end, the beginning or the middle."""
    content = path.read_bytes()
    a, b = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    path.write_bytes(rng.choice([content[:a], content[b:], content[:a] + content[b:], b""]))
    return False


def repeat(path: Path, rng: random.Random) -> bool:
    """Double, zero or replace a stretch."""
    content = path.read_bytes()
    a, b = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    part = content[a:b]
    made = rng.choice([part * 2, bytes(len(part)), rng.randbytes(len(part))])
    path.write_bytes(content[:a] + made + content[b:])
    return False


def other_kind(path: Path, rng: random.Random) -> bool:
    """Put something else in the file's place."""
    path.unlink()
    kind = rng.randrange(5)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to("/dev/zero")
    elif kind == 2:
        path.mkdir()
    elif kind == 3:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    else:
        path.write_text("[" * 200_000)
    return False


def lines(path: Path, rng: random.Random) -> bool:
    """Lose, double or move lines."""
    text = path.read_bytes().split(b"\n")
    a, b = rng.randrange(len(text)), rng.randrange(len(text))
    kind = rng.randrange(3)
    if kind == 0:
        del text[a]
    elif kind == 1:
        text.insert(b, text[a])
    else:
        text[a], text[b] = text[b], text[a]
    path.write_bytes(b"\n".join(text))
    return False


def craft(path: Path, rng: random.Random) -> bool:
    """Change a value somewhere, under a checksum that fits."""
    if path.name == "records.jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        change_value(rng.choice(rows), rng)
        head, text = "", ""
        for row in rows:
            row.pop("chain", None)
            head, line = chained(head, row)
            text += line + "\n"
        path.write_text(text)
    elif path.suffix == ".json":
        content = read_json(path)
        change_value(content, rng)
        with contextlib.suppress(TypeError, ValueError):
            write_json(path, content)
    elif path.suffix == ".safetensors":
        craft_arrays(path, rng)
    else:
        return flip(path, rng)
    return True


def craft_arrays(path: Path, rng: random.Random) -> None:
    """Change an array of a policy or a checkpoint, and everything that says what it should be."""
    arrays = load_arrays(path)
    name = rng.choice(sorted(arrays))
    array = arrays[name]
    nan = np.full_like(array, np.nan) if array.dtype.kind == "f" else array[..., :0]
    scalar = np.array(0, array.dtype)
    choices = [nan, scalar, array[None], array.ravel(), array.astype(np.float64), array[..., :0]]
    arrays[name] = rng.choice(choices) if array.ndim else np.zeros((3, 3), array.dtype)
    if rng.random() < 0.2:
        del arrays[name]
    saved = save_arrays(path, arrays)
    if (path.parent / "policy.json").exists():
        write_json(
            path.parent / "policy.json",
            {**read_json(path.parent / "policy.json"), "weights": saved},
        )


def change_value(content: Any, rng: random.Random) -> None:
    """Change, remove or nest one value of JSON."""
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(content[key], dict | list) and content[key] and rng.random() < 0.8:
            content = content[key]
            continue
        if rng.random() < 0.15:
            del content[key]
        elif rng.random() < 0.1:
            nested: Any = content[key]
            for _ in range(rng.choice([3, 40, 900])):
                nested = [nested]
            content[key] = nested
        else:
            content[key] = deepcopy(rng.choice([*HUGE, *TEXT]))
        return


def name_code(path: Path, rng: random.Random) -> bool:
    """Name a module of a stranger's, under a checksum that fits."""
    content = read_json(path)
    _name_code(content, rng)
    write_json(path, content)
    return True


def _name_code(content: Any, rng: random.Random) -> None:
    for key, value in content.items():
        if key in CODE and rng.random() < 0.7:
            named = rng.choice(["evil:CartPole-v1", "evil:Wrapper", "evil"])
            content[key] = [named] if isinstance(value, list) else named
        elif isinstance(value, dict):
            _name_code(value, rng)


MUTATIONS = (flip, cut, repeat, other_kind, lines, craft, craft, name_code)
