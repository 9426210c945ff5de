"""The library's front door: from logs and an environment to a policy, in one call."""

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from hyq.algos.deep_baselines import DEEP_METHODS, configured
from hyq.algos.hyq_dqn import Report, Training
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset
from hyq.data.episodes import Episodes
from hyq.data.logs import Logs
from hyq.envs.make import EnvFactory, make_lanes
from hyq.experiments.deep_data import named_logs
from hyq.models.policy import DeepPolicy
from hyq.rollout import lanes_to_play, play


def train(
    env: str | EnvFactory,
    data: Logs | Path | str | None = None,
    online_steps: int = 50_000,
    *,
    method: str = "hyq",
    preset: str = "default",
    seed: int = 0,
    evaluation_episodes: int = 10,
    progress: bool | None = None,
    on_report: Callable[[Report, float], None] = lambda report, mean_return: None,
    **settings: Any,
) -> DeepPolicy:
    """Train on logged data and live interaction together; return the best policy seen.

    Args:
        env: A Gymnasium id, or a function that makes the environment. Actions must be discrete.
        data: Logs, the directory they were saved in, a named dataset (see 'hyq data list'), or
            None to learn online only (then beta must be 0, and there is no pretraining).
        online_steps: Steps to take in the environment.
        method: 'hyq' or a baseline: 'dqn', 'offline', 'bc', 'cql', 'dqfd', 'iql'.
        preset: Named settings to start from.
        seed: Chooses every random number.
        evaluation_episodes: Greedy episodes played at every report, on environments of their own.
        progress: Show a progress bar; by default where somebody is looking.
        on_report: Called with every report and the mean return of its evaluation.
        settings: Fields of `hyq.DeepConfig`; schedules may be numbers or text.
    """
    config = configured(
        method, preset, with_logs=data is not None, online_steps=online_steps, **settings
    )
    logs = named_logs(str(data), seed) if isinstance(data, Path | str) else data
    if not isinstance(logs, Dataset | Episodes | None):
        raise HyqError(
            f"data must be a hyq.Dataset, hyq.Episodes or where they are, not {type(logs).__name__}"
        )
    streams = Streams(seed)
    best: tuple[float, DeepPolicy] | None = None
    with (
        closing(make_lanes(env, config.lanes)) as lanes,
        closing(make_lanes(env, lanes_to_play(evaluation_episodes))) as examination,
        _bar(progress) as bar,
    ):
        training = Training(config, lanes, logs, streams, DEEP_METHODS[method].objective(config))
        task = bar.add_task(method, total=config.online_steps or config.pretraining)
        for report in training.run():
            returns = play(
                examination,
                training.greedy,
                max(evaluation_episodes, 1),
                streams.below("evaluate", report.number),
                stack=config.stack,
                shrink_by=config.shrink_by,
            )
            mean = float(returns.mean())
            if best is None or mean >= best[0]:
                best = mean, training.policy()
            bar.update(
                task,
                completed=report.online_steps if config.online_steps else report.updates,
                description=f"{method}: return {mean:.1f}",
            )
            on_report(report, mean)
    if best is None:
        raise HyqError("nothing to learn from: give online_steps, or logs and pretraining")
    return best[1]


def _bar(shown: bool | None) -> Bar:
    console = Console(stderr=True)
    if shown is None:
        shown = sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Bar(*columns, console=console, disable=not shown)
