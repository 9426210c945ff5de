"""The one off-policy loop: act, store, learn from offline and online data together.

`Trainer.run` is a generator of reports. Recording, evaluation and checkpoints consume it and are
elsewhere. Random numbers come from counters (`streams.counted("update").at(count)`), so that what
was interrupted resumes with the same bits and no generator's state is ever stored.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat

import numpy as np
import torch
from torch import Tensor, nn

from hyq.agents.base import Agent
from hyq.collector import Collector
from hyq.core.errors import HyqError, check_finite
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.seeding import Streams, torch_seed
from hyq.core.settings import check_range
from hyq.core.trees import Tree, flatten, subtree, tree_map
from hyq.core.types import Array, FloatArray
from hyq.data.replay_buffer import ReplayBuffer
from hyq.data.sampler import HybridSampler, Mix
from hyq.exploration import ActionNoise, EpsilonGreedy

REMEDY = "lower learning_rate, or bound the values by value_range"
"""Where learning diverges."""


@dataclass(frozen=True)
class TrainerConfig:
    """How an agent learns, whatever it learns."""

    batch_size: int = 64
    """Transitions in a minibatch."""
    report_every: int = 1000
    """Online steps, or updates where nothing is acted, between two records."""

    def __post_init__(self) -> None:
        check_range("batch_size", self.batch_size, 1)
        check_range("report_every", self.report_every, 1)


@dataclass(frozen=True)
class ReturnConfig:
    """How rewards become what values are learned from."""

    reward: Literal["raw", "signed-log"] = "raw"
    """signed-log learns from sign(r) log(1 + |r|); returns are always reported raw."""
    life_loss_discount: float = 1.0
    """Share of the value that continues beyond a lost life, in games that count lives: 0 ends it
    there, 1 makes dying no worse than the time it takes."""
    importance: PiecewiseLinear = PiecewiseLinear(((0, 0.4), (50_000, 1.0)))
    """Exponent of the importance weights of prioritised replay, against online steps."""

    def __post_init__(self) -> None:
        check_range("life_loss_discount", self.life_loss_discount, 0, 1)
        check_range("importance", self.importance, 0, 1)

    def scaled(self, reward: FloatArray) -> FloatArray:
        """Return rewards on the scale that is learned from."""
        if self.reward == "raw":
            return reward
        return np.sign(reward) * np.log1p(np.abs(reward))


@dataclass(frozen=True)
class OfflineConfig:
    """How values are learned from offline data."""

    n_step_offline: int = 1
    """Rewards summed before bootstrapping, in offline data. More than one is biased where the
    actions in between were not the greedy ones."""
    priority_offline: tuple[float, float] = (0.6, 1e-3)
    """(exponent, epsilon) of prioritised replay of offline data; exponent 0 draws uniformly."""
    truncation_terminates: bool = False
    """Let the value end where an offline episode was truncated. It does not really end there, but
    no data says how it continues, and bootstrapping from there has been seen to diverge."""

    def __post_init__(self) -> None:
        check_range("n_step_offline", self.n_step_offline, 1)
        check_priority("priority_offline", self.priority_offline)


@dataclass(frozen=True)
class PretrainingConfig:
    """What happens before the first online step."""

    pretraining: int = 4000
    """Updates on the offline data alone before the first online step."""

    def __post_init__(self) -> None:
        check_range("pretraining", self.pretraining, 0)


@dataclass(frozen=True)
class HybridConfig(PretrainingConfig):
    """How offline and online data are mixed."""

    beta: PiecewiseLinear = schedule(0.5)
    """Share of the minibatches that comes from the offline data, against online steps."""
    mix: Mix = "split"
    """split: every minibatch holds that share; bernoulli: all of it or nothing, as in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("beta", self.beta, 0, 1)


@dataclass(frozen=True)
class UpdatesConfig:
    """How long an agent learns that never acts."""

    updates: int = 50_000
    """Gradient steps on the offline data."""

    def __post_init__(self) -> None:
        check_range("updates", self.updates, 1)


