"""How many small faults the tests notice: random mutants, each run against its own test files.

    python benchmarks/mutants.py --count 160 --workers 2

A mutant is a copy of the package with one operator, comparison, constant or condition changed. It
is killed when a test of the files that answer for it fails, or does not end. The slow ones of these
run once without it, under coverage, so that of them only the tests which run its line need to run
with it; where none does, or an import or a fixture, all do. What was found is kept in `build` from
mutant to mutant, and the same command goes on. Survivors are to be read: some change nothing that
matters, others show what no test would notice. Constants of a module and defaults of settings are
left alone: another value is another setting.
"""

import ast
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import tyro
from rich.console import Console

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
TESTS: dict[str, list[str]] = {
    "losses.py": ["test_losses.py"],
    "networks.py": ["test_networks.py"],
    "linear.py": ["test_linear.py"],
    "actor_critic.py": ["agents/test_continuous.py"],
    "build.py": ["agents/test_conformance.py", "agents/test_continuous.py"],
    "collector.py": ["test_collector.py"],
    "exploration.py": ["test_collector.py", "agents/test_continuous.py"],
    "agents/awac.py": ["agents/test_continuous.py"],
    "agents/building.py": [
        *("test_networks.py", "agents/test_conformance.py", "agents/test_continuous.py")
    ],
    "agents/calql.py": ["agents/test_continuous.py"],
    "agents/ddpgfd.py": ["agents/test_continuous.py"],
    "agents/hyq_sac.py": ["agents/test_conformance.py", "agents/test_continuous.py"],
    "agents/td3_bc.py": ["agents/test_continuous.py"],
    "core/actions.py": ["agents/test_continuous.py"],
    "trainer.py": ["agents/test_conformance.py", "agents/test_continuous.py"],
    "algorithms.py": ["agents/test_conformance.py", "agents/test_continuous.py"],
    "policy.py": ["test_policy.py"],
    "agents/base.py": ["agents/test_conformance.py", "agents/test_continuous.py"],
    "agents/hyq_dqn.py": ["agents/test_conformance.py"],
    "agents/dqfd.py": ["agents/test_conformance.py"],
    "agents/iql.py": ["agents/test_conformance.py"],
    "agents/bc.py": ["agents/test_conformance.py"],
    "agents/ppo_rnd.py": ["agents/test_ppo_rnd.py"],
    "agents/distillation.py": ["agents/test_ppo_rnd.py"],
    "core/arrays.py": ["core/test_arrays.py"],
    "core/settings.py": ["core/test_settings.py", "core/test_foundations.py"],
    "core/trees.py": ["core/test_trees.py"],
    "core/schedules.py": ["core/test_foundations.py", "core/test_settings.py"],
    "core/seeding.py": ["core/test_foundations.py"],
    "core/files.py": ["core/test_foundations.py"],
    "core/mdp.py": ["core/test_mdp.py"],
    "core/moments.py": ["core/test_moments.py"],
    "data/dataset.py": ["data/test_dataset.py"],
    "data/columns.py": ["data/test_dataset.py"],
    "data/layout.py": ["data/test_dataset.py"],
    "data/steps.py": ["data/test_dataset.py"],
    "data/fits.py": ["data/test_dataset.py"],
    "data/frames.py": ["data/test_frames.py"],
    "data/priorities.py": ["data/test_priorities.py"],
    "data/replay_buffer.py": ["data/test_replay_buffer.py", "data/test_stored.py"],
    "data/sampler.py": ["data/test_sampler.py"],
    "runs/checkpoint.py": [
        *("runs/test_deep_command.py", "runs/test_lock_runs.py", "runs/test_runner.py")
    ],
    "runs/runner.py": [
        *("runs/test_kept.py", "runs/test_deep_command.py", "test_api.py", "runs/test_runner.py")
    ],
    "runs/kept.py": ["runs/test_kept.py"],
    "runs/longer.py": ["runs/test_deep_command.py"],
}
"""The test files that answer for each file of the package."""
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
PROCESSOR_SECONDS = 60.0
"""After which a test has no end, and its mutant counts as killed: the longest takes a tenth."""
SECONDS = 3600.0
"""After which tests wait for what never comes."""
SLOW = ["agents/test_conformance.py", "agents/test_continuous.py"]
BUILD = ROOT / "build" / "mutants"
LOADED = [
    *("__main__", "ale_py", "gymnasium", "gymnasium.vector", "hypothesis", "jinja2"),
    *("matplotlib.pyplot", "PIL.Image", "pyarrow", "safetensors.torch", "scipy.stats"),
    *("torch._dynamo", "torch.testing", "zstandard"),
]
"""What test runs would import each by itself, which takes longer than most of them."""
console = Console()


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    line: int
    before: str
    after: str
    source: str = field(repr=False)
    lines: range
    """Of the statement."""


