"""Documentation that holds: its Python runs, its commands parse, its tables and links are right."""

import inspect
import re
import shlex
from dataclasses import fields
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyq
from hyq import cli
from hyq.algorithms import ALGORITHMS, configure, setting_groups
from hyq.coverage import cells, deep_fqe, drift
from hyq.coverage.support import LEAST_INSIDE
from hyq.data import stored
from hyq.data.importing import order
from hyq.fqi.briee import BRIEEConfig
from hyq.fqi.hyq_fqi import HyQConfig
from hyq.fqi.model_based import LinearModel
from hyq.report.records import RunResult, grouped
from hyq.report.stats import interquartile_mean
from hyq.runs import kept, runner
from hyq.runs.spec import RunSpec
from tests.small import ROOT, make_small, python_blocks
from tools.tables import missing_records, pages, renewed, runs, steps_to_solve

SMALLER = {
    "INSTANCES = 40, 5, 10": "INSTANCES = 40, 5, 1",
    "for seed in range(3)": "for seed in range(1)",
    '"hyq/Montezuma-v0", 16': '"hyq/Montezuma-v0", 2',
}
"""What is cut down as text."""
SHELL = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
READ = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples/README.md"]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in READ if python_blocks(page)], ids=name)
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the pages may leave their files
    make_small(monkeypatch)
    namespace: dict[str, object] = {"__name__": page.stem}
    for block in python_blocks(page):
        text = reduce(lambda text, pair: text.replace(*pair), SMALLER.items(), block)
        exec(compile(text, name(page), "exec"), namespace)


def test_the_commands_of_the_first_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_small(monkeypatch)
    page = ROOT / "docs/index.md"
    exec(python_blocks(page)[0].replace("range(120)", "range(12)"), {})  # writes log.csv
    commands = [words for words in hyq_commands(page) if words[0] not in ("resume", "watch")]
    assert [words[0] for words in commands] == ["data", "train", "evaluate", "report"]
    for words in commands:
        more = ["--episodes", "2"] if words[0] == "evaluate" else []
        cli.main([*words, *more])
    assert "mean" in capsys.readouterr().out


def lines_of(page: Path) -> list[str]:
    """Return the commands of a page, without comments and prompts."""
    text = "\n".join(SHELL.findall(page.read_text())).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip()]


def hyq_commands(page: Path) -> list[list[str]]:
    return [shlex.split(line, comments=True)[1:] for line in lines_of(page) if line[:4] == "hyq "]


@pytest.mark.parametrize("page", [page for page in READ if lines_of(page)], ids=name)
def test_the_commands_of_a_page_are_commands(page: Path) -> None:
    for words in hyq_commands(page):
        parses(words)
    for line in lines_of(page):
        first, *rest = shlex.split(line, comments=True) or [""]
        if first == "make":
            assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in rest)
        if first == "python" and rest[0].endswith(".py"):
            assert (ROOT / rest[0]).exists(), line


MAKEFILE = (ROOT / "Makefile").read_text()


def parses(words: list[str]) -> None:
    """Raise unless a command's words are those of a subcommand and its options."""
    named = (one for one in cli.SUBCOMMANDS if words[: one.count(" ") + 1] == one.split())
    subcommand = next(named, None)
    assert subcommand or words in (["--help"], ["--version"]), words
    if subcommand is None:
        return
    rest = words[subcommand.count(" ") + 1 :]
    if subcommand == "train":  # parsing it would make the environment, and takes a second
        assert options_of(rest) <= train_options(rest), words
        return
    try:
        cli._parsed(subcommand, rest)
    except SystemExit as stop:
        assert stop.code in (0, None)  # noqa: PT017 - help ends so


def options_of(words: list[str]) -> set[str]:
    """Return the names of the options among words."""
    found = {word.partition("=")[0][2:] for word in words if word.startswith("--")}
    return {name.removeprefix("no-").replace("-", "_") for name in found}


def train_options(words: list[str]) -> set[str]:
    """Return the options that `hyq train` has for the algorithm that the words name."""
    named = words[words.index("--algorithm") + 1] if "--algorithm" in words else "hyq"
    kinds = [kind for kind, known in ALGORITHMS.items() if named in known]
    assert kinds, words
    own = {"help", "out", "tensorboard", "keep_checkpoint", "checkpoint_minutes"}
    settings = {setting for kind in kinds for setting in setting_groups(named, kind)}
    return own | settings | {part.name for part in fields(RunSpec)}


@pytest.mark.parametrize("page", pages(), ids=name)
def test_tables_are_what_code_and_records_say(page: Path) -> None:
    text = page.read_text()
    assert renewed(text) == text, "python -m tools.tables --write"


SAID = {
    "your_environment.md": "`num_envs` (default {d[num_envs]}; {c[num_envs]} for continuous",
    "your_network_and_loss.md": "`beta={d[beta]}` is the default",
    "going_live.md": "`epsilon` where actions are discrete (`{d[epsilon]}` by default)",
}
"""Defaults in sentences: of discrete (d) and continuous (c) Hy-Q."""


def test_defaults_in_sentences_are_those_of_the_code() -> None:
    known = {kind[0]: configure("hyq", actions=kind).encoded() for kind in ALGORITHMS}
    for page, said in SAID.items():
        assert said.format(**known) in (ROOT / "docs" / page).read_text(), page
    text = (ROOT / "docs/coming_from.md").read_text()
    rows = re.findall(r"^\|.*\| `(\w+)[^|]*` \| `(\S+)` \|$", text, flags=re.MULTILINE)
    assert len(rows) >= 4
    for setting, default in rows:
        assert str(known["c"][setting]) == default, setting


