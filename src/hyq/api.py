"""The library's front door: from data and an environment to a policy, in one call."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
from rich.console import Console

from hyq.actor_critic import CriticFactory
from hyq.agents.base import Loss
from hyq.algorithms import find_algorithm
from hyq.collector import VectorEnv
from hyq.core.actions import action_kind
from hyq.core.errors import HyqError
from hyq.core.settings import check_idle
from hyq.core.terminal import progress_bar
from hyq.core.trust import Trust
from hyq.data.dataset import Dataset
from hyq.data.sampler import OfflineShare
from hyq.data.spaces import spaces_of
from hyq.envs.make import EnvFactory, kind_of_actions
from hyq.networks import NetworkFactory
from hyq.policy import Policy
from hyq.runs import runner
from hyq.runs.named_data import load
from hyq.runs.records import RunDirectory
from hyq.runs.runner import Objects, Progress
from hyq.runs.spec import RunSpec

Callback = Callable[[Progress], None]


@dataclass(frozen=True)
class Training:
    """What happened while a policy was trained."""

    rows: Sequence[Mapping[str, Any]]
    """The records, one for each report."""
    summary: Mapping[str, Any]
    """How it ended; `estimate` says what data tells, where there was no environment."""
    out: Path | None
    """Where it was recorded."""

    @property
    def scores(self) -> list[tuple[int, float]]:
        """(online steps, mean return) of each evaluation."""
        return [(r["online_steps"], r["eval_return"]) for r in self.rows if "eval_return" in r]


def train(
    env: str | EnvFactory | VectorEnv | None = None,
    data: Dataset | Path | str | None = None,
    online_steps: int | None = None,
    *,
    algorithm: str = "hyq",
    preset: str = "default",
    seed: int = 0,
    network: NetworkFactory | str | None = None,
    critic: CriticFactory | None = None,
    loss: Loss | str | None = None,
    offline_share: OfflineShare | None = None,
    out: Path | str | None = None,
    evaluation_episodes: int | None = None,
    evaluation_env: VectorEnv | None = None,
    wrappers: Sequence[str] = (),
    env_parameters: Mapping[str, Any] | None = None,
    processes: bool = False,
    start_from: Path | str | None = None,
    save_experience: bool = False,
    keep_checkpoint: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Policy:
    """Train on offline data and live interaction together; return the best policy evaluated.

    Args:
        env: A Gymnasium id, a function that makes the environment, or a vector environment. None
            for algorithms that learn from data alone: spaces are those of the data, and the policy
            is evaluated on episodes that are held out.
        data: Offline data, the directory it was saved in, or a named dataset ('hyq data list').
        online_steps: Steps to take in the environment; by default as in the preset.
        algorithm: 'hyq', or a baseline: see 'hyq algorithms'. The action space decides which: Hy-Q
            for discrete actions, its actor-critic for continuous ones.
        preset: Named settings to start from.
        seed: Chooses every random number.
        network: A function of (observation_space, action_space) that returns a `torch.nn.Module`
            with forward(obs) -> (batch, actions), or, where actions are continuous, forward(obs) ->
            a `torch.distributions.Distribution` over actions within [-1, 1]; or the name of one
            here, such as 'mlp'.
        critic: For continuous actions, a function of the two spaces that returns a module with
            forward(obs, action) -> (batch,), of which an ensemble is made.
        loss: A function of (agent, batch) that returns the loss and the TD error of each row; or
            'huber' or 'squared', the form of the algorithm's own.
        offline_share: A function of (batch_size, step, rng) that returns how many rows of a
            minibatch come from the data, in place of beta.
        out: New directory for records, checkpoints and policies, so that `hyq.resume` can resume;
            without one nothing is written.
        evaluation_episodes: Episodes played at every record, on environments of their own; their
            steps are not counted. 10 by default. With 0 the last policy is returned.
        evaluation_env: Vector environment for them, where `env` is a vector environment itself.
        wrappers: `module:Class` of wrappers around each environment, innermost first.
        env_parameters: Passed to the environment.
        processes: Step the environments in processes of their own, where they are slow.
        start_from: Directory of a run of the same networks, whose weights this one begins with.
        save_experience: Keep what was collected as a dataset in `out`/experience.
        keep_checkpoint: Keep the last state in `out`, so that the run can be made longer.
        callbacks: Called with every `Progress`: the record, the policy, and at the end the summary.
        progress: Show a progress bar; by default in a terminal.
        settings: Settings of the algorithm, such as beta or learning_rate; schedules may be numbers
            or text. What the algorithm does not use raises.
    """
    if online_steps is not None:
        settings["online_steps"] = online_steps
    if isinstance(network, str):
        settings["network"], network = network, None
    if isinstance(loss, str):
        settings["loss"], loss = loss, None
    given: Any = data
    if not isinstance(given, Dataset | Path | str | None):
        kind = type(given).__name__
        raise HyqError(f"data must be a hyq.Dataset or where one is, not a {kind}")
    if env is None and data is None:
        raise HyqError("give an environment, or data to learn from without one")
    if env is None:
        dataset = data if isinstance(data, Dataset) else load(data, seed)
        actions = action_kind(spaces_of(dataset)[1])
    else:
        actions = kind_of_actions(env, wrappers, env_parameters or {})
    is_vector = isinstance(env, gym.vector.VectorEnv)
    if is_vector and find_algorithm(algorithm, actions).acts:
        settings.setdefault("num_envs", env.num_envs)  # type: ignore[union-attr]
    if env is None:
        check_idle("a run without an environment", evaluation_episodes=evaluation_episodes or None)
    if evaluation_episodes is None:
        evaluation_episodes = 0 if is_vector and evaluation_env is None else 10
    spec = RunSpec(
        env if isinstance(env, str) else None,
        str(data) if isinstance(data, Path | str) else None,
        algorithm,
        preset,
        seed,
        settings,
        evaluation_episodes,
        start_from=None if start_from is None else str(start_from),
        save_experience=save_experience,
        actions=actions,
        wrappers=tuple(wrappers),
        env_parameters=dict(env_parameters or {}),
        processes=processes,
    )
    own_env = None if isinstance(env, str) else env
    own_data = data if isinstance(data, Dataset) else None
    objects = Objects(network, critic, loss, offline_share, own_env, evaluation_env, own_data)
    where = None if out is None else Path(out)
    run = runner.start(spec, where, objects, keep_checkpoint=keep_checkpoint)
    return _finished(run, spec, where, callbacks, progress)


def resume(
    out: Path | str,
    *,
    env: EnvFactory | VectorEnv | None = None,
    data: Dataset | None = None,
    network: NetworkFactory | None = None,
    critic: CriticFactory | None = None,
    loss: Loss | None = None,
    offline_share: OfflineShare | None = None,
    evaluation_env: VectorEnv | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    trust: Trust = False,
) -> Policy:
    """Resume an interrupted run in `out`, to the same bits as if it had never stopped.

    What was given to `train` as a Python object, and not by name, is given again. A run of another
    user or machine imports an environment or wrappers of its own only with `trust`.
    """
    objects = Objects(network, critic, loss, offline_share, env, evaluation_env, data)
    run = runner.resume(Path(out), objects, trust=trust)
    spec = RunSpec.decoded(RunDirectory.open(Path(out)).manifest["spec"])
    return _finished(run, spec, Path(out), callbacks, progress)


def _finished(
    run: Iterator[Progress],
    spec: RunSpec,
    out: Path | None,
    callbacks: Sequence[Callback],
    shown: bool | None,
) -> Policy:
    """Let a run go to its end, and return its policy."""
    counter, total = spec.length
    shown = sys.stderr.isatty() if shown is None else shown
    policy, rows, summary = None, [], {}
    bar = progress_bar(spec.algorithm, total, Console(stderr=True), shown)
    with closing(run), bar as update_bar:  # type: ignore[type-var]
        for update in run:
            row, policy, summary = update.row, update.policy, update.summary or {}
            rows.append(row)
            score = row.get("eval_return", row.get("recent_return"))
            reached = "" if score is None else f": return {score:.1f}"
            update_bar(row[counter], description=spec.algorithm + reached)
            for callback in callbacks:
                callback(update)
    if policy is None:
        raise HyqError("nothing to learn: give online_steps, or data and pretraining")
    return replace(policy, training=Training(rows, summary, out))
