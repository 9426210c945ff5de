"""The one exception a user is meant to see."""


class HyqError(Exception):
    """A mistake the user can mend; its text is one line that says what to do."""


def in_one_line(error: Exception) -> str:
    """Return the kind of an error and what it says, for use in a message of one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
