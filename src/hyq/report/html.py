"""The one builder of pages: a conclusion, then sections, and everything they need inside."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from rich.console import Console

from hyq.core.files import write_bytes
from hyq.report.figures import Panel, content
from hyq.report.plot import draw_panels, figure_bytes, write_figure
from hyq.report.records import SuiteRecords
from hyq.report.tables import TextTable

PAGES = Environment(
    loader=PackageLoader("hyq.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.policies["json.dumps_kwargs"] = {"allow_nan": False}
SCRIPT = PAGES.get_template("chart.js").render()
SCRIPT_HASH = "sha256-" + base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
"""The only script that a browser runs on a page; the page's policy also forbids every request."""
TYPES = {".png": "image/png", ".gif": "image/gif"}


def note(name: str, **values: Any) -> str:
    """Return a sentence of templates/notes.html."""
    made = getattr(PAGES.get_template("notes.html").module, name)(**values)
    return " ".join(str(made.unescape()).split())


@dataclass(frozen=True)
class Image:
    """An image inside a page; `kind` is its class there."""

    src: str
    alt: str
    kind: str = ""

    @classmethod
    def of(cls, path: Path, alt: str, kind: str = "") -> "Image":
        """Read an image on disk."""
        return cls.encoded(path.read_bytes(), path.suffix, alt, kind)

    @classmethod
    def drawn(cls, figure: Figure, alt: str) -> "Image":
        """Encode a figure, which may be shown light on dark."""
        return cls.encoded(figure_bytes(figure), ".png", alt, "drawn")

    @classmethod
    def encoded(cls, content: bytes, suffix: str, alt: str, kind: str = "") -> "Image":
        """Put the bytes of an image into its address."""
        source = base64.b64encode(content).decode()
        return cls(f"data:{TYPES[suffix]};base64,{source}", alt, kind)


@dataclass(frozen=True)
class Section:
    """A part of a page. What it has stands in this order; the rest is left out."""

    heading: str = ""
    lead: Sequence[str] = ()
    """Sentences that are its conclusion."""
    findings: Sequence[Any] = ()
    panels: Sequence[Panel] = ()
    share_y: bool = False
    table: TextTable | None = None
    images: Sequence[Image] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    parts: Sequence["Section"] = ()
    folded: bool = False

    @property
    def chart(self) -> dict[str, Any]:
        """What the page's script draws."""
        return content(self.panels, self.share_y)


def page(title: str, conclusion: Sequence[str], sections: Sequence[Section], **more: Any) -> str:
    """Return a page; no value in it is taken for markup. One with `refresh` loads itself again."""
    shown = {"script_hash": SCRIPT_HASH, "suite": None, "manifest": None, "refresh": 0, **more}
    suite = shown["suite"]
    lead = [*conclusion, *([suite.state] if suite else [])]
    template = PAGES.get_template("page.html")
    return template.render(shown, title=title, conclusion=lead, sections=sections)


def write_page(path: Path, *given: Any, **more: Any) -> None:
    """Write a page, whole or not at all."""
    write_bytes(path, page(*given, **more).encode())


def publish(
    records: SuiteRecords,
    panels: Sequence[Panel],
    table: TextTable,
    console: Console,
    conclusion: Sequence[str],
    sections: Sequence[Section] = (),
    *,
    notes: tuple[str, str] = ("", ""),
    share_y: bool = False,
    **drawn: Any,
) -> None:
    """Write the figure and the page of a suite, and print its table."""
    path, title = records.path, records.manifest["title"]
    write_figure(draw_panels(panels, title=title, share_y=share_y, **drawn), path / "figure.png")
    figure = Section(panels=panels, share_y=share_y, note=notes[0])
    results = Section("Results", table=table, note=notes[1])
    write_page(
        path / "report.html",
        title,
        conclusion,
        [figure, results, *sections],
        suite=records,
        manifest=records.manifest,
    )
    console.print(table.rich())
    console.print(f"figure: {path / 'figure.png'}   page: {path / 'report.html'}")
