"""The subcommand that checks data before anything is trained on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from hyq.core.errors import HyqError
from hyq.core.files import check_writable
from hyq.core.settings import check_idle
from hyq.core.terminal import Terminal, progress_bar
from hyq.coverage.cells import FEWEST_BEST
from hyq.coverage.check import bounds_of, check_all
from hyq.coverage.deep_fqe import policy_support, sees_vectors
from hyq.coverage.drift import drift_test
from hyq.coverage.policy import holds_deep_policy, play_in
from hyq.coverage.policy import load_policy as load_by_step
from hyq.data.columns import described
from hyq.data.dataset import Dataset
from hyq.data.fits import check_fits
from hyq.envs.make import env_factory
from hyq.policy import Policy
from hyq.report.check import print_checks, write_checks
from hyq.runs.named_data import load
from hyq.runs.video import Environment, load_policy, play

BY_STEP, WHOLE = 500, 30
"""Episodes that a policy plays: by step they are played together, whole ones may be long."""


def data_check(
    *names: Annotated[str, tyro.conf.Positional],
    env: str | None = None,
    policy: Path | None = None,
    episodes: int | None = None,
    page: Path = Path("check.html"),
) -> None:
    """Say what can be learned from a dataset, what is wrong with it, and what to do next.

    Several datasets are ranked, the easiest to learn from first.

    Args:
        names: Directories of datasets, files of logs, or names of 'hyq data list'.
        env: Environment to act in for a few hundred steps, to see whether the data agrees with it;
            and for the policy to play in, which otherwise plays where it was trained.
        policy: Directory of a run or a saved policy to compare the data with, in place of the best
            logged episodes.
        episodes: Episodes of the policy to play: 500 of one with a function for each step, else
            30, if not given.
        page: Where to write the report, a page with figures.
    """
    if not names:
        raise HyqError("name at least one dataset")
    if len(set(names)) != len(names):
        raise HyqError("name each dataset once")
    if policy is None:
        check_idle("a check without --policy", episodes=episodes)
    check_writable(page)
    datasets, console = {name: load(name) for name in names}, Terminal()
    known: dict[str, Any] = {}
    if env is not None:
        if len(names) > 1:
            raise HyqError("an environment is compared with one dataset: check each on its own")
        known |= _compared(datasets[names[0]], env, console)
    played = by_step = None
    if policy is not None:
        known["policy"] = str(policy)
        if holds_deep_policy(policy):
            loaded = load_policy(policy)
            if sees_vectors(loaded) and len(names) == 1:
                known["support"] = policy_support(loaded, datasets[names[0]])
            count = WHOLE if episodes is None else episodes
            played = str(policy), _played(loaded, env, count, datasets, console)
        else:
            by_step = load_by_step(policy)
            count = BY_STEP if episodes is None else episodes
            played = str(policy), play_in(by_step, datasets[names[0]], env, count)
    with progress_bar("reading", sum(map(len, datasets.values())), console) as update:

        def advance(rows: int) -> None:
            update(advance=rows)

        checks = check_all(datasets, played=played, by_step=by_step, progress=advance, **known)
    print_checks(checks, console)
    write_checks(checks, page)
    console.print(f"report: {page}")


def _compared(dataset: Dataset, env: str, console: Console) -> dict[str, Any]:
    """Act in an environment, and say what a check needs to know of it."""
    about = dataset.provenance
    same = env in (about.get("env"), about.get("environment"))
    parameters = (about.get("parameters") or about.get("env_parameters") or {}) if same else {}
    make = env_factory(env, about.get("wrappers") or () if same else (), **parameters)
    made = make()
    found: dict[str, Any] = {"env": env, "action_space": made.action_space}
    found["bounds"] = bounds_of(made.observation_space)
    try:
        check_fits(dataset, made.observation_space, made.action_space)
    except HyqError as error:
        return found | {"misfit": str(error)}
    finally:
        made.close()
    with console.status(f"acting in {env} ..."):
        drift = drift_test(dataset, make)
    return found | {"drift": drift, "bounds": {**drift.seen, **found["bounds"]}}


def _played(
    policy: Policy,
    env: str | None,
    episodes: int,
    datasets: Mapping[str, Dataset],
    console: Console,
) -> Dataset:
    """Let a policy play, and raise where it sees something else than the datasets show."""
    if episodes < FEWEST_BEST:
        raise HyqError(f"visits are compared between episodes: play at least {FEWEST_BEST}")
    parts = []
    with progress_bar("playing", episodes, console) as update:
        for _, episode in play(policy, Environment.of(policy, env), episodes, seed=0):
            parts.append(episode)
            update(advance=1)
    found = Dataset.of(parts, {})
    for name, one in datasets.items():
        seen, logged = described(found.observation), described(one.observation)
        if seen.replace("(1, ", "(") != logged.replace("(1, ", "("):  # stacks of one image
            raise HyqError(f"{name} has observations of {logged}, the policy plays with {seen}")
    return found