def mutant(file: str, number: int) -> Mutant:
    """Make the change of a file that has this number."""
    tree = ast.parse((ROOT / "src/hyq" / file).read_text())
    node, apply = _all_changes(tree)[number]
    [*_, statement] = (s for s in ast.walk(tree) if isinstance(s, ast.stmt) and _holds(s, node))
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or 0) + 1
    before = ast.unparse(node)
    apply()
    return Mutant(
        file,
        getattr(node, "lineno", statement.lineno),
        _first(before),
        _first(ast.unparse(node)),
        ast.unparse(tree),
        range(statement.lineno, end),
    )


def _all_changes(tree: ast.AST) -> list[tuple[ast.AST, Callable[[], None]]]:
    return [change for node in _code(tree) for change in _changes(node)]


def _holds(statement: ast.stmt, node: ast.AST) -> bool:
    return any(part is node for part in ast.walk(statement))


def _first(source: str) -> str:
    """Return the first line, which for a statement holds its condition."""
    return source.partition("\n")[0]


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Go through what runs inside functions, leaving out annotations, messages and checks."""
    if isinstance(node, ast.Module | ast.ClassDef):
        for part in node.body:
            if isinstance(part, ast.ClassDef | ast.FunctionDef):
                yield from _code(part)
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if name in ("defaults", "kw_defaults"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(
                child, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom
            ):
                yield child
                yield from _code(child)


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        yield node, lambda: setattr(node, "op", SWAPS[type(node.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield node, lambda: node.ops.__setitem__(0, SWAPS[type(node.ops[0])]())  # type: ignore[call-overload]
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield node, lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        value = node.value
        changed = not value if isinstance(value, bool) else value + 1
        yield node, lambda: setattr(node, "value", changed)


TRACING = Lock()
"""Held while tests are traced, so that two workers do not trace the same ones."""


def trace(test: str) -> CoverageData:
    """Return which tests of a file run which lines; it is found once until one of both changes."""
    with TRACING:
        return _traced(test)


@cache
def _traced(test: str) -> CoverageData:
    kept = BUILD / f"{test.replace('/', '-')}.coverage"
    about = (ROOT / "src/hyq" / file for file, tests in TESTS.items() if test in tests)
    sources = [ROOT / "tests" / test, *about]
    if not kept.exists() or kept.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        console.print(f"tracing {test}")
        options = ["--cov=hyq", "--cov-context=test", "--cov-report="]
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "pytest_cov", *options, f"tests/{test}"],
            cwd=ROOT,
            env={
                **os.environ,
                "COVERAGE_FILE": str(kept),
                "OMP_NUM_THREADS": "1",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            stdout=subprocess.DEVNULL,
            check=True,
        )
    data = CoverageData(str(kept))
    data.read()
    return data


def tests_of(mutant: Mutant) -> list[str]:
    """Name what runs with a mutant: test files, of the slow ones the tests that run its line."""
    path, named = str(ROOT / "src/hyq" / mutant.file), []
    for test in TESTS[mutant.file]:
        at = trace(test).contexts_by_lineno(path) if test in SLOW else {}
        contexts = dict.fromkeys(context for line in mutant.lines for context in at.get(line, []))
        if test in SLOW and all(context.endswith("|run") for context in contexts):
            named += [context.removesuffix("|run") for context in contexts]
        else:
            named.append(f"tests/{test}")
    return named or [f"tests/{test}" for test in TESTS[mutant.file]]


def run(mutant: Mutant) -> dict[str, Any]:
    """Run a mutant's tests, and tell how they ended."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        package = Path(place) / "src"
        shutil.copytree(ROOT / "src", package)
        (package / "hyq" / mutant.file).write_text(mutant.source)
        code = _finished(package, tests_of(mutant))
        if code == pytest.ExitCode.USAGE_ERROR:  # the files could not be imported
            code = _finished(package, [f"tests/{test}" for test in TESTS[mutant.file]])
    assert code in (None, 0, 1, 2) or code < 0, f"pytest ended with {code}"
    ended = {0: "survived", None: "no end", -signal.SIGPROF: "no end"}.get(code, "killed")
    what = {name: getattr(mutant, name) for name in ("file", "line", "before", "after")}
    return {**what, "ended": ended, "seconds": round(time.perf_counter() - began, 1)}


