"""Damaged and hostile files and settings, and processes killed at random: what comes of them.

    python -m benchmarks.hostile --loads 5000 --specs 1000 --kills 200 --seed 0

Loads happen in processes of their own, which may take time and memory up to a limit. What is
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
from collections.abc import Callable, Iterator
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
TOGETHER = 20
"""Works of a process."""
CODE_RUN = "a module that only a file names was imported"
BAD = ("wrong", "traceback", "hang", "memory", "code", "leftovers")


Outcome = tuple[str, str, float, int]
"""How it went, what it says, its seconds and its process's megabytes."""


def in_processes(works: list[Callable[[], str]]) -> Iterator[Outcome]:
    """Do works in a fork, and in another one after each that ends it."""
    while works:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            _limited(works, write)
        os.close(write)
        for line in _lines(child, read):
            works = works[1:]
            kind, said, seconds, memory = json.loads(line)
            yield "memory" if memory << 20 > MEMORY else kind, said, seconds, memory
        os.close(read)
        hangs = os.waitpid(child, os.WNOHANG)[0] == 0
        if hangs:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if works:
            works = works[1:]
            yield ("hang", "", SECONDS, 0) if hangs else ("traceback", "the process died", 0.0, 0)


def _limited(works: list[Callable[[], str]], write: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    for work in works:
        began = time.process_time()
        try:
            kind, said = "loaded", work()
        except HyqError as error:
            kind, said = "raised", str(error)
            if not said or "\n" in said:
                kind = "traceback"
        except BaseException:
            kind, said = "traceback", traceback.format_exc()[-4000:]
        if CODE_RUN in said:
            kind = "code"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        found = kind, said[:4000], time.process_time() - began, memory
        os.write(write, json.dumps(found).encode() + b"\n")
    os._exit(0)


def _lines(child: int, read: int) -> Iterator[bytes]:
    """Yield what a process writes, until it ends or hangs."""
    poll, text = select.poll(), b""
    poll.register(read, select.POLLIN)
    spent, seen, since = 0.0, -1.0, time.monotonic()
    while True:
        if poll.poll(1000):
            if not (found := os.read(read, 1 << 20)):
                os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
                return
            *whole, text = (text + found).split(b"\n")
            spent = max(seen, 0.0) if whole else spent
            yield from whole
            continue
        words = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        state, used = words[0], (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        if used > seen or state in "RTD":  # it works, or would if it could
            seen, since = used, time.monotonic()
        if used - spent > SECONDS or time.monotonic() - since > SECONDS:
            return


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

    def attempt(self, works: list[Callable[[], str]]) -> list[tuple[str, str]]:
        """Do works in processes of their own; return how each went and what it says."""
        found = []
        for kind, said, seconds, memory in in_processes(works):
            self.most["seconds"] = max(self.most["seconds"], round(seconds, 1))
            self.most["mb"] = max(self.most["mb"], memory)
            found.append((kind, said))
        return found

    @property
    def over(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() > self._deadline


def loads(campaign: Campaign, items: list[Item], count: int, scratch: Path) -> None:
    """Damage files, and load them."""
    rng, evil = campaign.rng, scratch / "imported"
    (scratch / "evil.py").write_text(f"import pathlib\npathlib.Path({str(evil)!r}).touch()\n")
    os.chdir(scratch)
    sys.path.append(str(scratch))
    whole = {}
    for item in items if count else ():
        place = Path(shutil.copytree(item.path, scratch / "0" / "item"))
        [(kind, whole[item.name])] = campaign.attempt([partial(item.load, place)])
        shutil.rmtree(place)
        assert kind == "loaded", (item.name, whole[item.name])
    done = 0
    while done < count and not campaign.over:
        damaged = [_damaged(rng, items, scratch / str(number)) for number in range(TOGETHER)]
        made = [one for one in damaged if one is not None]
        found = campaign.attempt([partial(_watched, one[0], one[1], evil) for one in made])
        for (item, _, about, crafted), (ended, said) in zip(made, found, strict=True):
            same = said == whole[item.name]
            loaded = "same" if same else "crafted" if crafted else "wrong"
            kind = loaded if ended == "loaded" else ended
            campaign.add(f"loads: {item.name}", kind, f"{item.name}, {about}: {said}")
            done += 1
        for _, place, _, _ in made:
            shutil.rmtree(place)


def _damaged(
    rng: random.Random, items: list[Item], into: Path
) -> tuple[Item, Path, str, bool] | None:
    """Copy an item and damage it; None where the damage does not apply to the file."""
    [item] = rng.choices(items, [one.share for one in items])
    place = Path(shutil.copytree(item.path, into / "item"))
    files = [path for path in sorted(place.rglob("*")) if path.is_file()]
    path, mutate = rng.choice(files), rng.choice(MUTATIONS)
    try:
        crafted = mutate(path, rng)
    except (ValueError, HyqError, IndexError):
        shutil.rmtree(place)
        return None
    return item, place, f"{mutate.__name__} of {path.relative_to(place)}", crafted


def _watched(item: Item, place: Path, evil: Path) -> str:
    try:
        return item.load(place)
    finally:
        if evil.exists():
            evil.unlink()
            raise AssertionError(CODE_RUN)


def specs(campaign: Campaign, count: int, taken: Path) -> None:
    """Decode hostile settings, as files hold them and as the command is given them."""
    done, rng = 0, campaign.rng
    while done < count and not campaign.over:
        kinds = [rng.random() < 0.3 for _ in range(TOGETHER)]
        given: list[Any] = [_words(rng, taken) if by_hand else _spec(rng) for by_hand in kinds]
        works: list[Callable[[], str]] = [
            partial(_commanded, one) if by_hand else partial(_decoded, *one)
            for by_hand, one in zip(kinds, given, strict=True)
        ]
        found = campaign.attempt(works)
        for by_hand, one, (kind, said) in zip(kinds, given, found, strict=True):
            part = "specs: of the command" if by_hand else "specs: of files"
            # A path that is taken ends what nothing else has ended.
            ended = kind == "loaded" or (kind == "raised" and by_hand and str(taken) in said)
            campaign.add(part, "valid" if ended else kind, f"{one}: {said}")
            done += 1


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
