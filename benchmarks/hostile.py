"""Damaged and hostile files and settings, and processes killed at random: what comes of them.

    python benchmarks/hostile.py --loads 5000 --specs 1000 --kills 200

Every load happens in a process of its own, which may take seconds and memory up to a limit. What is
counted: `raised` (an error of one line), `same` (loaded, and what was written), `crafted` (a file
that says something else under a checksum of its own, taken for what it says), and what must not be:
`wrong` (damage that was loaded), `traceback`, `hang`, `memory`, `code` (a module that only the file
names was imported). A kill is `same` where the run, resumed, ends with the bits of one undisturbed.
"""

import contextlib
import hashlib
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
import torch
import tyro

from hyq.cli import as_control_c
from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_json
from hyq.coverage.policy import load_policy
from hyq.data.dataset import Dataset
from hyq.experts.scripted import scripted_dataset
from hyq.policy import Policy
from hyq.report.records import RunResult, SuiteRecords
from hyq.runs import lock, runner
from hyq.runs.launch import Processes, SuiteDirectory, execute, launch, pending
from hyq.runs.lock_spec import LockRun
from hyq.runs.records import RunDirectory, chained, circumstances
from hyq.runs.spec import RunSpec
from hyq.runs.suites import Suite
from hyq.runs.video import Environment

SECONDS, MEMORY = 30.0, 1 << 30
BAD = ("wrong", "traceback", "hang", "memory", "code", "leftovers")
LOCK = LockRun(data="trajectory", horizon=10, offline_samples=200, m_on=1, iterations=6, seed=3)
SUITE = Suite("small", "Small", (LOCK, replace(LOCK, seed=4)))
HUGE = [math.nan, math.inf, -1, 0, 10**12, 2**63, 1e308, "", "x" * 5000, None, True, [], {}, [[]]]
TEXT = ["evil:CartPole-v1", "os:system", "../../etc/passwd", "\x1b[2J", "[/bold]", "{{7*7}}", "\0"]


Kind = Literal["lock", "deep", "continuous", "suite"]
"""Runs that are killed."""


@dataclass(frozen=True)
class Item:
    """Files to damage, and what reads them."""

    name: str
    path: Path
    load: Callable[[Path], str]
    """Returns what was loaded, in short."""


def digest(*parts: Any) -> str:
    """Sum up what was loaded, whatever order its names are in."""
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def weights(module: torch.nn.Module) -> list[bytes]:
    """Return the bytes of a network."""
    return [tensor.numpy().tobytes() for tensor in module.state_dict().values()]


def of_policy(path: Path) -> str:
    """Load a deep policy, and where it would play."""
    policy = Policy.load(path)
    seen = policy.observation_space
    Environment.of(policy)
    facts = seen, policy.action_space, policy.preprocessing, sorted(policy.about.items())
    return digest(weights(policy.network), *facts, policy.act(np.zeros(seen.shape, np.float32)))


def of_steps(path: Path) -> str:
    """Load a policy by step."""
    greedy = load_policy(path)
    return digest([one.arrays() for one in greedy.functions])


def of_run(path: Path) -> str:
    """Read a run's records, as a report does."""
    found = RunResult.read(path)
    return digest(found.spec, found.rows, found.summary, RunDirectory(path).manifest)


def of_suite(path: Path) -> str:
    """Read a suite's records."""
    found = SuiteRecords.read(path)
    return digest(found.manifest, [run.rows for run in found.runs], sorted(found.failures))


def of_dataset(path: Path) -> str:
    """Open a dataset and read all of it."""
    found = Dataset.load(path)
    return digest(found.digest(), sorted(found.provenance.items()))


def results(path: Path) -> str:
    """Sum up what a run came to, but for the time it took."""
    run, timed = RunDirectory.open(path), ("seconds", "wall_seconds")
    rows = [{k: v for k, v in row.items() if k not in timed} for row in run.rows]
    ended = {k: v for k, v in (run.summary or {}).items() if k not in timed}
    learned = [p for p in sorted(path.rglob("*.safetensors")) if "checkpoint" not in p.parts]
    return digest(rows, ended, [p.read_bytes() for p in learned])


