"""One thread for the arithmetic, also where `pytest` is run by itself, and no key of the user's.

The last bits of a sum depend on the number of threads, and runs in processes of their own, which
take it from here, are compared with runs in this one.
"""

import os
import tempfile

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="hyq-tests-")
