"""The Montezuma comparison from its records: curves, table and page, finished or under way."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hyq.cli import main
from hyq.core.files import write_json
from hyq.report.lines import Line
from hyq.report.montezuma import cells, conclusion, learning_panels, reached, read_lines, speed
from hyq.report.records import RunResult, SuiteRecords
from hyq.runs.montezuma_suite import DATASETS, read_datasets, video_place
from tests.report.suites import Page, Row, write_suite
from tests.runs.test_video import expert_video

LEVELS = {"hyq": 3000.0, "dqfd": 400.0, "rnd": 100.0, "cql": 800.0, "bc": 2000.0}


def row(number: int, steps: int, **more: Any) -> Row:
    return {"iteration": number, "online_steps": steps, "seconds": {"act": 5.0}, **more}


def run(algorithm: str, data: str | None, seed: int = 100) -> RunResult:
    """Records of a run whose episodes return 0 first, its level at last; seed 102 is half way."""
    level = LEVELS[algorithm] + 100 * (seed - 100)
    reports = 1 if seed == 102 else 2
    rows = [
        row(
            n,
            10_000 * n,
            recent_return=level * (n - 1),
            episodes=[[10_000 * n, level * (n - 1), 500]] * 100,
        )
        for n in range(1, reports + 1)
    ]
    if algorithm in ("bc", "cql"):
        rows = [row(1, 0, eval_return=level)]
    spec = {"env": "hyq/Montezuma-v0", "algorithm": algorithm, "data": data, "seed": seed}
    return RunResult(spec, rows, None if seed == 102 else {"solved": False})


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    hard = "montezuma/hard"
    runs = [run(m, d, s) for s in (100, 101, 102) for m, d in (("hyq", hard), ("dqfd", hard))]
    runs += [run("rnd", None, seed) for seed in (100, 101, 102)]
    runs += [run(m, hard) for m in ("cql", "bc")]
    for data in ("montezuma/medium", "montezuma/easy"):
        runs += [run(m, data) for m in ("hyq", "dqfd", "cql", "bc")]
    path = write_suite(tmp_path / "suite", runs, "montezuma", "Montezuma's Revenge")
    facts = {"episodes": 4, "transitions": 100, "mean_return": 2390.0, "room_shares": {"1": 1.0}}
    names = ("montezuma/easy", "montezuma/medium", "montezuma/hard", "expert")
    write_json(path / DATASETS, dict.fromkeys(names, facts))
    expert_video().save(video_place(path, "hyq", hard))
    return path


def test_curves_are_medians_of_what_all_know(suite: Path) -> None:
    lines = read_lines(SuiteRecords.read(suite))
    hyq, *_ = lines
    assert (hyq.algorithm, hyq.panel, len(hyq.runs)) == ("hyq", "montezuma/hard", 3)
    panel, *_ = learning_panels(lines, read_datasets(suite))
    curve = panel.curves[0]
    # Before the first record no episode had ended; after the first the third seed has not arrived.
    assert (list(curve.x), list(curve.y)) == ([10_000], [0.0])
    assert [list(y) for _, y in curve.others] == [[0.0, 3000.0], [0.0, 3100.0]]
    assert panel.said.startswith("median of 1 to 3 seeds, as named, 20th to 80th percentile")
    assert speed(hyq) == pytest.approx((20_000 + 20_000 + 10_000) / 25.0)
    assert reached(hyq) == [20_000, 20_000, 10_000]


def test_algorithms_are_compared_after_as_many_steps(suite: Path) -> None:
    records = SuiteRecords.read(suite)
    said, *rest = conclusion(read_lines(records), records)
    assert said.startswith(
        "With hard data, the last 100 training episodes after 20,000 online steps return (median): "
        "Hy-Q 3,050 (2 seeds); DQfD 450 (2 seeds)"
    )
    assert "Never acting, by evaluation: BC 2,000 (1 seed); CQL 800 (1 seed)" in said
    assert not rest, "every dataset has begun"


def test_what_has_hardly_begun_is_not_compared_but_named(tmp_path: Path) -> None:
    slow = run("rnd", None, seed=102)
    slow.rows[0]["online_steps"] = 5000
    runs = [*(run("hyq", "montezuma/hard", seed) for seed in (100, 101)), slow, None]
    records = SuiteRecords.read(write_suite(tmp_path / "suite", runs, "montezuma"))
    records.manifest["runs"][3] = "dqfd-something"
    said, *rest = conclusion(read_lines(records), records)
    assert "RND" not in said
    assert rest == [
        "Not compared, because less than half way: RND (5,000 steps).",
        "Nothing is recorded yet of DQfD, medium and easy.",
    ]


def test_bands_that_overlap_are_said_to(tmp_path: Path) -> None:
    seeds, hard = (100, 101, 103), "montezuma/hard"
    runs = [run("hyq", hard, seed) for seed in seeds]
    like = [replace(one, spec={**one.spec, "algorithm": "dqfd"}) for one in runs]
    records = SuiteRecords.read(write_suite(tmp_path / "suite", [*runs, *like], "montezuma"))
    _, overlap, _ = conclusion(read_lines(records), records)
    assert overlap == "The bands of Hy-Q and DQfD overlap: their order may be chance."


def test_the_table_says_what_the_records_say(suite: Path) -> None:
    rows = [
        tuple(cells(line, expert_video() if number == 0 else None).values())
        for number, line in enumerate(read_lines(SuiteRecords.read(suite)))
    ]
    lines = {row[:2]: row[2:] for row in rows}
    assert len(lines) == 13
    first, *_, last = lines
    assert (first, last) == (("Hy-Q", "hard"), ("RND", "none"))
    ended, taken, recent, band, good, evaluated, video = lines["Hy-Q", "hard"][:7]
    assert (ended, taken) == ("2/3", "0.01-0.02M")
    assert (recent, band) == ("3,000", "1,200-3,060")
    assert good == "67%", "all of two seeds, none of the third"
    assert (evaluated, video) == ("-", "100")
    assert lines["BC", "hard"] == ("1/1", "-", "-", "-", "-", "2,000", "-", "-")


def test_the_share_of_good_episodes_is_of_the_newest_hundred() -> None:
    records = [row(1, 10, episodes=[[1, 0.0, 5]] * 500), row(2, 20, episodes=[[2, 2500.0, 5]] * 50)]
    one = Line("Hy-Q", "montezuma/hard", "hyq", True, (RunResult({}, records, None),))
    assert cells(one, None)["≥ 2,500"] == "50%"
    offline = Line("BC", "montezuma/hard", "bc", True, (RunResult({}, [row(1, 0)], None),))
    assert cells(offline, expert_video())["≥ 2,500"] == "0%*"
    assert cells(offline, None)["≥ 2,500"] == "-"


def test_a_suite_under_way_gets_its_figures_and_page(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(suite)]) == 0
    assert "Hy-Q" in capsys.readouterr().out
    for name in ("figure.png", "rnd.png", "rooms-data.png", "rooms-policies.png"):
        assert (suite / name).read_bytes().startswith(b"\x89PNG")
    assert "expert: 2,390" in (suite / "report.html").read_text()
    text = (suite / "report.html").read_text()
    page = Page(text)
    assert "19 runs. 3 of them are under way" in page.text
    assert "Of those, 3 are shown as far as they are." in page.text
    assert "Hy-Q 3,050 (2 seeds)" in page.text
    assert text.count('<img class="strip"') == text.count('<img class="clip"') == 1
    assert all(link.startswith("data:") for link in page.links)
    assert main(["report", str(suite)]) == 0
    assert (suite / "report.html").read_text() == text, "neither clock nor chance gets in"


def test_datasets_are_read_by_room(suite: Path) -> None:
    assert read_datasets(suite)["montezuma/hard"].room_shares == {1: 1.0}
