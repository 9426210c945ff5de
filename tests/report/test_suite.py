"""A suite's table, figure and page, the page looked at in a real browser."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_json
from hyq.report.compare import compared, line_panels
from hyq.report.figures import Curve, content
from hyq.report.lines import Line
from hyq.report.plot import draw_panels
from hyq.report.records import RunResult, SuiteRecords, add_success
from hyq.report.stats import interquartile_mean
from hyq.report.suite import (
    overall_table,
    report_suite,
    suite_conclusion,
    suite_lines,
    suite_table,
)
from tests.report.suites import write_suite


def lock(
    algorithm: str = "hyq", seed: int = 0, data: str = "occupancy", share: float = 0.5
) -> RunResult:
    """Records of a run on a lock: solved by Hy-Q at its third record."""
    solved, acts = algorithm == "hyq", algorithm not in ("offline-fqi", "cql")
    rows = [
        {
            "iteration": n,
            "online_steps": 100 * n * acts,
            "eval_return": 1.0 if solved and n == 3 else 0.1 * n,
            "seconds": {"fit": 1.0},
        }
        for n in (1, 2, 3)
    ]
    spec = {"algorithm": algorithm, "data": data, "horizon": 5, "seed": seed}
    spec |= {"settings": {"anti_reward_probability": 0.5, "offline_share": share}}
    end = {"solved": solved, "eval_return": rows[-1]["eval_return"], "wall_seconds": 3.0}
    end |= {"online_steps": rows[-1]["online_steps"], "peak_return": rows[-1]["eval_return"]}
    return RunResult(spec, rows, end, "lock")


RUNS = [
    lock(),
    lock(seed=1),
    lock(share=0.25),
    lock("online-only"),
    lock("offline-fqi"),
    lock(data="trajectory"),
    None,
]
FAILURES = {"run-6": "HyqError: no such algorithm"}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "suite", RUNS, title="A small <suite>", failures=FAILURES)


def report(path: Path) -> Path:
    report_suite(path, Console(file=StringIO()))
    return path / "report.html"


def chart(runs: list[RunResult]) -> dict[str, Any]:
    return content(line_panels(suite_lines(runs)))


def read(path: Path) -> list[Line]:
    return suite_lines(SuiteRecords.read(path).runs)


def test_runs_are_grouped_into_algorithms_and_settings(suite: Path) -> None:
    lines = {(line.panel, line.label): line for line in read(suite)}
    assert len(lines["occupancy", "Hy-Q"].runs) == 2
    assert len(lines["occupancy", "Hy-Q, offline share 0.25"].runs) == 1
    assert not lines["occupancy", "Hy-Q, offline share 0.25"].is_main
    # Without offline data it belongs beside both datasets.
    assert {panel for panel, label in lines if label == "Hy-Q, online only"} == {
        "occupancy",
        "trajectory",
    }
    records = SuiteRecords.read(suite)
    assert list(records.failures) == ["run-6"]
    assert records.missing == 0


def test_the_conclusion_names_the_best(suite: Path) -> None:
    said, other, *rest = suite_conclusion(SuiteRecords.read(suite), read(suite))
    assert said == "On optimal occupancy data, Hy-Q solved 2 of 2 after 300 online steps (median)."
    assert other.startswith("On optimal trajectory data, Hy-Q solved 1 of 1")
    assert "Hidden in the figure until clicked: Hy-Q, offline share 0.25." in rest
    assert any(one.startswith("With fewer than three seeds") for one in rest)
    unsolved = [lock("online-only"), lock("offline-fqi")]
    records = SuiteRecords(suite, {"runs": ["bc-occupancy-s1"]}, unsolved, {})
    said, *rest = suite_conclusion(records, suite_lines(unsolved))
    assert "no run solved it, and the newest return of the policy (median), highest" in said
    assert "Nothing is recorded yet of BC." in rest
    both = [lock(), lock("online-only")]
    both[1].rows[2]["eval_return"] = 1.0
    both[1] = replace(both[1], summary={**(both[1].summary or {}), "solved": True})
    said, *_ = compared(suite_lines(both))
    assert "; Hy-Q, online only solved 1 of 1 after 300 online steps (median)." in said


def test_the_table_says_what_the_records_say(suite: Path) -> None:
    rows = {tuple(row[:2]): tuple(row[2:]) for row in suite_table(read(suite)).rows}
    assert rows["occupancy", "Hy-Q"] == ("2/2", "300", "1.000", "-", "3")
    assert rows["occupancy", "Hy-Q, online only"] == ("0/1", "> 300", "0.300", "-", "3")
    assert rows["occupancy", "FQI, offline only"] == ("0/1", "-", "0.300", "-", "3")


def test_an_interval_takes_three_seeds() -> None:
    for seeds, interval in ((1, "-"), (2, "-"), (3, "1.000 to 1.000")):
        (line,) = suite_lines([lock(seed=seed) for seed in range(seeds)])
        shown = "-" if line.interval is None else "{:.3f} to {:.3f}".format(*line.interval)
        assert shown == interval


def test_cql_is_evaluated_by_the_peak_of_its_curve() -> None:
    run = lock("cql")
    run.rows[1]["eval_return"] = 0.9
    (line,) = suite_lines([run])
    assert (line.label, line.values, line.scores) == ("CQL (peak)", [0.9], [0.9])


def deep(env: str, data: str, value: float, algorithm: str = "hyq") -> RunResult:
    spec = {"env": env, "data": data, "algorithm": algorithm, "seed": 0}
    end = {"solved": True, "eval_return": value, "peak_return": value, "online_steps": 10}
    rows = [{"online_steps": 10, "eval_return": value}]
    return RunResult(spec, rows, {**end, "wall_seconds": 1.0})


def test_panels_stand_in_the_suites_order() -> None:
    def drawn(*environments: str) -> dict[str, Any]:
        qualities = ("easy", "medium", "hard")
        runs = [
            deep(env, f"maze/{quality}", 1.0)
            for env, quality in zip(environments, qualities, strict=True)
        ]
        return chart(runs)

    titles = [panel["title"] for panel in drawn("A", "A", "A")["panels"]]
    assert titles == ["maze/easy", "maze/medium", "maze/hard"]


def test_deep_runs_have_a_panel_a_problem_and_levels_for_offline_algorithms() -> None:
    runs = [deep("A", "maze/half", 1.0), deep("A", "maze/half", 0.5, "bc")]
    runs += [deep("A", "maze/expert", 0.7), deep("A", "maze/half", 0.2, "cql")]
    (panel,) = chart(runs)["panels"]
    assert panel["title"] == "maze"
    series = {one["label"]: one for one in panel["series"]}
    assert {label for label, one in series.items() if "level" in one} == {"BC", "CQL (peak)"}
    assert [label for label, one in series.items() if not one["shown"]] == ["Hy-Q, expert data"]


def sparse(
    seed: int, ends: int, algorithm: str = "hyq", task: str = "push", data: str = "half"
) -> RunResult:
    """Records of a run on a task of 50 steps: `ends` of its last four episodes succeed."""
    name = {"push": "FetchPush", "pick": "FetchPickAndPlace"}[task]
    spec = {"env": f"hyq/{name}-v0", "data": f"{task}/{data}", "algorithm": algorithm, "seed": seed}
    spec |= {"actions": "continuous", "wrappers": [], "env_parameters": {}}
    rows = []
    for steps, successes in ((0, 0), (500, 1), (1000, ends)):
        returns = [-49.0] * successes + [-50.0] * (4 - successes)
        taken = 0 if algorithm == "iql" else steps
        rows.append({"online_steps": taken, "updates": steps, "eval_returns": returns})
        rows[-1]["eval_return"] = float(np.mean(returns))
    end = {"solved": False, "eval_return": rows[-1]["eval_return"], "peak_return": -49.0}
    return RunResult(spec, rows, {**end, "online_steps": taken, "wall_seconds": 2.0})


def test_sparse_tasks_are_compared_by_their_success_rate(tmp_path: Path) -> None:
    runs = [sparse(seed, ends) for seed, ends in enumerate((4, 4, 3))]
    runs += [sparse(seed, 4, task="pick") for seed in range(3)]
    runs += [sparse(seed, 1, "iql", task) for seed in range(3) for task in ("push", "pick")]
    runs += [sparse(0, 2, data="random80")]
    under_way = sparse(3, 4)
    runs.append(replace(under_way, rows=under_way.rows[:1], summary=None))
    path = write_suite(tmp_path / "suite", runs)
    records = SuiteRecords.read(path)
    lines = suite_lines(records.runs)
    rows = {row[:2]: row[2:] for row in suite_table(lines).rows}
    push = interquartile_mean(np.array([1.0, 1.0, 0.75]))
    assert rows["push", "Hy-SAC"][:3] == ("3", f"{push:.3f}", "0.750 to 1.000")
    assert rows["push", "IQL"][:3] == ("3", "0.250", "0.250 to 0.250")
    assert rows["push", "Hy-SAC, random80 data"][:3] == ("1", "0.500", "-")
    overall = overall_table(lines)
    assert overall is not None
    hybrid, iql, _ = overall.rows
    assert hybrid[:4] == ("Hy-SAC", "2", "6", "1.000")
    assert hybrid[5:] == ("0.958", f"{push:.3f} (push)")
    assert iql[3] == "0.250"
    said = suite_conclusion(records, lines)[0]
    assert "over the 2 tasks (interquartile mean): Hy-SAC 1.00, IQL 0.25." in said

    left, _ = line_panels(lines)
    assert (left.y_label, left.x_label) == ("success rate", "online steps")
    assert left.said.startswith("median of 3 to 4 seeds, as named, 20th to 80th percentile")
    (one,) = (one for one in left.levels if one.label == "IQL")
    assert (one.value, one.low, one.high, one.dashes) == (0.25, 0.25, 0.25, "6 4")
    curve = left.curves[0]
    # A fourth seed has its first evaluation only: beyond it the others are drawn one by one.
    assert (list(curve.x), list(curve.y), curve.seeds) == ([0], [0], 4)
    assert [list(y) for _, y in curve.others] == [[0, 0.25, 1], [0, 0.25, 1], [0, 0.25, 0.75]]
    assert curve.interval == (0.75, 1.0)
    page = report(path).read_text()
    assert "not solved" not in page


def test_algorithms_are_compared_on_the_tasks_that_all_have(tmp_path: Path) -> None:
    runs = [sparse(seed, 4, task=task) for seed in range(3) for task in ("push", "pick")]
    more = [sparse(seed, 2, "iql", "push") for seed in range(3)]
    said, *_ = compared(read(write_suite(tmp_path / "two", [*runs, *more])))
    assert "over the one task that all have (interquartile mean): Hy-SAC 1.00, IQL 0.50" in said
    said, *_ = compared(read(write_suite(tmp_path / "one", runs)))
    assert "Hy-SAC 1.00, and nothing to compare it with yet" in said


def test_a_success_at_the_very_last_step_counts() -> None:
    row = add_success({"eval_returns": [-50.0, -49.0, -3.0, -50.0]}, 50)
    assert row["success"] == 0.5
    assert "success" not in add_success({"online_steps": 0}, 50)


def test_a_suite_without_a_finished_run_is_a_clear_error(tmp_path: Path) -> None:
    path = write_suite(tmp_path / "suite", [replace(lock(), summary=None)])
    with pytest.raises(HyqError, match="no finished run"):
        report(path)


@pytest.mark.parametrize("known", [0, 1])
def test_a_suite_under_way_is_reported(tmp_path: Path, known: int) -> None:
    """One seed has ended; of the other there is only what was asked, or a first record."""
    other = replace(lock(seed=1), summary=None, rows=lock().rows[:known])
    path = write_suite(tmp_path / "suite", [lock(), other])
    assert "NaN" not in report(path).read_text()
    assert SuiteRecords.read(path).missing == 1
    (line,) = read(path)
    assert (len(line.runs), len(line.finished)) == (2, 1)
    curve = line.drawn()
    assert isinstance(curve, Curve)
    assert curve.seeds == 1 + known
    assert [len(x) for x, _ in curve.others] == [1] * known


def test_an_algorithm_that_no_label_knows_comes_last() -> None:
    lines = suite_lines([lock("mine"), lock()])
    assert [line.label for line in lines] == ["Hy-Q", "mine"]


def test_the_figure_has_a_panel_a_dataset_and_dashed_levels(suite: Path) -> None:
    panels = line_panels(read(suite))
    left, right = draw_panels(panels).axes
    assert (left.get_title("left"), right.get_title("left")) == (
        "optimal occupancy data",
        "optimal trajectory data",
    )
    names = {text.get_text() for text in left.texts}
    assert {"Hy-Q (2 seeds)", "Hy-Q, online only (1 seed)", "FQI, offline only (1 seed)"} <= names
    assert {line.get_linestyle() for line in left.lines} == {"-", "--"}
    assert left.get_xlabel() == "online steps, roll-ins included"


def test_variants_of_one_algorithm_are_told_apart_by_their_settings() -> None:
    runs = [lock(seed=seed) for seed in range(3)]
    runs[1].spec["settings"]["m_on"] = 7
    assert [line.label for line in suite_lines(runs)] == ["Hy-Q", "Hy-Q, m on 7"]


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
        for panel in browser.find_elements(By.CSS_SELECTOR, "figure svg")
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
    tmp_path: Path, browser: Chrome, low: float, high: float, ticks: list[str]
) -> None:
    runs = [deep("A", "maze/easy", low), deep("A", "maze/hard", high)]
    browser.get(report(write_suite(tmp_path / "suite", runs)).as_uri())
    assert panels_say(browser, ".tick") == [ticks] * 2


OVERLAPPING = """
    const bad = [];
    for (const svg of document.querySelectorAll('figure svg')) {
      const own = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')];
      const boxes = texts.map(text => text.getBoundingClientRect());
      boxes.forEach((a, i) => {
        if (a.left < own.left - 1 || a.right > own.right + 1) bad.push(texts[i].textContent);
        boxes.slice(0, i).forEach((b, j) => {
          const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
          const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
          if (wide > 1 && high > 4) bad.push(texts[i].textContent + ' / ' + texts[j].textContent);
        });
      });
    }
    return bad;