def _finished(package: Path, tests: list[str]) -> int | None:
    """Return pytest's exit code, from a process of its own."""
    process = CONTEXT.Process(target=_test, args=(str(package), tests))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return None if process.exitcode == -signal.SIGKILL else process.exitcode


def _test(package: str, tests: list[str]) -> None:
    os.setpgrp()  # not a session, which the system may give less of the processor
    os.chdir(ROOT)
    os.environ |= {"PYTHONPATH": f"{package}:{ROOT}", "OMP_NUM_THREADS": "1"}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.path.insert(0, package)
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    sys.exit(pytest.main(["-x", "-q", *tests], plugins=[Limit()]))


class Limit:
    """Ends the process where a test takes too long, whatever else the machine is doing."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Let a timer run that ends the process."""
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
        found = yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        return found


def main(
    count: int = 160,
    seed: int = 0,
    workers: int = 2,
    files: tuple[str, ...] = (),
    record: Path | None = None,
) -> None:
    """Draw mutants of all files and count those that the tests kill.

    Args:
        count: Mutants to draw.
        seed: Chooses them.
        workers: Test runs at a time.
        files: Only these files of src/hyq.
        record: A JSON file for the numbers and the survivors.
    """
    everything = [
        (file, number)
        for file in files or TESTS
        for number in range(len(_all_changes(ast.parse((ROOT / "src/hyq" / file).read_text()))))
    ]
    chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    mutants = [mutant(*one) for one in chosen]
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = BUILD / f"seed-{seed}.jsonl"
    found = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    with kept.open("a") as lines, ThreadPoolExecutor(workers) as pool:
        for row in pool.map(run, mutants[len(found) :]):
            found.append(row)
            lines.write(json.dumps(row) + "\n")
            lines.flush()
            if row["ended"] != "killed":
                console.print(
                    "{ended}  {file}:{line}  {before}  ->  {after}".format(**row),
                    highlight=False,
                    soft_wrap=True,
                    markup=False,
                )
    alive = [row for row in found if row["ended"] == "survived"]
    killed = len(found) - len(alive)
    console.print(f"killed {killed} of {len(found)} ({killed / len(found):.0%})")
    if record is not None:
        command = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        content = {
            "command": f"python benchmarks/mutants.py --count {count} --seed {seed}",
            "commit": commit.stdout.strip(),
            "possible": len(everything),
            "drawn": len(found),
            "killed": killed,
            "without_end": sum(row["ended"] == "no end" for row in found),
            "survivors": alive,
        }
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(content, indent=2) + "\n")


CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(LOADED)

if __name__ == "__main__":
    tyro.cli(main)
