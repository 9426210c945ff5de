"""Damaged and hostile files through import and load: no traceback, no hang, bounded memory.

python benchmarks/hostile_files.py [--count 2000] [--seed 0] [--out results/reliability/files.json]

Files of the corpus of awkward ones (tests/data/awkward_files.py) are changed at random (bits,
lengths, bytes of headers, numbers, types), and hostile ones are made by hand (bombs, pipes, links,
devices). Each is loaded, and some are imported by the command, in a process with limits that
handles many of them; it is watched from outside. A file that loads in spite of its damage must give
a dataset that can be saved and loaded to the same hash.
"""

import argparse
import collections
import gzip
import io
import json
import os
import random
import resource
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

SECONDS, ADDRESS_SPACE = 60, 6 * 2**30
"""Limits of a file and of a process."""
NUMBERS = (
    b'nan,inf,-1,1e999,99999999999999999999,",abc,0x10,1;2,\xff,true,-0.0,2024-01-01,{},[[]],,\n'
)
"""What is put in place of a value, with commas between."""


def changed(content: bytes, rng: random.Random) -> bytes:
    """Damage a file in one of the usual ways."""
    data = bytearray(content)
    kind = rng.randrange(8)
    edge = min(len(data), 200)
    if kind == 0:  # bits anywhere
        for _ in range(rng.choice((1, 3, 30))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:  # bits of the header or the footer
        for _ in range(rng.choice((1, 5))):
            place = rng.randrange(edge)
            data[place if rng.random() < 0.5 else len(data) - 1 - place] = rng.randrange(256)
    elif kind == 2:  # cut short
        del data[rng.randrange(len(data)) :]
    elif kind == 3:  # a piece missing
        start = rng.randrange(len(data))
        del data[start : start + rng.randrange(1, 200)]
    elif kind == 4:  # a piece twice
        start = rng.randrange(len(data))
        data[start:start] = data[start : start + rng.randrange(1, 500)]
    elif kind == 5:  # a size or an offset
        start = rng.randrange(max(1, len(data) - 8))
        size = rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1))
        data[start : start + 8] = struct.pack("<Q", size)
    elif kind == 6:  # another value
        start = rng.randrange(len(data))
        data[start : start + rng.randrange(1, 6)] = rng.choice(NUMBERS.split(b","))
    else:  # nothing but bytes
        start = rng.randrange(len(data))
        data[start : start + 64] = rng.randbytes(64)
    return bytes(data)