"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_or_overlaps(
    suite: Path, browser: Chrome, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(report(suite).as_uri())
    for summary in browser.find_elements(By.TAG_NAME, "summary"):
        browser.execute_script("arguments[0].parentElement.open = true", summary)
    found = browser.execute_script("return document.documentElement.scrollWidth")
    bad = browser.execute_script(OVERLAPPING)
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    ink = browser.execute_script("return getComputedStyle(document.querySelector('.name')).fill")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert found <= width, "no more than the scroll bar is missing"
    assert bad == []
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert (ink == "rgb(31, 111, 139)") == (scheme == "light")


def test_the_page_works_in_a_browser(suite: Path, browser: Chrome) -> None:
    page = report(suite)
    text = page.read_text().replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in text
    assert "https:" not in text
    browser.get(page.as_uri())
    assert browser.title == "A small <suite>"
    panels = browser.find_elements(By.CSS_SELECTOR, "figure svg")
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
    assert panels_say(browser, ".tick")[0] == ["0.1", "0.2", "0.5", "1"]
    assert "Hy-Q (2 seeds)" in panels_say(browser, ".name")[0]
    chart = browser.find_element(By.CSS_SELECTOR, "figure svg")
    ActionChains(browser).move_to_element(chart).perform()
    assert "Hy-Q:" in browser.find_element(By.ID, "tip").text
    said = browser.find_element(By.TAG_NAME, "body").text
    assert "no such algorithm" in said
    assert "CQL" not in said, "there is none in this suite"
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


