"""The demonstration: a problem from a log in a CSV file, and the paper's combination lock."""

import csv
from pathlib import Path

from hyq.commands.watch import watch, watch_deep
from hyq.core.terminal import Terminal
from hyq.data.dataset import Dataset
from hyq.experts.scripted import scripted_dataset
from hyq.report.compare import compared, environment_lines, line_panels
from hyq.report.html import Section, note, write_page
from hyq.report.records import RunResult
from hyq.report.start import NAMES, start_lines
from hyq.report.tables import run_table
from hyq.runs import lock, runner
from hyq.runs.lock_spec import LockRun
from hyq.runs.suites import start_runs

LIVE_STEPS = 7000
console = Terminal()


def demo() -> None:
    """Learn a problem from a log in a CSV file, then the paper's lock; two minutes, and a page."""
    number = 1
    while (out := Path("demo") / str(number)).exists():
        number += 1
    cars = _cars(out)
    locks = _locks(out)
    page, table = out / "index.html", run_table([*cars, *locks])
    lines, lock_panels = start_lines(cars), line_panels(environment_lines(locks))
    sections = [
        Section("A car, from a log in a CSV file", panels=line_panels(lines), note=note("cars")),
        Section("The combination lock of the paper", panels=lock_panels, note=note("lock")),
        Section("Every run", table=table, note="Next: make docs, and open site/index.html."),
    ]
    write_page(page, "hyq: what you have just run", compared(lines), sections)
    console.print(table.rich())
    console.print(f"open {page.resolve()}", soft_wrap=True)


def _cars(out: Path) -> list[RunResult]:
    """Learn MountainCar from a log and live steps, from live steps alone, from the log alone."""
    log = out / "log.csv"
    console.rule("MountainCar, and a log of it in a CSV file", align="left")
    write_log(scripted_dataset("mountaincar", 0.5, seed=0), log)
    console.print(f"{log}: 20,000 rows, half of a script that swings up, half of random play")
    places = []
    for spec in start_runs(str(log), LIVE_STEPS):
        places.append(out / spec.algorithm)
        console.rule(NAMES[spec.algorithm], align="left")
        watch_deep(runner.start(spec, places[-1]), spec, console)
    return [RunResult.read(place) for place in places]


def write_log(data: Dataset, path: Path) -> None:
    """Write one row a transition, as a person's logger would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        seen, ends = ("observation_position", "observation_velocity"), ("terminated", "truncated")
        rows.writerow(("episode", "t", *seen, "action", "reward", *ends))
        for number, episode in enumerate(data):
            columns = zip(episode.observation, episode.action, episode.reward, strict=False)
            for t, (observation, action, reward) in enumerate(columns):
                over = t == len(episode.action) - 1
                ended = int(over and episode.terminated), int(over and not episode.terminated)
                rows.writerow((number, t, *observation, action, reward, *ended))


def _locks(out: Path) -> list[RunResult]:
    """Solve the combination lock from each of the paper's two datasets."""
    places = []
    for data in ("occupancy", "trajectory"):
        places.append(out / f"lock-{data}")
        console.rule(
            f"The paper's lock, H=100: 500,000 transitions of optimal {data} data", align="left"
        )
        watch(lock.start(LockRun(data=data), places[-1]), console)
    return [RunResult.read(place) for place in places]
