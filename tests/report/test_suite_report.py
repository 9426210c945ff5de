"""A suite's table, figure and page, the page looked at in a real browser."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from hyq.core.errors import HyqError
from hyq.report.figure import draw_suite
from hyq.report.page import write_page
from hyq.report.runs import RunResult
from hyq.report.suite import SuiteResult, _lines, line_cells, suite_table
from hyq.runs.launch import SuiteDirectory, launch
from hyq.runs.specs import LockRun
from hyq.runs.suites import Suite

BASE = LockRun(horizon=5, offline_samples=1000, iterations=3)
SUITE = Suite(
    "small",
    "A small <suite>",
    (
        BASE,
        replace(BASE, seed=1),
        replace(BASE, offline_share=0.25),
        replace(BASE, algorithm="online-only"),
        replace(BASE, algorithm="offline-fqi"),
        replace(BASE, data="trajectory"),
        replace(BASE, algorithm="no-such-method"),
    ),
)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = SuiteDirectory.prepare(tmp_path_factory.mktemp("report") / "suite", SUITE)
    for _ in launch(directory, SUITE.runs, workers=1):
        pass
    return directory.path


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_runs_are_grouped_into_methods_and_settings(suite: Path) -> None:
    result = SuiteResult.read(suite)
    lines = {(line.panel, line.label): line for line in result.lines}
    assert len(lines["occupancy", "Hy-Q"].runs) == 2
    assert len(lines["occupancy", "Hy-Q, offline share 0.25"].runs) == 1
    assert not lines["occupancy", "Hy-Q, offline share 0.25"].is_main
    # Without offline data it belongs beside both datasets.
    assert {panel for panel, label in lines if label == "Hy-Q, online only"} == {
        "occupancy",
        "trajectory",
    }
    assert lines["occupancy", "FQI, offline only"].is_offline
    assert list(result.failures) == [SUITE.runs[-1].id]
    assert result.missing == 0


def test_the_table_says_what_the_records_say(suite: Path) -> None:
    result = SuiteResult.read(suite)
    console = Console(width=100, file=StringIO(), record=True)
    console.print(suite_table(result, rng()))
    text = console.export_text()
    hyq = next(line for line in result.lines if line.label == "Hy-Q")
    assert f"{hyq.samples_to_solve.solved}/2" in text
    assert str(hyq.samples_to_solve) in text


def test_an_interval_takes_three_replicates(suite: Path) -> None:
    line = next(one for one in SuiteResult.read(suite).lines if one.label == "Hy-Q")
    for runs, known in ((line.runs[:1], False), (line.runs, False), (line.runs * 2, True)):
        assert (line_cells(replace(line, runs=runs), rng())[5] != "-") == known


def test_panels_stand_in_the_suites_order_and_share_the_scale_of_one_problem() -> None:
    def result(*envs: str) -> SuiteResult:
        qualities = ("easy", "medium", "hard")
        runs = [
            RunResult(
                {"env": env, "data": f"maze/{quality}", "algorithm": "hyq", "seed": 0},
                [{"online_steps": 10, "eval_return": earned}],
                {"solved": True, "eval_return": earned},
            )
            for env, quality, earned in zip(envs, qualities, (3.0, 2.0, 1.0), strict=True)
        ]
        return SuiteResult("Mazes", {}, tuple(_lines(runs)), {}, 0)

    same, different = result("A", "A", "A"), result("A", "A", "B")
    assert same.panels == ["maze/easy", "maze/medium", "maze/hard"]
    assert [same.value_range(panel) for panel in same.panels] == [(1.0, 3.0)] * 3
    assert different.value_range("maze/hard") == (1.0, 1.0)


def test_an_empty_suite_is_a_clear_error(tmp_path: Path) -> None:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    with pytest.raises(HyqError, match="no finished run"):
        SuiteResult.read(directory.path)


def test_a_suite_under_way_is_reported(suite: Path, tmp_path: Path) -> None:
    """One replicate has ended; of the other there is only what was asked, or a first record."""
    under_way = tmp_path / "suite"
    shutil.copytree(suite, under_way)
    replicate = under_way / "runs" / SUITE.runs[1].id
    (replicate / "summary.json").unlink()
    records = (replicate / "records.jsonl").read_text().splitlines(keepends=True)
    for known in (records[:1], []):
        (replicate / "records.jsonl").write_text("".join(known))
        result = SuiteResult.read(under_way)
        assert result.missing == 1
        draw_suite(result, tmp_path / "figure.png")
        write_page(result, tmp_path / "report.html", rng())
        assert "NaN" not in (tmp_path / "report.html").read_text()
        line = next(one for one in result.lines if one.label == "Hy-Q")
        assert (len(line.runs), len(line.finished)) == (2, 1)
        last = line.runs[0].rows[-1]["eval_return"]
        expected = np.nan if known else last  # where one of two has ended, there is no median
        found = [band[-1] for band in line.band(result.grid)]
        assert found == pytest.approx([expected] * 3, nan_ok=True)


def test_a_run_that_did_not_solve_it_is_drawn_no_further_than_it_went(suite: Path) -> None:
    result = SuiteResult.read(suite)
    line = next(one for one in result.lines if one.label == "Hy-Q")
    ends = [run.rows[-1]["online_steps"] for run in line.runs]
    beyond = np.array([min(ends) / 2, 10.0 * max(ends)])
    for solved in ((True, True), (True, False), (False, False)):
        runs = [
            replace(run, summary={**(run.summary or {}), "solved": one})
            for run, one in zip(line.runs, solved, strict=True)
        ]
        _, middle, _ = replace(line, runs=tuple(runs)).band(beyond)
        assert np.isnan(middle).tolist() == [False, not all(solved)]


def test_a_method_that_no_label_knows_comes_last(suite: Path, tmp_path: Path) -> None:
    other = tmp_path / "suite"
    shutil.copytree(suite, other)
    manifest = other / "runs" / SUITE.runs[0].id / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"algorithm": "hyq"', '"algorithm": "mine"'))
    lines = [line for line in SuiteResult.read(other).lines if line.is_main]
    assert "mine" in [line.algorithm for line in lines]


def test_the_figure_is_drawn(suite: Path, tmp_path: Path) -> None:
    draw_suite(SuiteResult.read(suite), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    driver = shutil.which("chromedriver")
    if driver is None:
        if os.environ.get("HYQ_REQUIRE_BROWSER"):
            pytest.fail("chromedriver is required here but not installed")
        pytest.skip("no chromedriver on this machine (Debian: chromium-driver)")
    options = ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--window-size=1100,1400",
                 f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=ChromeService(driver))
    yield chrome
    chrome.quit()


def panels_say(browser: Chrome, selector: str) -> list[list[str]]:
    return [
        [text.text for text in panel.find_elements(By.CSS_SELECTOR, selector)]
        for panel in browser.find_elements(By.CSS_SELECTOR, "#chart svg")
    ]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (-500.0, -77.7, ["-500", "-400", "-300", "-200", "-100"]),
        (25.0, 3455.0, ["0", "1,000", "2,000", "3,000"]),
        (-0.483, 0.242, ["-0.4", "-0.2", "0", "0.2"]),
        (7.0, 7.0, ["6", "6.5", "7", "7.5", "8"]),
    ],
)
def test_ticks_are_round(
    suite: Path,
    tmp_path: Path,
    browser: Chrome,
    monkeypatch: pytest.MonkeyPatch,
    low: float,
    high: float,
    ticks: list[str],
) -> None:
    monkeypatch.setattr(SuiteResult, "value_range", lambda result, panel: (low, high))
    write_page(SuiteResult.read(suite), tmp_path / "report.html", rng())
    browser.get((tmp_path / "report.html").as_uri())
    assert panels_say(browser, ".tick") == [ticks] * 2


def test_on_a_phone_only_the_tables_scroll_sideways(
    suite: Path, tmp_path: Path, browser: Chrome
) -> None:
    write_page(SuiteResult.read(suite), tmp_path / "report.html", rng())
    narrow = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    browser.get((tmp_path / "report.html").as_uri())
    width = browser.execute_script("return document.documentElement.scrollWidth")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert width == 400


def test_the_page_works_in_a_browser(suite: Path, tmp_path: Path, browser: Chrome) -> None:
    page = tmp_path / "report.html"
    write_page(SuiteResult.read(suite), page, rng())
    assert "http" not in page.read_text().replace("http://www.w3.org/2000/svg", "")
    browser.get(page.as_uri())
    assert browser.title == "A small <suite>"
    panels = browser.find_elements(By.CSS_SELECTOR, "#chart svg")
    assert [panel.get_attribute("aria-label") for panel in panels] == [
        "optimal occupancy data",
        "optimal trajectory data",
    ]
    assert panels[0].size["height"] > 200

    def drawn(label: str) -> int:
        return len(browser.find_elements(By.CSS_SELECTOR, f'g[data-label="{label}"]'))

    assert drawn("Hy-Q") == 2
    button = browser.find_element(By.XPATH, "//button[normalize-space()='Hy-Q']")
    button.click()
    assert (drawn("Hy-Q"), button.get_attribute("aria-pressed")) == (0, "false")
    button.click()
    assert drawn("Hy-Q") == 2
    hidden = browser.find_element(By.XPATH, "//button[contains(., 'offline share 0.25')]")
    assert drawn("Hy-Q, offline share 0.25") == 0
    hidden.click()
    assert drawn("Hy-Q, offline share 0.25") == 1

    def stroke(label: str) -> tuple[str | None, str | None]:
        line = browser.find_element(By.CSS_SELECTOR, f'g[data-label="{label}"] [stroke]')
        return line.get_attribute("stroke"), line.get_attribute("stroke-dasharray")

    assert stroke("Hy-Q")[0] != stroke("Hy-Q, offline share 0.25")[0]
    assert stroke("Hy-Q")[1] != stroke("Hy-Q, offline share 0.25")[1]
    assert panels_say(browser, "text")[0].count("return of the policy") == 1
    assert panels_say(browser, ".tick")[0] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    chart = browser.find_element(By.CSS_SELECTOR, "#chart svg")
    ActionChains(browser).move_to_element(chart).perform()
    assert "Hy-Q:" in browser.find_element(By.ID, "tip").text
    said = browser.find_element(By.TAG_NAME, "body").text
    assert "no method" in said
    assert "CQL" not in said, "there is none in this suite"
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
