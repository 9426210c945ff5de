"""The tables of the documentation that are made: settings from the code, results from the records.

python -m tools.tables            # name the pages whose tables are not what they would be
python -m tools.tables --write    # make them again

A page holds `<!-- table: NAME ARGUMENTS -->`, the table, and `<!-- end -->`.
"""

import ast
import inspect
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hyq.algorithms import ALGORITHMS, configure, setting_groups
from hyq.core.actions import ActionKind
from hyq.core.settings import encode_value
from hyq.report import theory as report_theory
from hyq.report.lines import RECENT_EPISODES
from hyq.report.records import (
    RunResult,
    algorithm_name,
    differences,
    grouped,
    in_words,
    is_offline,
)
from hyq.report.start import start_table
from hyq.report.stats import StepsToSolve, bootstrap_interval, interquartile_mean
from hyq.runs.lock_spec import LockRun

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/**/*.md", "results/**/README.md")
TABLE = re.compile(r"(<!-- table: ([^\n]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
RECORD = re.compile(r"\bresults/[\w./*-]*[\w*/]")
"""What names a record: a place below results/."""
BESIDE = re.compile(
    r"`((?!\.|src/|docs/|tests/|results/|runs/)[\w.-]+(?:/|\.jsonl?|\.html|\.png|\.txt))`"
)
"""What names a file or a folder beside a page of results."""
PLACEHOLDER = re.compile(r"/[A-Z][A-Z-]+\b.*")
"""What stands in a command for a name of one's own, such as ALGORITHM-DATA."""


def pages() -> list[Path]:
    """List the pages that may hold tables or name records."""
    return sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})


