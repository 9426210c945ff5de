"""Discounted deep Hy-Q (Algorithm 3 of the paper): Q-learning on logged and live data together.

One step of the algorithm: act epsilon-greedily in every lane, store what happened, and every
`n_value` steps take one gradient step on a minibatch of which a share beta comes from the logs;
every `n_target` steps copy the network to the target network. That is `Training.run`, at the
bottom. What a minibatch is made of is in `data/hybrid.py`; the rest of this file is the settings
and the one line of mathematics that is the algorithm's own, in `TemporalDifference`.

The baselines of `deep_baselines.py` are other objectives under the same training.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import gymnasium as gym
import numpy as np

from hyq.algos.base import Snapshot
from hyq.core.errors import HyqError
from hyq.core.images import shrink
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.seeding import Streams
from hyq.core.targets import bootstrap_target, huber_slope, signed_log
from hyq.core.types import Array, FloatArray, Transitions, below
from hyq.data.dataset import Dataset
from hyq.data.episodes import Episode
from hyq.data.hybrid import Batch, HybridReplay, MixForm, Source
from hyq.data.logs import Logs, check_logs
from hyq.data.replay import Replay
from hyq.envs.make import check_spaces
from hyq.models.deep import (
    NATURE,
    NORMALISED_CONVOLUTIONS,
    SMALL_CONVOLUTIONS,
    AdamSettings,
    InputScaling,
    Learner,
    Network,
    NetworkSpec,
    Precision,
    make_learner,
)
from hyq.models.policy import DeepPolicy
from hyq.rollout import Lanes, VectorEnv


@dataclass(frozen=True)
class DeepConfig:
    """Every setting of the training. Times are counted in online steps: one lane's one step."""

    online_steps: int = 50_000
    """Steps to take in the environment, over all lanes."""
    pretraining: int = 4000
    """Updates on the logs alone before the first step."""
    gamma: float = 0.99
    """Discount factor."""
    n_value: int = 1
    """Steps between two updates of the network."""
    n_target: int = 50
    """Steps between two updates of the target network (one update counts as n_value steps)."""
    batch_size: int = 64
    """Transitions in a minibatch."""
    beta: PiecewiseLinear = schedule(0.5)
    """Share of the minibatches that comes from the logs, against online steps."""
    mix: MixForm = "split"
    """split: every minibatch holds that share; coin: all of it or nothing, as in the paper."""
    epsilon: PiecewiseLinear = PiecewiseLinear(((0, 0.2), (10_000, 0.02)))
    """Chance of a random action, against online steps."""
    steady_lanes: int = 0
    """Lanes that keep to `steady_epsilon` instead, so that some data is always near-greedy."""
    steady_epsilon: float = 0.01
    learning_rate: PiecewiseLinear = schedule(1e-3)
    """Of Adam, against online steps."""
    adam: AdamSettings = AdamSettings()
    loss: Literal["huber", "squared"] = "huber"
    """The paper prints the squared loss; Huber is quadratic near zero and linear beyond one."""
    double: bool = True
    """Let the online network choose the action that the target network values."""
    value_range: tuple[float, float] | None = None
    """Bounds that targets are kept inside, where they are known: the paper's class is bounded by
    [0, V_max]. They stop values from feeding on themselves where the logs say nothing."""
    n_step: int = 1
    """Rewards summed before bootstrapping, online. More than one is biased off-policy: the actions
    in between were not the greedy ones. The paper leaves it at one for that reason."""
    n_step_offline: int = 1
    """The same for the logs."""
    priority_online: tuple[float, float] = (0.6, 1e-3)
    """(exponent, epsilon) of prioritised replay; exponent 0 draws uniformly."""
    priority_offline: tuple[float, float] = (0.6, 1e-3)
    importance: PiecewiseLinear = PiecewiseLinear(((0, 0.4), (50_000, 1.0)))
    """Exponent of the importance weights, against online steps."""
    reward: Literal["raw", "signed-log"] = "raw"
    """signed-log learns from sign(r) log(1 + |r|); returns are always reported raw."""
    buffer_size: int = 100_000
    """Slots for online observations; the oldest are overwritten."""
    learning_starts: int = 500
    """Steps before the first update that is not pretraining."""
    lanes: int = 8
    """Environments that are stepped together."""
    stack: int = 1
    """Frames that make one observation."""
    shrink_by: int = 1
    """Factor by which image frames are averaged down before anything else."""
    standardise_pixels: bool = False
    """Scale each pixel by its mean and deviation in the logs, not all alike: in pictures that
    mostly stay the same, what moves then stands out."""
    life_loss_terminates: bool = False
    """Let the value end where a life is lost, in games that count lives."""
    log_end_terminates: bool = False
    """Let the value end where a logged episode was cut off. It does not really end there, but no
    data says how it goes on, and bootstrapping from there has been seen to diverge."""
    network: NetworkSpec | None = None
    """Chosen by the observations where not given."""
    precision: Precision = "auto"
    device: str = "cpu"
    report_every: int = 1000
    """Steps, or updates of pretraining, between two reports."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot run."""
        positive = ("n_value", "n_target", "batch_size", "n_step", "n_step_offline", "lanes")
        for name in (*positive, "buffer_size", "stack", "shrink_by", "report_every"):
            if getattr(self, name) < 1:
                raise HyqError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("online_steps", "pretraining", "learning_starts", "steady_lanes"):
            if getattr(self, name) < 0:
                raise HyqError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("beta", "epsilon", "importance"):
            low, high = getattr(self, name).range
            if low < 0 or high > 1:
                raise HyqError(f"{name} must stay within [0, 1], got {low} to {high}")
        if self.value_range is not None and self.value_range[0] >= self.value_range[1]:
            raise HyqError(f"value_range must have its smaller bound first, got {self.value_range}")
        for name in ("priority_online", "priority_offline"):
            if min(getattr(self, name)) < 0:
                raise HyqError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.learning_rate.range[0] < 0:
            raise HyqError(f"learning_rate must not be negative, got {self.learning_rate.range[0]}")
        if not 0 <= self.gamma <= 1:
            raise HyqError(f"gamma must lie in [0, 1], got {self.gamma}")
        if self.steady_lanes > self.lanes:
            raise HyqError(f"{self.steady_lanes} steady lanes are more than all {self.lanes}")


