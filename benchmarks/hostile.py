"""Damaged and hostile files and settings, and processes killed at random: what comes of them.

    python -m benchmarks.hostile --loads 5000 --specs 1000 --kills 200 --seed 0

Every load happens in a process of its own, which may take time and memory up to a limit. What is
counted: `raised` (an error of one line), `same` (loaded, and what was written), `crafted` (a file
that says something else under a checksum of its own, taken for what it says), and what must not be:
`wrong` (damage that was loaded), `traceback`, `hang`, `memory`, `code` (a module that only the file
names was imported). A kill is `same` where the run, resumed, ends with the bits of one undisturbed.

A campaign may be made in pieces: each has a seed of its own and is added to the record. Time is
that of the processor, so that a busy machine is not taken for a hang.
"""

import contextlib
import io
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
import tyro

from benchmarks import kills
from benchmarks.corpus import LOCK, Item, corpus, deep_spec
from benchmarks.mutations import HUGE, MUTATIONS, TEXT, change_value
from hyq.cli import main as command
from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_json
from hyq.runs.lock_spec import LockRun
from hyq.runs.records import circumstances
from hyq.runs.spec import RunSpec

SECONDS, MEMORY, ADDRESSES = 30.0, 1 << 30, 16 << 30
"""Limits of a load: time of the processor, or without a sign of life; memory; addresses."""
BAD = ("wrong", "traceback", "hang", "memory", "code", "leftovers")


