"""The one builder of pages: templates with autoescape, everything they need inside of them."""

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from rich.console import Console

from hyq.core.files import write_bytes
from hyq.report.curves import write_figure
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
TYPES = {".png": "image/png", ".svg": "image/svg+xml", ".gif": "image/gif"}


def write_page(path: Path, template: str, **content: Any) -> None:
    """Fill a template and write the page; no value in `content` is taken for markup."""
    shown = {"script_hash": SCRIPT_HASH, "suite": None, "manifest": None, "findings": (), **content}
    write_bytes(path, PAGES.get_template(template).render(shown).encode())


def publish(
    records: SuiteRecords,
    figure: Figure,
    table: TextTable,
    console: Console,
    conclusion: str,
    template: str = "page.html",
    **content: Any,
) -> None:
    """Write the figure and the page of a suite, and print its table."""
    path = records.path
    write_figure(figure, path / "figure.png")
    write_page(
        path / "report.html",
        template,
        **{"figure": image_file(path / "figure.png", table.title), "notes": "", **content},
        title=records.manifest["title"],
        conclusion=[conclusion],
        results=table,
        suite=records,
        manifest=records.manifest,
    )
    console.print(table.rich())
    console.print(f"figure: {path / 'figure.png'}   page: {path / 'report.html'}")


def image(content: bytes, alt: str, suffix: str = ".png", kind: str = "") -> dict[str, str]:
    """Return what a template needs of an image; `kind` is its class on the page."""
    source = f"data:{TYPES[suffix]};base64,{base64.b64encode(content).decode()}"
    return {"src": source, "alt": alt, "kind": kind}


def image_file(path: Path, alt: str, kind: str = "wide") -> dict[str, str]:
    """Return what a template needs of an image on disk; nothing where there is none."""
    return image(path.read_bytes(), alt, path.suffix, kind) if path.exists() else {}
