"""The builder of pages: nothing that a user wrote becomes markup, and nothing is fetched."""

from io import StringIO
from pathlib import Path

import pytest

from hyq.core.terminal import Terminal
from hyq.report.figures import Curve, Panel
from hyq.report.html import PAGES, Image, Section, page, publish, write_page
from hyq.report.records import RunResult, SuiteRecords
from hyq.report.tables import TextTable
from tests.report.suites import Page, write_suite

HOSTILE = "</script><script>alert('x')</script> & \"quotes\" [bold]$x_1$"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    row = {"iteration": 1, "online_steps": 1}
    run = RunResult({"algorithm": HOSTILE}, [row], None)
    path = write_suite(tmp_path / "suite", [run, None], title=HOSTILE, failures={"run-1": HOSTILE})
    console = Terminal(file=StringIO(), width=200, record=True)
    table = TextTable((HOSTILE,), [(HOSTILE,)], HOSTILE)
    panels = [Panel(HOSTILE, [Curve(HOSTILE, [1, 2], [3, 4])], x_label=HOSTILE)]
    records = SuiteRecords.read(path)
    publish(records, panels, table, console, [HOSTILE], notes=(HOSTILE, HOSTILE))
    text = (path / "report.html").read_text()
    page = Page(text)
    assert page.tags.count("script") == 2, "the data of the chart, and the page's own"
    assert page.text.count("alert('x')") >= 6, "title, heading, conclusion, table, notes, error"
    assert all(link.startswith("data:") for link in page.links)
    text = text.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in text
    assert "https:" not in text
    assert "[bold]" in console.export_text(), "the terminal shows it as it is, too"


def test_data_for_scripts_cannot_end_their_element() -> None:
    made = PAGES.from_string("{{ data|tojson }}").render(data={"label": HOSTILE})
    assert "<" not in made
    with pytest.raises(ValueError, match="not JSON compliant"):
        PAGES.from_string("{{ data|tojson }}").render(data=float("nan"))


def test_a_value_that_a_template_lacks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="undefined"):
        PAGES.from_string("{{ missing }}").render()
    with pytest.raises(TypeError):
        write_page(tmp_path / "page.html", "T")
    assert not (tmp_path / "page.html").exists()


def test_a_page_asks_its_server_only_where_it_is_told_to() -> None:
    still, live = page("T", ["C"], []), page("T", ["C"], [], refresh=5)
    assert "connect-src" not in still
    assert "connect-src 'self'" in live
    assert "default-src 'none'" in still
    assert "default-src 'none'" in live


def test_sections_stand_in_their_order_and_fold() -> None:
    inner = Section("inner", lead=["TEXT"], note="NOTE")
    text = page("T", ["C"], [Section("outer", lead=["FIRST"], parts=[inner], folded=True)])
    order = [
        "<h1>T",
        "C</p>",
        "<summary>outer",
        "FIRST",
        "<h3>inner",
        "TEXT",
        "NOTE",
        "</details>",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_an_image_is_inside_the_page() -> None:
    assert Image.encoded(b"abc", ".gif", "An image").src == "data:image/gif;base64,YWJj"
