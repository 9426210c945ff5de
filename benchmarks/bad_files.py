"""Files with damage, and files that are meant to do harm, for `hostile_files.py`."""

import gzip
import io
import os
import random
import socket
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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

    made: list[Path] = []

    def path(name: str) -> Path:
        made.append(folder / name)
        return made[-1]

    head = b"episode,t,obs_0,action,reward,terminated\n"
    with gzip.open(path("bomb_line.csv.gz"), "wb", 1) as file:
        file.write(head)
        for _ in range(500):
            file.write(b"1" * 2**20)
    with gzip.open(path("bomb_rows.csv.gz"), "wb", 1) as file:
        file.write(head)
        for _ in range(40):
            file.write(b"0,0,0,0,0,0\n" * 100_000)
    with gzip.open(path("bomb_good_rows.csv.gz"), "wb", 1) as file:
        file.write(head)
        for episode in range(10_000):
            rows = (b"%d,%d,0,0,0,%d\n" % (episode, t, t == 99) for t in range(100))
            file.write(b"".join(rows))
    with gzip.open(path("bomb_line.jsonl.gz"), "wb", 1) as file:
        file.write(b'{"obs": "')
        for _ in range(500):
            file.write(b"1" * 2**20)
    path("deep.jsonl").write_bytes(b'{"obs":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n")
    path("deep_keys.jsonl").write_bytes(b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n")
    path("wide.csv").write_bytes(b",".join(b"obs_%d" % i for i in range(200_000)) + b"\n1\n")
    path("huge_field.csv").write_bytes(head + b'0,0,"' + b"x" * 2**26 + b'",0,0,0\n')
    path("zeros.csv").write_bytes(bytes(2**22))
    path("quotes.csv").write_bytes(b'"' * 2**20)
    many = 100_000_000  # the same value in all is small in a file
    schema = pa.schema([(name, pa.int8()) for name in head.decode().strip().split(",")])
    with pq.ParquetWriter(path("bomb.parquet"), schema) as writer:
        block = pa.table([pa.array(np.zeros(2**22, np.int8))] * 6, schema=schema)
        for _ in range(many // 2**22):
            writer.write_table(block)
    zeros = pa.array(np.zeros(20 * 2**22))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(21) * 2**22, pa.int32()), zeros)
    pq.write_table(
        pa.table({"obs": lists, "action": [0] * 20, "reward": [0.0] * 20, "done": [0] * 19 + [1]}),
        path("wide_lists.parquet"),
    )
    for name, shape in (("claims", "(1099511627776,)"), ("wide", "(4, 100000000000)")):
        about = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
        header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(about)) + about
        with zipfile.ZipFile(path(f"{name}.npz"), "w") as archive:
            for key in ("observations", "actions", "rewards", "terminals"):
                archive.writestr(f"{key}.npy", header + bytes(64))
    with (
        zipfile.ZipFile(path("bomb.npz"), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("observations.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(2_500):
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
    ends = [False] * 3 + [True]
    table = {"obs": [png] * 4, "action": [0] * 4, "reward": [0.0] * 4, "done": ends}
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
    path("closed").mkdir()
    made[-1].chmod(0)
    path("code.npz").write_bytes(_pickled_npz())
    path("code.csv").write_bytes(b"cos\nsystem\n(S'touch /tmp/hyq-was-run'\ntR.")
    path("empty.parquet").write_bytes(b"")
    path("a\nb.csv").write_bytes(head)
    path("x" * 200 + ".csv").write_bytes(head)
    return made


def _pickled_npz() -> bytes:
    """Return arrays that would run code if they were unpickled."""

    class Code:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("touch /tmp/hyq-was-run",)

    out = io.BytesIO()
    names = ("observations", "actions", "rewards", "terminals")
    np.savez(out, **dict.fromkeys(names, np.array([Code()], object)))  # type: ignore[arg-type]
    return out.getvalue()
