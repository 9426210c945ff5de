"""The one exception a user is meant to see."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class HyqError(Exception):
    """A mistake the user can mend; its text is one line that says what to do."""


class MisfitError(HyqError):
    """The environment, as it is wrapped, shows something else than the agent or the data need."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what

    def __str__(self) -> str:
        return ": ".join(self.args)


def printable(text: str) -> str:
    """Escape control characters but for line ends: a terminal would obey them."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def in_one_line(error: Exception) -> str:
    """Return the kind of an error and what it says, for use in a message of one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def check_finite(values: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", remedy: str) -> None:
    """Raise where learning has diverged, with what may help."""
    import numpy as np  # noqa: PLC0415 - errors are also raised where NumPy is not needed

    if not np.isfinite(values).all():
        raise HyqError(f"learning has diverged: {remedy}")
