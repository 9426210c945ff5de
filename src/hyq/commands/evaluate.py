"""The subcommand that evaluates a saved policy: by play, or from data before it goes live."""

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.text import Text

from hyq.commands.video import PlayIn
from hyq.core.errors import HyqError, printable
from hyq.core.settings import check_idle
from hyq.core.terminal import Terminal, progress_bar
from hyq.coverage.deep_fqe import GAMMA, UPDATES, WIDER, check_sees_vectors, deep_evaluation
from hyq.coverage.estimate import NORMAL_95
from hyq.coverage.fqe import Evaluation, evaluate_saved
from hyq.coverage.policy import holds_deep_policy, policy_file
from hyq.report.records import is_deep
from hyq.report.tables import facts_table
from hyq.runs.named_data import load
from hyq.runs.records import RunDirectory, is_run
from hyq.runs.video import is_stochastic, load_policy, play_returns

BY_STEP, DEEP = 100, 8
"""Resamples behind an interval: regressions by step are quick, networks are not."""


def evaluate(
    policy: Annotated[Path, tyro.conf.Positional],
    where: tyro.conf.OmitArgPrefixes[PlayIn],
    *,
    data: Path | None = None,
    replicates: int | None = None,
    gamma: float | None = None,
    episodes: int | None = None,
    seed: int = 0,
) -> None:
    """Evaluate a saved policy: from offline data, before it goes live, or a deep one by play.

    From data it is fitted Q evaluation: of a policy with a function for each step on data by step,
    or of a deep one that sees vectors on whole episodes, which takes minutes. Where the data does
    not decide, that is what it says.

    Args:
        policy: Directory of a run or a saved policy.
        where: Where a deep policy plays.
        data: The dataset's directory, best one that the policy did not learn from. Without
            it a deep policy plays.
        replicates: Resamples of the data behind the interval: 100 by step, 8 networks for a deep
            policy, if not given.
        gamma: Discount of a deep policy's estimated return, 0.99 if not given.
        episodes: Episodes that a deep policy plays, 100 if not given.
        seed: Chooses the resamples, or the episodes.
    """
    # A run that trains a deep policy may not have saved any yet.
    in_deep_run = is_run(policy) and is_deep(RunDirectory(policy).manifest)
    if not (in_deep_run or holds_deep_policy(policy)):
        policy_file(policy)
        check_idle("a policy by step", gamma=gamma, episodes=episodes, **where.given())
        if data is None:
            raise HyqError(
                f"{policy} is a policy by step: give the data to evaluate it on as --data"
            )
        if not data.exists():
            raise HyqError(f"no dataset at {data}: give the directory that was saved as --data")
        resamples = BY_STEP if replicates is None else replicates
        result = evaluate_saved(policy, data, replicates=resamples, seed=seed)
        noise = "The interval shows the noise of the data, not what such values cannot express."
        _print_evaluation(f"{policy} on {data}", result, "", noise)
    elif data is None:
        check_idle("a policy that plays", gamma=gamma, replicates=replicates)
        _evaluate_by_play(policy, where, 100 if episodes is None else episodes, seed)
    else:
        check_idle("a deep policy on data", **where.given(), episodes=episodes)
        discount = GAMMA if gamma is None else gamma
        _evaluate_on_data(policy, data, DEEP if replicates is None else replicates, discount, seed)


def _evaluate_on_data(path: Path, data: Path, replicates: int, gamma: float, seed: int) -> None:
    """Evaluate a deep policy from whole episodes, and say what speaks against the result."""
    policy = load_policy(path)
    if is_stochastic(policy):
        raise HyqError("a stochastic policy is not evaluated from data: let it play")
    check_sees_vectors(policy)  # before the data is read, which takes long for images
    dataset = load(data)
    if not dataset.ordered:
        raise HyqError(f"{data} holds transitions by step: a deep policy is evaluated on episodes")
    given: dict[str, Any] = {"gamma": gamma, "replicates": replicates, "seed": seed}
    with progress_bar("learning values", UPDATES, Terminal()) as update:
        result = deep_evaluation(policy, dataset, updates=UPDATES, progress=update, **given)
    calibrated = (
        f"The interval is {WIDER:g} times as wide as the networks' spread makes it: "
        "calibrated on three small problems, not proved."
    )
    _print_evaluation(f"{path} on {data}", result, f", discounted by {gamma:g}", calibrated)


def _print_evaluation(title: str, found: Evaluation, how: str, note: str) -> None:
    """Print the estimate and its interval, or why the data cannot tell."""
    facts = {
        "acts as logged": f"{found.agreement:.1%} of the transitions",
        "stays where data is": f"{found.inside:.1%} of its time",
    }
    if not found.doubts:
        estimate = {
            "estimated return": f"{found.value.value:.4g}{how}",
            "95% interval": f"{found.value.low:.4g} to {found.value.high:.4g}",
        }
        facts = estimate | facts
    console = Terminal()
    console.print(facts_table(facts, title))
    if found.doubts:
        why = printable(f": {'; '.join(found.doubts)}")
        console.print(Text.assemble(("cannot tell from this data", "yellow"), why))
    else:
        console.print(note)


def _evaluate_by_play(path: Path, where: PlayIn, episodes: int, seed: int) -> None:
    policy, console = load_policy(path), Terminal()
    environment = where.environment(policy)
    if episodes < 2:
        raise HyqError(f"a mean and its interval need 2 episodes or more, got {episodes}")
    with console.status(f"playing {episodes} episodes ..."):
        returns = play_returns(policy, environment, episodes, seed)
    mean, spread = returns.mean(), NORMAL_95 * returns.std(ddof=1) / math.sqrt(episodes)
    acts = "sampling its actions as in training" if is_stochastic(policy) else "acting greedily"
    least, median, most = np.quantile(returns, (0.0, 0.5, 1.0))
    facts = {
        "episodes": f"{episodes}, {acts}",
        "return, mean": f"{mean:,.6g}",
        "95% interval": f"{mean - spread:,.6g} to {mean + spread:,.6g}",
        "least, median, most": f"{least:,.6g}; {median:,.6g}; {most:,.6g}",
    }
    console.print(facts_table(facts, str(path)))
