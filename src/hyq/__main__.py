"""Let `python -m hyq` do what the `hyq` command does."""

import sys

from hyq.cli import main

sys.exit(main())
