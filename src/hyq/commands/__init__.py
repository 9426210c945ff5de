"""The subcommands of `hyq`: each an ordinary function."""
