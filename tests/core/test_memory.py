"""Freed memory stays with the process."""

import subprocess
import sys

import pytest

PROBE = """
import resource, sys
import numpy as np
from hyq.core.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
np.ones(2**23)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(2**23)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be asked to")
def test_arrays_come_and_go_without_new_pages() -> None:
    def faults(how: str) -> int:
        return int(subprocess.check_output([sys.executable, "-c", PROBE, how]))

    assert faults("keep") < faults("return") / 10