def hostile(folder: Path) -> list[Path]:  # noqa: PLR0915 - a list of files
    """Make files that are meant to do harm."""
    import h5py  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    made: list[Path] = []

    def path(name: str) -> Path:
        made.append(folder / name)
        return made[-1]

    head = b"episode,t,obs_0,action,reward,terminated\n"
    with gzip.open(path("bomb_line.csv.gz"), "wb") as file:
        file.write(head)
        for _ in range(2000):
            file.write(b"1" * 2**20)
    with gzip.open(path("bomb_rows.csv.gz"), "wb") as file:
        file.write(head)
        for _ in range(200):
            file.write(b"0,0,0,0,0,0\n" * 100_000)
    with gzip.open(path("bomb_line.jsonl.gz"), "wb") as file:
        file.write(b'{"obs": "')
        for _ in range(2000):
            file.write(b"1" * 2**20)
    path("deep.jsonl").write_bytes(b'{"obs":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n")
    path("deep_keys.jsonl").write_bytes(b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n")
    path("wide.csv").write_bytes(b",".join(b"obs_%d" % i for i in range(200_000)) + b"\n1\n")
    path("huge_field.csv").write_bytes(head + b'0,0,"' + b"x" * 2**26 + b'",0,0,0\n')
    path("zeros.csv").write_bytes(bytes(2**22))
    path("quotes.csv").write_bytes(b'"' * 2**20)
    rows = 300_000_000  # the same value in all is small in a file
    schema = pa.schema([(name, pa.int8()) for name in head.decode().strip().split(",")])
    with pq.ParquetWriter(path("bomb.parquet"), schema) as writer:
        block = pa.table([pa.array(np.zeros(2**22, np.int8))] * 6, schema=schema)
        for _ in range(rows // 2**22):
            writer.write_table(block)
    lists = pa.array([[0.0] * 2**22] * 20, pa.list_(pa.float64()))
    pq.write_table(
        pa.table({"obs": lists, "action": [0] * 20, "reward": [0.0] * 20, "done": [0] * 20}),
        path("wide_lists.parquet"),
    )
    for name, shape in (("claims", "(1099511627776,)"), ("wide", "(4, 100000000000)")):
        about = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
        header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(about)) + about
        with zipfile.ZipFile(path(f"{name}.npz"), "w") as archive:
            for key in ("observations", "actions", "rewards", "terminals"):
                archive.writestr(f"{key}.npy", header + bytes(64))
    with (
        zipfile.ZipFile(path("bomb.npz"), "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("observations.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(20_000):
            member.write(bytes(2**20))
    with h5py.File(path("bomb.hdf5"), "w") as file:
        for name, kind in {"actions": "i8", "rewards": "f4", "terminals": "?"}.items():
            file.create_dataset(name, (10**12,), kind, chunks=(2**16,))
        file.create_dataset("observations", (10**12, 8), "f4", chunks=(2**14, 8))
    with h5py.File(path("wide.hdf5"), "w") as file:
        for name in ("actions", "rewards", "terminals"):
            file.create_dataset(name, (4,), "f4")
        file.create_dataset("observations", (4, 10**11), "f4", chunks=(1, 2**20))
    with h5py.File(path("links.hdf5"), "w") as file:
        file["loop"] = h5py.SoftLink("/loop")
        file["out"] = h5py.ExternalLink("/etc/passwd", "/")
        file["group/itself"] = file["/"]
        for name in ("observations", "actions", "rewards", "terminals"):
            file[name] = h5py.SoftLink(f"/{name}")
    chunk = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    for part, body in ((b"IHDR", chunk), (b"IDAT", zlib.compress(bytes(2**20))), (b"IEND", b"")):
        png += struct.pack(">I", len(body)) + part + body
        png += struct.pack(">I", zlib.crc32(part + body))
    table = {"obs": [png] * 4, "action": [0] * 4, "reward": [0.0] * 4, "done": [False] * 4}
    pq.write_table(pa.table(table), path("png_bomb.parquet"))
    os.mkfifo(path("pipe.csv"))
    os.mkfifo(path("pipe.parquet"))
    path("zero.csv").symlink_to("/dev/zero")
    path("random.parquet").symlink_to("/dev/urandom")
    path("loop.csv").symlink_to("loop.csv")
    path("broken.jsonl").symlink_to("nothing")
    path("folder.csv").mkdir()
    (path("around") / "inside").mkdir(parents=True)
    (folder / "around" / "inside" / "up").symlink_to("..", target_is_directory=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path("socket.npz")))
    path("closed.csv").write_bytes(head)
    made[-1].chmod(0)
    path("code.npz").write_bytes(_pickled_npz())
    path("code.csv").write_bytes(b"cos\nsystem\n(S'touch /tmp/hyq-was-run'\ntR.")
    path("empty.parquet").write_bytes(b"")
    path("a\nb.csv").write_bytes(head)
    path("x" * 200 + ".csv").write_bytes(head)
    return made


def _pickled_npz() -> bytes:
    """Return arrays that would run code if they were unpickled."""
    import numpy as np  # noqa: PLC0415

    class Code:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("touch /tmp/hyq-was-run",)

    out = io.BytesIO()
    names = ("observations", "actions", "rewards", "terminals")
    np.savez(out, **dict.fromkeys(names, np.array([Code()], object)))  # type: ignore[arg-type]
    return out.getvalue()


def work() -> None:
    """Load each file named on the standard input; say how it went."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    from hyq.cli import main as command  # noqa: PLC0415
    from hyq.core.errors import HyqError  # noqa: PLC0415
    from hyq.data.dataset import Dataset  # noqa: PLC0415
    from hyq.runs.named_data import load  # noqa: PLC0415

    for line in sys.stdin:
        name, options, by_command = json.loads(line)
        said = ""
        try:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "logs"
                if by_command:
                    words = [
                        f"--{k.replace('_', '-')}={v}" for k, v in options.items() if v is not True
                    ]
                    stdout, sys.stdout = sys.stdout, io.StringIO()
                    stderr, sys.stderr = sys.stderr, io.StringIO()
                    try:
                        code = command(["data", "import", name, "--out", str(out), *words])
                        said = sys.stderr.getvalue()
                    finally:
                        sys.stdout, sys.stderr = stdout, stderr
                    how = {0: "loaded", 2: "raised"}.get(code, "traceback")
                    if (how == "loaded") != out.exists():
                        how = "half written"
                else:
                    dataset = load(name, **options)
                    dataset.save(out)
                    same = Dataset.load(out).digest() == dataset.digest()
                    how = "loaded" if same else "changed"
        except HyqError as error:
            how, said = "raised", str(error)
        except BaseException as error:
            how, said = "traceback", "".join(traceback.format_exception(error))[-2000:]
        if how == "raised" and said.strip().count("\n"):
            how = "several lines"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps([how, said[-2000:], peak]), flush=True)


class Worker:
    """A process that loads files, and is replaced when it dies or takes too long."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.handled = 0

    def load(self, path: Path, options: Any, by_command: bool) -> tuple[str, str, int]:
        if self.process is None or self.handled >= 200:
            self.close()
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.handled += 1
        self.process.stdin.write(json.dumps([str(path), dict(options), by_command]) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            how = "hang" if not ready else f"crash ({self.process.wait()})"
            self.close()
            return how, "", 0
        found: tuple[str, str, int] = tuple(json.loads(line))
        return found

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process, self.handled = None, 0


def campaign(count: int, seed: int, folder: Path) -> dict[str, Any]:
    """Load every hostile file and `count` damaged ones."""
    from tests.data.awkward_files import CASES  # noqa: PLC0415

    rng, worker = random.Random(seed), Worker()
    sources: list[tuple[str, Path, Any]] = []
    for name, case in CASES.items():
        (folder / "corpus" / name).mkdir(parents=True)
        case.write(folder / "corpus" / name)
        for path in sorted((folder / "corpus" / name).rglob("*")):
            if path.is_file() and name != "cut_short":
                sources.append((name, path, case.options))
    (folder / "hostile").mkdir()
    counts: collections.Counter[str] = collections.Counter()
    formats: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    bad: list[dict[str, str]] = []
    peak, slowest = 0, 0.0

    def one(path: Path, options: Any, by_command: bool, what: str) -> None:
        nonlocal peak, slowest
        began = time.perf_counter()
        how, said, held = worker.load(path, options, by_command)
        slowest, peak = max(slowest, time.perf_counter() - began), max(peak, held)
        if number < 0:
            print(f"{what}: {how} in {time.perf_counter() - began:.1f} s, {held} MB: {said[:150]}")
        counts[how] += 1
        formats["".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix][how] += 1
        if how not in ("loaded", "raised"):
            bad.append({"what": what, "how": how, "said": said})
            print(what, how, said, flush=True)
            if path.is_file() and path.stat().st_size < 2**22:
                kept = Path(tempfile.gettempdir()) / f"hostile-{len(bad)}-{path.name[-40:]}"
                shutil.copyfile(path, kept)

    number = -1
    for path in hostile(folder / "hostile"):
        for by_command in (False, True):
            one(path, {}, by_command, path.name[-40:])
        if path.is_file() and not path.is_symlink() and path.stat().st_size > 2**24:
            path.unlink()
    for number in range(count):
        name, source, options = rng.choice(sources)
        path = folder / f"damaged{''.join(source.suffixes)}"
        content = source.read_bytes()
        if (
            source.suffix == ".gz" and rng.random() < 0.7
        ):  # inside, or nothing but the checksum fails
            content = gzip.compress(changed(gzip.decompress(content), rng))
        else:
            content = changed(content, rng)
        path.write_bytes(content)
        one(path, options, number % 4 == 0, f"{name} {number}")
    worker.close()
    return {
        "files": sum(counts.values()),
        "seed": seed,
        "counts": dict(counts),
        "by_ending": {ending: dict(found) for ending, found in sorted(formats.items())},
        "code_run": int(Path("/tmp/hyq-was-run").exists()),
        "peak_mb": peak,
        "slowest_seconds": round(slowest, 1),
        "bad": bad,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return
    Path("/tmp/hyq-was-run").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found = campaign(options.count, options.seed, Path(folder))
    print(json.dumps({name: value for name, value in found.items() if name != "bad"}, indent=2))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
