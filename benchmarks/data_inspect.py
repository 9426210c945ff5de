"""Time and memory of `hyq data inspect` on a million transitions of 128 numbers.

    python benchmarks/data_inspect.py [--rows 1000000]

The dataset is written first, in a process of its own; then three inspections run in fresh processes
(without a policy, and with one in raw and in network features) and report their wall time and
largest resident set. Targets: under 30 s, within 1 GB.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.linalg import hadamard

from hyq.coverage.features import FeatureKind
from hyq.coverage.inspect import inspect_dataset
from hyq.coverage.policy import save_policy
from hyq.envs.combination_lock import LockSpec
from hyq.experts.lock import lock_dataset
from hyq.fqi.block import BlockFunction

HORIZON = 100
SECONDS, GIGABYTES = 30.0, 1.0


def make(root: Path, rows: int) -> None:
    """Write the lock's trajectory data at H = 100 (128 numbers an observation) and its expert."""
    lock = LockSpec(horizon=HORIZON)
    lock_dataset(lock, "trajectory", rows).save(root / "data")
    dim, good = lock.observation_dim, lock.good_actions()
    encoder = np.ascontiguousarray(hadamard(dim)[:3].T / dim, dtype=np.float32)
    functions = []
    for h in range(HORIZON):
        head = np.zeros((3, lock.actions), np.float32)
        head[[0, 1], good[h]] = 1.0
        functions.append(BlockFunction(encoder, np.zeros(3, np.float32), head, "hard"))
    save_policy(root / "policy", functions)


def measure(root: Path, kind: str) -> None:
    """Inspect once and print the cost as JSON."""
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    if kind == "none":
        found = inspect_dataset(root / "data")
    else:
        features: FeatureKind = "raw" if kind == "raw" else "network"
        found = inspect_dataset(root / "data", policy=root / "policy", features=features)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"rows": found.rows, "s": seconds, "peak": peak, "imports": imported}))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--part", nargs=2, metavar=("ROOT", "KIND"))
    options = parser.parse_args()
    if options.part:
        root, kind = Path(options.part[0]), options.part[1]
        if kind == "make":
            make(root, options.rows)
        else:
            measure(root, kind)
        return 0
    missed = 0
    with tempfile.TemporaryDirectory() as directory:

        def part(kind: str) -> str:
            command = [sys.executable, __file__, "--rows", str(options.rows)]
            command += ["--part", directory, kind]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        part("make")
        for kind in ("none", "raw", "network"):
            cost = json.loads(part(kind))
            gigabytes = cost["peak"] / 1e6
            met = cost["s"] < SECONDS and gigabytes < GIGABYTES
            missed += not met
            print(
                f"policy features {kind:8} {cost['rows']:,} rows: {cost['s']:5.1f} s "
                f"(target {SECONDS:g}), {gigabytes:.2f} GB (target {GIGABYTES:g}, imports alone "
                f"{cost['imports'] / 1e6:.2f}): {'met' if met else 'MISSED'}"
            )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
