"""The library's front door: from logs and an environment to a policy, in one call."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from hyq.algos.deep_baselines import DEEP_METHODS, configured, refuse_unused
from hyq.algos.hyq_dqn import Objective, Report, Training
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset
from hyq.envs.make import EnvFactory, VectorEnv, make_lanes
from hyq.models.policy import DeepPolicy, check_free_for_policy
from hyq.rollout import lanes_to_play, play
from hyq.runs.deep_data import fitting, load


def train(
    env: str | EnvFactory,
    data: Dataset | Path | str | None = None,
    online_steps: int = 50_000,
    *,
    algorithm: str = "hyq",
    preset: str = "default",
    seed: int = 0,
    evaluation_episodes: int = 10,
    processes: bool = False,
    wrappers: Sequence[str] = (),
    env_parameters: Mapping[str, Any] | None = None,
    objective: Objective | None = None,
    save_to: Path | str | None = None,
    progress: bool | None = None,
    on_report: Callable[[Report, float], None] = lambda report, mean_return: None,
    **settings: Any,
) -> DeepPolicy:
    """Train on logged data and live interaction together; return the best policy seen.

    Learning goes on while the environments work where these have processes of their own, or lanes
    of their own as hyq/Montezuma-v0 has; else one waits for the other.

    Args:
        env: A Gymnasium id, or a function that makes the environment. Actions must be discrete.
        data: A dataset, the directory it was saved in, a named dataset (see 'hyq data list'), or
            None to learn online only (then beta must be 0, and there is no pretraining).
        online_steps: Steps to take in the environment.
        algorithm: 'hyq' or a baseline: 'dqn', 'offline', 'bc', 'cql', 'dqfd', 'iql'.
        preset: Named settings to start from.
        seed: Chooses every random number.
        evaluation_episodes: Greedy episodes played at every report, on environments of their own;
            their steps are not counted. With 0 there are none, and the last policy is returned.
        processes: Step the environments in processes of their own, where they are slow.
        wrappers: `module:Class` of wrappers around each environment, innermost first.
        env_parameters: Passed on to the environment.
        objective: What to minimise in place of the method's own (docs/add_an_algorithm.md).
        save_to: Directory in which the best policy seen so far is kept, replaced whenever there is
            a better one: what an interruption leaves.
        progress: Show a progress bar; by default where somebody is looking.
        on_report: Called with every report and the mean return of its evaluation, NaN without.
        settings: Fields of `hyq.DeepConfig`; schedules may be numbers or text. weight_decay,
            max_gradient_norm and adam_epsilon are fields of its `adam`. What makes no difference
            to the method is refused.
    """
    config = configured(
        algorithm, preset, with_logs=data is not None, online_steps=online_steps, **settings
    )
    refuse_unused(algorithm, settings)
    minimised = objective or DEEP_METHODS[algorithm].objective(config)
    if evaluation_episodes < 0:
        raise HyqError(f"evaluation_episodes must not be negative, got {evaluation_episodes}")

    if save_to is not None:
        check_free_for_policy(Path(save_to))

    def lanes_of(count: int) -> VectorEnv:
        parameters = env_parameters or {}
        return make_lanes(env, count, wrappers=wrappers, processes=processes, **parameters)

    streams = Streams(seed)
    best, policy = -math.inf, None
    with ExitStack() as opened:
        # Before the logs are loaded, which may take minutes: the environment may be refused.
        # And before PyTorch computes anything: its threads do not outlive a fork, so processes that
        # are started later would wait for them for ever.
        with fitting(data, wrappers):
            lanes = opened.enter_context(closing(lanes_of(config.lanes)))
            if evaluation_episodes:
                examination = opened.enter_context(
                    closing(lanes_of(lanes_to_play(evaluation_episodes)))
                )
            logs = _logs(data, seed)
            training = Training(config, lanes, logs, streams, minimised)
        bar = opened.enter_context(_bar(progress))
        task = bar.add_task(algorithm, total=config.online_steps or config.pretraining)
        for report in training.run():
            mean = math.nan
            if evaluation_episodes:
                returns = play(
                    examination,
                    training.greedy,
                    evaluation_episodes,
                    streams.below("evaluate", report.number),
                    stack=config.stack,
                    shrink_by=config.shrink_by,
                )
                mean = float(returns.mean())
            # Of equals the last one: it has learned from more.
            if not evaluation_episodes or mean >= best:
                best, policy = mean, training.policy()
                if save_to is not None:
                    policy.save(Path(save_to))
            bar.update(
                task,
                completed=report.online_steps if config.online_steps else report.updates,
                description=f"{algorithm}: return {mean:.1f}" if evaluation_episodes else algorithm,
            )
            on_report(report, mean)
    if policy is None:
        raise HyqError("nothing to learn from: give online_steps, or logs and pretraining")
    return policy


def _logs(data: Dataset | Path | str | None, seed: int) -> Dataset | None:
    logs = load(data, seed) if isinstance(data, Path | str) else data
    if not isinstance(logs, Dataset | None):
        raise HyqError(f"data must be a hyq.Dataset or where it is, not {type(logs).__name__}")
    return logs


def _bar(shown: bool | None) -> Bar:
    console = Console(stderr=True)
    if shown is None:
        shown = sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Bar(*columns, console=console, disable=not shown)
