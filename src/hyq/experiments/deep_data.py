"""Logs by name: a directory, or one of the datasets that are made or shipped here."""

from pathlib import Path

from hyq.core.errors import HyqError
from hyq.data.logs import Logs, load_logs
from hyq.experts import montezuma_data
from hyq.experts.montezuma_data import EXPERT_PERCENT
from hyq.experts.scripted import PROBLEMS, scripted_logs

RANDOM_SHARES = {"expert": 0.0, "half": 0.5, "random80": 0.8}
"""Qualities of scripted data: how much of it is random play."""


def dataset_names() -> list[str]:
    """List every dataset that has a name."""
    scripted = [f"{problem}/{quality}" for problem in PROBLEMS for quality in RANDOM_SHARES]
    return scripted + [f"montezuma/{kind}" for kind in EXPERT_PERCENT]


def named_logs(name: str, seed: int) -> Logs:
    """Make or load the logs of a name; scripted ones are made anew from the seed."""
    problem, _, quality = name.partition("/")
    if problem in PROBLEMS and quality in RANDOM_SHARES:
        return scripted_logs(problem, RANDOM_SHARES[quality], seed)
    if problem == "montezuma" and quality in EXPERT_PERCENT:
        return montezuma_data.load(name)
    if not Path(name).exists():
        raise HyqError(
            f"no dataset {name!r}: give a directory, or one of {', '.join(dataset_names())}"
        )
    return load_logs(Path(name))