@dataclass(frozen=True)
class OnlineConfig:
    """How an agent learns from its own experience."""

    online_steps: int = 50_000
    """Steps to take, over all environments."""
    num_envs: int = 8
    """Environments that are stepped together."""
    update_every: int = 1
    """Online steps after which an update is due (the paper's n_value)."""
    updates_per_step: int = 1
    """Updates whenever one is due, each on a minibatch of its own (the update-to-data ratio)."""
    learning_starts: int = 500
    """Online steps before the first update that is not pretraining."""
    buffer_size: int = 100_000
    """Slots for online observations; the oldest are overwritten."""
    n_step: int = 1
    """Rewards summed before bootstrapping, online. More than one is biased off-policy; the paper
    leaves it at one for that reason."""
    priority_online: tuple[float, float] = (0.6, 1e-3)
    """(exponent, epsilon) of prioritised replay of online data; exponent 0 draws uniformly."""

    def __post_init__(self) -> None:
        for name in ("online_steps", "learning_starts"):
            check_range(name, getattr(self, name), 0)
        for name in ("num_envs", "update_every", "updates_per_step", "buffer_size", "n_step"):
            check_range(name, getattr(self, name), 1)
        check_priority("priority_online", self.priority_online)


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
    """Means since: absolute TD errors by source, `td_offline` and `td_online`; the `loss`; the
    `offline_share` realised; `gradient_norm`; and `start_q` beside `start_return`: the value that
    the network predicted at the start of the episodes that ended, and their return, both
    discounted, beyond a lost life too, and on the scale learned from."""
    seconds: Mapping[str, float]
    """Where the wall time went: act, learn, and wait for the environment and store."""


