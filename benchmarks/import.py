"""Time an import against pyarrow alone, and train on what is larger than memory.

python benchmarks/import.py --rows 5000000 [--folder /tmp/import] [--csv] [--shuffled] [--same]
    [--train 2000] [--steps write pyarrow import train] [--out results/files/import.json]

Every step is a process of its own, and its largest resident memory is measured: writing rows of
32 floats as Parquet (or CSV), reading and writing them again with pyarrow alone, `hyq data import`,
and training on the result for some updates. Steps may be run by one call each; the call that is
given `--out` adds what all have measured to the record, and removes the folder. Where the machine
is shared, seconds of the processor tell more than those of the clock.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

STEPS = ("write", "pyarrow", "import", "train")
FEATURES, LENGTH, FILE_ROWS = 32, 1000, 1_000_000
"""Floats a row, rows an episode, rows a file."""


def write(folder: Path, rows: int, as_csv: bool, shuffled: bool) -> None:
    """Write episodes as files of a million rows."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.csv as pacsv  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((FEATURES, min(rows, FILE_ROWS)), np.float32)
    for start in range(0, rows, FILE_ROWS):
        number = np.arange(start, min(start + FILE_ROWS, rows))
        if shuffled:
            rng.shuffle(number)
        seen = noise[:, : len(number)] + np.float32(start / FILE_ROWS)  # new noise takes longest
        columns: dict[str, Any] = {"episode": number // LENGTH, "t": number % LENGTH}
        columns |= {f"obs_{i}": part for i, part in enumerate(seen)}
        columns |= {
            "action": rng.integers(0, 4, len(number)),
            "reward": rng.standard_normal(len(number), np.float32),
            "terminated": number % LENGTH == LENGTH - 1,
        }
        name = folder / f"part{start // FILE_ROWS}"
        if as_csv:
            pacsv.write_csv(pa.table(columns), name.with_suffix(".csv"))
        else:
            pq.write_table(pa.table(columns), name.with_suffix(".parquet"))


def link(folder: Path, rows: int) -> None:
    """Let every file be the first, whose episodes each then numbers anew: that saves time and room.

    What an import reads and writes, and what it holds in memory, is the same.
    """
    (first,) = folder.iterdir()
    for number in range(1, rows // FILE_ROWS):
        (folder / f"part{number}").with_suffix(first.suffix).hardlink_to(first)


def copy(folder: Path, out: Path) -> None:
    """Read every file and write it again, with pyarrow alone."""
    import pyarrow.csv as pacsv  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    out.mkdir()
    for path in sorted(folder.iterdir()):
        table = pacsv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
        if path.suffix == ".csv":
            pacsv.write_csv(table, out / path.name)
        else:
            pq.write_table(table, out / path.name)


def train(logs: Path, updates: int) -> None:
    """Learn from the data for some updates, with the largest batches that are usual."""
    import gymnasium as gym  # noqa: PLC0415

    import hyq  # noqa: PLC0415

    class Space(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32)
        action_space = gym.spaces.Discrete(4)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
            super().reset(seed=seed)
            return np.zeros(FEATURES, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.zeros(FEATURES, np.float32), 0.0, False, True, {}

    hyq.train(Space, logs, algorithm="cql", updates=updates, batch_size=256, evaluation_episodes=0)


def write_all(options: argparse.Namespace, files: Path) -> None:
    """Write the files that are asked for."""
    write(files, FILE_ROWS if options.same else options.rows, options.csv, options.shuffled)
    if options.same:
        link(files, options.rows)


STEP: dict[str, Callable[..., None]] = {
    "write": lambda options, files, again, logs: write_all(options, files),
    "copy": lambda options, files, again, logs: copy(files, again),
    "train": lambda options, files, again, logs: train(logs, options.train),
}
"""What a process of its own does."""


def measured(step: str, *words: Any) -> dict[str, float]:
    """Run a step as a process; return its seconds and its peak of resident memory."""
    print(step, flush=True)
    command = [sys.executable, *(str(word) for word in words)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{step} failed")
    found = {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),
    }
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/import"))
    parser.add_argument("--csv", action="store_true")
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--same", action="store_true", help="links to one file in place of many")
    parser.add_argument("--train", type=int, default=0, help="updates")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--step", choices=STEP, help=argparse.SUPPRESS)
    options = parser.parse_args()
    files, again, logs = (options.folder / name for name in ("files", "again", "logs"))
    if options.step:
        STEP[options.step](options, files, again, logs)
        return
    words, state = [__file__, *sys.argv[1:]], options.folder / "measured.json"
    if "write" in options.steps:
        shutil.rmtree(options.folder, ignore_errors=True)
        found: dict[str, Any] = {
            "rows": options.rows, "features": FEATURES, "shuffled": options.shuffled,
            "format": "csv" if options.csv else "parquet", "same_file": options.same,
        }  # fmt: skip
        found["write"] = measured("write", *words, "--step", "write")
        found["bytes"] = sum(path.stat().st_size for path in files.iterdir())
    else:
        found = json.loads(state.read_text())
    if "pyarrow" in options.steps:
        found["pyarrow"] = measured("pyarrow", *words, "--step", "copy")
        shutil.rmtree(again)
    if "import" in options.steps:
        shutil.rmtree(logs, ignore_errors=True)
        command = ["-m", "hyq", "data", "import", files, "--out", logs]
        anew = ["--episodes-per-file"] if options.same else []
        found["import"] = measured("import", *command, *anew)
    if "train" in options.steps and options.train:
        found["train"] = measured("train", *words, "--step", "train") | {"updates": options.train}
    for name in ("seconds", "cpu_seconds") if {"pyarrow", "import"} <= found.keys() else ():
        found[f"ratio_of_{name}"] = round(found["pyarrow"][name] / found["import"][name], 2)
    state.write_text(json.dumps(found))
    if options.out:
        shutil.rmtree(options.folder)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        earlier = json.loads(options.out.read_text()) if options.out.exists() else []
        options.out.write_text(json.dumps([*earlier, found], indent=2) + "\n")


if __name__ == "__main__":
    main()
