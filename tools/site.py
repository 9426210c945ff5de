"""Hooks of the site: files that pages link to outside of docs/ become pages of it, too.

Pages in docs/ link to results, examples and sources by their places in the repository, so that the
links work in a checkout as well. Here such a Markdown page is taken into the site with its figures,
a source or a notebook is shown as a page, and a link to anything else is left as text.
"""

import json
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
SHOWN = {".py": "python", ".toml": "toml", ".txt": "text"}
"""Sources that are shown, and how they are highlighted."""
IMAGES = (".png", ".svg", ".gif")
COPIED = "repository/"
"""Where files from outside of docs/ are in the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take every file that a page links to outside of docs/ into the site."""
    waiting = [
        (f.src_uri, Path(str(f.abs_src_path)).read_text())
        for f in files
        if f.is_documentation_page()
    ]
    while waiting:
        uri, text = waiting.pop()
        for target in targets(uri, text):
            page = site_uri(target)
            if page is None or files.get_file_from_path(page) or not page.startswith(COPIED):
                continue
            if target.endswith(IMAGES):
                files.append(File.generated(config, page, abs_src_path=str(ROOT / target)))
                continue
            content = as_page(ROOT / target)
            files.append(File.generated(config, page, content=content))
            waiting.append((page, content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links at the pages of the site; what has none stays as text."""
    here = page.file.src_uri

    def pointed(match: re.Match[str]) -> str:
        mark, label, link, anchor = match.groups()
        if is_elsewhere(link):
            return match[0]
        uri = site_uri(resolved(here, link))
        if uri is None:
            return label
        way = posixpath.relpath(uri, posixpath.dirname(here) or ".")
        return f"{mark}[{label}]({way}{anchor or ''})"

    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(pointed, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LINK.sub(pointed, markdown[at:])])


def targets(uri: str, text: str) -> Iterable[str]:
    """List the files in the repository that a page links to."""
    for match in LINK.finditer(FENCE.sub("", text)):
        if not is_elsewhere(match[3]):
            yield resolved(uri, match[3])


def is_elsewhere(link: str) -> bool:
    """Tell links to other hosts, which are left alone."""
    return link.startswith(("http:", "https:", "mailto:"))


def resolved(uri: str, link: str) -> str:
    """Return the place in the repository that a link on a page of the site leads to."""
    home = uri.removeprefix(COPIED) if uri.startswith(COPIED) else "docs/" + uri
    return posixpath.normpath(posixpath.join(posixpath.dirname(home), link))


def site_uri(target: str) -> str | None:
    """Return where in the site a file of the repository is; None where it is not shown."""
    path = ROOT / target
    if path.is_dir() and (path / "README.md").exists():
        target += "/README.md"
    elif not path.is_file():
        return target.removeprefix("docs/") if target.startswith("docs/") else None
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    suffix = path.suffix
    if target.endswith((".md", *IMAGES)):
        return COPIED + target
    return f"{COPIED}{target}.md" if suffix in SHOWN or suffix == ".ipynb" else None


def as_page(path: Path) -> str:
    """Return a file of the repository as Markdown."""
    if path.is_dir():
        path /= "README.md"
    text = path.read_text()
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return "\n\n".join(cell for part in json.loads(text)["cells"] for cell in shown(part))
    return f"# `{name}`\n\n````{SHOWN[path.suffix]}\n{text}````\n"


def shown(cell: dict[str, Any]) -> Iterable[str]:
    """Show a notebook's cell, and what it printed and drew."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"````python\n{source}\n````"
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if "image/png" in data:
            image = "".join(data["image/png"]).replace("\n", "")
            yield f'<img alt="what the cell above draws" src="data:image/png;base64,{image}">'
        else:
            text = "".join(output.get("text", data.get("text/plain", "")))
            yield f"````text\n{text.rstrip()}\n````"