def in_a_process(work: Callable[[], str]) -> tuple[str, str, float, int]:
    """Do work in a fork; return how it went, what it says, its seconds and its bytes of memory."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _limited(work, write)
    os.close(write)
    hangs = not _ended(child)
    if hangs:
        os.kill(child, signal.SIGKILL)
    _, _, used = os.wait4(child, 0)
    said = os.read(read, 20000).decode(errors="replace")
    os.close(read)
    kind, _, rest = said.partition(" ")
    if kind not in ("loaded", "raised", "traceback"):
        kind, rest = "traceback", f"the process died: {said}"
    if hangs:
        kind = "hang"
    elif used.ru_maxrss * 1024 > MEMORY:
        kind = "memory"
    return kind, rest, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def _limited(work: Callable[[], str], write: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    try:
        said = f"loaded {work()}"[:8000]
    except HyqError as error:
        text = str(error)
        one_line = text and "\n" not in text
        said = ("raised " if one_line else "traceback several lines: ") + text[:8000]
    except BaseException:
        said = f"traceback {traceback.format_exc()[-8000:]}"
    os.write(write, said.encode(errors="replace"))
    os._exit(0)


def _ended(child: int) -> bool:
    """Wait for a process; return whether it ended by itself within the limits."""
    poll, seen, since = select.poll(), -1.0, time.monotonic()
    descriptor = os.pidfd_open(child)
    poll.register(descriptor, select.POLLIN)
    try:
        while not poll.poll(1000):
            words = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            state, used = words[0], (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            if used > seen or state in "RTD":  # it works, or would if it could
                seen, since = used, time.monotonic()
            if used > SECONDS or time.monotonic() - since > SECONDS:
                return False
    finally:
        os.close(descriptor)
    return True


class Campaign:
    """Counts, and the failures in full."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.rng = random.Random(seed)
        self.counts: dict[str, Counter[str]] = {}
        self.failures: list[str] = []
        self.most = {"seconds": 0.0, "mb": 0}
        self._deadline = time.monotonic() + seconds

    def add(self, part: str, kind: str, about: str = "") -> None:
        """Count one."""
        self.counts.setdefault(part, Counter())[kind] += 1
        if kind in BAD:
            self.failures.append(f"{part}: {kind}: {about}")
            print(self.failures[-1][:3000], flush=True)

    def attempt(self, work: Callable[[], str]) -> tuple[str, str]:
        """Do work in a process of its own; return how it went and what it says."""
        kind, said, seconds, memory = in_a_process(work)
        self.most["seconds"] = max(self.most["seconds"], round(seconds, 1))
        self.most["mb"] = max(self.most["mb"], memory >> 20)
        return kind, said

    @property
    def over(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() > self._deadline


def loads(campaign: Campaign, items: list[Item], count: int, scratch: Path) -> None:
    """Damage files, and load them."""
    rng, evil, place = campaign.rng, scratch / "imported", scratch / "item"
    (scratch / "evil.py").write_text(f"import pathlib\npathlib.Path({str(evil)!r}).touch()\n")
    os.chdir(scratch)
    sys.path.append(str(scratch))
    whole = {}
    for item in items if count else ():
        shutil.copytree(item.path, place)
        whole[item.name] = campaign.attempt(partial(item.load, place))
        shutil.rmtree(place)
        assert whole[item.name][0] == "loaded", (item.name, whole[item.name])
    done = 0
    while done < count and not campaign.over:
        [item] = rng.choices(items, [one.share for one in items])
        shutil.copytree(item.path, place)
        files = [path for path in sorted(place.rglob("*")) if path.is_file()]
        path, mutate = rng.choice(files), rng.choice(MUTATIONS)
        try:
            crafted = mutate(path, rng)
        except (ValueError, HyqError, IndexError):  # it does not apply to this file
            shutil.rmtree(place)
            continue
        kind, said = campaign.attempt(partial(item.load, place))
        if evil.exists():
            evil.unlink()
            kind = "code"
        elif kind == "loaded":
            same = said == whole[item.name][1]
            kind = "same" if same else "crafted" if crafted else "wrong"
        about = f"{item.name}, {mutate.__name__} of {path.relative_to(place)}: {said}"
        campaign.add(f"loads: {item.name}", kind, about)
        shutil.rmtree(place)
        done += 1


def specs(campaign: Campaign, count: int, taken: Path) -> None:
    """Decode hostile settings, as files hold them and as the command is given them."""
    for _ in range(count):
        if campaign.over:
            return
        if campaign.rng.random() < 0.3:
            words = _words(campaign.rng, taken)
            ended, said = campaign.attempt(partial(_commanded, words))
            # A path that is taken ends what nothing else has ended.
            kind = "valid" if ended == "raised" and str(taken) in said else ended
            campaign.add("specs: of the command", kind, f"{words}: {said}")
        else:
            made, spec = _spec(campaign.rng)
            ended, said = campaign.attempt(partial(_decoded, made, spec))
            kind = "valid" if ended == "loaded" else ended
            campaign.add("specs: of files", kind, f"{spec}: {said}")


def _spec(rng: random.Random) -> tuple[Any, dict[str, Any]]:
    kind = rng.choice([LockRun, RunSpec])
    made = LOCK if kind is LockRun else deep_spec(Path("data"))
    spec = json.loads(json.dumps(made.encoded()))
    for _ in range(rng.randint(1, 3)):
        change_value(spec, rng)
    if rng.random() < 0.2:
        spec[rng.choice([*TEXT, "extra"])] = rng.choice(HUGE)
    return kind, spec


def _decoded(kind: Any, spec: Any) -> str:
    made = kind.decoded(spec)
    if len(os.fsencode(made.id)) > 255 or "/" in made.id:
        raise AssertionError(f"no name of a directory: {made.id!r}")
    return "whole"


def _words(rng: random.Random, taken: Path) -> list[str]:
    """Make up a command to train, into a path that is taken."""
    on_lock = rng.random() < 0.5
    known = (
        vars(LOCK) if on_lock else {**vars(deep_spec(Path("data"))), **deep_spec(Path()).settings}
    )
    words = ["run", "lock"] if on_lock else ["train", "--env", "CartPole-v1"]
    for name in rng.sample(sorted(known), rng.randint(1, 3)):
        value = rng.choice([*HUGE, *TEXT, known[name]])
        words += [f"--{name.replace('_', '-')}", *([] if value is None else [str(value)])]
    return [*words, "--out", str(taken)]


def _commanded(words: list[str]) -> str:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = command(words)
    text = said.getvalue().rstrip("\n")
    if code == 2 and text.startswith("hyq: "):
        raise HyqError(text)
    raise AssertionError(f"exit code {code}: {text}")


def main(
    loads_count: int = 5000,
    specs_count: int = 1000,
    kills_count: int = 200,
    disks_count: int = 20,
    kinds: tuple[kills.Kind, ...] = get_args(kills.Kind),
    minutes: float = 600.0,
    seed: int = 0,
    out: Path = Path("results/reliability/campaign.json"),
) -> None:
    """Run a piece of the campaign, print the counts and add them to the record.

    Args:
        loads_count: Damaged files to load.
        specs_count: Hostile settings to decode.
        kills_count: Processes to kill.
        disks_count: Runs to make on a disk that fills up.
        kinds: Runs to kill.
        minutes: Stop after this long, with what was done by then.
        seed: Chooses everything.
        out: The record: of all pieces with other seeds too, if there are any.
    """
    earlier = read_json(out)["pieces"] if out.exists() else []
    if any(piece["seed"] == seed for piece in earlier):
        raise SystemExit(f"{out} has a piece of this seed: give another --seed")
    torch.set_num_threads(1)
    home, out, began = os.getcwd(), out.absolute(), time.monotonic()
    campaign = Campaign(seed, 60 * minutes)
    with tempfile.TemporaryDirectory(prefix="hyq") as directory:
        root = Path(directory)
        os.environ["XDG_CONFIG_HOME"] = str(root / "config")
        (root / "scratch").mkdir()
        try:
            loads(campaign, corpus(root) if loads_count else [], loads_count, root / "scratch")
            specs(campaign, specs_count, root / "scratch")
            kills.killed(campaign, root, kills_count, kinds)
            kills.full_disks(campaign, root, disks_count)
        finally:
            os.chdir(home)
    piece = {
        **circumstances(),
        "command": ["python", "-m", "benchmarks.hostile", *sys.argv[1:]],
        "seed": seed,
        "seconds": round(time.monotonic() - began),
        "most": campaign.most,
        "counts": {part: dict(sorted(counts.items())) for part, counts in campaign.counts.items()},
        "failures": campaign.failures,
    }
    pieces = [*earlier, piece]
    totals: dict[str, Counter[str]] = {}
    for one in pieces:
        for part, counts in one["counts"].items():
            for name in {part, part.partition(":")[0]}:
                totals.setdefault(name, Counter()).update(counts)
    counts = {name: dict(sorted(found.items())) for name, found in sorted(totals.items())}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, {"counts": counts, "pieces": pieces})
    print(json.dumps(piece["counts"], indent=2))
    sys.exit(bool(campaign.failures))


if __name__ == "__main__":
    tyro.cli(main)