HOSTILE = "</script></style><img src=http://127.0.0.1:9/x onerror=alert(1)>{{7*7}}\"'><script>"


def hostile(value: Any) -> Any:
    """Put hostile text wherever there is text."""
    if isinstance(value, dict):
        return {name: hostile(one) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return value + HOSTILE if isinstance(value, str) else value


def test_hostile_text_does_nothing_in_a_browser(tmp_path: Path, browser: Chrome) -> None:
    runs = [deep(HOSTILE, f"{HOSTILE}/half", 1.0, HOSTILE), deep("A", f"{HOSTILE}/half", 0.5, "bc")]
    runs = [replace(run, spec=hostile(run.spec)) for run in runs]  # a seed is no text
    path = write_suite(tmp_path / "suite", runs, title=HOSTILE, failures={"run-1": HOSTILE})
    manifest = read_json(path / "suite.json")
    for name in ("commit", "machine", "command", "versions"):
        manifest[name] = hostile(manifest[name] or "x")
    write_json(path / "suite.json", manifest)
    browser.get(report(path).as_uri())
    assert HOSTILE in browser.title
    assert browser.find_elements(By.CSS_SELECTOR, "figure svg"), "the page's own script runs"
    assert not browser.find_elements(By.CSS_SELECTOR, "img[onerror]")
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 2
    entries = browser.execute_script("return performance.getEntriesByType('resource').length")
    assert entries == 0
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    # And where text did become markup, the page's policy would not let it act.
    browser.execute_script(
        "const e = document.createElement('div'); e.innerHTML = arguments[0];"
        "document.body.append(e); window.ran = false;"
        "const s = document.createElement('script'); s.textContent = 'window.ran = true';"
        "document.body.append(s)",
        "<img src=http://127.0.0.1:9/x onerror='window.ran = true'>",
    )
    assert browser.execute_script("return window.ran") is False
    said = [entry["message"] for entry in browser.get_log("browser")]  # type: ignore[no-untyped-call]
    assert all("Content Security Policy" in message for message in said)


def test_trials_of_settings_are_compared_by_their_training_and_all_drawn(tmp_path: Path) -> None:
    runs = []
    for share, level in ((0.5, 120.0), (0.25, 186.0)):
        rows = [
            {"online_steps": 1000 * n, "updates": n, "recent_return": level * n / 2}
            | ({"eval_return": 1.0} if n == 2 else {})
            for n in (1, 2)
        ]
        spec = {"algorithm": "hyq", "data": "montezuma/hard", "seed": 0, "env": "E"}
        runs.append(RunResult({**spec, "settings": {"beta": share}}, rows, {"online_steps": 2000}))
    path = write_suite(tmp_path / "suite", [*runs, None], "montezuma-tuning", "Trials")
    lines = suite_lines(SuiteRecords.read(path).runs)
    assert [(line.label, line.is_main, line.scores) for line in lines] == [
        ("Hy-Q", True, [120.0]),
        ("Hy-Q, beta 0.25", True, [186.0]),
    ]
