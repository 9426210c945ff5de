"""The verbs of the `hyq` command that are not told by one report: each an ordinary function."""
