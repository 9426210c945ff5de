"""Where commands print: what files and users name is shown as it is, and does nothing else."""

from typing import Any

from rich.console import Console
from rich.text import Text

from hyq.core.errors import printable


class Terminal(Console):
    """A console to which no text is markup, and that no text can steer."""

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **how)

    def render_str(self, text: str, **how: Any) -> Text:
        """Show control characters as what they are."""
        return super().render_str(printable(text), **how)