def of_resumed(path: Path) -> str:
    """Resume a run to its end."""
    resume(path)
    return results(path)


def resume(path: Path) -> None:
    """Resume a run of either kind."""
    experiment = RunDirectory.open(path).manifest.get("experiment")
    for _ in lock.resume(path) if experiment == "lock" else runner.resume(path):
        pass


def deep_spec(data: Path) -> RunSpec:
    """Describe a run of a second."""
    settings: dict[str, Any] = {
        "online_steps": 120,
        "pretraining": 20,
        "report_every": 30,
        "learning_starts": 10,
    }
    settings |= {"num_envs": 2, "buffer_size": 100, "hidden": [16], "batch_size": 16}
    return RunSpec("CartPole-v1", str(data), settings=settings, evaluation_episodes=2, seed=5)


def arm_spec(data: Path) -> RunSpec:
    """Describe a run with continuous actions in a simulation by MuJoCo, of some seconds."""
    settings: dict[str, Any] = {
        "online_steps": 250,
        "pretraining": 30,
        "report_every": 50,
        "learning_starts": 20,
    }
    settings |= {"buffer_size": 200, "hidden": [16], "batch_size": 16, "critics": 3}
    return RunSpec(
        "hyq/PointMazeUMaze-v0",
        str(data),
        settings=settings,
        evaluation_episodes=2,
        actions="continuous",
        seed=5,
    )


def corpus_data(root: Path, episodes: int = 10) -> None:
    """Write a small dataset for CartPole, of random actions."""
    rng, env = np.random.default_rng(0), gym.make("CartPole-v1")
    rows: list[tuple[Any, ...]] = []
    for episode in range(episodes):
        seen, ended = env.reset(seed=episode)[0], False
        while not ended:
            action = rng.integers(2)
            after, reward, ended, _, _ = env.step(action)
            rows.append((seen, action, reward, after, ended))
            seen = after
    seen, action, reward, after, ended = (np.array(column) for column in zip(*rows, strict=True))
    found = Dataset.from_arrays(seen, action, reward, after, ended, provenance={"made": "here"})
    found.save(root / "data")


def corpus(root: Path) -> list[Item]:
    """Make one of everything that is loaded."""
    corpus_data(root)
    scripted_dataset("pointmaze-umaze", 0.5, 0, 400).save(root / "maze")
    spec = deep_spec(root / "data")
    list(runner.start(spec, root / "deep"))
    list(islice(runner.start(spec, root / "deep-half", checkpoint_seconds=0), 3))
    list(lock.start(LOCK, root / "lock"))
    list(islice(lock.start(LOCK, root / "lock-half"), 3))
    directory = SuiteDirectory.prepare(root / "suite", SUITE)
    for run in SUITE.runs:
        execute(directory.path, run)
    return [
        Item("policy", root / "deep" / "best", of_policy),
        Item("policy by step", root / "lock", of_steps),
        Item("deep run", root / "deep", of_run),
        Item("lock run", root / "lock", of_run),
        Item("suite", root / "suite", of_suite),
        Item("dataset", root / "data", of_dataset),
        Item("deep checkpoint", root / "deep-half", of_resumed),
        Item("lock checkpoint", root / "lock-half", of_resumed),
    ]


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
    from hyq.core.arrays import load_arrays, save_arrays  # noqa: PLC0415

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
            content[key] = rng.choice([*HUGE, *TEXT])
        return


MUTATIONS = (flip, cut, repeat, other_kind, lines, craft, craft)


