"""The one exception a user is meant to see."""


class HyqError(Exception):
    """A mistake the user can mend; its text is one line that says what to do."""
