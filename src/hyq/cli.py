"""The `hyq` command: a table of subcommands, each a function that is loaded when it is called."""

import ast
import contextlib
import io
import json
import os
import platform
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from functools import partial, wraps
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_origin

import tyro
from rich.console import Console
from rich.table import Table
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from hyq.core.errors import HyqError, printable
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.settings import encode_value, json_object

SUBCOMMANDS = {
    "demo": "hyq.commands.demo:demo",
    "run lock": "hyq.commands.train:run_lock",
    "train": "hyq.commands.train:train",
    "resume": "hyq.commands.train:resume",
    "algorithms": "hyq.commands.train:algorithms",
    "reproduce theory": "hyq.commands.suites:reproduce_theory",
    "reproduce": "hyq.commands.suites:reproduce",
    "video": "hyq.commands.video:video",
    "watch": "hyq.commands.live:watch_runs",
    "report": "hyq.commands.report:report",
    "data import": "hyq.commands.data:data_import",
    "data make lock": "hyq.commands.train:data_make_lock",
    "data make": "hyq.commands.data:data_make",
    "data export": "hyq.commands.data:data_export",
    "data list": "hyq.commands.data:data_list",
    "data show": "hyq.commands.data:data_show",
    "data check": "hyq.commands.check:data_check",
    "evaluate": "hyq.commands.evaluate:evaluate",
}
"""Where each subcommand's function is. A longer one stands before one that it begins with."""
PAGES = {
    "data import": "docs/your_data.md",
    "data check": "docs/data_check.md",
    "train": "docs/index.md",
    "resume": "docs/going_live.md",
    "evaluate": "docs/going_live.md",
    "reproduce": "docs/scaling_out.md",
    "report": "docs/scaling_out.md",
    "run lock": "docs/algorithms/hyq_fqi.md",
}
"""Where the documentation explains a subcommand: named behind what it complains about."""
PACKAGES = ("torch", "gymnasium", "numpy", "ale-py", "mujoco", "minari", "ray")
"""Packages that results depend on, or may."""


