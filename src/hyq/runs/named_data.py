"""Datasets by name: a directory, or one of the datasets that are made or shipped here."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from glob import has_magic
from pathlib import Path
from typing import Any

from hyq.core.errors import HyqError, MisfitError
from hyq.core.files import read_json
from hyq.data.dataset import Dataset
from hyq.data.importing.assemble import Named, import_tables
from hyq.data.importing.order import Rules
from hyq.data.importing.table import reading
from hyq.data.minari import import_minari, is_minari
from hyq.experts import montezuma_data
from hyq.experts.scripted import PROBLEMS, scripted_dataset

RANDOM_SHARES = {"expert": 0.0, "random20": 0.2, "half": 0.5, "random80": 0.8}
"""Qualities of scripted data: how much of it is random play."""


@dataclass(frozen=True)
class About:
    """What is known of a dataset without making it."""

    env: str
    transitions: int
    """Of scripted ones a few more: the last episode is whole."""
    wrappers: tuple[str, ...] = ()


def described_names() -> dict[str, About]:
    """Describe every dataset that has a name."""
    scripted = {
        f"{name}/{quality}": About(problem.env, problem.transitions, problem.wrappers)
        for name, problem in PROBLEMS.items()
        for quality in RANDOM_SHARES
    }
    recorded = About("hyq/Montezuma-v0", montezuma_data.SIZE)
    return scripted | dict.fromkeys(montezuma_data.DATASETS, recorded)


@contextmanager
def fitting(data: Dataset | Path | str | None, wrappers: Sequence[str]) -> Iterator[None]:
    """Where data and environment do not fit, name the wrappers of the data if they are others."""
    try:
        yield
    except MisfitError as error:
        logged = _wrappers_of(data)
        if logged is None or list(logged) == list(wrappers):
            raise
        remedy = f"with wrappers {' '.join(logged)}" if logged else "without wrappers"
        raise HyqError(f"{error.what}: the data was made {remedy}") from None


def _wrappers_of(data: Dataset | Path | str | None) -> Sequence[str] | None:
    """Look up the wrappers of a dataset without making or opening it; None where it has none."""
    if isinstance(data, Dataset):
        return data.provenance.get("wrappers")
    if named := described_names().get(str(data)):
        return named.wrappers
    manifest = Path(data or "") / "manifest.json"
    about = read_json(manifest) if data and manifest.is_file() else {}
    return about.get("provenance", {}).get("wrappers")


def load(source: Any, seed: int = 0, *, episodes_per_file: bool = False, **options: Any) -> Dataset:
    """Load data: files in any format, a data frame, arrays, a saved dataset, or one with a name.

    Args:
        source: CSV, Parquet, JSON lines, NPZ or HDF5 files by name, pattern, folder or in a list; a
            pandas or polars frame or an Arrow table; a Minari dataset or its id; a dictionary of
            arrays; the directory of a saved dataset; or a name of 'hyq data list'.
        seed: Of named datasets that are made anew.
        episodes_per_file: Whether each file numbers its episodes anew.
        options: Columns that are not found by their name (observation, action, reward,
            next_observation, terminated, truncated, episode, time), and what to do about what is
            wrong with rows (gaps, jumps, after_end, duplicates, both_ends, open_ends, missing,
            order): see docs/your_data.md.
    """
    known = {part.name for kind in (Named, Rules) for part in fields(kind)}
    unknown = sorted(options.keys() - known)
    if unknown:
        raise HyqError(f"load has no option {unknown[0]!r}: there are {', '.join(sorted(known))}")
    found = None
    if isinstance(source, Path | str):
        found = _named(str(source), seed)
    elif hasattr(source, "iterate_episodes"):
        found = import_minari(source)
    if found is None:
        rules = {part.name for part in fields(Rules)}
        return import_tables(
            source,
            columns=Named(**{k: v for k, v in options.items() if k not in rules}),
            rules=Rules(**{k: v for k, v in options.items() if k in rules}),
            episodes_per_file=episodes_per_file,
        ).dataset
    if options or episodes_per_file:
        raise HyqError(f"{source} has no columns to choose from: leave the options out")
    return found


def _named(name: str, seed: int) -> Dataset | None:
    """Load what is a dataset already; None for files."""
    problem, _, quality = name.partition("/")
    if problem in PROBLEMS and quality in RANDOM_SHARES:
        return make_scripted(name, seed)
    if name in montezuma_data.DATASETS:
        return montezuma_data.load(name)
    path = Path(name)
    with reading(name):  # a folder may be closed to this user
        is_saved, is_of_minari = (path / "manifest.json").exists(), is_minari(name)
        is_there = path.exists()
    if is_saved:
        return Dataset.load(path)
    if is_of_minari:
        return import_minari(name)
    if not is_there and not has_magic(name):
        raise HyqError(
            f"no dataset {name!r}: give a directory, files, or one of "
            f"{', '.join(described_names())}"
        )
    return None


def make_scripted(name: str, seed: int) -> Dataset:
    """Record a scripted dataset from a seed."""
    problem, _, quality = name.partition("/")
    if problem not in PROBLEMS or quality not in RANDOM_SHARES:
        raise HyqError(
            f"no scripted dataset {name!r}: write PROBLEM/QUALITY, a problem of "
            f"{', '.join(PROBLEMS)} and a quality of {', '.join(RANDOM_SHARES)}; or see "
            "'hyq data make lock'"
        )
    return scripted_dataset(problem, RANDOM_SHARES[quality], seed)
