"""How many small faults the tests notice: random mutants, each run against its own test files.

    python benchmarks/mutants.py --count 160 --workers 2

A mutant is a copy of the package with one operator, comparison, constant or condition changed. It
is killed when the tests of the file it is in fail, or take far longer than without it. Survivors
are printed to be read: some change nothing that matters, others show what no test would notice.
Constants of a module and defaults of settings are left alone: another value is another setting.
"""

import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

ROOT = Path(__file__).parents[1]
TESTS: dict[str, list[str]] = {
    "losses.py": ["test_losses.py"],
    "networks.py": ["test_networks.py"],
    "actor_critic.py": ["agents/test_continuous.py"],
    "build.py": ["agents/test_conformance.py", "agents/test_continuous.py"],
    "collector.py": ["test_collector.py"],
    "exploration.py": ["test_collector.py", "agents/test_continuous.py"],
    "agents/awac.py": ["agents/test_continuous.py"],
    "agents/building.py": ["agents/test_conformance.py", "agents/test_continuous.py"],
    "agents/calql.py": ["agents/test_continuous.py"],
    "agents/ddpgfd.py": ["agents/test_continuous.py"],
    "agents/hyq_sac.py": ["agents/test_conformance.py", "agents/test_continuous.py"],
    "agents/td3_bc.py": ["agents/test_continuous.py"],
    "core/actions.py": ["agents/test_continuous.py"],
    "trainer.py": ["agents/test_conformance.py"],
    "algorithms.py": ["agents/test_conformance.py"],
    "policy.py": ["test_policy.py"],
    "agents/base.py": ["agents/test_conformance.py"],
    "agents/hyq_dqn.py": ["agents/test_conformance.py"],
    "agents/dqfd.py": ["agents/test_conformance.py"],
    "agents/iql.py": ["agents/test_conformance.py"],
    "agents/bc.py": ["agents/test_conformance.py"],
    "agents/ppo_rnd.py": ["agents/test_ppo_rnd.py"],
    "agents/distillation.py": ["agents/test_ppo_rnd.py"],
    "core/arrays.py": ["core/test_arrays.py"],
    "core/settings.py": ["core/test_settings.py"],
    "core/trees.py": ["core/test_trees.py"],
    "core/schedules.py": ["core/test_foundations.py"],
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
    "data/replay_buffer.py": ["data/test_replay_buffer.py"],
    "data/sampler.py": ["data/test_sampler.py"],
    "runs/checkpoint.py": ["runs/test_runner.py", "runs/test_lock_runs.py"],
    "runs/runner.py": ["runs/test_runner.py", "runs/test_deep_command.py", "runs/test_kept.py"],
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
SECONDS = 600.0
"""After which a mutant counts as killed: without it the tests take a fraction."""
console = Console()


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    line: int
    before: str
    after: str
    source: str


def mutants_of(file: str) -> Iterator[Mutant]:
    """Go through every mutant of a file."""
    tree = ast.parse((ROOT / "src/hyq" / file).read_text())
    changes = [c for node in _code(tree) for c in _changes(node)]
    for number in range(len(changes)):
        fresh = copy.deepcopy(tree)
        node, apply = [c for part in _code(fresh) for c in _changes(part)][number]
        before = ast.unparse(node)
        apply()
        line = getattr(node, "lineno", 0)
        yield Mutant(file, line, _first(before), _first(ast.unparse(node)), ast.unparse(fresh))


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
        if name in ("annotation", "returns", "decorator_list", "type_params", "defaults"):
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


def survives(mutant: Mutant) -> bool:
    """Tell whether the tests of a mutant's file pass all the same."""
    with tempfile.TemporaryDirectory() as place:
        package = Path(place) / "src"
        shutil.copytree(ROOT / "src", package)
        (package / "hyq" / mutant.file).write_text(mutant.source)
        tests = [str(ROOT / "tests" / name) for name in TESTS[mutant.file]]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist", *tests]
        environment = {**os.environ, "PYTHONPATH": f"{package}:{ROOT}", "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def main(count: int = 160, seed: int = 0, workers: int = 2, files: tuple[str, ...] = ()) -> None:
    """Draw mutants of all files and count those that the tests kill.

    Args:
        count: Mutants to draw.
        seed: Chooses them.
        workers: Test runs at a time.
        files: Only these files of src/hyq.
    """
    everything = [mutant for file in files or TESTS for mutant in mutants_of(file)]
    chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    with ThreadPoolExecutor(workers) as pool:
        alive = []
        for mutant, lives in zip(chosen, pool.map(survives, chosen), strict=True):
            change = f"{mutant.file}:{mutant.line}  {mutant.before}  ->  {mutant.after}"
            if lives:
                alive.append(mutant)
                console.print(f"survived  {change}", highlight=False, soft_wrap=True, markup=False)
    killed = len(chosen) - len(alive)
    console.print(f"killed {killed} of {len(chosen)} ({killed / len(chosen):.0%})")


if __name__ == "__main__":
    tyro.cli(main)
