"""What a person is told of a saved policy's worth: played where it can be, or judged from logs."""

import math
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.coverage.estimate import NORMAL_95
from hyq.coverage.features import FeatureKind
from hyq.coverage.fqe import evaluate_saved
from hyq.coverage.policy import holds_deep_policy, policy_file
from hyq.experiments.film import Actor, play_returns
from hyq.experiments.records import RunDirectory, is_run


def evaluate(
    policy: Annotated[Path, tyro.conf.Positional],
    *,
    data: Path | None = None,
    features: FeatureKind | None = None,
    replicates: int = 100,
    env: str | None = None,
    wrappers: tuple[str, ...] = (),
    env_parameters: str = "{}",
    episodes: int = 100,
    seed: int = 0,
) -> None:
    """Judge a saved policy: a deep one by letting it play, any other from logged data alone.

    From data it is fitted Q evaluation, before the policy goes live: the policy has a function for
    each step, and the data is by step.

    Args:
        policy: Directory of a run or a saved policy.
        data: The dataset's directory, for policies by step.
        features: The class of value functions: linear in raw observations, random Fourier
            features, or the last layer of the policy's own network, which is taken where it has
            one.
        replicates: Resamples of the data behind the interval.
        env: Environment to play in, for a deep policy outside of its run.
        wrappers: module:Class of wrappers around that environment, innermost first.
        env_parameters: Parameters of that environment, as a JSON object.
        episodes: Episodes that a deep policy plays.
        seed: Chooses the resamples, or the episodes.
    """
    if holds_deep_policy(policy) or _is_deep_run(policy):
        if data is not None:
            raise HyqError("a deep policy is judged by letting it play: leave --data out")
        actor = Actor.load(policy, "best", env, wrappers, env_parameters)
        _print_played(policy, actor, episodes, seed)
        return
    policy_file(policy)
    if data is None:
        raise HyqError(f"{policy} is a policy by step: give the logs to judge it from as --data")
    if not data.exists():
        raise HyqError(f"no dataset at {data}: give the directory that was saved as --data")
    result = evaluate_saved(policy, data, features=features, replicates=replicates, seed=seed)
    table = Table(title=f"{policy} on {data}", title_justify="left", show_header=False)
    table.add_row("estimated return", f"{result.value.value:.4g}")
    table.add_row("95% interval", f"{result.value.low:.4g} to {result.value.high:.4g}")
    table.add_row("acts as logged", f"{result.agreement:.1%} of the transitions")
    table.add_row("stays where data is", f"{result.supported:.1%}")
    console = Console()
    console.print(table)
    console.print("The interval shows the noise of the data, not what such values cannot express.")
    if result.supported < 0.99:
        console.print(
            "[yellow]warning[/] The data does not support this policy all the way: unlogged values "
            "count as 0, and the interval cannot show it. See 'hyq data inspect --policy'."
        )


def _is_deep_run(path: Path) -> bool:
    """Tell a run that trains a deep policy, even where it has not kept any yet."""
    return is_run(path) and RunDirectory.open(path).manifest["experiment"] in ("deep", "rnd")


def _print_played(policy: Path, actor: Actor, episodes: int, seed: int) -> None:
    if episodes < 2:
        raise HyqError(f"a mean and its interval need 2 episodes or more, got {episodes}")
    console = Console()
    with console.status(f"playing {episodes} episodes ..."):
        returns = play_returns(actor, episodes, seed)
    mean, spread = returns.mean(), NORMAL_95 * returns.std(ddof=1) / math.sqrt(episodes)
    table = Table(title=str(policy), title_justify="left", show_header=False)
    acts = "drawing its actions as in training" if actor.draws else "without random actions"
    table.add_row("episodes", f"{episodes}, {acts}")
    table.add_row("return, mean", f"{mean:,.6g}")
    table.add_row("95% interval", f"{mean - spread:,.6g} to {mean + spread:,.6g}")
    quantiles = np.quantile(returns, (0.0, 0.5, 1.0))
    table.add_row("least, median, most", "; ".join(f"{value:,.6g}" for value in quantiles))
    console.print(table)