def test_defaults_in_tables_by_hand_are_those_of_the_code() -> None:
    text = (ROOT / "docs/algorithms/briee.md").read_text()
    [table] = re.findall(r"^\| setting \| released code \| `hyq` .*?\n\n", text, re.M | re.S)
    known = vars(BRIEEConfig())
    shown = {
        row[1].split("`")[1] if "`" in row[1] else row[1]: row[3]
        for row in (r.split("|") for r in table.split("\n") if r.strip())
    }
    for setting in ("latents", "ridge", "lambda_", "refresh", "bonus_cap", "discriminators"):
        assert re.search(rf"\b{number(known[setting])}(?![\d.])", shown[setting]), setting
    assert shown["encoding"].strip() == known["encoding"]
    text = (ROOT / "docs/algorithms/model_based.md").read_text()
    assert f"| {HyQConfig().iterations}, {HyQConfig().offline_share} |" in text
    assert f"| {LinearModel(1).ridge:.0e} |".replace("e-0", "e-") in text


def number(value: float) -> str:
    """Return a setting as the tables print it."""
    return "10%" if value == 0.1 else re.escape(f"{value:g}".replace("e-0", "e-"))


def test_constants_in_sentences_are_those_of_the_code() -> None:
    seconds = inspect.signature(runner.start).parameters["checkpoint_seconds"].default
    said = {
        "going_live.md": [
            {120: "every two minutes"}[seconds],
            {0.2: "a fifth of the episodes"}[kept.HELD_OUT],
        ],
        "data_check.md": [
            f"acts for {drift.STEPS} steps",
            f"*good* up to {cells.WELL:g} times",
            f"*thin* up to {cells.THIN:g}",
            f"below {LEAST_INSIDE:.0%} of".replace("%", " %"),
            f"more than {cells.MOST_UNSEEN:.0%} do".replace("%", " %"),
            {0.5: "more than half of the possible returns"}[deep_fqe.WIDEST],
        ],
        "robot_arm.md": [f"takes {drift.STEPS} live steps"],
        "your_data.md": [
            {0.2: "more than a fifth of the steps"}[order.DOUBTFUL],
            {2**30: "above 1 GB"}[stored.LARGE],
        ],
    }
    for page, sentences in said.items():
        text = " ".join((ROOT / "docs" / page).read_text().split())
        for sentence in sentences:
            assert sentence in text, f"{page}: {sentence}"


def test_numbers_of_the_first_page_are_those_of_the_records() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    by = {run.spec["algorithm"]: steps_to_solve([*group]) for run, group in started()}
    assert f"in {by['hyq'].solved} of {by['hyq'].runs} runs, after {by['hyq']} live steps" in text
    assert f"solves {by['dqn'].solved} of {by['dqn'].runs} within 10,000 steps" in text
    assert f"from the logs alone, {by['cql'].solved} of {by['cql'].runs} " in text
    places = ("lock/runs", "lock/per-step")
    lock = [run for place in places for run in runs(place) if run.spec["algorithm"] == "hyq"]
    found = steps_to_solve(lock)
    assert f"in {found.solved} of {found.runs} runs with {found} online samples" in text
    for task in ("metaworld-drawer-open/half", "metaworld-button-press/half"):
        here = [run for run in runs("continuous") if run.setting("data") == task]
        success = interquartile_mean(np.array([run.rows[-1]["success"] for run in here]))
        assert f"success rate is {success:.2f} (interquartile mean of five seeds each" in text
        assert {(len(here), run.setting("online_steps")) for run in here} == {(5, 3000)}


def started() -> list[tuple[RunResult, list[RunResult]]]:
    """Return the runs of the first page by algorithm, each with one of them."""
    groups = grouped(runs("start"), lambda run: str(run.spec["algorithm"]))
    return [(group[0], group) for group in groups.values()]


@pytest.mark.parametrize("page", pages(), ids=name)
def test_records_that_a_page_names_exist(page: Path) -> None:
    assert not missing_records(page)


def markdown_pages() -> list[Path]:
    found = [p.relative_to(ROOT) for p in ROOT.rglob("*.md")]
    return [p for p in found if not any(part.startswith(".") for part in p.parts)]


@pytest.mark.parametrize("page", markdown_pages(), ids=str)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith(("http", "mailto")):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} -> {target}"


REFERENCE = re.findall(r"^::: ([\w.]+)", (ROOT / "docs/api.md").read_text(), re.MULTILINE)


def found(path: str) -> Any:
    """Import what a dotted name stands for."""
    module, _, last = path.rpartition(".")
    try:
        return getattr(import_module(module), last)
    except (ImportError, AttributeError):
        return import_module(path)


def test_the_reference_has_every_public_name() -> None:
    assert {f"hyq.{name}" for name in hyq.__all__} <= set(REFERENCE)


@pytest.mark.parametrize("path", REFERENCE)
def test_what_is_public_has_docstrings_and_types(path: str) -> None:
    thing = found(path)
    assert len(inspect.getdoc(thing) or "") > 20, path
    members = vars(thing).items() if inspect.isclass(thing) or inspect.ismodule(thing) else ()
    functions = [v for n, v in members if inspect.isfunction(v) and not n.startswith("_")]
    functions = [f for f in functions if f.__module__.startswith("hyq")]
    for function in [thing] if inspect.isfunction(thing) else functions:
        assert inspect.getdoc(function), f"{path}.{function.__name__}"
        signature = inspect.signature(function)
        untyped = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
        assert set(untyped) <= {"self", "cls"}, f"{path}.{function.__name__}: {untyped}"
        assert signature.return_annotation is not inspect.Signature.empty, function