PAPER_MONTEZUMA = DeepConfig(
    online_steps=20_000_000,
    pretraining=0,
    gamma=0.99,
    n_value=4,
    n_target=10_000,
    batch_size=32,
    beta=PiecewiseLinear(((0, 0.2), (5e6, 0.2), (15e6, 0.01))),
    mix="coin",
    epsilon=PiecewiseLinear(((0, 0.25), (250e3, 0.1), (5e6, 0.01), (15e6, 0.001))),
    learning_rate=PiecewiseLinear(((0, 1e-4), (100e3, 6.25e-5), (15e6, 1e-5))),
    adam=AdamSettings(weight_decay=1e-5, max_gradient_norm=10.0),
    loss="huber",
    priority_online=(0.4, 1e-3),
    priority_offline=(1.0, 1e-4),
    importance=PiecewiseLinear(((0, 0.6), (15e6, 1.0))),
    reward="signed-log",
    buffer_size=2**20,
    learning_starts=1000,
    stack=4,
    network=NATURE,
    report_every=10_000,
)
"""The paper's table for Montezuma's Revenge; where it gives only [a, b], the released schedule."""

CPU_MONTEZUMA = DeepConfig(
    online_steps=3_000_000,
    pretraining=3000,
    n_value=16,
    n_target=4000,
    batch_size=64,
    beta=schedule(0.5),
    epsilon=PiecewiseLinear(((0, 0.25), (250e3, 0.1), (1e6, 0.01))),
    steady_lanes=8,
    learning_rate=schedule(5e-4),
    adam=AdamSettings(epsilon=1e-6),
    n_step=10,
    n_step_offline=60,
    importance=PiecewiseLinear(((0, 0.4), (2e6, 1.0))),
    reward="signed-log",
    buffer_size=400_000,
    learning_starts=2000,
    lanes=16,
    stack=4,
    shrink_by=2,
    standardise_pixels=True,
    log_end_terminates=True,
    network=NORMALISED_CONVOLUTIONS,
    report_every=10_000,
)
"""For Montezuma's Revenge on two cores: a small normalised network on smaller pictures, half the
replay of the paper, and longer returns."""

