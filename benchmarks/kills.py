"""Runs that are killed at random moments, on full disks and on Ray, resumed, and compared.

A part of the campaign (`benchmarks/hostile.py`). What a run comes to is compared, to the bit, with
what it comes to when nobody disturbs it; drafts and processes that are left over are counted.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tyro

from benchmarks.corpus import LOCK, SUITE, arm_spec, corpus_data, deep_spec, results, resume
from hyq.cli import as_control_c
from hyq.core.errors import HyqError
from hyq.experts.scripted import scripted_dataset
from hyq.runs import lock, runner
from hyq.runs.launch import Processes, SuiteDirectory, execute, launch, pending
from hyq.runs.suites import Suite

Kind = Literal["lock", "deep", "continuous", "suite", "ray"]
"""Runs that are killed; on Ray it is a suite of the first three."""
MARK = "HYQ_MARK"
"""A variable by which every process of a part is known, whoever its parent is by now."""
ON_RAY = {"RAY_worker_niceness": "0", "RAY_worker_register_timeout_seconds": "600"}
"""Ray's workers are otherwise so nice that on a busy machine they never begin."""


def marked(mark: str) -> dict[int, str]:
    """Return the command lines of the living processes whose environment bears a mark."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = words.decode(errors="replace")
    return found


def left_of(mark: str, seconds: float = 30.0) -> dict[int, str]:
    """Give processes some time to end; return those that do not."""
    patience = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < patience:
        time.sleep(0.2)
    return left


def files_left(scratch: Path) -> list[str]:
    """Return what is left where temporary files go, but for the cache that PyTorch keeps."""
    return sorted(
        path.name for path in scratch.iterdir() if not path.name.startswith("torchinductor")
    )


def workers_on_ray(mark: str) -> list[int]:
    """Return the processes that execute a run on Ray."""
    return sorted(p for p, words in marked(mark).items() if words.startswith("ray::execute"))


def forked(work: Callable[[], object]) -> int:
    """Do work in a fork that says nothing; return its process."""
    child = os.fork()
    if not child:
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        with contextlib.suppress(BaseException):
            work()
        os._exit(0)
    return child


def suite_on_ray(root: Path) -> Suite:
    """Return what is run on Ray."""
    runs = LOCK, replace(LOCK, seed=4), deep_spec(root / "data"), arm_spec(root / "maze")
    return Suite("ray", "Ray", runs)


def go_on(directory: SuiteDirectory, suite: Suite, pool: Any) -> None:
    """Begin a suite, or continue it, to its end."""
    for _ in launch(directory, pending(directory, suite, retry=False), pool, 0.05):
        pass


class Runs:
    """Runs of every kind, in one place."""

    def __init__(self, root: Path) -> None:
        self.root, self.place = root, root / "killed"
        (root / "tmp").mkdir()
        corpus_data(root)
        scripted_dataset("pointmaze-umaze", 0.5, 0, 400).save(root / "maze")
        self.specs = {"deep": deep_spec(root / "data"), "continuous": arm_spec(root / "maze")}

    def begin(self, kind: Kind) -> None:
        """Begin a run, or resume it."""
        if kind == "suite":
            directory = SuiteDirectory.prepare(self.place, SUITE)
            go_on(directory, SUITE, Processes(self.place, 2))
        elif self.place.exists():
            resume(self.place)
        elif kind == "lock":
            list(lock.start(LOCK, self.place))
        else:
            list(runner.start(self.specs[kind], self.place, checkpoint_seconds=0.05))

    def begin_as_the_command(self, kind: Kind) -> None:
        """Begin or resume a run with the command's signals, and known by the mark."""
        as_control_c()
        os.environ[MARK] = "kills"
        self.begin(kind)

    def try_again(self, kind: Kind) -> str:
        """Begin or resume a run; say so where nothing came in the way."""
        self.begin(kind)
        return "whole"

    def alone(self, kind: Kind) -> tuple[list[str], float]:
        """Return what runs come to that nobody disturbs, and how long they take."""
        if kind not in ("ray", "suite"):
            self.begin(kind)  # here, so that forks need not warm up
            shutil.rmtree(self.place)
        began = time.monotonic()
        if kind == "ray":
            directory = SuiteDirectory.prepare(self.place, suite_on_ray(self.root))
            for run in suite_on_ray(self.root).runs:
                os.waitpid(forked(partial(execute, directory.path, run)), 0)
        else:
            os.waitpid(forked(partial(self.begin, kind)), 0)
        found = self.came_to()
        shutil.rmtree(self.place)
        return found, time.monotonic() - began

    def came_to(self) -> list[str]:
        """Sum up the results of the run, or of those of the suite."""
        return [results(path) for path in sorted(self.place.glob("runs/*")) or [self.place]]

    @property
    def finished(self) -> int:
        """Number of runs that have ended."""
        return len([*self.place.rglob("summary.json")])

    def check(self, campaign: Any, part: str, alone: list[str]) -> None:
        """Compare what the runs came to, look for what is left over, and make room."""
        beside = [*self.place.parent.glob(".killed*")]
        beside += [self.root / "tmp" / name for name in files_left(self.root / "tmp")]
        left = [*self.place.rglob(".*"), *beside]
        processes = left_of("kills")
        same = self.came_to() == alone
        campaign.add(part, "same" if same else "wrong")
        if left or processes:
            campaign.add(part, "leftovers", f"{left} {processes}")
        for path in (self.place, *beside):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def killed(campaign: Any, root: Path, count: int, kinds: tuple[Kind, ...]) -> None:
    """Kill runs at random moments, resume them, and compare them with runs left alone."""
    if not count:
        return
    rng, runs = campaign.rng, Runs(_below(root, "kills"))
    alone = {kind: runs.alone(kind) for kind in kinds}
    done = 0
    while done < count and not campaign.over:
        kind = rng.choice(kinds)
        expected, lasts = alone[kind]
        while runs.finished < len(expected):
            if kind == "ray":
                done += _killed_on_ray(campaign, runs)
                continue
            stop = rng.choice([signal.SIGKILL, signal.SIGTERM])
            child = forked(partial(runs.begin_as_the_command, kind))
            time.sleep(rng.uniform(0, 1.2 * lasts))
            if os.waitpid(child, os.WNOHANG)[0] == 0:
                os.kill(child, stop)
                os.waitpid(child, 0)
                done += 1
                campaign.add("kills", f"{kind}, {stop.name}")
                left_of("kills")  # a suite's workers notice that it is gone
        runs.check(campaign, f"chains: {kind}", expected)