def main(arguments: list[str] | None = None) -> int:  # noqa: PLR0911 - an ending a kind of error
    """Run one subcommand; return its exit code."""
    # One thread makes a run independent of the machine's core count, to the bit, and leaves the
    # other cores to other runs. It has to be said before NumPy is loaded; a caller's choice wins.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    if str(Path.cwd()) not in sys.path:
        # A script's path has no working directory, where users keep environments of their own
        # ('--env module:id'). It comes last, so that no file in it hides an installed package.
        sys.path.append(str(Path.cwd()))
    words = sys.argv[1:] if arguments is None else arguments
    before = as_control_c()
    named = (one for one in SUBCOMMANDS if words[: one.count(" ") + 1] == one.split())
    subcommand = next(named, None)
    try:
        if subcommand is None:
            return _no_subcommand(words)
        _parsed(subcommand, words[subcommand.count(" ") + 1 :])()
    except HyqError as error:
        text, page = str(error), PAGES.get(subcommand or "")
        explained = page is None or text.endswith("--help)")  # as it is of options already
        return _complain(text if explained else f"{text} (more: {page})")
    except KeyboardInterrupt:
        print(
            "hyq: interrupted; 'hyq resume' continues a run from its last checkpoint, and a "
            "suite continues when its command is given again",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        # The reader went away, as `| head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return _complain(f"{error.strerror or error}: {error.filename or 'no file'}")
    except MemoryError:
        return _complain("there is not enough memory: make it smaller, or use another machine")
    except Exception:
        traceback.print_exc()
        print(
            "hyq: this is a fault of hyq itself: please report the lines above, the command and "
            "'hyq --version', as CONTRIBUTING.md says",
            file=sys.stderr,
        )
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _complain(text: str) -> int:
    print(f"hyq: {printable(' '.join(text.split()))}", file=sys.stderr)
    return 2


def as_control_c() -> dict[int, Any]:
    """End as on Ctrl-C when a scheduler or a closed terminal signals; return what was before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    signals = (signal.SIGTERM, signal.SIGHUP)  # nohup has SIGHUP ignored
    heeded = [one for one in signals if signal.getsignal(one) is signal.SIG_DFL]
    return {number: signal.signal(number, signal.default_int_handler) for number in heeded}


def _parsed(subcommand: str, words: list[str]) -> Callable[[], Any]:
    """Bind a subcommand's arguments, or say in one line what is wrong with them."""
    home, name = SUBCOMMANDS[subcommand].split(":")
    function = getattr(import_module(home), name)
    if subcommand == "train":  # its options depend on the words given: the function makes it
        function = function(words)

    @wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return partial(function, *args, **kwargs)

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(bind, prog=f"hyq {subcommand}", args=words, registry=NOTATIONS)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise HyqError(f"{_complaint(complaint.getvalue())} (hyq {subcommand} --help)") from None


def _complaint(box: str) -> str:
    """Keep the complaint from the box that Tyro draws, without its title and help it repeats."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", box)  # colours
    # The first row is the title. What is not written in UTF-8 has blanks and hyphens for lines.
    rows = [row[2:].rstrip("│╯ ") for row in plain.splitlines()[1:]]
    # Options stand four places further in than sentences, and their help eight.
    kept = "\n".join(row for row in rows if not row.startswith(" " * 8))
    parts = [" ".join(part.split()) for part in re.split("[─-]{3,}", kept)]
    parts = [part for part in parts if not part.startswith(("Argument help", "For full help"))]
    text = "; ".join(part.partition(" Got errors:")[0].rstrip(".") for part in parts if part)
    number = re.search(
        r"Error parsing (\S+): .*?(wants a whole number, got '.*?')", " ".join(parts)
    )
    return " ".join(number.groups()) if number else text


NOTATIONS = ConstructorRegistry()
"""How Tyro reads options, where it differs from Tyro's own way."""


@NOTATIONS.primitive_rule
def _notation(option: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    kind = get_origin(option.type) or option.type
    if kind not in READERS:
        return None
    metavar, read, write = READERS[kind]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [write(value)],
    )


def _whole(word: str) -> int:
    """Read a whole number in any notation: 1e5 is a number of steps too."""
    try:
        return int(word)
    except ValueError:
        with contextlib.suppress(ValueError):
            if float(word).is_integer():
                return int(float(word))
        raise ValueError(f"wants a whole number, got {word!r}") from None


READERS: dict[Any, tuple[str, Callable[[str], Any], Callable[[Any], str]]] = {
    int: ("INT", _whole, str),
    PiecewiseLinear: ("NUMBER|TIME:NUMBER,...", schedule, lambda value: str(encode_value(value))),
    Mapping: ("JSON", json_object, json.dumps),
}
"""What stands for a value in the help, how one is read, and how it is written."""


def _no_subcommand(words: list[str]) -> int:
    console = Console()
    if words == ["--version"]:
        console.print(versions(), highlight=False)
        return 0
    wants_help = not words or words[-1] in ("-h", "--help")
    group = words[:-1] if wants_help else words
    near = [subcommand for subcommand in SUBCOMMANDS if subcommand.split()[: len(group)] == group]
    if not (wants_help and near):
        near = (
            near
            or [subcommand for subcommand in SUBCOMMANDS if subcommand.split()[0] == words[0]]
            or list(SUBCOMMANDS)
        )
        said = " ".join(words[:2]) if len(near) < len(SUBCOMMANDS) else words[0]
        raise HyqError(f"no subcommand {said!r}: choose from {', '.join(near)} (hyq --help)")
    console.print("hyq: one policy from logged data and live interaction together\n")
    table = Table.grid(padding=(0, 2))
    for subcommand in near:
        table.add_row("", f"[bold]hyq {subcommand}[/]", summary(subcommand))
    console.print(table)
    console.print("\nEach subcommand explains its options with --help.")
    return 0


def versions() -> str:
    """Name the versions that a report of a fault should have, without loading anything."""
    lines = [f"hyq {version('hyq')}", f"Python {platform.python_version()}, {platform.platform()}"]
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            lines.append(f"{package} {version(package)}")
    return "\n".join(lines)


def summary(subcommand: str) -> str:
    """Return the first line of a subcommand's documentation, read from its source.

    Importing every subcommand would load all of PyTorch: seconds, for a page of text.
    """
    home, name = SUBCOMMANDS[subcommand].split(":")
    source = (Path(__file__).parents[1] / home.replace(".", "/")).with_suffix(".py")
    parts = ast.parse(source.read_text(encoding="utf-8")).body
    functions = {part.name: part for part in parts if isinstance(part, ast.FunctionDef)}
    return (ast.get_docstring(functions[name]) or "").partition("\n")[0]