def in_a_process(work: Callable[[], str], seconds: float) -> tuple[str, str]:
    """Do work in a fork; return how it went and what it says."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        try:
            said = f"loaded {work()}"
        except HyqError as error:
            text = str(error)
            said = "raised " if text and "\n" not in text else "traceback several lines: "
            said += text
        except BaseException:
            said = f"traceback {traceback.format_exc()}"
        os.write(
            write,
            said.encode(errors="replace")[-8000:]
            if "traceback" in said[:9]
            else said.encode(errors="replace")[:8000],
        )
        os._exit(0)
    os.close(write)
    deadline, used = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        done, _, used = os.wait4(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.002)
    else:
        os.kill(child, signal.SIGKILL)
        os.wait4(child, 0)
        os.close(read)
        return "hang", ""
    said = os.read(read, 20000).decode(errors="replace")
    os.close(read)
    if used is not None and used.ru_maxrss * 1024 > MEMORY:
        return "memory", said
    kind, _, rest = said.partition(" ")
    if kind not in ("loaded", "raised", "traceback"):
        return "traceback", f"the process died: {said}"
    return kind, rest


class Campaign:
    """Counts, and the first failures of each kind in full."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.rng = random.Random(seed)
        self.counts: dict[str, Counter[str]] = {}
        self.failures: list[str] = []
        self.deadline = time.monotonic() + seconds

    def add(self, part: str, kind: str, about: str = "") -> None:
        """Count one."""
        self.counts.setdefault(part, Counter())[kind] += 1
        if kind in BAD:
            self.failures.append(f"{part}: {kind}: {about}")
            print(self.failures[-1][:3000], flush=True)

    def over(self, share: float) -> bool:
        """Tell whether a part has had its share of the time."""
        return time.monotonic() > self.deadline - share


def loads(campaign: Campaign, items: list[Item], count: int, scratch: Path, until: float) -> None:
    """Damage files, and load them."""
    rng, evil = campaign.rng, scratch / "imported"
    (scratch / "evil.py").write_text(f"import pathlib\npathlib.Path({str(evil)!r}).touch()\n")
    os.chdir(scratch)
    sys.path.append(str(scratch))
    whole = {}
    for item in items:
        shutil.copytree(item.path, scratch / "item", symlinks=True)
        whole[item.name] = in_a_process(partial(item.load, scratch / "item"), 60)
        shutil.rmtree(scratch / "item")
        assert whole[item.name][0] == "loaded", (item.name, whole[item.name])
    for _ in range(count):
        if campaign.over(until):
            return
        item, place = rng.choice(items), scratch / "item"
        shutil.copytree(item.path, place, symlinks=True)
        files = [path for path in sorted(place.rglob("*")) if path.is_file()]
        path, mutate = rng.choice(files), rng.choice(MUTATIONS)
        try:
            crafted = mutate(path, rng)
        except (ValueError, HyqError, IndexError):  # it does not apply to this file
            shutil.rmtree(place)
            continue
        kind, said = in_a_process(partial(item.load, place), SECONDS)
        if evil.exists():
            evil.unlink()
            kind = "code"
        elif kind == "loaded":
            same = said == whole[item.name][1]
            kind = "same" if same else "crafted" if crafted else "wrong"
        about = f"{item.name}, {mutate.__name__} of {path.relative_to(place)}: {said}"
        campaign.add("loads", kind, about)
        shutil.rmtree(place)


def specs(campaign: Campaign, count: int, until: float) -> None:
    """Decode hostile settings, as files and the command hold them."""
    rng = campaign.rng
    deep = deep_spec(Path("data")).encoded()
    for _ in range(count):
        if campaign.over(until):
            return
        kind: Any = rng.choice([LockRun, RunSpec])
        spec = json.loads(json.dumps(LOCK.encoded() if kind is LockRun else deep))
        for _ in range(rng.randint(1, 3)):
            change_value(spec, rng)
        if rng.random() < 0.2:
            spec[rng.choice([*TEXT, "extra"])] = rng.choice(HUGE)

        def decode(kind: Any = kind, spec: Any = spec) -> str:
            made = kind.decoded(spec)
            if len(os.fsencode(made.id)) > 255 or "/" in made.id:
                raise AssertionError(f"no name of a directory: {made.id!r}")
            return "whole"

        ended, said = in_a_process(decode, SECONDS)
        campaign.add("specs", "valid" if ended == "loaded" else ended, f"{spec}: {said}")


def _said(work: Callable[[str], None], name: str) -> str:
    work(name)
    return name