PAPER_SMALL_MONTEZUMA = replace(
    PAPER_MONTEZUMA,
    n_value=16,
    batch_size=128,
    buffer_size=400_000,
    learning_starts=2000,
    lanes=16,
    shrink_by=2,
    network=SMALL_CONVOLUTIONS,
)
"""The paper's table on two cores: a smaller network on smaller pictures, and as much replay for a
step in minibatches four times as large."""

PRESETS: dict[str, DeepConfig] = {
    "default": DeepConfig(),
    "paper-montezuma": PAPER_MONTEZUMA,
    "cpu-montezuma": CPU_MONTEZUMA,
    "paper-small-montezuma": PAPER_SMALL_MONTEZUMA,
}
"""Named settings."""


@dataclass(frozen=True)
class Judged:
    """What an objective says about a minibatch."""

    gradient: FloatArray
    """Of the mean loss over the batch, in the network's outputs."""
    td_error: FloatArray
    """Of each row: its next priority."""
    value: FloatArray
    """Q(s, a) of each row, to watch."""


class Objective(Protocol):
    """What is minimised: the gradient of a loss in the outputs of a network."""

    @property
    def needs_one_step(self) -> bool:
        """Whether batches must also hold the single-step version of their rows."""
        ...

    def extra_outputs(self, actions: int) -> int:
        """Count the outputs wanted beyond one Q-value an action."""
        ...

    def judge(self, outputs: FloatArray, batch: Batch, learner: Learner) -> Judged:
        """Compare the outputs at the batch's observations with what they should be."""
        ...

    def scores(self, outputs: FloatArray, actions: int) -> FloatArray:
        """Return what the greedy policy maximises."""
        ...


@dataclass(frozen=True)
class TemporalDifference:
    """The squared or Huber Bellman error: r + gamma f~(s', a') against f(s, a)."""

    double: bool = True
    loss: Literal["huber", "squared"] = "huber"
    value_range: tuple[float, float] | None = None
    needs_one_step: bool = field(default=False, init=False)

    def extra_outputs(self, actions: int) -> int:
        """Want Q alone."""
        return 0

    def judge(self, outputs: FloatArray, batch: Batch, learner: Learner) -> Judged:
        """Compare Q(s, a) with its bootstrapped target."""
        rows = batch.rows
        if self.double:
            selector, q_t = learner.both_outputs(rows.next_observation)
        else:
            selector = q_t = learner.target_outputs(rows.next_observation)
        target = bootstrap_target(rows.reward, rows.discount, q_t, selector)
        if self.value_range is not None:
            target = np.clip(target, *self.value_range)
        every = np.arange(len(rows))
        value = outputs[every, rows.action]
        error = value - target
        gradient = np.zeros_like(outputs)
        slope = huber_slope(error) if self.loss == "huber" else 2 * error
        gradient[every, rows.action] = batch.weight * slope / len(rows)
        return Judged(gradient, error, value)

    def scores(self, outputs: FloatArray, actions: int) -> FloatArray:
        """Act greedily on Q."""
        return outputs


@dataclass(frozen=True)
class Report:
    """What happened since the last one."""

    number: int
    """Counts from 1, through interruptions."""
    online_steps: int
    updates: int
    episodes: tuple[tuple[int, float, int], ...]
    """(online step at its end, return, length) of each episode that ended."""
    metrics: Mapping[str, float]
    """Means since: absolute errors by source, `td_offline` and `td_online`; `q` of the rows; the
    `offline_share` realised; `gradient_norm`; and `start_q` against `start_return`, what the
    network promised at the start of the episodes that ended and what they really earned, both
    discounted and on the scale learned from."""
    seconds: Mapping[str, float]
    """Where the wall time went: act, learn, and wait for the environment and store."""


