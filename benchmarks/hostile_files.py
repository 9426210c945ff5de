"""Damaged and hostile files through import, check and load: one line said, bounded memory.

python benchmarks/hostile_files.py [--hostile] [--count 500] [--minutes 60] [--seed 0]
    [--out results/files/hostile.json]

Files of the corpus of awkward ones (tests/data/awkward_files.py) are changed at random (bits,
lengths, bytes of headers, sizes, numbers, types), and with `--hostile` others are made by hand
(bombs, pipes, links, devices, files that may not be read). Each goes through `hyq.load`, `hyq data
import` or `hyq data check`, those made by hand through all three, in a process with limits that is
watched from outside. A file that loads in spite of its damage must give rows that another reader
finds in it too, and a dataset that can be saved and loaded to the same hash. A run is added to the
runs that the record holds.
"""

import argparse
import collections
import csv
import gzip
import io
import json
import os
import random
import re
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.bad_files import changed, hostile

SECONDS, ADDRESS_SPACE, RESIDENT_MB = 240, 4 * 2**30, 2048
"""Limits of a file: time, and memory, of which about 370 MB are the libraries'."""
WAYS = ("load", "import", "check")


def work() -> None:
    """Take each file named on the standard input the way that is asked for; say how it went."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    import hyq.commands.check  # noqa: F401, PLC0415 - what is imported now is not the file's

    for line in sys.stdin:
        name, options, way = json.loads(line)
        if Path(name).name.startswith("closed") and os.geteuid() == 0:  # to whom no file is closed
            os.seteuid(65534)
        try:
            with tempfile.TemporaryDirectory() as folder:
                if way == "load":
                    how, said = load_file(name, options, Path(folder))
                else:
                    how, said = command(way, name, options, Path(folder))
        except BaseException as error:
            how, said = "traceback", "".join(traceback.format_exception(error))[-2000:]
        if how == "raised" and said.strip().count("\n"):
            how = "several lines"
        print(json.dumps([how, said[-2000:]]), flush=True)


def command(way: str, name: str, options: dict[str, Any], folder: Path) -> tuple[str, str]:
    """Run a command on a file."""
    from hyq.cli import main  # noqa: PLC0415

    out = folder / "out"
    words = ["--page", str(out)]
    if way == "import":
        words = ["--out", str(out)]
        words += [f"--{k.replace('_', '-')}={v}" for k, v in options.items() if v is not True]
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    try:
        code, said = main(["data", way, name, *words]), sys.stderr.getvalue()
    finally:
        sys.stdout, sys.stderr = streams
    how = {0: "loaded", 2: "raised"}.get(code, "traceback")
    return ("half written" if (how == "loaded") != out.exists() else how), said


def load_file(name: str, options: dict[str, Any], folder: Path) -> tuple[str, str]:
    """Load a file, compare what is found with another reader, and save it."""
    from hyq.core.errors import HyqError  # noqa: PLC0415
    from hyq.data.dataset import Dataset  # noqa: PLC0415
    from hyq.runs.named_data import load  # noqa: PLC0415

    try:
        dataset = load(name, **options)
    except HyqError as error:
        return "raised", str(error)
    dataset.save(folder / "logs")
    if Dataset.load(folder / "logs").digest() != dataset.digest():
        return "changed", "the saved dataset has another hash"
    wrong = difference(Path(name), dataset)
    return ("corrupt", wrong) if wrong else ("loaded", "")


def difference(path: Path, dataset: Any) -> str:
    """Say what rewards and numeric actions a dataset has that the file has not, or lacks."""
    imported = dataset.provenance.get("imported")
    if imported is None or path.is_dir():
        return ""
    columns = imported["columns"]
    names = [columns["reward"]]
    action = dataset.action.reshape(len(dataset), -1)[:, 0]
    own = [dataset.reward]
    if "actions" not in imported:
        names.append(columns["action"][0])
        own.append(action)
    try:
        read = [np.asarray(values).reshape(len(values), -1)[:, 0] for values in others(path, names)]
    except Exception as error:  # the other reader takes less: nothing to compare with
        return "" if len(dataset) else str(error)
    pairs = [
        collections.Counter(zip(*(part.astype(np.float32).tolist() for part in parts), strict=True))
        for parts in (own, read)
    ]
    if pairs[0] - pairs[1]:
        return f"rows that are not in the file: {list(pairs[0] - pairs[1])[:3]}"
    lost = (pairs[1] - pairs[0]).total()
    # The last row of an episode that was cut off may only show where the row before it led.
    explained = sum(one["count"] for one in imported["mended"])
    if lost > dataset.num_episodes and not explained:
        return f"{lost} rows of the file are lost without a word"
    return ""


def others(path: Path, names: list[str]) -> list[Any]:
    """Read columns by the standard library, or by the library of the format alone."""
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if suffixes[-1] == ".parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415

        table = pq.ParquetFile(path).read()
        return [table[name].to_pylist() for name in names]
    if suffixes[-1] == ".npz":
        with np.load(path) as arrays:
            return [arrays[name] for name in names]
    if suffixes[-1] in (".hdf5", ".h5"):
        import h5py  # noqa: PLC0415

        with h5py.File(path) as file:
            groups = list(file["data"].values()) if "data" in file else [file]
            return [np.concatenate([group[name][:] for group in groups]) for name in names]
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    if suffixes[-1] in (".csv", ".tsv"):
        header = text.partition("\n")[0]
        lines = io.StringIO(text, newline="")
        rows: list[Any] = list(csv.DictReader(lines, delimiter=max(",;\t|", key=header.count)))
    else:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [[number(row[name]) for row in rows] for name in names]


def number(value: Any) -> float:
    """Return what a field says; a list its first entry."""
    return number(value[0]) if isinstance(value, list) else float(value)


class Worker:
    """A process that loads files, and is replaced when it dies or takes too long."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.handled = 0

    def take(self, path: Path, options: Any, way: str) -> tuple[str, str, int]:
        if self.process is None or self.handled >= 200:
            self.close()
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.handled += 1
        about = Path(f"/proc/{self.process.pid}")
        (about / "clear_refs").write_text("5")  # the peak of memory is then this file's
        self.process.stdin.write(json.dumps([str(path), dict(options), way]) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            how = "hang" if not ready else f"crash ({self.process.wait()})"
            self.close()
            return how, "", 0
        how, said = json.loads(line)
        found = re.search(r"VmHWM:\s+(\d+)", (about / "status").read_text())
        peak = int(found[1]) // 1024 if found else 0
        if peak > RESIDENT_MB // 2 or "closed" in path.name:
            self.close()  # what the next one holds is its own
        return ("much memory" if peak > RESIDENT_MB else how), said, peak

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process, self.handled = None, 0


class Campaign:
    """Takes files, and counts how that went."""

    def __init__(self) -> None:
        self.worker = Worker()
        self.counts: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )
        self.bad: list[dict[str, str]] = []
        self.peak, self.slowest = 0, 0.0

    def take(self, path: Path, options: Any, way: str, what: str, talk: bool = False) -> None:
        began = time.perf_counter()
        how, said, peak = self.worker.take(path, options, way)
        seconds = time.perf_counter() - began
        self.slowest, self.peak = max(self.slowest, seconds), max(self.peak, peak)
        ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
        self.counts[f"{way} {ending}".strip()][how] += 1
        bad = how not in ("loaded", "raised")
        if talk or bad:
            print(f"{what}, {way}: {how} in {seconds:.1f} s, {peak} MB: {said[:1000]}", flush=True)
        if bad:
            self.bad.append({"what": what, "way": way, "how": how, "said": said})
            if path.is_file() and path.stat().st_size < 2**22:
                kept = Path(tempfile.gettempdir()) / f"hostile-{len(self.bad)}-{path.name[-40:]}"
                shutil.copyfile(path, kept)

    def hostile(self, folder: Path) -> None:
        """Take every file that is made by hand."""
        for path in hostile(folder):
            for way in WAYS:
                self.take(path, {}, way, repr(path.name[-40:]), talk=True)
            if path.is_file() and not path.is_symlink() and path.stat().st_size > 2**24:
                path.unlink()

    def damaged(self, count: int, seed: int, folder: Path, minutes: float) -> int:
        """Damage files of the corpus at random; return how many."""
        from tests.data.awkward_files import CASES  # noqa: PLC0415

        rng = random.Random(seed)
        sources: list[tuple[str, Path, Any]] = []
        for name, case in CASES.items():
            (folder / name).mkdir(parents=True)
            case.write(folder / name)
            for path in sorted((folder / name).rglob("*")):
                if path.is_file() and name != "cut_short":
                    sources.append((name, path, case.options))
        until = time.monotonic() + 60 * minutes
        for number in range(count):
            if time.monotonic() > until:
                return number
            name, source, options = rng.choice(sources)
            path = folder / f"damaged{''.join(source.suffixes)}"
            content = source.read_bytes()
            if source.suffix == ".gz" and rng.random() < 0.7:  # else only the checksum fails
                content = gzip.compress(changed(gzip.decompress(content), rng))
            else:
                content = changed(content, rng)
            path.write_bytes(content)
            way = ("load", "import", "load", "check")[number % 4]
            self.take(path, options, way, f"{name} {number} of seed {seed}")
        return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hostile", action="store_true", help="take those made by hand, too")
    parser.add_argument("--count", type=int, default=500, help="damaged files")
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return
    witness = Path("/tmp/hyq-was-run")
    witness.unlink(missing_ok=True)
    campaign = Campaign()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # the worker is another user
        for part in ("hostile", "damaged"):
            (folder / part).mkdir()
        if options.hostile:
            campaign.hostile(folder / "hostile")
        damaged = folder / "damaged"
        count = campaign.damaged(options.count, options.seed, damaged, options.minutes)
    campaign.worker.close()
    total = sum(campaign.counts.values(), collections.Counter())
    found = {
        "seed": options.seed,
        "hostile": options.hostile,
        "damaged": count,
        "counts": dict(total),
        "by_way_and_ending": {name: dict(one) for name, one in sorted(campaign.counts.items())},
        "code_run": int(witness.exists()),
        "peak_resident_mb": campaign.peak,
        "bounds": {"address_space_mb": ADDRESS_SPACE // 2**20, "resident_mb": RESIDENT_MB},
        "slowest_seconds": round(campaign.slowest, 1),
        "bad": campaign.bad,
    }
    print(json.dumps({k: v for k, v in found.items() if k not in ("bad",)}, indent=2))
    if options.out:
        from hyq.runs.records import circumstances  # noqa: PLC0415

        made = {key: circumstances()[key] for key in ("commit", "versions")}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        earlier = json.loads(options.out.read_text()) if options.out.exists() else []
        options.out.write_text(json.dumps([*earlier, found | made], indent=2) + "\n")


if __name__ == "__main__":
    main()
