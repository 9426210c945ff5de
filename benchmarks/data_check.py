"""Time and memory of `hyq data check` on a million transitions of 128 numbers.

    python benchmarks/data_check.py [--rows 1000000]

The dataset is written first, in a process of its own; then two checks run in fresh processes (with
and without a policy) and report their wall time and largest resident set. Targets: under 30 s,
within 1 GB.
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

from hyq.coverage.check import check_all
from hyq.coverage.policy import play_in
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import LockSpec
from hyq.experts.lock import lock_dataset, optimal_policy
from hyq.fqi.classes import GreedyPolicy

LOCK = LockSpec(horizon=100)
SECONDS, GIGABYTES = 30.0, 1.0


def measure(root: Path, kind: str) -> None:
    """Check once and print the cost as JSON."""
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    data, policy, played = Dataset.load(root / "data"), None, None
    if kind == "policy":
        policy = GreedyPolicy(tuple(optimal_policy(LOCK)))
        played = kind, play_in(policy, data, None, 500)
    check_all({"data": data}, played=played, by_step=policy)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"rows": len(data), "s": seconds, "peak": peak, "imports": imported}))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--part", nargs=2, metavar=("ROOT", "KIND"))
    options = parser.parse_args()
    if options.part:
        root, kind = Path(options.part[0]), options.part[1]
        if kind == "make":  # the lock's trajectory data, 128 numbers an observation
            lock_dataset(LOCK, "trajectory", options.rows).save(root / "data")
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
        for kind in ("none", "policy"):
            cost = json.loads(part(kind))
            gigabytes = cost["peak"] / 1e6
            met = cost["s"] < SECONDS and gigabytes < GIGABYTES
            missed += not met
            print(
                f"policy {kind:8} {cost['rows']:,} rows: {cost['s']:5.1f} s "
                f"(target {SECONDS:g}), {gigabytes:.2f} GB (target {GIGABYTES:g}, imports alone "
                f"{cost['imports'] / 1e6:.2f}): {'met' if met else 'MISSED'}"
            )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
