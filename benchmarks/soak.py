"""Hours of training, and of suites on Ray whose workers are killed: what grows, and what is left.

    nice -n 19 python -m benchmarks.soak --minutes 120 --out results/reliability/soak.json

One process is `hyq train`; another runs suites on Ray, round after round, and kills their workers
at random. Every 20 seconds resident memory, open files and processes of both are noted, and the
files in shared memory that they have mapped. A round ends when all its runs have; their results are
compared, to the bit, with runs that nobody disturbed, and Ray is shut down: no process and no file
may then be left. The slopes are of straight lines through what was noted after the first fifth of
the time. The suites begin no round in the last eight minutes.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.corpus import LOCK, arm_spec, corpus_data, deep_spec, results
from benchmarks.kills import MARK, ON_RAY, files_left, forked, left_of, marked, workers_on_ray
from hyq.core.files import write_json
from hyq.experts.scripted import scripted_dataset
from hyq.runs.launch import SuiteDirectory, execute, launch, pending
from hyq.runs.records import circumstances
from hyq.runs.suites import Run, Suite


def usage(process: int) -> dict[str, float]:
    """Return what a process holds: resident megabytes and open files."""
    resident = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    files = len(os.listdir(f"/proc/{process}/fd"))
    return {"mb": resident * os.sysconf("SC_PAGE_SIZE") / 2**20, "files": files}


def mapped(processes: Iterable[int]) -> set[str]:
    """Return the files in shared memory that processes have mapped."""
    found: set[str] = set()
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            lines = Path(f"/proc/{process}/maps").read_text().splitlines()
            found |= {Path(line.split()[-1]).name for line in lines if "/dev/shm/" in line}
    return found


def living() -> list[int]:
    """Return all processes."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def killer(stop: threading.Event, rng: random.Random, pause: float, killed: Counter[str]) -> None:
    """Kill workers on Ray at random, one every `pause` seconds on average."""
    while not stop.wait(rng.expovariate(1 / pause)):
        if workers := workers_on_ray("suite"):
            number = rng.choice([signal.SIGKILL, signal.SIGTERM])
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(workers), number)
                killed[number.name] += 1


def suites(folder: Path, seconds: float, seed: int) -> None:
    """Run suites on Ray until the time is over; print a line a round."""
    import ray  # noqa: PLC0415

    from hyq.runs.launch_ray import Cluster  # noqa: PLC0415

    rng, deadline = random.Random(seed), time.monotonic() + seconds
    deep = deep_spec(folder / "data")
    deep = replace(deep, settings=dict(deep.settings) | {"online_steps": 400})
    runs: tuple[Run, ...] = (
        *(replace(LOCK, seed=number) for number in range(6)),
        *(replace(deep, seed=number) for number in range(4)),
        *(replace(arm_spec(folder / "maze"), seed=number) for number in range(2)),
    )
    suite = Suite("soak", "Soak", runs)
    expected = {}
    alone = SuiteDirectory.prepare(folder / "alone", suite)
    began = time.monotonic()
    for run in runs:
        os.waitpid(forked(partial(execute, alone.path, run)), 0)
        expected[run.id] = results(alone.run_path(run))
    # A machine that is busy needs more time for a run, and for the start of a worker before it.
    pause = 8 + (time.monotonic() - began) / len(runs)
    while time.monotonic() < deadline:
        directory = SuiteDirectory.prepare(folder / "round", suite)
        cluster = Cluster(directory.path, None)
        stop, killed = threading.Event(), Counter[str]()
        thread = threading.Thread(target=killer, args=(stop, rng, pause, killed))
        thread.start()
        events: list[Any] = []
        errors = []
        try:
            events = list(launch(directory, pending(directory, suite, False), cluster))
        except Exception:
            errors = [traceback.format_exc()]
        finally:
            stop.set()
            thread.join()
        assert not ray.is_initialized()
        left = left_of("suite")
        ended = [results(directory.run_path(run)) if directory.summary(run) else "" for run in runs]
        same = sum(found == expected[run.id] for run, found in zip(runs, ended, strict=True))
        drafts = [str(path) for path in directory.path.rglob(".*")]
        found = {
            "pause": round(pause, 1), "runs": len(runs), "same": same, "killed": dict(killed),
            "lost": sum(one is not None and one.outcome == "lost" for one in events),
            "failures": errors + [directory.failure(r) for r in runs if directory.failure(r)],
            "processes_left": list(left.values()), "drafts": drafts,
            "scratch_left": files_left(Path(tempfile.gettempdir())),
        }  # fmt: skip
        print(json.dumps(found), flush=True)
        shutil.rmtree(directory.path)


