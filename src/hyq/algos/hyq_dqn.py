"""Discounted deep Hy-Q (Algorithm 3 of the paper): Q-learning on logged and live data together.

One step of the algorithm: act epsilon-greedily in every lane, store what happened, and every
`n_value` steps take one gradient step on a minibatch of which a share beta comes from the logs;
every `n_target` steps copy the network to the target network. That is `Training.run`, at the
bottom. What a minibatch is made of is in `data/hybrid.py`, the settings are in `deep_config.py`;
the one line of mathematics that is the algorithm's own is `TemporalDifference`; what
`pessimism` may add to it is `pessimistic_slope`.

The baselines of `deep_baselines.py` are other objectives under the same training.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from hyq.algos.deep_config import DeepConfig
from hyq.core.errors import HyqError, refuse_divergence
from hyq.core.images import shrink
from hyq.core.seeding import Streams
from hyq.core.targets import (
    bootstrap_target,
    huber_slope,
    log_likelihood_slope,
    signed_log,
)
from hyq.core.types import Array, FloatArray, IntArray, Transitions, below
from hyq.data.columns import only_column
from hyq.data.dataset import Dataset, Episode
from hyq.data.fits import check_fits
from hyq.data.hybrid import Batch, HybridReplay, Source
from hyq.data.replay import Replay
from hyq.envs.make import check_spaces
from hyq.fqi.base import Snapshot
from hyq.models.hands import Errand, Steps
from hyq.models.learners import Question
from hyq.models.make import make_learner
from hyq.models.networks import Network, suitable_scaling
from hyq.models.policy import DeepPolicy
from hyq.rollout import Lanes, VectorEnv


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

    def questions(self, batch: Batch) -> list[Question]:
        """Say what must be known of a batch beside the outputs at its observations."""
        ...

    def judge(self, outputs: FloatArray, answers: list[FloatArray], batch: Batch) -> Judged:
        """Compare the outputs at the batch's observations with what they should be."""
        ...

    def scores(self, outputs: FloatArray, actions: int) -> FloatArray:
        """Return what the greedy policy maximises.

        The Q-values of a row may be shifted together, as where only their order is asked for.
        """
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

    def questions(self, batch: Batch) -> list[Question]:
        """Ask for f~(s', .) and, to choose the action, for f(s', .)."""
        following = batch.rows.next_observation
        selecting = [Question(following, target=False, order_only=True)] if self.double else []
        return [Question(following, target=True), *selecting]

    def judge(self, outputs: FloatArray, answers: list[FloatArray], batch: Batch) -> Judged:
        """Compare Q(s, a) with its bootstrapped target."""
        rows, q_t, selector = batch.rows, answers[0], answers[-1]
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


def pessimistic_slope(outputs: FloatArray, batch: Batch) -> FloatArray:
    """Return the gradient of log sum_b exp Q(s, b) - Q(s, a), for the logged rows alone.

    It is CQL's (Kumar et al. 2020, equation 4): it lowers the actions that the logs did not take.
    Each row counts as in the mean over the whole minibatch, so a small beta makes it weaker.
    """
    slope = batch.per_row[:, None] * log_likelihood_slope(outputs, batch.rows.action)
    slope[batch.offline :] = 0.0
    return slope


