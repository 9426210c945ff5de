"""The builder of pages: nothing that a user wrote becomes markup, and nothing is fetched."""

from io import StringIO
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from hyq.core.terminal import Terminal
from hyq.report.html import PAGES, image, publish, write_page
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
    figure = Figure(figsize=(1, 1))
    publish(SuiteRecords.read(path), figure, table, console, HOSTILE, notes=HOSTILE)
    text = (path / "report.html").read_text()
    page = Page(text)
    assert "script" not in page.tags
    assert page.text.count("alert('x')") >= 6, "title, heading, conclusion, table, notes, error"
    assert all(link.startswith("data:") for link in page.links)
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
        write_page(tmp_path / "page.html", "page.html", title="T", conclusion=[])
    assert not (tmp_path / "page.html").exists()


def test_an_image_is_inside_the_page() -> None:
    assert image(b"abc", "An image", ".gif")["src"] == "data:image/gif;base64,YWJj"
