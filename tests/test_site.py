"""The site: built from docs/ with no warning, and without anything from another host."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[1]
LOADED = re.compile(
    r"""<(?:script|img|iframe|link|source)\b[^>]*?\b(?:src|href)=["'](//|https?:)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(out), strict=True))
    return out


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert not LOADED.search(page.read_text()), page


def test_links_lead_to_files_of_the_site(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # whose links are absolute
            continue
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r'<a\b[^>]*?\bhref="([^"#?]+)', text):
            if not re.match(r"\w+:|//", link):
                assert (page.parent / unquote(link)).exists(), f"{page.relative_to(site)}: {link}"


def test_tables_are_filled_and_references_resolved(site: Path) -> None:
    for page in sorted(site.glob("**/*.html")):
        text = page.read_text()
        assert ":::" not in text, page
    settings = (site / "algorithms/hyq_dqn.html").read_text()
    assert "target_update_every" in settings
    assert "Train on offline data and live interaction together" in (site / "api.html").read_text()


def test_a_link_out_of_docs_leads_to_a_page_of_the_site(site: Path) -> None:
    assert (site / "repository/results/lock/index.html").exists()
    assert (site / "repository/tests/theory/test_counterexamples.py.html").exists()