def small_suite(path: Path) -> None:
    """Begin a suite of two runs, or continue it."""
    directory = SuiteDirectory.prepare(path, SUITE)
    for _ in launch(directory, pending(directory, SUITE, retry=False), Processes(path, 2), 0.05):
        pass


def runs_of(path: Path) -> list[Path]:
    """Return the runs in a directory, which may be one itself."""
    return sorted(path.glob("runs/*")) or [path]


def kills(
    campaign: Campaign, root: Path, count: int, until: float, kinds: tuple[Kind, ...]
) -> None:
    """Kill runs at random moments, resume them, and compare them with runs left alone."""
    rng, scratch, done = campaign.rng, root / "killed", 0
    described = {"deep": deep_spec(root / "data"), "continuous": arm_spec(root / "maze")}

    def begin(name: str) -> None:
        if name == "suite":
            small_suite(scratch)
        elif scratch.exists():
            resume(scratch)
        elif name == "lock":
            list(lock.start(LOCK, scratch))
        else:
            list(runner.start(described[name], scratch, checkpoint_seconds=0.05))

    def came_to() -> list[str]:
        return [results(path) for path in runs_of(scratch)]

    undisturbed, lasts = {}, {}
    for name in kinds:
        began = time.monotonic()
        in_a_process(partial(_said, begin, name), 300)
        undisturbed[name], lasts[name] = came_to(), time.monotonic() - began
        shutil.rmtree(scratch)
    while done < count and not campaign.over(until):
        name = rng.choice(kinds)
        while len([*scratch.rglob("summary.json")]) < len(undisturbed[name]):
            stop = rng.choice([signal.SIGKILL, signal.SIGTERM])
            child = os.fork()
            if not child:
                for number in (1, 2):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
                with contextlib.suppress(BaseException):
                    as_control_c()  # as the command does
                    begin(name)
                os._exit(0)
            time.sleep(rng.uniform(0, 2 * lasts[name]))
            if os.waitpid(child, os.WNOHANG)[0] == 0:
                os.kill(child, stop)
                os.waitpid(child, 0)
                done += 1
                campaign.add("kills", f"{name}, {stop.name}")
                time.sleep(0.5 if name == "suite" else 0)  # its workers notice that it is gone
        same = came_to() == undisturbed[name]
        campaign.add("chains", f"{name}, same" if same else "wrong", name)
        left = [*scratch.rglob(".*"), *root.glob(".killed*")]
        if left:
            campaign.add("chains", "leftovers", str(left))
            for one in root.glob(".killed*"):
                shutil.rmtree(one)
        shutil.rmtree(scratch)


def main(
    loads_count: int = 5000,
    specs_count: int = 1000,
    kills_count: int = 200,
    kinds: tuple[Kind, ...] = get_args(Kind),
    minutes: float = 600.0,
    seed: int = 0,
    out: Path = Path("results/reliability/campaign.json"),
) -> None:
    """Run the campaign, print the counts and write them.

    Args:
        loads_count: Damaged files to load.
        specs_count: Hostile settings to decode.
        kills_count: Processes to kill.
        kinds: Runs to kill.
        minutes: Stop after this long, with what was done by then.
        seed: Chooses everything.
        out: Where the counts go.
    """
    torch.set_num_threads(1)
    home, out = os.getcwd(), out.absolute()
    campaign, seconds = Campaign(seed, 60 * minutes), 60 * minutes
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        items = corpus(root)
        kills(campaign, root, kills_count, 0.6 * seconds, kinds)
        specs(campaign, specs_count, 0.5 * seconds)
        (root / "scratch").mkdir()
        loads(campaign, items, loads_count, root / "scratch", 0.0)
        os.chdir(home)
    found = {
        **circumstances(),
        "command": ["python", "benchmarks/hostile.py", *sys.argv[1:]],
        "seconds": round(time.monotonic() - began),
        "counts": {part: dict(sorted(counts.items())) for part, counts in campaign.counts.items()},
        "failures": campaign.failures,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, found)
    print(json.dumps(found["counts"], indent=2))
    sys.exit(bool(campaign.failures))


if __name__ == "__main__":
    tyro.cli(main)
