"""The page of runs under way: what it says, that only this machine gets it, and that it follows."""

import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from hyq.cli import main
from hyq.commands.live import live_page, serve
from tests.report.suites import Page, write_run
from tests.report.test_run_report import LOCK, deep
from tests.report.test_suite import browser  # noqa: F401 (a fixture)


@contextmanager
def served(path: Path) -> Iterator[str]:
    with serve(lambda: live_page(path, 1), 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_it_says_where_every_run_is(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "done", LOCK)
    write_run(tmp_path / "a" / "busy", deep(1, [1.0, 2.0], online_steps=500))
    write_run(tmp_path / "quiet", deep(2, [3.0]))
    old = time.time() - 7300
    os.utime(tmp_path / "quiet" / "records.jsonl", (old, old))
    page = Page(live_page(tmp_path, 5))
    text = " ".join(page.text.split())
    assert "2 of 3 runs are under way; the newest record is 0 s old." in text
    assert "a/busyunder way20 of 500" in text
    assert "quietno record for 2 h" in text
    assert "a/donefinished" in text
    assert "On CartPole-v1" in text


def test_before_the_first_record_it_says_so_and_what_cannot_be_read_is_named(
    tmp_path: Path,
) -> None:
    assert "No run has a record yet." in live_page(tmp_path, 5)
    write_run(tmp_path / "strange", replace(LOCK, experiment="cooking"))
    write_run(tmp_path / "fine", LOCK)
    text = live_page(tmp_path, 5)
    assert "which has no report" in text
    assert "0 of 1 runs are under way." in text


def test_only_one_page_is_served_and_only_by_its_own_name(tmp_path: Path) -> None:
    write_run(tmp_path / "run", LOCK)
    with served(tmp_path) as url:
        assert b"lock, H = 100" in urllib.request.urlopen(url).read()
        for place, host in ((f"{url}run/records.jsonl", ""), (url, "elsewhere.example:80")):
            request = urllib.request.Request(place, headers={"Host": host} if host else {})
            with pytest.raises(HTTPError, match="404") as error:
                urllib.request.urlopen(request)
            error.value.close()


def test_the_page_follows_the_records(tmp_path: Path, browser: Chrome) -> None:  # noqa: F811
    write_run(tmp_path / "first", deep(1, [1.0, 2.0]))
    write_run(tmp_path / "other", deep(1, [1.0, 2.0], algorithm="dqn"))
    with served(tmp_path) as url:
        browser.get(url)
        button = browser.find_element(By.XPATH, "//button[normalize-space()='Hy-Q']")
        button.click()
        assert not browser.find_elements(By.CSS_SELECTOR, 'g[data-label="Hy-Q"]')
        write_run(tmp_path / "new", replace(deep(1, [5.0, 6.0]), summary=LOCK.summary))
        says = "return document.querySelector('.conclusion').innerText"
        wait = WebDriverWait(browser, 20)
        wait.until(lambda one: "2 of 3 runs are under way" in one.execute_script(says))
        assert not browser.find_elements(By.CSS_SELECTOR, 'g[data-label="Hy-Q"]'), "still hidden"
        assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    wait.until(lambda one: one.find_elements(By.CSS_SELECTOR, "body.stale"))


@pytest.mark.parametrize(
    ("words", "says"), [(["nowhere"], "no directory"), ([".", "--every", "0"], "at least 1")]
)
def test_what_makes_no_sense_to_watch(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", *words]) == 2
    assert says in capsys.readouterr().err