REMEDY = "lower learning_rate, or bound the values by value_range"
"""Where learning diverges."""


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
    discounted, beyond a lost life too, and on the scale learned from."""
    seconds: Mapping[str, float]
    """Where the wall time went: act, learn, and wait for the environment and store."""


class Training:
    """A run of the algorithm: everything it depends on, in memory, with its loop at the bottom."""

    def __init__(
        self,
        config: DeepConfig,
        env: VectorEnv,
        logs: Dataset | None,
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
        if logs is not None:
            check_fits(logs, env.single_observation_space, env.single_action_space)
        elif config.beta.range[1] > 0:
            raise HyqError("beta is above 0 without logs: give a dataset, or learn with method dqn")
        elif config.pretraining:
            raise HyqError("pretraining is on logs: give a dataset, or set pretraining to 0")
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
        )
        self.network = Network(
            self.lanes.observation.shape[1:],
            self.actions,
            config.layers(frame.shape[1:], frame.dtype),
            suitable_scaling(
                env.single_observation_space,
                self._logged if self.replay.offline else None,
                standardise_pixels=config.standardise_pixels,
            ),
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
        self._next: Errand[tuple[Batch, list[Question]]] | None = None
        """The minibatch of the next update, and what is asked of it."""
        self.online_steps = self.updates = self._reports = 0
        self._promised = np.zeros(config.lanes)
        self._earned = np.zeros(config.lanes)
        self._discount = np.ones(config.lanes)
        self._beginning = np.ones(config.lanes, dtype=bool)
        self._held = np.zeros(config.lanes, np.int64)
        self._holding = np.zeros(config.lanes, np.int64)
        """Steps that the random action of each lane is still held for."""
        self._exported = np.zeros(config.lanes, np.int64)
        self._clear_metrics()
        self._start(np.arange(config.lanes))

    def _offline(self, logs: Dataset | None) -> Source | None:
        """Load the logs into a replay of their own, prepared as online data will be."""
        if logs is None:
            return None
        config = self.config
        if not logs.ordered:
            replay = Replay.of_tuples(self._prepared_rows(logs))
        else:
            replay = Replay.of(
                (self._prepared_episode(episode) for episode in logs),
                logs.num_observations,
                stack=config.stack,
                life_loss_discount=config.life_loss_discount,
            )
        return Source(replay, config.n_step_offline, *config.priority_offline)

    def _prepared_rows(self, logs: Dataset) -> Transitions:
        possible = {"n_step_offline": 1, "stack": 1, "log_end_terminates": False}
        wanted = {k: v for k, v in possible.items() if getattr(self.config, k) != v}
        if wanted:
            given = ", ".join(f"{name}={value}" for name, value in wanted.items())
            raise HyqError(
                "these logs are transitions without order, which cannot be put in line: give "
                f"{given}, or whole episodes (truncated=)"
            )
        rows = logs.by_step().transitions
        return replace(
            rows,
            observation=self._as_frames(rows.observation),
            next_observation=self._as_frames(rows.next_observation),
            reward=self._scaled(rows.reward),
            action=rows.action - self._first_action,
        )

    def _prepared_episode(self, episode: Episode) -> Episode:
        config = self.config
        return replace(
            episode,
            observation=self._as_frames(only_column(episode.observation)),
            reward=self._scaled(episode.reward),
            action=episode.action - self._first_action,
            terminated=episode.terminated or config.log_end_terminates,
        )

    def _as_frames(self, observation: Array) -> Array:
        """Shrink logged observations, and give them the shape that the lanes show."""
        frames = shrink(observation, self.config.shrink_by)
        return frames.reshape(len(frames), *self.lanes.frame.shape[1:])

    def _logged(self, about: int) -> Array:
        """Return about so many logged observations, evenly spread."""
        assert self.replay.offline is not None
        replay = self.replay.offline.replay
        slots = np.flatnonzero(replay.priorities())
        return replay.observations(slots[:: max(1, len(slots) // about)])

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
        """Choose epsilon-greedy actions (Algorithm 3, line 6), counted from 0.

        A random action may be held for longer than a step.
        """
        config = self.config
        promising = self._beginning.any()
        outputs = self.learner.outputs(self.lanes.observation, order_only=not promising)
        scores = self.objective.scores(outputs, self.actions)
        if promising:
            self._promised[self._beginning] = scores.max(axis=1)[self._beginning]
            self._beginning[:] = False
        chance = np.full(config.lanes, config.epsilon(self.online_steps))
        chance[: config.steady_lanes] = config.steady_epsilon
        explore = self._acting.random(config.lanes) < chance
        anything = self._acting.integers(self.actions, size=config.lanes)
        begins = explore & (self._holding == 0)
        self._held[begins] = anything[begins]
        self._holding[begins] = self._durations(int(begins.sum()))
        random = self._holding > 0
        self._holding[random] -= 1
        return np.where(random, self._held, scores.argmax(axis=1))

    def _durations(self, count: int) -> IntArray:
        """Draw for how long random actions are held: for n steps in proportion to 1/n^2."""
        longest = self.config.hold
        if longest == 1:
            return np.ones(count, np.int64)
        weight = np.arange(1, longest + 1) ** -2.0
        return 1 + self._acting.choice(longest, count, p=weight / weight.sum())

    def _draw(self, update: int) -> Batch:
        """Draw an update's minibatch of both sources, or of the logs alone before the first step.

        Updates count from 0.
        """
        config, now = self.config, self.online_steps
        return self.replay.sample(
            config.batch_size,
            1.0 if update < config.pretraining else config.beta(now),
            config.importance(now),
            config.gamma(now),
            self._sampling,
            self.objective.needs_one_step,
        )

    def _prepare(
        self, update: int, drawn: Batch | None = None
    ) -> Errand[tuple[Batch, list[Question]]]:
        """Begin to draw an update's minibatch, and to ask what must be known of it."""

        def steps() -> Steps[tuple[Batch, list[Question]]]:
            batch = drawn or self._draw(update)
            yield
            questions = self.objective.questions(batch)
            self.learner.ask(questions, ahead=True)
            return batch, questions

        return self.learner.hands.errand(steps())

    def _update(self) -> None:
        """Take one gradient step on a minibatch of both sources (Algorithm 3, lines 10 and 11).

        The minibatch after it is drawn meanwhile, with the priorities of before.
        """
        config, now = self.config, self.online_steps
        batch, questions = (self._next or self._prepare(self.updates)).result()
        self._next = None
        if self.updates + 1 != config.pretraining:  # after it, there is nothing online to draw yet
            self._next = self._prepare(self.updates + 1)
        outputs, answers = self.learner.forward(batch.rows.observation, questions)
        judged = self.objective.judge(outputs, answers, batch)
        gradient, pessimism = judged.gradient, config.pessimism(now)
        if pessimism:
            gradient = gradient + np.float32(pessimism) * pessimistic_slope(outputs, batch)
        refuse_divergence(float(np.abs(judged.td_error).max()), REMEDY)
        self.updates += 1
        norm = self.learner.step(gradient, config.learning_rate(now))
        refuse_divergence(norm, REMEDY)
        if self._next is not None:
            _, ahead = self._next.result()  # has been drawn, whoever did it
            self.learner.ask(ahead)  # the parameters stay as they are until its own step
        batch.prioritise(judged.td_error)
        self._learned.append((batch.offline, judged.td_error, judged.value, norm))

    def _store(self, action: Array) -> None:
        """Take in what the environment answered (Algorithm 3, lines 7 and 8)."""
        config = self.config
        outcome = self.lanes.receive()
        reward, ended = self._scaled(outcome.reward), outcome.ended
        continues = np.where(outcome.life_lost, config.life_loss_discount, 1.0)
        continues[outcome.terminated] = 0.0
        self.replay.online.replay.add(action, reward, continues, ended, outcome.frame)
        self.online_steps += config.lanes
        self._earned += self._discount * reward
        self._discount *= config.gamma(self.online_steps) * continues
        for lane, total, length in outcome.finished:
            self._episodes.append((self.online_steps, total, length))
            self._starts.append((float(self._promised[lane]), float(self._earned[lane])))
        if outcome.finished:
            self._start(np.flatnonzero(ended))

    def _start(self, lanes: Array) -> None:
        self.replay.online.replay.start(lanes, self.lanes.frame[lanes])
        self._discount[lanes], self._earned[lanes], self._beginning[lanes] = 1.0, 0.0, True
        self._holding[lanes] = 0

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
            "held": np.stack([self._held, self._holding]),
        }
        for name, rng in (("acting", self._acting), ("sampling", self._sampling)):
            words = json.dumps(rng.bit_generator.state).encode()
            state[f"random.{name}"] = np.frombuffer(words, np.uint8)
        state |= {f"learner.{name}": array for name, array in self.learner.arrays().items()}
        state |= {f"lanes.{name}": array for name, array in self.lanes.arrays().items()}
        if offline is not None:
            state["offline_priorities"] = offline.replay.priorities()
        if self._next is not None:
            batch, _ = self._next.result()
            state |= {f"next.{name}": array for name, array in batch.arrays().items()}
        appended = online.export(self._exported)
        self._exported = online.written.copy()
        return Snapshot(state, appended)

    def restore(
        self, replaced: Mapping[str, Array], appended: Sequence[Mapping[str, Array]]
    ) -> None:
        """Come back to a snapshot, given every `appended` up to it that still matters."""
        online, offline = self.replay.online.replay, self.replay.offline
        if self._next is not None:
            self._next.give_up()
        self.online_steps, self.updates, self._reports = map(int, replaced["counts"])
        self._promised, self._earned, self._discount = replaced["watched"].copy()
        self._beginning = replaced["beginning"].copy()
        self._held, self._holding = replaced["held"].copy()
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
        drawn = below("next", replaced)
        self._next = self._prepare(self.updates, self.replay.rebuild(drawn)) if drawn else None

    def run(self) -> Iterator[Report]:
        """Learn, and yield a report now and then; a restored training goes on where it was."""
        config = self.config
        while self.updates < config.pretraining:
            with self._timed("learn"):
                self._update()
                if self.updates * config.n_value % config.n_target < config.n_value:
                    self.learner.synchronise_target()
            if self.updates % config.report_every == 0 or self.updates == config.pretraining:
                yield self._report()
        while self.online_steps < config.online_steps:
            with self._timed("act"):
                action = self._act()
                self.lanes.send(self._first_action + action)
            with self._timed("learn"):  # while the environment works
                for _ in range(self._updates_due()):
                    self._update()
                if self._learning_has_begun and self._passed(config.n_target):
                    self.learner.synchronise_target()
            with self._timed("wait and store"):
                self._store(action)
            if self._passed(config.report_every) or self.online_steps >= config.online_steps:
                yield self._report()

    @property
    def _learning_has_begun(self) -> bool:
        """Whether there have been steps enough to learn from."""
        return self.online_steps >= max(self.config.learning_starts, 1)

    def _updates_due(self) -> int:
        """Count the updates that the newest step of all lanes calls for."""
        config = self.config
        before = self.online_steps - config.lanes
        due = self.online_steps // config.n_value - before // config.n_value
        return due if self._learning_has_begun else 0

    def _passed(self, period: int) -> bool:
        """Tell whether the newest step of all lanes went past a multiple of `period`."""
        now = self.online_steps
        return now // period > (now - self.config.lanes) // period

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - began
