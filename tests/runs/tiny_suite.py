"""A suite of a few seconds, as a program of its own, so that tests can kill it."""

import sys
from pathlib import Path

from hyq.runs.launch import Processes, SuiteDirectory, launch, pending
from hyq.runs.lock_spec import LockRun
from hyq.runs.suites import Suite

# Starved of data, so that no run is solved and each takes all of its iterations.
RUNS = tuple(
    LockRun(data="trajectory", horizon=24, offline_samples=240, m_on=1, iterations=6, seed=seed)
    for seed in (1, 2, 3)
)
SUITE = Suite("tiny", "Tiny", RUNS)


def main(path: Path) -> None:
    directory = SuiteDirectory.prepare(path, SUITE)
    runs = pending(directory, SUITE, retry=False)
    for _ in launch(directory, runs, Processes(path, 2), beat=0.05):
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]))
