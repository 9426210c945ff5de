"""Datasets by name: a directory, or one of the datasets that are made or shipped here."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hyq.core.errors import HyqError, MisfitError
from hyq.core.files import read_json
from hyq.data.dataset import Dataset
from hyq.experts import montezuma_data
from hyq.experts.montezuma_data import EXPERT_PERCENT
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
    size = int(read_json(montezuma_data.SHIPPED / "manifest.json")["size"])
    recorded = About("hyq/Montezuma-v0", size)
    return scripted | {f"montezuma/{kind}": recorded for kind in EXPERT_PERCENT}


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
    if data is None:
        return None
    if isinstance(data, Path | str):
        named, manifest = described_names().get(str(data)), Path(data) / "manifest.json"
        if named is not None:
            return named.wrappers
        provenance = read_json(manifest).get("provenance", {}) if manifest.is_file() else {}
    else:
        provenance = data.provenance
    found: Sequence[str] | None = provenance.get("wrappers")
    return found


def load(path_or_name: Path | str, seed: int = 0) -> Dataset:
    """Open a saved dataset, or one that has a name (see 'hyq data list').

    Scripted ones are made anew from the seed.
    """
    name = str(path_or_name)
    problem, _, quality = name.partition("/")
    if problem in PROBLEMS and quality in RANDOM_SHARES:
        return make_scripted(name, seed)
    if problem == "montezuma" and quality in EXPERT_PERCENT:
        return montezuma_data.load(name)
    if not Path(name).exists():
        raise HyqError(
            f"no dataset {name!r}: give a directory, or one of {', '.join(described_names())}"
        )
    return Dataset.load(name)


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