def slope(samples: list[dict[str, Any]], part: str, what: str) -> dict[str, float]:
    """Fit a line through what was noted after the first fifth; return it by the hour."""
    known = [(one["hours"], one[part][what]) for one in samples if part in one]
    known = [(x, y) for x, y in known if x >= 0.2 * known[-1][0]]
    x, y = np.array(known).T
    return {
        "by_hour": round(float(np.polyfit(x, y, 1)[0]), 3),
        "first": round(float(y[0]), 1),
        "last": round(float(y[-1]), 1),
        "most": round(float(y.max()), 1),
    }


def main(
    minutes: float = 120.0,
    seed: int = 0,
    out: Path = Path("results/reliability/soak.json"),
    parts: tuple[str, ...] = ("train", "suite"),
    part: str = "",
    folder: Path = Path(),
) -> None:
    """Soak, print the slopes and write them.

    Args:
        minutes: How long.
        seed: Chooses what is killed, and when.
        out: Where the record goes.
        parts: What to run.
        part: Of the command's own processes.
        folder: Of the command's own processes.
    """
    if part == "suite":
        suites(folder, 60 * minutes, seed)
        return
    root = Path(tempfile.mkdtemp(prefix="soak"))  # short, because Ray's sockets are below it
    corpus_data(root, 100)
    scripted_dataset("pointmaze-umaze", 0.5, 0, 400).save(root / "maze")
    shared = set(os.listdir("/dev/shm"))
    # With a discount nearer to 1, values that are learned from so few random episodes diverge.
    train = "train --env CartPole-v1 --gamma 0.9 --buffer-size 20000 --hidden 64"
    train += " --online-steps 1000000000"
    words = {
        "train": ["-m", "hyq", *train.split(), "--data", root / "data", "--out", root / "run"],
        "suite": [
            "-m", "benchmarks.soak", "--part", "suite", "--folder", root,
            "--minutes", minutes - min(8, minutes / 2), "--seed", seed,
        ],
    }  # fmt: skip
    begun: dict[str, subprocess.Popen[bytes]] = {}
    for name in parts:
        (root / f"{name}.tmp").mkdir()
        surroundings = {**os.environ, MARK: name, "TMPDIR": str(root / f"{name}.tmp")}
        surroundings |= {"RAY_TMPDIR": str(root), **ON_RAY}
        with (root / f"{name}.log").open("wb") as log:
            begun[name] = subprocess.Popen(
                [sys.executable, *map(str, words[name])], env=surroundings,
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
    began, samples = time.monotonic(), []
    while time.monotonic() - began < 60 * minutes and begun[parts[0]].poll() is None:
        time.sleep(20)
        one: dict[str, Any] = {"hours": (time.monotonic() - began) / 3600}
        for name, process in begun.items():
            try:
                one[name] = usage(process.pid) | {"processes": len(marked(name))}
            except OSError:
                traceback.print_exc()
        one["shared_memory"] = {"files": len(mapped([*marked("train"), *marked("suite")]))}
        samples.append(one)
        write_json(root / "samples.json", {"samples": samples})
    if "train" in begun:
        begun["train"].send_signal(signal.SIGTERM)
    ends = {name: process.wait(1200) for name, process in begun.items()}
    said = (root / "suite.log").read_text() if "suite" in begun else ""
    rounds = [json.loads(line) for line in said.splitlines() if line.startswith('{"pause"')]
    records = root / "run" / "records.jsonl"
    last = records.read_text().splitlines()[-1] if "train" in begun else "{}"
    found = {
        **circumstances(),
        "command": ["python", "-m", "benchmarks.soak", *sys.argv[1:]],
        "minutes": round((time.monotonic() - began) / 60, 1),
        "train_steps": json.loads(last).get("online_steps"),
        "exit_codes": ends,
        "slopes": {
            name: {what: slope(samples, name, what) for what in ("mb", "files", "processes")}
            for name in parts
        },
        # What a living process has mapped is another's: none of these two are left.
        "shared_memory_left": sorted(set(os.listdir("/dev/shm")) - shared - mapped(living())),
        "processes_left": sorted({*marked("train").values(), *marked("suite").values()}),
        "files_left": [one for name in parts for one in files_left(root / f"{name}.tmp")],
        "suites": {
            "rounds": len(rounds),
            "pauses": sorted({one["pause"] for one in rounds}),
            **{key: sum(one[key] for one in rounds) for key in ("runs", "same", "lost")},
            "killed": dict(sum((Counter(one["killed"]) for one in rounds), Counter[str]())),
            **{
                key: [x for one in rounds for x in one[key]]
                for key in ("failures", "processes_left", "drafts", "scratch_left")
            },
        },
        "samples": samples[:: max(1, len(samples) // 60)],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, found)
    print(json.dumps({key: value for key, value in found.items() if key != "samples"}, indent=2))
    shutil.rmtree(root)


if __name__ == "__main__":
    tyro.cli(main)