class Trainer:
    """Everything a run depends on, in memory, with its loop at the bottom."""

    def __init__(
        self,
        agent: Agent,
        sampler: HybridSampler,
        collector: Collector | None,
        explore: EpsilonGreedy | ActionNoise | None,
        streams: Streams,
        config: TrainerConfig,
        returns: ReturnConfig,
        online: OnlineConfig | None,
        *,
        gamma: PiecewiseLinear,
        pretraining: int,
    ) -> None:
        """Put the parts together; an agent that never acts has no collector."""
        self.agent, self.sampler, self.collector = agent, sampler, collector
        self.config, self._returns, self._gamma = config, returns, gamma
        self._explore, self._pretraining = explore, pretraining
        self._act_stream, self._update_stream = streams.counted("act"), streams.counted("update")
        self._online = online or OnlineConfig(online_steps=0, num_envs=1)
        self.online_steps = self.updates = self._reports = 0
        envs = self._online.num_envs
        self._predicted, self._return = np.zeros(envs), np.zeros(envs)
        self._discount, self._beginning = np.ones(envs), np.ones(envs, dtype=bool)
        self._clear_metrics()
        if collector is not None:
            self._buffer.start(np.arange(envs), collector.frame)

    def run(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Report]:
        """Learn, and yield a report now and then; a restored trainer resumes where it was.

        `stop` is called before every step, and ends the loop where the state can be saved.
        """
        config, online = self.config, self._online
        while self.updates < self._pretraining and not stop():
            with self._timed("learn"):
                self._update(offline_only=True)
            if self.updates % config.report_every == 0 or self.updates == self._pretraining:
                yield self._report()
        while self.online_steps < online.online_steps and not stop():
            with self._timed("act"):
                action = self._act()
                self._collector.send(action)
            with self._timed("learn"):  # while the environments work
                for _ in range(self._updates_due()):
                    self._update()
            with self._timed("wait and store"):
                self._store(action)
            if self._passed(config.report_every) or self.online_steps >= online.online_steps:
                yield self._report()

    def actor(self, rng: np.random.Generator) -> Callable[[Tree], Array]:
        """Return what plays in evaluations: the policy's action of each row, not exploring."""
        return lambda observation: self._computed(self.agent.act, observation)

    def policy_network(self) -> nn.Module:
        """Return the module of the greedy policy."""
        return self.agent.policy_network()

    def _act(self) -> Array:
        """Choose actions, and explore (Algorithm 3, line 6)."""
        observation, begins = self._collector.observation, self._beginning
        rng = self._act_stream.at(self.online_steps)
        if begins.any():
            self._predicted[begins] = self._computed(self.agent.value, observation)[begins]
            begins[:] = False
        # Reseeded for every step, so that what a policy samples resumes too.
        seeded = self.agent.stochastic and self._explore is not None
        with torch_seed(int(rng.integers(2**31)), self.sampler.device) if seeded else nullcontext():
            action = self._computed(lambda rows: self.agent.act(rows, explore=True), observation)
        if self._explore is None:
            return action
        return self._explore(action, self.online_steps, rng)

    def _computed(self, function: Callable[[Tree], Tensor], observation: Tree) -> Array:
        """Return what the agent makes of a batch of observations; Dropout and its like are off."""
        device = self.sampler.device
        rows = tree_map(lambda leaf: torch.from_numpy(np.ascontiguousarray(leaf)), observation)
        self.agent.eval()
        with torch.inference_mode():
            found: Array = function(tree_map(lambda leaf: leaf.to(device), rows)).cpu().numpy()
        return found

    def _update(self, offline_only: bool = False) -> None:
        """Take one gradient step on a minibatch of both sources (Algorithm 3, lines 10 and 11)."""
        config = self.config
        now = self.updates if self.collector is None else self.online_steps
        rng = self._update_stream.at(self.updates)
        # Reseeded for every update, so that what a network draws, as Dropout does, resumes too.
        seed = int(rng.integers(2**31))
        drawn = self.sampler.draw(
            config.batch_size,
            now,
            importance=self._returns.importance(now),
            gamma=self._gamma(now),
            rng=rng,
            offline_only=offline_only,
        )
        with torch_seed(seed, self.sampler.device):
            updated = self.agent.update(drawn.batch, now)
        td_error = np.abs(updated.td_error.cpu().numpy())
        check_finite(td_error, REMEDY)
        drawn.set_priorities(td_error)
        self.updates += 1
        rows, size = drawn.offline_rows, len(td_error)
        self._watch("td_offline", td_error[:rows].sum(), rows)
        self._watch("td_online", td_error[rows:].sum(), size - rows)
        self._watch("offline_share", rows, size)
        self._watch("loss", updated.loss.sum(), size)
        self._watch("gradient_norm", updated.gradient_norm)

    def _store(self, action: Array) -> None:
        """Take in what the environments returned (Algorithm 3, lines 7 and 8)."""
        outcome = self._collector.receive()
        reward, ended = self._returns.scaled(outcome.reward), outcome.ended
        continuation = np.where(outcome.life_lost, self._returns.life_loss_discount, 1.0)
        continuation[outcome.terminated] = 0.0
        buffer = self._buffer
        buffer.add(action, reward, continuation, ended, outcome.frame)
        self.online_steps += self._collector.num_envs
        self._return += self._discount * reward
        self._discount *= self._gamma(self.online_steps) * continuation
        for env, total, length in outcome.finished:
            self._episodes.append((self.online_steps, total, length))
            self._watch("start_q", self._predicted[env])
            self._watch("start_return", self._return[env])
        if outcome.finished:
            envs = np.flatnonzero(ended)
            buffer.start(envs, tree_map(lambda frame: frame[envs], self._collector.frame))
            self._discount[envs], self._return[envs], self._beginning[envs] = 1.0, 0.0, True
            if self._explore is not None:
                self._explore.reset(ended)

    def _updates_due(self) -> int:
        """Count the updates that the newest step of all environments calls for."""
        online, now = self._online, self.online_steps
        if now < max(online.learning_starts, 1):
            return 0
        due = now // online.update_every - (now - online.num_envs) // online.update_every
        return due * online.updates_per_step

    def _passed(self, period: int) -> bool:
        """Tell whether the newest step of all environments went past a multiple of `period`."""
        now = self.online_steps
        return now // period > (now - self._online.num_envs) // period

    def _watch(self, name: str, total: SupportsFloat, count: int = 1) -> None:
        """Add to the mean of a metric until the next report."""
        sums = self._sums.setdefault(name, [0.0, 0.0])
        sums[0] += float(total)
        sums[1] += count

    def _report(self) -> Report:
        self._reports += 1
        means = {n: total / count for n, (total, count) in self._sums.items() if count}
        metrics = dict(sorted(means.items()))  # whatever order a restored state has them in
        check_finite(np.array(metrics.get("gradient_norm", 0.0)), REMEDY)
        episodes, seconds = tuple(self._episodes), dict(self._seconds)
        self._clear_metrics()
        return Report(self._reports, self.online_steps, self.updates, episodes, metrics, seconds)

    def _clear_metrics(self) -> None:
        self._sums: dict[str, list[float]] = {}
        """(sum, count) of every metric since the last report."""
        self._seconds = dict.fromkeys(("act", "learn", "wait and store"), 0.0)
        self._episodes: list[tuple[int, float, int]] = []

    def state(self) -> dict[str, Array]:
        """Return everything but the online buffer, which is saved in parts."""
        parts: dict[str, Any] = {
            "counts": np.array([self.online_steps, self.updates, self._reports]),
            "running": np.stack([self._predicted, self._return, self._discount]),
            "sums": {name: np.array(sums) for name, sums in self._sums.items()},
            "episodes": np.array(self._episodes, np.float64).reshape(-1, 3),
            "beginning": self._beginning.copy(),
            "agent": {n: t.cpu().numpy().copy() for n, t in self.agent.state().items()},
        }
        for name, source in (("offline", self.sampler.offline), ("online", self.sampler.online)):
            if source is not None:
                parts[f"priorities_{name}"] = source.buffer.priorities()
        if self.collector is not None:
            parts["collector"] = self.collector.state()
        if self._explore is not None:
            parts["explore"] = self._explore.state()
        return flatten(parts)

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Undo `state`, after the online buffer has been loaded."""
        self.online_steps, self.updates, self._reports = map(int, state["counts"])
        self._predicted, self._return, self._discount = state["running"].copy()
        self._sums = {name: sums.tolist() for name, sums in subtree("sums", state).items()}
        ended = state["episodes"].tolist()
        self._episodes = [(int(step), total, int(length)) for step, total, length in ended]
        self._beginning = state["beginning"].copy()
        agent = subtree("agent", state)
        self.agent.load_state({n: torch.from_numpy(np.array(a)) for n, a in agent.items()})
        for name, source in (("offline", self.sampler.offline), ("online", self.sampler.online)):
            if source is not None:
                source.buffer.restore_priorities(state[f"priorities_{name}"])
        if self.collector is not None:
            self.collector.load_state(subtree("collector", state))
        if self._explore is not None:
            self._explore.load_state(subtree("explore", state))

    @property
    def buffer(self) -> ReplayBuffer | None:
        """The online buffer, if the agent acts."""
        return None if self.sampler.online is None else self.sampler.online.buffer

    @property
    def _buffer(self) -> ReplayBuffer:
        assert self.buffer is not None, "an agent that acts has a buffer"
        return self.buffer

    @property
    def _collector(self) -> Collector:
        assert self.collector is not None, "an agent that acts has a collector"
        return self.collector

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - began


def check_priority(name: str, priority: tuple[float, float]) -> None:
    """Raise unless (exponent, epsilon) can make priorities."""
    exponent, epsilon = priority
    if not (exponent >= 0 and epsilon >= 0) or (exponent and not epsilon):
        raise HyqError(
            f"{name} must not be negative, and its epsilon positive or rows without error are "
            f"never drawn again; got {exponent} and {epsilon}"
        )