def renewed(text: str) -> str:
    """Return a page with its tables made again."""

    def made(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return f"{match[1]}\n{MAKERS[name](*arguments)}\n\n{match[4]}"

    return TABLE.sub(made, text)


def stale() -> list[Path]:
    """List the pages whose tables differ from the code or the records."""
    return [page for page in pages() if renewed(page.read_text()) != page.read_text()]


def missing_records(page: Path) -> list[str]:
    """List the records that a page names and that do not exist."""
    text = page.read_text()
    named = {PLACEHOLDER.sub("", name).rstrip("./") for name in RECORD.findall(text)}
    lost = {name for name in named if not any(ROOT.glob(name))}
    if page.is_relative_to(ROOT / "results"):  # and files and folders beside the page
        lost |= {name for name in BESIDE.findall(text) if not any(page.parent.glob(name))}
    return sorted(lost)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table; an empty first cell repeats nothing."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# Settings


def settings(kind: ActionKind, algorithm: str) -> str:
    """List every setting of an algorithm, its default and its help, by group."""
    known, groups = configure(algorithm, actions=kind).encoded(), setting_groups(algorithm, kind)
    rows, last = [], None
    for name, value in known.items():
        group = groups[name]
        if group is not last:
            rows.append((f"*{group.__name__}*", "", ""))
        rows.append((f"`{name}`", f"`{value}`", help_of(group, name)))
        last = group
    return markdown(("setting", "default", "meaning"), rows)


def own_settings(kind: ActionKind, algorithm: str) -> str:
    """List the settings that are an algorithm's own, or have another default than Hy-Q's."""
    known, groups = configure(algorithm, actions=kind).encoded(), setting_groups(algorithm, kind)
    usual = configure("hyq", actions=kind).encoded()
    rows = [
        (f"`{name}`", f"`{value}`", f"`{usual[name]}`" if name in usual else "-",
         help_of(groups[name], name))
        for name, value in known.items()
        if usual.get(name, known) != value
    ]  # fmt: skip
    return markdown(("setting", "default", "of `hyq`", "meaning"), rows)


def field_help(config: type[Any]) -> dict[str, str]:
    """Return what the docstring below each field of a dataclass says."""
    found: dict[str, str] = {}
    for base in reversed(config.__mro__[:-1]):
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in zip(definition.body, definition.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name)
                assert isinstance(text.value, ast.Constant)
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def help_of(group: type[Any], name: str) -> str:
    """Return the help text of a setting, as a cell."""
    return field_help(group)[name].replace("|", "\\|")


def algorithms(kind: ActionKind) -> str:
    """List the algorithms for a kind of actions, and what each learns from."""
    rows = []
    for name, about in ALGORITHMS[kind].items():
        source = {(True, True): "both", (True, False): "live steps", (False, True): "data"}
        rows.append((f"`{name}`", source[about.acts, about.uses_data], about.summary))
    return markdown(("`algorithm`", "learns from", "what it is"), rows)


def preset(kind: ActionKind, algorithm: str, name: str) -> str:
    """List what a preset changes."""
    usual = configure(algorithm, actions=kind).encoded()
    chosen = configure(algorithm, name, actions=kind).encoded()
    changed = [(f"`{n}`", f"`{v}`", f"`{usual[n]}`") for n, v in chosen.items() if usual[n] != v]
    return markdown(("setting", f"`{name}`", "`default`"), changed)


def presets(kind: ActionKind, algorithm: str, *names: str) -> str:
    """List what several presets change, side by side."""
    columns = ("default", *names)
    values = [configure(algorithm, name, actions=kind).encoded() for name in columns]
    rows = [
        (f"`{setting}`", *(f"`{one[setting]}`" for one in values))
        for setting in values[0]
        if any(one[setting] != values[0][setting] for one in values)
    ]
    return markdown(("setting", *(f"`{name}`" for name in columns)), rows)


def config(place: str) -> str:
    """List the fields of a dataclass of settings, named as module:Class."""
    module, name = place.split(":")
    group = getattr(import_module(module), name)
    helps = field_help(group)
    rows = []
    for part in fields(group):
        value = encode_value(part.default)
        rows.append((f"`{part.name}`", f"`{value}`", helps.get(part.name, "").replace("|", "\\|")))
    return markdown(("setting", "default", "meaning"), rows)


def lock_settings() -> str:
    """List the settings of `hyq run lock`."""
    helps = field_help(LockRun)
    rows = [(f"`{n}`", f"`{v}`", helps[n]) for n, v in vars(LockRun()).items() if n in helps]
    return markdown(("setting", "default", "meaning"), rows)


# Results


@cache
def runs(place: str) -> tuple[RunResult, ...]:
    """Read the runs below a folder that have ended."""
    found = sorted(p.parent for p in (ROOT / "results" / place).glob("**/summary.json"))
    return tuple(RunResult.read(path) for path in found)


def steps_to_solve(of: Sequence[RunResult]) -> StepsToSolve:
    """Summarise how many online steps runs took to solve their problem."""
    summaries = [run.summary or {} for run in of]
    taken = [s.get("solved_at") or s["online_steps"] for s in summaries]
    return StepsToSolve.of(taken, [s["solved"] for s in summaries])


def solved(of: Sequence[RunResult]) -> tuple[str, str]:
    """Say how many runs solved their problem, and their online steps: median, and worst."""
    found = steps_to_solve(of)
    taken = [s.get("solved_at") or s["online_steps"] for s in (run.summary or {} for run in of)]
    if not found.solved:
        return f"0 of {found.runs}", "-"
    worst = max(taken) if found.solved == found.runs else None
    return f"{found.solved} of {found.runs}", f"{found}" + (f" ({worst:,})" if worst else "")


def lock(part: str) -> str:
    """The lock at H = 100: the records of one folder of results/lock, by method and data."""
    rows = []
    keys = ("algorithm", "data", "emission", "anti_reward_probability", "offline_share")
    groups = grouped(runs(f"lock/{part}"), lambda run: tuple(run.setting(k) for k in keys))
    for (method, data, emission, anti_reward, share), here in groups.items():
        name = algorithm_name(str(method)) + (f", beta = {share:g}" if share != 0.5 else "")
        ended = [run.summary or {} for run in here]
        peak = np.median([s["peak_return"] for s in ended])
        cells = [name, str(data), "always" if anti_reward == 1 else "half of the time"]
        cells += ["" if emission is None else str(emission)] if part == "per-step" else []
        rows.append([*cells, *solved(here), f"{peak:.2f}"])
    columns = ["method", "data", "anti-reward paid"]
    columns += ["emission"] if part == "per-step" else []
    more = ("solved", "online samples: median (worst)", "best return: median")
    return markdown([*columns, *more], sorted(rows))


def briee() -> str:
    """Hy-Q and BRIEE as the lock grows."""
    rows = []
    of = {"briee": "BRIEE", "hyq": "Hy-Q, occupancy data"}
    groups = grouped(runs("briee"), lambda r: (r.setting("horizon"), str(r.setting("algorithm"))))
    for (horizon, method), here in sorted(groups.items()):
        taken = sorted((run.summary or {})["online_steps"] for run in here)
        rows.append((f"{horizon}", of[method], solved(here)[0], ", ".join(f"{t:,}" for t in taken)))
    return markdown(("H", "method", "solved", "online samples of each seed"), rows)


def deep() -> str:
    """Three small problems: when each method solves them."""
    rows = []
    groups = grouped(
        runs("deep"), lambda r: (str(r.setting("env")), str(r.setting("data")), r.spec["algorithm"])
    )
    for (env, data, method), here in sorted(groups.items(), key=lambda item: item[0]):
        budgets = [r.setting("online_steps") for r in here]
        last = np.mean([(r.summary or {})["eval_return"] for r in here])
        offline = (here[0].summary or {})["online_steps"] == 0
        budget = "-" if offline else f"{budgets[0]:,}"
        count, taken = solved(here)
        name = algorithm_name(method)
        rows.append((env, data, name, budget, count, "-" if offline else taken, f"{last:.3g}"))
    columns = ("environment", "data", "method", "budget", "solved")
    return markdown((*columns, "live steps: median (worst)", "last return, mean"), rows)


def continuous() -> str:
    """Sparse tasks of robots and mazes: success at the end."""
    rows = []
    groups = grouped(runs("continuous"), lambda r: (str(r.setting("data")), r.spec["algorithm"]))
    for (data, method), here in sorted(groups.items()):
        ends = [run.rows[-1]["success"] for run in here]
        low, high = bootstrap_interval([ends], np.random.default_rng(0))
        interval = f" ({low:.3f} to {high:.3f})" if len(ends) > 1 else ""
        success = f"{interquartile_mean(np.array(ends)):.3f}{interval}"
        returned = np.mean([(run.summary or {})["eval_return"] for run in here])
        steps = f"{here[0].setting('online_steps'):,}"
        name = algorithm_name(method, "continuous")
        rows.append((data, name, steps, str(len(here)), success, f"{returned:.3g}"))
    columns = ("data", "method", "live steps", "seeds", "success at the end: IQM (95% interval)")
    return markdown((*columns, "mean return"), rows)


def start() -> str:
    """MountainCar with logs, without, and from logs alone."""
    table = start_table(runs("start"))
    return markdown(table.columns, table.rows)


def recent_return(run: RunResult, steps: float) -> float:
    """Return the recent return after so many steps; NaN before they were taken."""
    taken, recent = run.points("recent_return")
    return float(np.interp(steps, [-1, *taken], [np.nan, *recent], right=np.nan))


def steps_until(run: RunResult, points: float) -> float:
    """Return the steps until 100 episodes in a row return so much; infinite where never."""
    episodes = [episode[:2] for row in run.rows for episode in row["episodes"]]
    steps, returns = np.array(episodes, float).reshape(-1, 2).T
    if len(steps) < RECENT_EPISODES:
        return np.inf
    average = np.convolve(returns, np.full(RECENT_EPISODES, 1 / RECENT_EPISODES), "valid")
    reached = np.flatnonzero(average >= points - 1e-9)
    return float(steps[RECENT_EPISODES - 1 :][reached[0]]) if len(reached) else np.inf


def montezuma(place: str, steps: str) -> str:
    """Montezuma's Revenge: the return of the last 100 training episodes at a number of steps."""
    rows = []
    of = [run for run in runs(f"montezuma/{place}") if run.rows]
    groups = grouped(of, lambda r: (str(r.setting("data")), str(r.setting("algorithm"))))
    for (data, method), here in sorted(groups.items()):
        acts = any(row["online_steps"] for row in here[0].rows)
        ends = [recent_return(r, float(steps)) for r in here] if acts else []
        last = [(r.summary or {}).get("eval_return") for r in here]
        evaluated = ", ".join("-" if value is None else f"{value:,.0f}" for value in last)
        training = ", ".join(f"{value:,.0f}" for value in ends) or "-"
        name = "-" if data == "None" else data
        rows.append((name, algorithm_name(method), str(len(here)), training, evaluated))
    columns = ("data", "method", "seeds", f"last 100 training episodes at {int(steps):,} steps")
    return markdown((*columns, "last evaluation"), rows)


def montezuma_curves(place: str) -> str:
    """Montezuma's Revenge, run by run: the last 100 training episodes on the way."""
    rows, marks = [], [100, 200, 300, 400, 600, 800, 1000]
    for run in runs(f"montezuma/{place}"):
        reached = run.rows[-1]["online_steps"] if run.rows else 0
        if not reached:
            continue
        name = algorithm_name(str(run.setting("algorithm")))
        if run.setting("algorithm") == "dqfd":
            tuned = run.setting("margin_weight")
            name += ", as published" if tuned is None else f", margin weight {tuned:g}"
        points = [recent_return(run, 1000.0 * k) if 1000 * k <= reached else None for k in marks]
        shown = ["" if value is None else f"{value:,.0f}" for value in points]
        last = f"{run.summary['eval_return']:,.0f}" if run.summary and points[-1] else ""
        rows.append((name, str(run.setting("seed")), *shown, last))
    rows.sort(key=lambda row: (row[0] != "Hy-Q", row))
    columns = ("algorithm", "seed", *(f"{k},000" for k in marks[:-1]), "1,000,000")
    return markdown((*columns, "20 episodes of the last policy"), rows)


def montezuma_trials(place: str) -> str:
    """Montezuma's Revenge: what each trial of settings returned, the best of an algorithm bold."""
    rows = []
    for method, here in grouped(runs(f"montezuma/{place}"), lambda r: r.spec["algorithm"]).items():
        changed = dict.fromkeys(name for change in differences(here) for name in change)
        found = []
        for run in here:
            last = "eval_return" if is_offline(method) else "recent_return"
            words = in_words({name: json.dumps(run.setting(name)) for name in changed})
            found.append(((run.summary or {})[last], words))
        best, *others = sorted(found, reverse=True)
        cells = [(f"**{best[1]}**", best[0]), *((words, value) for value, words in others)]
        rows += [(algorithm_name(method), words, f"{value:,.0f}") for words, value in cells]
    return markdown(("algorithm", "settings", "return"), rows)


def montezuma_runs(place: str) -> str:
    """Montezuma's Revenge, run by run: the last 100 training episodes, and evaluations."""
    rows = []
    for run in runs(f"montezuma/{place}"):
        last = [one[1] for row in run.rows for one in row.get("episodes", ())][-100:]
        steps = run.rows[-1].get("online_steps", 0)
        evaluated = [row["eval_return"] for row in run.rows if row.get("eval_return") is not None]
        data = str(run.setting("data")).removeprefix("montezuma/").removeprefix("None")
        trained = ["", ""]
        if last:
            trained = [f"{np.mean(last):,.0f}", f"{np.mean(np.array(last) >= 2500):.0%}"]
        rows.append(
            (
                algorithm_name(str(run.setting("algorithm"))),
                data or "none",
                str(run.setting("seed")),
                f"{steps:,}" if steps else "none",
                *trained,
                *([f"{evaluated[-1]:,.0f}", f"{max(evaluated):,.0f}"] if evaluated else ["", ""]),
            )
        )
    columns = ("method", "data", "seed", "steps", "return of the last 100 training episodes")
    more = ("of them 2,500 or more", "last evaluation", "best evaluation")
    order = {"hard": 0, "medium": 1, "easy": 2, "none": 3}
    return markdown(
        (*columns, *more), sorted(rows, key=lambda row: (order[row[1]], row[0], row[2]))
    )


def coverage() -> str:
    """How soon Hy-Q learns Montezuma's Revenge from each dataset."""
    rows = []
    groups = grouped(runs("coverage/runs"), lambda run: str(run.setting("data")))
    for data, here in sorted(groups.items()):
        for mark in (1500.0, 2500.0):
            taken = [steps_until(run, mark) for run in here]
            each = ", ".join(f"{value:,.0f}" for value in sorted(taken))
            rows.append((data, f"{mark:,.0f}", f"{np.median(taken):,.0f}", each))
    return markdown(("data", "points an episode", "steps until then: median", "each seed"), rows)


def coverage_runs() -> str:
    """How soon each run of Hy-Q learns Montezuma's Revenge, those of the first comparison too."""
    rows = []
    for data, seed, mark, values in _coverage():
        rows.append((data, f"{seed}{mark}", *(f"{value:,.0f}" for value in values)))
    return markdown(("data", "seed", *COVERAGE), rows)


def coverage_means() -> str:
    """Mean, standard error and median over the runs of each dataset."""
    rows = []
    for data, here in grouped(_coverage(), lambda row: row[0]).items():
        cells = []
        for one in np.array([values for *_, values in here]).T:
            error = one.std(ddof=1) / np.sqrt(len(one))
            cells.append(f"{one.mean():,.0f} ± {error:,.0f} ({np.median(one):,.0f})")
        rows.append((f"{data} ({len(here)} runs)", *cells))
    return markdown(("data", *COVERAGE), rows)


COVERAGE = ("steps to 1,500 points", "to 2,500 points", "mean return until 500,000 steps")


def _coverage() -> list[tuple[str, int, str, list[float]]]:
    places = {
        "coverage/runs": "",
        "montezuma/planner/runs": "",
        "montezuma/planner/two-million": "*",
    }
    found = []
    for place, mark in places.items():
        for run in runs(place):
            data, seed = str(run.setting("data")).removeprefix("montezuma/"), run.setting("seed")
            if run.spec["algorithm"] not in ("hyq", "Hy-Q") or not run.rows or "planner" in data:
                continue
            episodes = [episode for row in run.rows for episode in row["episodes"]]
            returns = [episode[1] for episode in episodes if episode[0] <= 500_000]
            values = [steps_until(run, 1500), steps_until(run, 2500), float(np.mean(returns))]
            found.append((data, int(str(seed)), mark, values))
    order = ("hard", "medium", "easy")
    return sorted(found, key=lambda row: (order.index(row[0]), row[1], row[2]))


def drift(by: str = "fault") -> str:
    """How often the drift test alarms: in all, or by environment."""
    lines = (ROOT / "results/drift/drift.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    faults = list(grouped(rows, lambda row: str(row["fault"])))

    def alarms(here: Sequence[dict[str, Any]], fault: str) -> str:
        found = [bool(row["alarms"]) for row in here if row["fault"] == fault]
        return f"{sum(found)} of {len(found)}" if found else "-"

    if by == "fault":
        columns = ("what is wrong with the data", "alarms")
        return markdown(columns, [(fault, alarms(rows, fault)) for fault in faults])
    groups = {**grouped(rows, lambda row: str(row["env"])), "all": rows}
    cells = [[env, *(alarms(here, fault) for fault in faults)] for env, here in groups.items()]
    return markdown(["environment", *faults], cells)


def theory() -> str:
    """Theorem 1, measured: what was lost, its slope, and the bounds."""
    found = report_theory.read_measurements(ROOT / "results/theory")
    marks, rows = (32, 128, 512, 1024), []
    for problem, transfer, slope, _, _, bound, samples, corollary in report_theory.slope_rows(
        found
    ):
        curves = grouped(
            report_theory.select(found, "rates", problem=problem), lambda row: float(row["share"])
        )
        mine = next(
            here for here in curves.values()
            if f"{np.mean([row['transfer'] for row in here]):.2f}" == transfer
        )  # fmt: skip
        lost = dict(zip(*report_theory.mean_curve(mine, "iterations"), strict=True))
        cells = [f"{lost[mark]:.2g}" if lost[mark] < 100 else f"{lost[mark]:.0f}" for mark in marks]
        rows.append((problem, transfer, *cells, slope, bound, samples, corollary))
    columns = ("problem", "C_π", "lost at T = 32", "128", "512", "1024", "slope, last three")
    return markdown((*columns, "Theorem 1 at 1024", "samples to 0.1", "Corollary 1"), rows)


def theory_lock() -> str:
    """Coverage of the lock's datasets, and what Hy-Q took to solve it: medians over seeds."""
    records = (ROOT / "results/theory/lock.jsonl").read_text().splitlines()
    lines = []
    for data, mine in grouped(map(json.loads, records), lambda row: str(row["data"])).items():
        coverage = [
            f"{np.median([math.inf if row[name] is None else row[name] for row in mine]):.3g}"
            for name in ("transfer", "condition", "unsupported", "escaping")
        ]
        solved = sum(row["solved"] for row in mine)
        samples = int(np.median([row["online_steps"] for row in mine]))
        sign = "" if 2 * solved > len(mine) else "> "
        lines.append((data, *coverage, f"{solved} of {len(mine)}", f"{sign}{samples:,}"))
    columns = ("data", "Ĉ", "relative condition number", "visits without support", "escaping")
    return markdown((*columns, "V-type Hy-Q solves", "online samples"), lines)


def theory_v_type() -> str:
    """Give what Algorithm 2 loses with learned features, by the share of the data and T."""
    rows = json.loads((ROOT / "results/theory/v_type.json").read_text())["rows"]
    marks = sorted({row["iterations"] for row in rows})
    lines = []
    for found, mine in grouped(rows, lambda row: float(row["transfer"])).items():
        lost = [np.mean([r["cumulative"] for r in mine if r["iterations"] == t]) for t in marks]
        last = next(row["bound"] for row in mine if row["iterations"] == marks[-1])
        lines.append((f"{found:.1f}", *(f"{value:.2g}" for value in lost), f"{last:.1e}"))
    first, *others = map(str, marks)
    columns = ("C_π", f"lost at T = {first}", *others, f"the bound at {marks[-1]}")
    return markdown(columns, lines)


def lunar_lander() -> str:
    """LunarLander from CSV files, beside d3rlpy: mean return of 100 episodes of each seed."""
    record = json.loads((ROOT / "results/files/lunar_lander.json").read_text())
    rows = []
    for method, found in grouped(record["results"], lambda row: str(row["method"])).items():
        here = sorted(found, key=lambda row: row["seed"])
        best, last = ([row[name] for row in here] for name in ("return", "last"))
        name = method.replace("ours settings", "hyq's settings")
        each = [", ".join(f"{value:.0f}" for value in values) for values in (best, last)]
        rows.append((name, each[0], f"{np.mean(best):.0f}", each[1]))
    return markdown(("", "best kept, each seed", "mean", "last, each seed"), sorted(rows))


def hostile_files() -> str:
    """Damaged and hostile files of logs: how each load ended."""
    rows = []
    for record in json.loads((ROOT / "results/files/hostile.json").read_text()):
        what = f"{record['damaged']:,} damaged files" if record["damaged"] else "hostile files"
        names = ("raised", "loaded", "traceback", "hang")
        counts = [record["counts"].get(name, 0) for name in names]
        total = sum(record["counts"].values())
        more = (total - sum(counts), record["code_run"], record["peak_resident_mb"])
        cells = [f"{value:,}" for value in (total, *counts, *more)]
        rows.append((f"{what}, seed {record['seed']}, commit {record['commit'][:7]}", *cells))
    columns = ("run", "loads", "raised one line", "loaded", "traceback", "hang", "anything else")
    return markdown((*columns, "code run", "peak, MB"), rows)


MAKERS: dict[str, Callable[..., str]] = {
    "settings": settings,
    "own-settings": own_settings,
    "algorithms": algorithms,
    "preset": preset,
    "presets": presets,
    "config": config,
    "lock-settings": lock_settings,
    "lock": lock,
    "briee": briee,
    "deep": deep,
    "continuous": continuous,
    "start": start,
    "montezuma": montezuma,
    "montezuma-curves": montezuma_curves,
    "montezuma-runs": montezuma_runs,
    "montezuma-trials": montezuma_trials,
    "coverage": coverage,
    "coverage-runs": coverage_runs,
    "coverage-means": coverage_means,
    "drift": drift,
    "theory": theory,
    "theory-lock": theory_lock,
    "theory-v-type": theory_v_type,
    "lunar-lander": lunar_lander,
    "hostile-files": hostile_files,
}


def main() -> int:
    """Say which pages are stale, or make them again."""
    old = stale()
    for page in old:
        print(page.relative_to(ROOT))
        if "--write" in sys.argv:
            page.write_text(renewed(page.read_text()))
    lost = [(page, name) for page in pages() for name in missing_records(page)]
    for page, name in lost:
        print(f"{page.relative_to(ROOT)} names {name}, which does not exist")
    return int(bool(lost) or (bool(old) and "--write" not in sys.argv))


if __name__ == "__main__":
    sys.exit(main())