class Training:
    """A run of the algorithm: everything it depends on, in memory, with its loop at the bottom."""

    def __init__(
        self,
        config: DeepConfig,
        env: VectorEnv,
        logs: Logs | None,
        streams: Streams,
        objective: Objective | None = None,
    ) -> None:
        """Check what was given, load the logs, make the network, and start every lane."""
        check_spaces(env)
        if env.num_envs != config.lanes:
            raise HyqError(f"the environment has {env.num_envs} lanes, not {config.lanes}")
        self.config, self._streams = config, streams
        self.objective = objective or TemporalDifference(
            config.double, config.loss, config.value_range
        )
        self.actions = int(env.single_action_space.n)  # type: ignore[attr-defined]
        self._first_action = int(env.single_action_space.start)  # type: ignore[attr-defined]
        if logs is None and (config.beta.range[1] > 0 or config.pretraining):
            raise HyqError("beta is above 0 without logs: give a dataset, or set beta to 0")
        if logs is not None:
            check_logs(logs, env)
        self.lanes = Lanes(
            env, streams.below("lanes"), stack=config.stack, shrink_by=config.shrink_by
        )
        frame = self.lanes.frame
        dtype = np.uint8 if frame.dtype == np.uint8 else np.float32
        self.replay = HybridReplay(
            self._offline(logs),
            Source(
                Replay(
                    config.lanes,
                    max(config.buffer_size // config.lanes, config.stack + 2),
                    frame.shape[1:],
                    dtype,
                    stack=config.stack,
                ),
                config.n_step,
                *config.priority_online,
            ),
            config.mix,
            config.gamma,
        )
        self.network = Network(
            self.lanes.observation.shape[1:],
            self.actions,
            config.network or suitable_network(frame.shape[1:], frame.dtype),
            suitable_scaling(env, self.replay.offline, config.standardise_pixels),
            self.objective.extra_outputs(self.actions),
        )
        self.learner = make_learner(
            self.network,
            streams.generator("network"),
            config.adam,
            device=config.device,
            precision=config.precision,
        )
        self._acting, self._sampling = streams.generator("act"), streams.generator("sample")
        self.online_steps = self.updates = self._reports = 0
        self._promised = np.zeros(config.lanes)
        self._earned = np.zeros(config.lanes)
        self._discount = np.ones(config.lanes)
        self._beginning = np.ones(config.lanes, dtype=bool)
        self._exported = np.zeros(config.lanes, np.int64)
        self._clear_metrics()
        self._start(np.arange(config.lanes))

    def _offline(self, logs: Logs | None) -> Source | None:
        """Load the logs into a replay of their own, prepared as online data will be."""
        if logs is None:
            return None
        config = self.config
        if isinstance(logs, Dataset):
            replay = Replay.of_tuples(self._prepared_rows(logs))
        else:
            replay = Replay.of(
                [self._prepared_episode(episode) for episode in logs],
                stack=config.stack,
                life_loss_terminates=config.life_loss_terminates,
            )
        return Source(replay, config.n_step_offline, *config.priority_offline)

    def _prepared_rows(self, logs: Dataset) -> Transitions:
        config = self.config
        if config.n_step_offline > 1 or config.stack > 1 or config.log_end_terminates:
            raise HyqError(
                "these logs are transitions without order: n_step_offline, stack and "
                "log_end_terminates need whole episodes (hyq.Episodes)"
            )
        rows = logs.transitions
        return replace(
            rows,
            observation=shrink(rows.observation, config.shrink_by),
            next_observation=shrink(rows.next_observation, config.shrink_by),
            reward=self._scaled(rows.reward),
            action=rows.action - self._first_action,
        )

    def _prepared_episode(self, episode: Episode) -> Episode:
        config = self.config
        frames = shrink(episode.observation, config.shrink_by)
        return replace(
            episode,
            observation=frames.reshape(len(frames), *self.lanes.frame.shape[1:]),
            reward=self._scaled(episode.reward),
            action=episode.action - self._first_action,
            terminated=episode.terminated or config.log_end_terminates,
        )

    def _scaled(self, reward: FloatArray) -> FloatArray:
        return signed_log(reward) if self.config.reward == "signed-log" else reward

    def greedy(self, observation: Array) -> Array:
        """Return the greedy action of each row of observations."""
        scores = self.objective.scores(self.learner.outputs(observation), self.actions)
        return self._first_action + scores.argmax(axis=1)

    def policy(self) -> DeepPolicy:
        """Return the greedy policy of now, to keep."""
        columns = np.arange(self.actions + self.network.extra_outputs, dtype=np.float64)[None]
        return DeepPolicy(
            self.network,
            self.learner.parameters(),
            self._first_action,
            int(self.objective.scores(columns, self.actions)[0, 0]),
            self.config.shrink_by,
        )

    def _act(self) -> Array:
        """Choose epsilon-greedy actions (Algorithm 3, line 6), counted from 0."""
        config = self.config
        scores = self.objective.scores(self.learner.outputs(self.lanes.observation), self.actions)
        if self._beginning.any():
            self._promised[self._beginning] = scores.max(axis=1)[self._beginning]
            self._beginning[:] = False
        chance = np.full(config.lanes, config.epsilon(self.online_steps))
        chance[: config.steady_lanes] = config.steady_epsilon
        explore = self._acting.random(config.lanes) < chance
        anything = self._acting.integers(self.actions, size=config.lanes)
        return np.where(explore, anything, scores.argmax(axis=1))

    def _update(self, share: float) -> None:
        """Take one gradient step on a minibatch of both sources (Algorithm 3, lines 10 and 11)."""
        config, now = self.config, self.online_steps
        batch = self.replay.sample(
            config.batch_size,
            share,
            config.importance(now),
            self._sampling,
            self.objective.needs_one_step,
        )
        outputs = self.learner.forward(batch.rows.observation)
        judged = self.objective.judge(outputs, batch, self.learner)
        norm = self.learner.step(judged.gradient, config.learning_rate(now))
        batch.prioritise(judged.td_error)
        self.updates += 1
        self._learned.append((batch.offline, judged.td_error, judged.value, norm))

    def _store(self, action: Array) -> None:
        """Take in what the environment answered (Algorithm 3, lines 7 and 8)."""
        config = self.config
        outcome = self.lanes.receive()
        reward, ended = self._scaled(outcome.reward), outcome.ended
        terminated = outcome.terminated
        if config.life_loss_terminates:
            terminated = terminated | outcome.life_lost
        self.replay.online.replay.add(action, reward, terminated, ended, outcome.frame)
        self.online_steps += config.lanes
        self._earned += self._discount * reward
        self._discount *= config.gamma
        for lane, total, length in outcome.finished:
            self._episodes.append((self.online_steps, total, length))
            self._starts.append((float(self._promised[lane]), float(self._earned[lane])))
        if outcome.finished:
            self._start(np.flatnonzero(ended))

    def _start(self, lanes: Array) -> None:
        self.replay.online.replay.start(lanes, self.lanes.frame[lanes])
        self._discount[lanes], self._earned[lanes], self._beginning[lanes] = 1.0, 0.0, True

    def _clear_metrics(self) -> None:
        self._learned: list[tuple[int, FloatArray, FloatArray, float]] = []
        self._starts: list[tuple[float, float]] = []
        self._seconds = dict.fromkeys(("act", "learn", "wait and store"), 0.0)
        self._episodes: list[tuple[int, float, int]] = []

    def _report(self) -> Report:
        self._reports += 1
        metrics = self._metrics()
        report = Report(
            self._reports,
            self.online_steps,
            self.updates,
            tuple(self._episodes),
            metrics,
            dict(self._seconds),
        )
        self._clear_metrics()
        return report

    def _metrics(self) -> dict[str, float]:
        """Sum up the updates and the episodes since the last report."""
        metrics: dict[str, float] = {}
        if self._learned:
            offline, errors, values, norms = zip(*self._learned, strict=True)
            size = len(errors[0])
            error = np.abs(np.stack(errors))
            logged = np.arange(size) < np.array(offline)[:, None]
            if logged.any():
                metrics["td_offline"] = float(error[logged].mean())
            if not logged.all():
                metrics["td_online"] = float(error[~logged].mean())
            metrics["q"] = float(np.mean(values))
            metrics["offline_share"] = float(logged.mean())
            metrics["gradient_norm"] = float(np.mean(norms))
        if self._starts:
            metrics["start_q"], metrics["start_return"] = np.mean(self._starts, axis=0).tolist()
        return metrics

    def snapshot(self) -> Snapshot:
        """Copy the state out; what the online replay took in since the last one is `appended`."""
        online, offline = self.replay.online.replay, self.replay.offline
        state: dict[str, Array] = {
            "counts": np.array([self.online_steps, self.updates, self._reports]),
            "online_priorities": online.priorities(),
            "watched": np.stack([self._promised, self._earned, self._discount]),
            "beginning": self._beginning.copy(),
        }
        for name, rng in (("acting", self._acting), ("sampling", self._sampling)):
            words = json.dumps(rng.bit_generator.state).encode()
            state[f"random.{name}"] = np.frombuffer(words, np.uint8)
        state |= {f"learner.{name}": array for name, array in self.learner.arrays().items()}
        state |= {f"lanes.{name}": array for name, array in self.lanes.arrays().items()}
        if offline is not None:
            state["offline_priorities"] = offline.replay.priorities()
        appended = online.export(self._exported)
        self._exported = online.written.copy()
        return Snapshot(state, appended)

    def restore(
        self, replaced: Mapping[str, Array], appended: Sequence[Mapping[str, Array]]
    ) -> None:
        """Come back to a snapshot, given every `appended` up to it that still matters."""
        online, offline = self.replay.online.replay, self.replay.offline
        self.online_steps, self.updates, self._reports = map(int, replaced["counts"])
        self._promised, self._earned, self._discount = replaced["watched"].copy()
        self._beginning = replaced["beginning"].copy()
        for name, rng in (("acting", self._acting), ("sampling", self._sampling)):
            rng.bit_generator.state = json.loads(replaced[f"random.{name}"].tobytes())
        self.learner.load(below("learner", replaced))
        online.written = appended[0]["first"].copy()  # what came before has been overwritten
        for part in appended:
            online.load(part)
        online.set_priorities(replaced["online_priorities"])
        if offline is not None:
            offline.replay.set_priorities(replaced["offline_priorities"])
        self._exported = online.written.copy()
        self.lanes.restore(below("lanes", replaced))

    def run(self) -> Iterator[Report]:
        """Learn, and yield a report now and then; a restored training goes on where it was."""
        config = self.config
        while self.updates < config.pretraining:
            with self._timed("learn"):
                self._update(share=1.0)
                if self.updates * config.n_value % config.n_target < config.n_value:
                    self.learner.synchronise_target()
            if self.updates % config.report_every == 0 or self.updates == config.pretraining:
                yield self._report()
        while self.online_steps < config.online_steps:
            with self._timed("act"):
                action = self._act()
                self.lanes.send(self._first_action + action)
            with self._timed("learn"):  # while the environment works
                self._catch_up()
            with self._timed("wait and store"):
                self._store(action)
            if self._passed(config.report_every) or self.online_steps >= config.online_steps:
                yield self._report()

    def _catch_up(self) -> None:
        """Make the updates that the steps so far call for, and renew the target when it is due."""
        config = self.config
        if self.online_steps < max(config.learning_starts, 1):
            return
        before = self.online_steps - config.lanes
        due = self.online_steps // config.n_value - before // config.n_value
        for _ in range(due):
            self._update(config.beta(self.online_steps))
        if self._passed(config.n_target):
            self.learner.synchronise_target()

    def _passed(self, period: int) -> bool:
        """Tell whether the newest step of all lanes went past a multiple of `period`."""
        now = self.online_steps
        return now // period > (now - self.config.lanes) // period

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - began


def suitable_network(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NetworkSpec:
    """Choose convolutions for images and plain layers for everything else."""
    smallest = smallest_side(shape, dtype)
    if smallest >= 64:
        return NATURE
    if smallest >= 20:
        return SMALL_CONVOLUTIONS
    return NetworkSpec(hidden=(128, 128))


def smallest_side(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the smaller side of byte images, 0 of anything else."""
    if dtype != np.uint8 or len(shape) < 2:
        return 0
    colours_last = len(shape) >= 3 and shape[-1] in (1, 3, 4)
    return min(shape[-3:-1] if colours_last else shape[-2:])


def suitable_scaling(
    env: VectorEnv, offline: Source | None, standardise_pixels: bool = False
) -> InputScaling:
    """Scale images to [0, 1]; standardise vectors by the logs, or by the space's bounds."""
    space = env.single_observation_space
    assert isinstance(space, gym.spaces.Box)
    if smallest_side(space.shape, space.dtype) >= 20:
        if standardise_pixels and offline is not None:
            return InputScaling.standard_pixels(_observations(offline.replay, 5000))
        return InputScaling.pixels()
    if offline is not None:
        return InputScaling.standard(_observations(offline.replay, 100_000))
    if space.is_bounded() and np.abs([space.low, space.high]).max() < 1e3:
        return InputScaling.box(space.low, space.high)
    shape = space.shape
    return InputScaling(np.zeros(shape, np.float32), np.ones(shape, np.float32))


def _observations(replay: Replay, about: int) -> Array:
    """Return about so many observations, evenly spread over the replay."""
    slots = np.flatnonzero(replay.priorities())
    return replay.gather(slots[:: max(1, len(slots) // about)], 1, 1.0).observation