def _killed_on_ray(campaign: Any, runs: Runs) -> int:
    """Run a suite on Ray, kill its workers and then perhaps the driver; return how many."""
    rng, done = campaign.rng, 0
    surroundings = {**os.environ, MARK: "kills", "TMPDIR": str(runs.root / "tmp")}
    surroundings |= {"RAY_TMPDIR": str(runs.root), **ON_RAY}
    words = [sys.executable, "-m", "benchmarks.kills", "--root", str(runs.root)]
    home = Path(__file__).parents[1]
    driver = subprocess.Popen(words, cwd=home, env=surroundings, stdout=-3, stderr=-3)
    lives = rng.expovariate(1 / 40)  # seconds of the driver
    began = time.monotonic()
    while driver.poll() is None:
        time.sleep(rng.expovariate(1 / 3))
        stop = rng.choice([signal.SIGKILL, signal.SIGTERM])
        workers = workers_on_ray("kills")
        with contextlib.suppress(ProcessLookupError):
            if time.monotonic() - began > lives and driver.poll() is None:
                driver.send_signal(stop)
                done += 1
                campaign.add("kills", f"driver on Ray, {stop.name}")
                driver.wait(120)
            elif workers:
                os.kill(rng.choice(workers), stop)
                done += 1
                campaign.add("kills", f"worker on Ray, {stop.name}")
    if driver.returncode == 1:
        raise RuntimeError("the driver on Ray ended with a traceback")
    left = left_of("kills", 60)
    if left:
        campaign.add("chains: ray", "leftovers", str(left))
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    return done


def full_disks(campaign: Any, root: Path, count: int) -> None:
    """Let runs fill a small disk, free some space, resume them, and compare them."""
    if not count:
        return
    rng, runs = campaign.rng, Runs(_below(root, "disks"))
    disk = root / "disk"
    disk.mkdir()
    kinds: tuple[Kind, ...] = "lock", "deep", "continuous"
    alone = {kind: runs.alone(kind) for kind in kinds}
    runs.place = disk / "killed"
    for _ in range(count):
        if campaign.over:
            return
        kind, size = rng.choice(kinds), rng.randrange(8, 64)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", disk], check=True)
        try:
            while not runs.finished:
                [(ended, said)] = campaign.attempt([partial(runs.try_again, kind)])
                if ended != "loaded":
                    full = ended == "raised" and "no space left" in said
                    campaign.add("full disks", "raised" if full else "traceback", said)
                    if not full:
                        break
                    size += rng.randrange(4, 32)
                    resized = f"remount,size={size}k"
                    subprocess.run(["mount", "-o", resized, disk], check=True)
                elif not runs.finished:
                    campaign.add("full disks", "wrong", "it ended without a summary")
                    break
            else:
                runs.check(campaign, f"chains: full disk, {kind}", alone[kind][0])
        finally:
            subprocess.run(["umount", disk], check=True)


def _below(root: Path, name: str) -> Path:
    path = root / name
    path.mkdir()
    return path


def main(root: Path) -> None:
    """Run the suite on Ray; called by the campaign.

    Args:
        root: Where the data is.
    """
    from hyq.runs.launch_ray import Cluster  # noqa: PLC0415

    as_control_c()
    suite = suite_on_ray(root)
    directory = SuiteDirectory.prepare(root / "killed", suite)
    with contextlib.suppress(KeyboardInterrupt, HyqError):
        go_on(directory, suite, Cluster(directory.path, None))


if __name__ == "__main__":
    tyro.cli(main)
