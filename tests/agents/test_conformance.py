"""What every algorithm must do: one seed one run, exact resume, honest settings, exact values."""

import itertools
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn

from hyq import losses
from hyq.agents.base import GradientStep, Loss, OptimizerConfig, Updated
from hyq.agents.bc import bc_loss
from hyq.agents.dqfd import dqfd_loss
from hyq.agents.hyq_dqn import HyQ, HyQConfig, hyq_loss
from hyq.agents.iql import iql_loss
from hyq.algorithms import (
    ALGORITHMS,
    PRESETS,
    Algorithm,
    Configs,
    configure,
    find_algorithm,
    setting_groups,
)
from hyq.build import Custom, build, check_parts
from hyq.collector import VectorEnv
from hyq.core.actions import ActionKind
from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.seeding import Streams
from hyq.core.trees import Tree, leaves
from hyq.core.types import Array
from hyq.data.columns import only_column
from hyq.data.dataset import Dataset, Episode
from hyq.data.sampler import Batch
from hyq.experts.scripted import play, uniform
from hyq.networks import QNetwork
from hyq.trainer import OfflineConfig, OnlineConfig, Report, ReturnConfig, Trainer, TrainerConfig
from tests.fqi.chain import GAMMA, Chain, SteeredChain, chain_logs, optimal_q, steered

CONTINUOUS = [f"continuous/{name}" for name in ALGORITHMS["continuous"]]
DISCRETE = [name for name in ALGORITHMS["discrete"] if name != "rnd"]
EVERY = DISCRETE + CONTINUOUS
"""What learns off-policy; RND has a loop, settings and tests of its own."""


def named(algorithm: str) -> tuple[str, ActionKind]:
    kind, _, name = algorithm.rpartition("/")
    return name, "continuous" if kind else "discrete"


def about(algorithm: str) -> Algorithm:
    return find_algorithm(*named(algorithm))


def groups_of(algorithm: str) -> dict[str, type[Any]]:
    return setting_groups(*named(algorithm))


def configured(
    algorithm: str, settings: Mapping[str, Any] | None = None, preset: str = "default"
) -> Configs:
    name, kind = named(algorithm)
    return configure(name, preset, settings, kind)


ACTING = [name for name in EVERY if about(name).acts]
OFFLINE = [name for name in EVERY if not about(name).acts]
WITH_VALUES = [name for name in EVERY if not name.endswith("bc") or name.endswith("td3bc")]
SMALL: dict[str, Any] = {
    "online_steps": 60,
    "pretraining": 10,
    "updates": 34,
    "num_envs": 2,
    "update_every": 2,
    "learning_starts": 12,
    "buffer_size": 60,
    "batch_size": 8,
    "hidden": (8,),
    "report_every": 16,
    "target_update_every": 6,
    "random_steps": 8,
    "critics": 3,
    "sampled_actions": 2,
    "gamma": 0.9,
    "epsilon": 0.5,
    "fixed_epsilon_envs": 1,
}
DATA = chain_logs(30, 0.6)
STEERED_DATA = steered(DATA)
STATES = np.eye(5, dtype=np.float32)[:4]


def envs(make: Callable[[], gym.Env[Any, Any]], count: int) -> VectorEnv:
    return SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.DISABLED)


class DictChain(Chain):
    """The chain with its state in one entry and the remaining time in another."""

    observation_space = gym.spaces.Dict(  # type: ignore[assignment]
        {
            "state": gym.spaces.Box(0.0, 1.0, (5,), np.float32),
            "clock": gym.spaces.Box(0, 9, (1,), np.uint8),
        }
    )

    def _observe(self) -> Any:
        return {"state": super()._observe(), "clock": np.array([self._time], np.uint8)}


def dict_data() -> Dataset:
    def with_clock(episode: Episode) -> Episode:
        clock = np.arange(len(episode.action) + 1, dtype=np.uint8)[:, None]
        return replace(
            episode, observation={"state": only_column(episode.observation), "clock": clock}
        )

    return Dataset.of((with_clock(episode) for episode in DATA), {})


def made(
    algorithm: str,
    seed: int = 0,
    *,
    env: Callable[[], gym.Env[Any, Any]] | None = None,
    data: Dataset | None = None,
    network: Any = None,
    critic: Any = None,
    loss: Loss | str | None = None,
    offline_share: Any = None,
    **settings: Any,
) -> Trainer:
    """Build an algorithm with small settings, as far as it has them."""
    has, kind = groups_of(algorithm), named(algorithm)[1]
    env = env or (Chain if kind == "discrete" else SteeredChain)
    data = data or (DATA if kind == "discrete" else STEERED_DATA)
    if isinstance(loss, str):
        settings["loss"], loss = loss, None
    given = {name: value for name, value in SMALL.items() if name in has} | settings
    configs = configured(algorithm, given)
    count = configs.get(OnlineConfig).num_envs if configs.algorithm.acts else 1
    trainer = build(
        configs,
        envs(env, count),
        data if configs.algorithm.uses_data else None,
        Streams(seed),
        custom=Custom(network, critic, loss, offline_share),
    )
    assert isinstance(trainer, Trainer)
    return trainer


def copied(state: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.array(array) for name, array in state.items()}


def exported(trainer: Trainer) -> dict[str, Array]:
    return {} if trainer.buffer is None else trainer.buffer.export(0 * trainer.buffer.written)


Finished = tuple[dict[str, Array], list[Report]]


def finished(trainer: Trainer, reports: list[Report]) -> Finished:
    """Everything that two equal runs must agree on, to the bit."""
    state = copied(trainer.state())
    buffer = {f"buffer.{name}": array for name, array in exported(trainer).items()}
    return state | buffer, [replace(report, seconds={}) for report in reports]


def whole(make: Callable[[], Trainer]) -> Finished:
    trainer = make()
    return finished(trainer, list(trainer.run()))


def interrupted(make: Callable[[], Trainer], after: int) -> Finished:
    """Stop after some steps, wherever that is, and let a fresh trainer end the run."""
    first, steps = make(), itertools.count()
    reports = list(first.run(lambda: next(steps) >= after))
    state, buffer = copied(first.state()), copied(exported(first))
    assert first.updates + first.online_steps > 0
    second = make()
    if second.buffer is not None:
        second.buffer.load(buffer)
    second.load_state(state)
    later = list(second.run())
    assert later
    return finished(second, reports + later)


def assert_same(one: Finished, other: Finished) -> None:
    assert one[0].keys() == other[0].keys()
    for name, array in one[0].items():
        np.testing.assert_array_equal(array, other[0][name], err_msg=name)
    assert one[1] == other[1]


def unequal(one: Finished, other: Finished) -> bool:
    same = one[0].keys() == other[0].keys() and all(
        np.array_equal(one[0][name], other[0][name]) for name in one[0]
    )
    return not same or one[1] != other[1]


def weights(found: Finished) -> dict[str, Array]:
    return {n: a for n, a in found[0].items() if n.startswith("agent.networks") and a.size > 8}


@pytest.mark.parametrize("algorithm", EVERY)
def test_the_seed_decides_everything(algorithm: str) -> None:
    one = whole(lambda: made(algorithm, seed=1))
    assert_same(one, whole(lambda: made(algorithm, seed=1)))
    other = whole(lambda: made(algorithm, seed=2))
    changed = [n for n, a in weights(one).items() if not np.array_equal(a, weights(other)[n])]
    assert any("weight" in name for name in changed)
    if algorithm in ACTING:
        for name in ("buffer.columns.action", "buffer.frames.observation.frames"):
            assert not np.array_equal(one[0][name], other[0][name]), name
    assert one[1]
    for report in one[1]:
        assert all(math.isfinite(value) for value in report.metrics.values())


@pytest.mark.parametrize("algorithm", EVERY)
@pytest.mark.parametrize("after", [5, 27])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(algorithm: str, after: int) -> None:
    # 5 steps are in the middle of pretraining; 27 are neither at a report nor at a target update.
    assert_same(
        whole(lambda: made(algorithm, seed=3)), interrupted(lambda: made(algorithm, seed=3), after)
    )


class WithDropout(nn.Module):
    """A network of a user's that draws random numbers and keeps running statistics."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        inputs = sum(int(np.prod(space.shape)) for space in leaves(observation_space))
        self.layers = nn.Sequential(
            nn.Linear(inputs, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(8, action_space.n),
        )

    def forward(self, observation: Tree) -> Tensor:
        parts = [leaf.float().flatten(1) for leaf in leaves(observation)]
        values: Tensor = self.layers(torch.cat(parts, -1))
        return values


def doubled_loss(agent: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    loss, error = hyq_loss(agent, batch)
    return 2 * loss + torch.rand(len(batch)), error


VARIANTS: dict[str, dict[str, Any]] = {
    "dropout": {"network": WithDropout},
    "dropout on two threads": {"network": WithDropout, "threads": 2},
    "loss": {"loss": doubled_loss},
    "dictionaries": {"env": DictChain, "data": dict_data()},
    "uniform": {"priority_offline": (0.0, 1e-3), "priority_online": (0.0, 1e-3)},
    "n-step": {"n_step": 3, "n_step_offline": 2},
    "threads": {"threads": 2},
    "bfloat16": {"precision": "bfloat16"},
    "bfloat16 on two threads": {"precision": "bfloat16", "threads": 2},
    "stacked": {"frame_stack": 3, "mix": "bernoulli"},
    "repeats": {"random_action_repeat": 6, "gamma": "0:0.5, 40:0.9", "cql_weight": "0:1, 40:0"},
    "full": {"buffer_size": 20},
    "share": {"offline_share": lambda size, step, rng: int(rng.integers(size))},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_resume_exactly(variant: str) -> None:
    def make() -> Trainer:
        return made("hyq", **VARIANTS[variant])

    assert_same(whole(make), interrupted(make, 27))


@pytest.mark.parametrize("algorithm", ["iql", "bc"])
def test_dropout_resumes_exactly_offline(algorithm: str) -> None:
    def make() -> Trainer:
        return made(algorithm, network=WithDropout)

    one = whole(make)
    assert_same(one, interrupted(make, 20))
    assert unequal(one, whole(lambda: made(algorithm)))


@dataclass
class Spy:
    """Keeps every minibatch that an agent learns from, and what came of it."""

    trainer: Trainer

    def __post_init__(self) -> None:
        self.batches: list[Batch] = []
        self.steps: list[int] = []
        self.updated: list[Updated] = []
        self.renewed: list[int] = []
        update = self.trainer.agent.update

        def spied(batch: Batch, step: int) -> Updated:
            self.batches.append(batch)
            self.steps.append(step)
            self.updated.append(update(batch, step))
            if self.target_is_network():
                self.renewed.append(len(self.batches))
            return self.updated[-1]

        self.trainer.agent.update = spied  # type: ignore[method-assign]

    def target_is_network(self) -> bool:
        agent: Any = self.trainer.agent
        if not hasattr(agent, "target"):
            return False
        if not hasattr(agent, "network"):
            return False
        pairs = zip(agent.network.parameters(), agent.target.parameters(), strict=True)
        return all(torch.equal(one, other) for one, other in pairs)


def after_one_update(algorithm: str, **settings: Any) -> tuple[Any, Batch]:
    """Return an agent whose target is not its network, and a minibatch of both sources."""
    trainer = made(algorithm, **settings)
    spy = Spy(trainer)
    list(trainer.run(lambda: bool(spy.batches)))
    return trainer.agent, replace(spy.batches[0], offline=torch.arange(8) % 2 == 0)


def naive_td(agent: Any, batch: Batch, row: int, double: bool) -> float:
    """r + discount max_a' Q~(s', a') - Q(s, a) of a row; a' is the network's own if `double`."""
    q = agent.network(batch.observation)[row]
    own, target = (net(batch.next_observation)[row] for net in (agent.network, agent.target))
    best = max(range(2), key=lambda a: float((own if double else target)[a]))
    later = float(batch.discount[row]) * float(target[best])
    return float(batch.reward[row]) + later - float(q[batch.action[row]])


def naive_huber(error: float) -> float:
    return error**2 / 2 if abs(error) < 1 else abs(error) - 0.5


@pytest.mark.parametrize("double", [False, True])
def test_the_losses_of_q_learning_are_those_of_naive_twins(double: bool) -> None:
    settings: dict[str, Any] = {"double": double, "cql_weight": 0.3, "learning_rate": 0.5}
    settings |= {"target_update_every": 1000, "value_range": None}
    more = {"margin": 0.2, "margin_weight": 0.7, "n_step_weight": 0.4, "n_step_offline": 3}
    agent, batch = after_one_update("hyq", **settings)
    imitating, steps = after_one_update("dqfd", **settings, **more)
    with torch.no_grad():
        found = (*hyq_loss(agent, batch), *dqfd_loss(imitating, steps))
        assert steps.one_step is not None
        assert not torch.equal(steps.one_step.reward, steps.reward)
        for row in range(8):
            q = agent.network(batch.observation)[row]
            behind = float(q.exp().sum().log() - q[batch.action[row]])
            error = naive_td(agent, batch, row, double)
            assert float(found[1][row]) == pytest.approx(error, abs=1e-5)
            expected = naive_huber(error) + (0.3 * behind if row % 2 == 0 else 0.0)
            assert float(found[0][row]) == pytest.approx(expected, abs=1e-5)

            q = imitating.network(steps.observation)[row]
            shown = int(steps.action[row])
            behind = float(q.exp().sum().log() - q[shown])
            margin = float(max(q[shown], q[1 - shown] + 0.2) - q[shown])
            single = naive_td(imitating, steps.one_step, row, double)
            assert float(found[3][row]) == pytest.approx(single, abs=1e-5)
            expected = naive_huber(single) + 0.4 * naive_huber(
                naive_td(imitating, steps, row, double)
            )
            expected += 0.7 * margin + 0.3 * behind if row % 2 == 0 else 0.0
            assert float(found[2][row]) == pytest.approx(expected, abs=1e-5)


def test_the_losses_of_imitation_are_those_of_naive_twins() -> None:
    agent, batch = after_one_update("iql", expectile=0.8, temperature=2.0, learning_rate=0.1)
    cloning, rows = after_one_update("bc")
    with torch.no_grad():
        loss, error = iql_loss(agent, batch)
        assert len(agent.q.members) == 2
        for row in range(8):
            action = int(batch.action[row])
            both = [float(q(batch.observation)[row, action]) for q in agent.q.members]
            target = min(float(q(batch.observation)[row, action]) for q in agent.target.members)
            v, later = (
                float(agent.v(x)[row, 0]) for x in (batch.observation, batch.next_observation)
            )
            errors = [float(batch.reward[row] + batch.discount[row] * later) - q for q in both]
            u = target - v
            logits = agent.actor(batch.observation)[row]
            likelihood = float(torch.softmax(logits, -1)[action])
            expected = sum(e**2 for e in errors) / 2 + (0.8 if u > 0 else 0.2) * u**2 / 2
            expected -= min(math.exp(2 * u), 100) * math.log(likelihood)
            assert float(loss[row]) == pytest.approx(expected, abs=1e-5)
            assert float(error[row]) == pytest.approx(sum(errors) / 2, abs=1e-5)
            logits = cloning.network(rows.observation)[row]
            likelihood = float(torch.softmax(logits, -1)[rows.action[row]])
            assert float(bc_loss(cloning, rows)[0][row]) == pytest.approx(-math.log(likelihood))


@pytest.mark.parametrize("algorithm", [n for n in DISCRETE if n not in ("bc", "iql")])
def test_the_target_network_is_renewed_in_its_period(algorithm: str) -> None:
    trainer = made(algorithm, target_update_every=6)
    spy = Spy(trainer)
    list(trainer.run())
    # Where the agent acts, six online steps are three updates.
    period = 3 if algorithm in ACTING else 6
    assert spy.renewed == list(range(period, trainer.updates + 1, period))
    assert len(spy.renewed) > 3
    last = spy.updated[-1]
    assert last.loss.shape == last.td_error.shape == (8,)


def test_a_target_period_is_at_least_one_update() -> None:
    trainer = made("hyq", target_update_every=1, update_every=4)
    spy = Spy(trainer)
    list(trainer.run())
    assert spy.renewed == list(range(1, trainer.updates + 1))


@pytest.mark.parametrize(
    ("num_envs", "update_every", "learning_starts"),
    [(1, 1, 0), (2, 1, 0), (2, 1, 1), (3, 2, 7), (2, 3, 5), (4, 16, 0), (8, 4, 10), (3, 3, 9)],
)
def test_updates_are_due_for_every_so_many_steps(
    num_envs: int, update_every: int, learning_starts: int
) -> None:
    trainer = made(
        "hyq",
        num_envs=num_envs,
        update_every=update_every,
        learning_starts=learning_starts,
        buffer_size=200,
    )
    spy = Spy(trainer)
    list(trainer.run())
    expected = [0] * 10  # pretraining
    for now in range(num_envs, 60, num_envs):
        if now >= learning_starts:
            due = [t for t in range(now - num_envs + 1, now + 1) if t % update_every == 0]
            expected += [now] * len(due)
    assert spy.steps == expected
    assert trainer.updates == len(expected) == int(trainer.agent.updates)
    assert trainer.online_steps == math.ceil(60 / num_envs) * num_envs


def test_pretraining_is_offline_and_the_rest_holds_its_share() -> None:
    trainer = made("hyq", beta=0.25)
    spy = Spy(trainer)
    reports = list(trainer.run())
    rows = [int(batch.offline.sum()) for batch in spy.batches]
    assert rows == [8] * 10 + [2] * (len(rows) - 10)
    assert len(rows) > 25
    assert reports[0].metrics["offline_share"] == 1.0
    assert reports[-1].metrics["offline_share"] == 0.25
    assert "td_online" not in reports[0].metrics


@pytest.mark.parametrize("algorithm", WITH_VALUES)
def test_discounts_follow_the_schedule_of_gamma(algorithm: str) -> None:
    gamma = PiecewiseLinear(((0, 0.5), (60, 0.9)))
    settings: dict[str, Any] = {
        n: 1 for n in ("n_step", "n_step_offline") if n in groups_of(algorithm)
    }
    if "epsilon" in groups_of(algorithm):
        settings |= {"epsilon": 1, "fixed_epsilon_envs": 0}
    trainer = made(algorithm, gamma=gamma, **settings)
    spy = Spy(trainer)
    list(trainer.run())
    for batch, step in zip(spy.batches, spy.steps, strict=True):
        assert set(batch.discount.tolist()) <= {0.0, float(np.float32(gamma(step)))}
    assert any(0.0 in batch.discount for batch in spy.batches)
    assert (max(spy.steps) > 50) == (algorithm in ACTING)


@pytest.mark.parametrize("algorithm", EVERY)
def test_schedules_are_read_at_the_online_step_or_update(algorithm: str) -> None:
    learning_rate = PiecewiseLinear(((0, 1e-3), (60, 1e-4)))
    trainer = made(algorithm, learning_rate=learning_rate)
    spy = Spy(trainer)
    rates: list[float] = []
    adam, *_ = trainer.agent.optimizers().values()
    adam.register_step_pre_hook(lambda *_: rates.append(adam.param_groups[0]["lr"]))
    list(trainer.run())
    assert rates == [learning_rate(step) for step in spy.steps]
    if algorithm in OFFLINE:
        assert spy.steps == list(range(34))
    if hasattr(trainer.agent, "step"):
        assert trainer.agent.step == spy.steps[-1]


@pytest.mark.parametrize("algorithm", ["hyq", "cql"])
def test_the_penalty_follows_its_schedule(algorithm: str) -> None:
    at_first = PiecewiseLinear(((0, 1.0), (20, 0.0)))
    trainer = made(algorithm, cql_weight=at_first)
    spy = Spy(trainer)
    list(trainer.run())
    for batch, step, updated in zip(spy.batches, spy.steps, spy.updated, strict=True):
        penalised = updated.loss - losses.huber_loss(updated.td_error)
        assert (penalised[batch.offline] > 1e-4).all() == (step < 20)
        assert not penalised[~batch.offline].any()


@pytest.mark.parametrize("algorithm", EVERY)
def test_errors_are_reported_by_source_and_without_their_sign(algorithm: str) -> None:
    trainer = made(algorithm, report_every=1000)
    spy = Spy(trainer)
    *_, last = trainer.run()
    mine = [
        (batch, updated)
        for batch, step, updated in zip(spy.batches, spy.steps, spy.updated, strict=True)
        if step > 0 or algorithm in OFFLINE
    ]
    for name, offline in (("td_offline", True), ("td_online", False)):
        errors = [updated.td_error[batch.offline == offline].abs() for batch, updated in mine]
        if sum(len(error) for error in errors):
            mean = float(torch.cat(errors).mean())
            assert last.metrics[name] == pytest.approx(mean, rel=1e-5)
        else:
            assert name not in last.metrics
    loss = torch.cat([updated.loss for _, updated in mine]).mean()
    assert last.metrics["loss"] == pytest.approx(float(loss), rel=1e-5)
    norm = np.mean([float(updated.gradient_norm) for _, updated in mine])
    assert last.metrics["gradient_norm"] == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("algorithm", EVERY)
def test_priorities_follow_the_errors_where_there_are_any(algorithm: str) -> None:
    trainer = made(algorithm)
    spy = Spy(trainer)
    list(trainer.run())
    for source in (trainer.sampler.offline, trainer.sampler.online):
        if source is not None:
            priority = source.buffer.priorities()
            assert (set(priority[priority > 0]) != {1.0}) == (source.exponent > 0)
    lightest = min(float(batch.weight.min()) for batch in spy.batches)
    sources = (trainer.sampler.offline, trainer.sampler.online)
    assert (lightest < 1) == any(s is not None and s.exponent > 0 for s in sources)
    uniform = {"iql", "cql", "bc", *CONTINUOUS} - {"continuous/ddpgfd"}
    assert all(s is None or (s.exponent == 0) == (algorithm in uniform) for s in sources)


@pytest.mark.parametrize("algorithm", EVERY)
def test_what_plays_is_what_is_saved(algorithm: str) -> None:
    trainer = made(algorithm)
    list(trainer.run())
    played = trainer.actor(np.random.default_rng(0))(STATES)
    with torch.no_grad():
        outputs = trainer.policy_network().eval()(torch.from_numpy(STATES))
        value = trainer.agent.value(torch.from_numpy(STATES))
    saved = outputs.argmax(-1) if algorithm in DISCRETE else outputs
    np.testing.assert_array_equal(played, saved)
    assert value.shape == (4,)
    if algorithm == "bc":
        torch.testing.assert_close(value, outputs.softmax(-1).max(-1).values)


def test_reports_come_at_their_period_and_at_the_end() -> None:
    reports = list(made("hyq").run())
    assert [report.number for report in reports] == list(range(1, len(reports) + 1))
    assert [r.online_steps for r in reports] == [0, 16, 32, 48, 60]
    assert reports[0].updates == 10
    reports = list(made("bc", report_every=10).run())
    assert [r.updates for r in reports] == [10, 20, 30, 34]
    assert {r.online_steps for r in reports} == {0}
    assert [r.updates for r in made("hyq", pretraining=8, report_every=4).run()][:2] == [4, 8]
    passed = made("dqn", num_envs=3, report_every=10, online_steps=30)
    assert [r.online_steps for r in passed.run()] == [12, 21, 30]


def test_reports_count_episodes_and_compare_predictions_with_returns() -> None:
    trainer = made("dqn", learning_starts=10_000, epsilon=1.0, fixed_epsilon_envs=0)
    reports = list(trainer.run())
    predicted = trainer._computed(trainer.agent.value, STATES)
    seen = 0
    for report in reports:
        returns = [total * 0.9 ** (length - 1) for _, total, length in report.episodes]
        if returns:
            seen += len(returns)
            assert report.metrics["start_return"] == pytest.approx(np.mean(returns))
            assert predicted.min() - 1e-6 < report.metrics["start_q"] < predicted.max() + 1e-6
        assert report.updates == 0
    lengths = sum(length for report in reports for *_, length in report.episodes)
    assert 60 - 2 * 4 <= lengths <= 60
    assert seen > 10
    assert all(0 < step <= 60 for report in reports for step, _, _ in report.episodes)


def test_start_values_are_of_the_states_that_episodes_began_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = made("dqn", num_envs=1, report_every=1, epsilon=1.0, fixed_epsilon_envs=0)
    monkeypatch.setattr(trainer.agent, "value", lambda rows: rows.argmax(-1).float())
    assert trainer.collector is not None
    began, starts = int(trainer.collector.observation.argmax()), set()
    for report in trainer.run():
        if report.episodes:
            assert report.metrics["start_q"] == began
            starts.add(began)
            began = int(trainer.collector.observation.argmax())
    assert len(starts) > 2


def test_the_time_of_a_report_is_that_of_its_parts() -> None:
    began = time.perf_counter()
    reports = list(made("hyq").run())
    whole_time = time.perf_counter() - began
    parts = [report.seconds for report in reports]
    assert all(part.keys() == {"act", "learn", "wait and store"} for part in parts)
    assert 0 < sum(sum(part.values()) for part in parts) < whole_time
    assert all(min(part.values()) >= 0 for part in parts)
    assert parts[0]["act"] == 0, "it only learns before the first step"


class Lives(Chain):
    """The chain with a life lost in every second step, and two rewards on the way."""

    def reset(self, **given: Any) -> tuple[Array, dict[str, Any]]:
        return super().reset(**given)[0], {"lives": 9}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, _ = super().step(action)
        return seen, reward + 3.0, terminated, truncated, {"lives": 9 - self._time // 2}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_lost_life_costs_a_share_of_the_value(share: float) -> None:
    trainer = made(
        "dqn",
        env=Lives,
        life_loss_discount=share,
        num_envs=1,
        report_every=1,
        fixed_epsilon_envs=0,
        epsilon=1,
    )
    spy = Spy(trainer)
    assert trainer.collector is not None
    receive, outcomes = trainer.collector.receive, []

    def watched() -> Any:
        outcomes.append(receive())
        return outcomes[-1]

    trainer.collector.receive = watched  # type: ignore[method-assign]
    worth, total, checked = 1.0, 0.0, 0
    for report in trainer.run():
        outcome = outcomes[-1]
        total += worth * float(outcome.reward[0])
        worth *= 0.9 * (share if outcome.life_lost[0] else 1.0)
        if report.episodes:
            assert report.metrics["start_return"] == pytest.approx(total)
            checked += report.episodes[0][2] > 2
            worth, total = 1.0, 0.0
    assert checked
    discounts = np.unique(np.concatenate([b.discount.numpy() for b in spy.batches]).round(5))
    assert set(discounts) == {np.float32(x) for x in (0.0, round(0.9 * share, 5), 0.9)}


def test_rewards_are_compressed_for_learning_and_reported_raw() -> None:
    trainer = made("hyq", reward="signed-log", epsilon=1, fixed_epsilon_envs=0)
    spy = Spy(trainer)
    reports = list(trainer.run())
    rewards = np.unique(np.concatenate([batch.reward.numpy() for batch in spy.batches]))
    assert set(rewards) == {0.0, np.float32(math.log(2))}
    assert {total for report in reports for _, total, _ in report.episodes} == {0.0, 1.0}
    scaled = ReturnConfig(reward="signed-log").scaled(np.array([-3.0, 0.0, 1.0]))
    np.testing.assert_allclose(scaled, [-math.log(4), 0.0, math.log(2)])


@pytest.mark.parametrize("ends", [False, True])
def test_truncated_data_may_be_taken_for_an_end(ends: bool) -> None:
    never = chain_logs(20, 0.0)  # no reward, no termination
    trainer = made("offline-dqn", data=never, truncation_terminates=ends)
    spy = Spy(trainer)
    list(trainer.run())
    assert any(bool((batch.discount == 0).any()) for batch in spy.batches) == ends


@pytest.mark.parametrize("start", [0, 5])
def test_actions_are_counted_from_zero_inside(start: int) -> None:
    trainer = made("hyq", env=lambda: Chain(start), data=chain_logs(20, 0.5, start))
    spy = Spy(trainer)
    list(trainer.run())
    for offline in (True, False):
        actions = torch.cat([b.action[b.offline == offline] for b in spy.batches])
        assert set(actions.tolist()) == {0, 1}


def test_a_loss_of_the_users_own_decides_what_is_learned() -> None:
    def still(agent: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        q = losses.chosen(agent.network(batch.observation), batch.action)
        assert batch.one_step is not None
        return 0.0 * q, torch.full((len(batch),), 0.25)

    trainer = made("hyq", loss=still)
    reports = list(trainer.run())
    assert {report.metrics["gradient_norm"] for report in reports} == {0.0}
    assert {report.metrics["td_offline"] for report in reports} == {0.25}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda agent, batch: (torch.zeros(()), torch.zeros(8)),
        lambda agent, batch: (torch.zeros(8), torch.zeros(8, 1)),
    ],
)
def test_a_loss_with_other_shapes_raises(wrong: Loss) -> None:
    with pytest.raises(HyqError, match=r"two tensors of shape \(8,\)"):
        list(made("hyq", loss=wrong).run())


def test_the_gradient_is_the_weighted_mean_clipped() -> None:
    trainer = made("hyq", max_gradient_norm=1e-3, learning_rate=0.5, adam_epsilon=1.0)
    spy = Spy(trainer)
    agent: Any = trainer.agent
    before = [p.detach().clone() for p in agent.network.parameters()]
    run = trainer.run(lambda: len(spy.batches) == 1)
    list(run)
    [batch], [updated] = spy.batches, spy.updated
    fresh: Any = made("hyq", max_gradient_norm=1e-3).agent
    loss, _ = hyq_loss(fresh, batch)
    gradients = torch.autograd.grad(
        (batch.weight * loss).sum() / 8, list(fresh.network.parameters())
    )
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    assert float(updated.gradient_norm) == pytest.approx(float(norm), rel=1e-5)
    assert norm > 2e-3
    for start, now, gradient in zip(before, agent.network.parameters(), gradients, strict=True):
        clipped = gradient * 1e-3 / norm
        # Adam's first step is lr g / (|g| + eps).
        torch.testing.assert_close(
            now.detach() - start, -0.5 * clipped / (clipped.abs() + 1.0), atol=1e-7, rtol=1e-3
        )


@pytest.mark.parametrize("algorithm", ["hyq", "cql", "bc", "iql"])
def test_learning_that_diverges_is_stopped(algorithm: str) -> None:
    trainer = made(algorithm, learning_rate=1e25)
    with pytest.raises(HyqError, match=r"diverged.*learning_rate"), np.errstate(all="ignore"):
        list(trainer.run())


def test_a_gradient_that_explodes_where_the_errors_do_not_ends_the_run() -> None:
    def exploding(agent: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        q = losses.chosen(agent.network(batch.observation), batch.action)
        return q * math.inf, q.detach()

    with pytest.raises(HyqError, match="diverged"), np.errstate(all="ignore"):
        next(made("hyq", loss=exploding, report_every=1).run())


# Settings


ALTERNATIVES: dict[str, Any] = {
    "action_noise": 0.5,
    "adam_epsilon": 1e-3,
    "advantage_scale": 0.1,
    "batch_size": 9,
    "beta": 0.25,
    "buffer_size": 20,
    "cql_weight": 0.5,
    "critics": 4,
    "double": False,
    "dueling": False,
    "entropy_in_backup": True,
    "epsilon": "0:1, 30:0.7",
    "expectile": 0.9,
    "fixed_epsilon": 0.9,
    "fixed_epsilon_envs": 2,
    "frame_stack": 2,
    "gamma": 0.5,
    "hidden": (7,),
    "importance": 1.0,
    "layer_norm": False,
    "learning_rate": "0:1e-2, 30:1e-3",
    "learning_starts": 30,
    "loss": "squared",
    "margin": 0.1,
    "margin_weight": 0.5,
    "max_gradient_norm": 0.01,
    "mix": "bernoulli",
    "n_step": 3,
    "n_step_offline": 3,
    "n_step_weight": 0.25,
    "num_envs": 3,
    "online_steps": 40,
    "precision": "bfloat16",
    "pretraining": 5,
    "priority_offline": [0.1, 1e-2],
    "priority_online": [0.1, 1e-2],
    "random_action_repeat": 5,
    "random_steps": 20,
    "report_every": 7,
    "reward": "signed-log",
    "sampled_actions": 1,
    "target_critics": 1,
    "target_entropy": 0.5,
    "target_noise": 0.0,
    "target_noise_limit": 0.01,
    "target_rate": 0.5,
    "target_update_every": 4,
    "temperature": 1.5,
    "truncation_terminates": True,
    "update_every": 3,
    "updates": 20,
    "updates_per_step": 2,
    "value_range": [-0.01, 0.01],
    "value_weight": 1.0,
    "weight_decay": 0.1,
}
"""Another value of every setting that changes what happens in the chain."""
ELSEWHERE = {
    "device": "meta",
    "downsample": 2,
    "life_loss_discount": 0.5,
    "network": "small",
    "standardise_pixels": True,
    "threads": 2,
}
"""Settings that change nothing here: the chain has no images and no lives."""
ALL_SETTINGS = sorted({name for algorithm in EVERY for name in groups_of(algorithm)})


def test_every_setting_has_another_value_here() -> None:
    assert sorted({**ALTERNATIVES, **ELSEWHERE}) == ALL_SETTINGS


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_a_setting_changes_what_happens(name: str) -> None:
    order = ("dqfd", "iql", "cql", "continuous/hyq", *CONTINUOUS)
    [algorithm, *_] = [a for a in order if name in groups_of(a)]
    # A network that moves fast prefers other actions than its target, as double Q-learning sees.
    base: dict[str, Any] = {"learning_rate": 0.03}
    if algorithm == "dqfd":
        base |= {"n_step": 1, "n_step_offline": 1}
    usual = whole(lambda: made(algorithm, **base))
    assert unequal(usual, whole(lambda: made(algorithm, **base | {name: ALTERNATIVES[name]})))


@pytest.mark.parametrize("algorithm", EVERY)
def test_no_setting_without_effect_can_be_given(algorithm: str) -> None:
    name, kind = named(algorithm)
    discrete, clones = kind == "discrete", name == "bc"
    acts = name in ("hyq", "hyq+cql", "dqn", "dqfd") if discrete else name not in OFFLINE_ONLY
    hybrid = acts and name not in ("dqn", "sac")
    expected = {
        "online_steps": acts,
        "updates": not acts,
        "pretraining": hybrid,
        "beta": hybrid and name != "ddpgfd",  # priorities decide there
        "n_step_offline": (hybrid or not acts) and not clones,
        "gamma": not clones,
        "reward": not clones,
        "epsilon": acts and discrete,
        "action_noise": acts and not discrete,
        "dueling": discrete,
        "precision": discrete,
        "standardise_pixels": True,
        "adam_epsilon": True,
        "frame_stack": True,
        "batch_size": True,
    }
    assert {setting: setting in groups_of(algorithm) for setting in expected} == expected


OFFLINE_ONLY = ("cql", "iql", "bc", "td3bc")


@pytest.mark.parametrize("algorithm", EVERY)
def test_settings_decode_or_raise(algorithm: str) -> None:
    groups, usual = groups_of(algorithm), configured(algorithm).encoded()
    assert usual.keys() == groups.keys()
    for name in ALL_SETTINGS:
        value = {**ALTERNATIVES, **ELSEWHERE}[name]
        if name not in groups:
            message = f"{named(algorithm)[0]} does not use the setting '{name}'"
            with pytest.raises(HyqError, match=re.escape(message)):
                configured(algorithm, {name: value})
            continue
        if value == usual[name]:  # one critic has no other number of them in its targets
            value = {"loss": "huber", "layer_norm": True}.get(name)
            if value is None:
                continue
        changed = configured(algorithm, {name: value}).encoded()
        assert changed[name] != usual[name], name
        assert {n: v for n, v in changed.items() if n != name} == {
            n: v for n, v in usual.items() if n != name
        }
        assert configured(algorithm, {name: changed[name]}).encoded() == changed
        with pytest.raises(HyqError):
            configured(algorithm, {name: {"a": 1}})
    assert configured(algorithm, usual).encoded() == usual
    with pytest.raises(HyqError, match="unknown setting 'batchsize': leave it out"):
        configured(algorithm, {"batchsize": 3})


@pytest.mark.parametrize("algorithm", DISCRETE)
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_for_every_algorithm(algorithm: str, preset: str) -> None:
    found = configure(algorithm, preset).encoded()
    own = about(algorithm).defaults
    for name, value in PRESETS[preset].items():
        if name in found and name not in own:
            expected = configure(algorithm, settings={name: value}).encoded()
            assert found[name] == expected[name], name
    for name, value in own.items():
        assert found[name] == configure(algorithm, settings={name: value}).encoded()[name]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"update_every": 0}, "update_every must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"report_every": 0}, "report_every must be at least 1"),
        ({"n_step": 0}, "n_step must be at least 1"),
        ({"n_step_offline": 0}, "n_step_offline must be at least 1"),
        ({"num_envs": 0}, "num_envs must be at least 1"),
        ({"buffer_size": 0}, "buffer_size must be at least 1"),
        ({"frame_stack": 0}, "frame_stack must be within"),
        ({"downsample": 0}, "downsample must be at least 1"),
        ({"random_action_repeat": 0}, "random_action_repeat must be at least 1"),
        ({"fixed_epsilon_envs": -1}, "fixed_epsilon_envs must be at least 0"),
        ({"fixed_epsilon": 1.5}, r"fixed_epsilon must be within \[0, 1\], got 1.5"),
        ({"online_steps": -1}, "online_steps must be at least 0"),
        ({"learning_starts": -1}, "learning_starts must be at least 0"),
        ({"pretraining": -1}, "pretraining must be at least 0"),
        ({"target_update_every": 0}, "target_update_every must be at least 1"),
        ({"beta": 1.5}, r"beta must be within \[0, 1\], got 1.5"),
        ({"epsilon": -0.1}, r"epsilon must be within \[0, 1\]"),
        ({"importance": "0:0.4, 10:1.1"}, r"importance must be within \[0, 1\], got 0.4 to 1.1"),
        ({"gamma": 1.01}, r"gamma must be within \[0, 1\]"),
        ({"life_loss_discount": 1.01}, r"life_loss_discount must be within \[0, 1\]"),
        ({"cql_weight": "0:1, 10:-1"}, "cql_weight must be at least 0, got -1 to 1"),
        ({"priority_online": (0.6, 0.0)}, "priority_online must not be negative"),
        ({"priority_offline": (-0.6, 0.1)}, "priority_offline must not be negative"),
        ({"priority_offline": (0.0, -0.1)}, "priority_offline must not be negative"),
        ({"value_range": (1.0, 1.0)}, "value_range must have its smaller bound first"),
        ({"value_range": "data"}, "value_range must be one of rewards, got 'data'"),
        ({"loss": "Huber"}, "loss must be one of huber, squared"),
        ({"reward": "log"}, "reward must be one of raw, signed-log"),
        ({"mix": "halves"}, "mix must be one of split, bernoulli"),
        ({"precision": "float16"}, "precision must be one of auto, float32, bfloat16"),
        ({"adam_epsilon": 0.0}, "adam_epsilon and max_gradient_norm must be positive"),
        ({"max_gradient_norm": 0.0}, "adam_epsilon and max_gradient_norm must be positive"),
        ({"weight_decay": -1.0}, "weight_decay not negative"),
        ({"learning_rate": -1.0}, "learning_rate must not be negative"),
        ({"learning_rate": "0:1, 10:-1"}, "learning_rate must not be negative"),
        ({"threads": 0}, "threads at least 1"),
        ({"device": "abacus"}, r"no device 'abacus' on this machine: \S"),
        ({"hidden": (8, 0)}, "every layer needs at least one unit"),
        ({"network": "huge"}, "no network 'huge': choose from auto, mlp"),
        ({"gamma": None}, "gamma must be"),
        ({"dueling": 3}, "dueling must be of type bool"),
    ],
)
def test_settings_that_cannot_run_raise(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(HyqError, match=message):
        configure("hyq", settings=wrong)


@pytest.mark.parametrize(
    ("algorithm", "wrong", "message"),
    [
        ("bc", {"updates": 0}, "updates must be at least 1"),
        ("iql", {"expectile": 1.0}, "strictly between 0 and 1, got 1.0"),
        ("iql", {"expectile": 0.0}, "strictly between 0 and 1, got 0.0"),
        ("iql", {"temperature": -1}, "temperature must be at least 0"),
        ("iql", {"target_rate": 1.5}, r"target_rate must be within \[0, 1\]"),
        ("continuous/hyq", {"target_critics": 11}, r"target_critics must be within \[1, 10\]"),
        ("continuous/hyq", {"temperature": 0}, "temperature must be positive"),
        ("continuous/hyq", {"gamma": 1.5}, r"gamma must be within \[0, 1\]"),
        ("continuous/hyq", {"target_rate": 1.5}, r"target_rate must be within \[0, 1\]"),
        ("continuous/cql", {"cql_weight": -1}, "cql_weight must be at least 0"),
        ("continuous/hyq", {"value_range": (0, 0)}, "smaller bound first"),
        ("continuous/hyq", {"updates_per_step": 0}, "updates_per_step must be at least 1"),
        ("continuous/hyq", {"random_steps": -1}, "random_steps must be at least 0"),
        ("continuous/ddpgfd", {"action_noise": -1}, "action_noise must be at least 0"),
        ("continuous/ddpgfd", {"n_step_weight": -1}, "n_step_weight must be at least 0"),
        ("continuous/awac", {"advantage_scale": 0}, "advantage_scale must be positive"),
        ("continuous/td3bc", {"target_noise": -1}, "target_noise must be at least 0"),
        ("continuous/calql", {"sampled_actions": 0}, "sampled_actions must be at least 1"),
        ("iql", {"gamma": 2}, "gamma must be within"),
        ("dqfd", {"margin": -1}, "margin must be at least 0"),
        ("dqfd", {"margin_weight": -1}, "margin_weight must be at least 0"),
        ("dqfd", {"n_step_weight": -1}, "n_step_weight must be at least 0"),
        ("dqfd", {"gamma": 2}, "gamma must be within"),
    ],
)
def test_settings_of_an_algorithm_that_cannot_run_raise(
    algorithm: str, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(HyqError, match=message):
        configured(algorithm, wrong)


def test_settings_at_their_bounds_can_run() -> None:
    configure("hyq", settings={"priority_offline": (0.0, 0.0), "learning_rate": 0.0, "beta": 1.0})
    with pytest.raises(HyqError, match="transitions without order: give n_step_offline=1, or"):
        made("hyq", data=unordered_data(), n_step_offline=2)
    made("hyq", data=unordered_data(), n_step_offline=1)
    for settings, slots in (
        ({"buffer_size": 60}, 30),
        ({"buffer_size": 1}, 3),
        ({"buffer_size": 1, "frame_stack": 3}, 5),
    ):
        buffer = made("hyq", **settings).buffer  # type: ignore[arg-type]
        assert buffer is not None
        assert buffer.length == slots  # of each of two environments


def unordered_data() -> Dataset:
    rows = DATA.by_step().transitions
    return Dataset.from_transitions(rows, np.zeros(len(rows), int))


def test_names_that_do_not_exist_raise() -> None:
    with pytest.raises(HyqError, match=r"no algorithm 'sarsa': choose from hyq, hyq\+cql, dqn"):
        configure("sarsa")
    with pytest.raises(HyqError, match="'dqfd' is not for continuous actions: choose from hyq"):
        configure("dqfd", actions="continuous")
    with pytest.raises(HyqError, match="no preset 'fast': choose from default"):
        configure("hyq", "fast")


def test_the_papers_preset_is_the_papers_table() -> None:
    """Its last table, row by row; [a, b] are the ends of a schedule."""
    configs = configure("hyq", "paper-montezuma")
    q: HyQConfig = configs.agent
    optimizer, online = configs.get(OptimizerConfig), configs.get(OnlineConfig)
    encoded = configs.encoded()
    ends = {
        name: (schedule(encoded[name])(0), schedule(encoded[name])(1e9))
        for name in ("learning_rate", "beta", "epsilon", "importance", "gamma")
    }
    assert ends == {
        "learning_rate": (1e-4, 1e-5),
        "beta": (0.2, 0.01),
        "epsilon": (0.25, 0.001),
        "importance": (0.6, 1.0),
        "gamma": (0.99, 0.99),
    }
    assert configs.get(TrainerConfig).batch_size == 32
    assert (online.update_every, q.target_update_every, online.buffer_size) == (4, 10_000, 2**20)
    assert (optimizer.weight_decay, optimizer.max_gradient_norm) == (1e-5, 10.0)
    assert online.priority_online == (0.4, 1e-3)
    assert configs.get(OfflineConfig).priority_offline == (1.0, 1e-4)
    assert (encoded["n_step"], encoded["n_step_offline"], encoded["pretraining"]) == (1, 1, 0)
    assert q.cql_weight == schedule(0.0)


def test_parts_that_do_not_fit_raise_before_any_step() -> None:
    configs, streams = configure("hyq", settings={"num_envs": 2}), Streams(0)
    with pytest.raises(HyqError, match="learns from offline data: give some, or take"):
        build(configs, envs(Chain, 2), None, streams)
    with pytest.raises(HyqError, match="num_envs 3, not 2"):
        build(configs, envs(Chain, 3), DATA, streams)
    spaces = Chain.observation_space, gym.spaces.Discrete(2)
    with pytest.raises(HyqError, match="this algorithm acts: give an environment"):
        build(configs, None, DATA, streams, spaces=spaces)
    with pytest.raises(AssertionError, match="give an environment, or the spaces"):
        build(configure("bc"), None, DATA, streams)
    continuous = gym.spaces.Box(-1, 1, (1,), np.float32)
    with pytest.raises(HyqError, match="this algorithm is for discrete actions"):
        build(configure("bc"), None, DATA, streams, spaces=(spaces[0], continuous))
    with pytest.raises(HyqError, match="fixed_epsilon_envs is more than all 2"):
        made("dqn", fixed_epsilon_envs=3)
    trainer = build(configure("bc"), None, DATA, streams, spaces=spaces)
    assert trainer.collector is None
    for custom in (Custom(loss=doubled_loss), Custom(network=WithDropout)):
        with pytest.raises(HyqError, match="rnd has its own networks and loss"):
            check_parts(about("rnd"), envs(Chain, 1), None, custom)
    check_parts(about("rnd"), envs(Chain, 1), None, Custom())
    with pytest.raises(HyqError, match="does not use offline data"):
        check_parts(about("rnd"), envs(Chain, 1), DATA, Custom())
    with pytest.raises(HyqError, match="must return a tensor"):
        made("hyq", network=lambda *_: nn.Linear(5, 3))
    with pytest.raises(HyqError, match="no parameters to learn"):
        made("hyq", network=lambda *_: nn.Sequential(nn.Flatten(), Pick()))


class Pick(nn.Module):
    """Takes the first two entries for values."""

    def forward(self, observation: Tensor) -> Tensor:
        return observation[:, :2]


def test_precision_and_defaults_of_the_agent() -> None:
    assert isinstance(made("hyq").agent.network, QNetwork), "vectors stay in single precision"
    assert type(made("hyq", precision="bfloat16").agent.network).__name__ == "Autocast"


def test_steps_too_small_for_bfloat16_add_up() -> None:
    """A step of 1e-5 is lost in a weight of 1 with eight digits; two thousand of them are not."""
    weight = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    step = GradientStep([weight], OptimizerConfig(learning_rate=schedule(1e-5)))
    agent, spy = made("hyq").agent, Spy(made("hyq"))
    list(spy.trainer.run(lambda: bool(spy.batches)))

    def downhill(_: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        rows = weight.float().expand(len(batch))
        return rows, rows

    step(downhill, agent, spy.batches[0], 0)
    assert weight.item() == 1.0
    for _ in range(1999):
        step(downhill, agent, spy.batches[0], 0)
    assert weight.item() == pytest.approx(0.98, abs=2**-9)


def test_a_step_does_not_depend_on_how_gradients_lie_in_memory() -> None:
    """Fused Adam takes numbers in the order of memory: a transposed gradient would be shuffled."""
    agent, spy = made("hyq").agent, Spy(made("hyq"))
    list(spy.trainer.run(lambda: bool(spy.batches)))
    [batch] = spy.batches
    torch.manual_seed(0)
    start, inputs = torch.randn(5, 7), torch.randn(len(batch), 7)
    strides, found = [], []
    for turned in (False, True):
        weight = nn.Parameter(start.clone())

        def loss(
            _: Any, batch: Batch, weight: Tensor = weight, turned: bool = turned
        ) -> tuple[Tensor, Tensor]:
            matrix = weight.T.contiguous() if turned else weight.T
            rows = (inputs @ matrix).square().sum(-1)
            return rows, rows

        [gradient] = torch.autograd.grad(loss(agent, batch)[0].sum(), weight)
        strides.append(gradient.stride())
        step = GradientStep([weight], OptimizerConfig(learning_rate=schedule(0.1)))
        for _ in range(3):
            step(loss, agent, batch, 0)
        found.append(weight.detach())
    assert strides == [(7, 1), (1, 5)], "otherwise nothing is tested here"
    torch.testing.assert_close(*found)


# Learning, against exact values


LEARNING: dict[str, Any] = {"batch_size": 32, "hidden": (16,), "report_every": 4000}


def q_values(trainer: Trainer) -> Array:
    network: Any = trainer.agent.policy_network()
    return trainer._computed(network, STATES)


@pytest.mark.parametrize(
    ("algorithm", "changes", "start"),
    [
        ("hyq", {}, 0),
        ("hyq", {"loss": "squared", "double": False, "mix": "bernoulli"}, 1),
        ("dqn", {"priority_online": (0.0, 1e-3), "epsilon": 1.0}, 0),
    ],
)
def test_training_finds_the_exact_values_of_a_chain(
    algorithm: str, changes: dict[str, Any], start: int
) -> None:
    # A third of the episodes is truncated: a value that ended there would be off by far more.
    settings: dict[str, Any] = {
        **LEARNING,
        "online_steps": 8000,
        "update_every": 4,
        "target_update_every": 60,
        "learning_starts": 100,
        "learning_rate": "0:3e-3, 8000:3e-4",
        "num_envs": 8,
        "buffer_size": 8000,
        "fixed_epsilon_envs": 0,
        **changes,
    }
    trainer = made(
        algorithm, env=lambda: Chain(start), data=chain_logs(100, 0.5, start), **settings
    )
    list(trainer.run())
    np.testing.assert_allclose(q_values(trainer), optimal_q(), atol=0.05)
    actor = trainer.actor(np.random.default_rng(0))
    assert actor(STATES).tolist() == [1] * 4


def learned(algorithm: str, rightward: float, **settings: Any) -> Trainer:
    """Learn from data that goes right with a fixed probability."""
    given = {"batch_size": 16, "hidden": (16,), "learning_rate": 3e-3, "updates": 1500, **settings}
    trainer = made(algorithm, data=chain_logs(100, rightward), **given)
    list(trainer.run())
    return trainer


def test_offline_q_learning_finds_the_exact_values_of_covered_states() -> None:
    trainer = learned(
        "offline-dqn", 0.5, updates=3000, learning_rate="0:3e-3, 3000:1e-4", target_update_every=15
    )
    np.testing.assert_allclose(q_values(trainer), optimal_q(), atol=0.05)


@pytest.mark.parametrize(("quality", "usual"), [(0.8, 1), (0.2, 0)])
def test_cloning_copies_the_behaviour_be_it_good_or_bad(quality: float, usual: int) -> None:
    logits = torch.from_numpy(q_values(learned("bc", quality, updates=800)))
    assert logits.argmax(-1).tolist() == [usual] * 4
    np.testing.assert_allclose(torch.softmax(logits, -1)[:, 1], quality, atol=0.15)


@pytest.mark.parametrize(
    ("algorithm", "quality", "settings"),
    [
        ("iql", 0.4, {"expectile": 0.9, "temperature": 10.0}),
        ("cql", 0.45, {"cql_weight": 0.05}),
    ],
)
def test_what_looks_at_rewards_improves_on_what_was_usual(
    algorithm: str, quality: float, settings: dict[str, Any]
) -> None:
    trainer = learned(algorithm, quality, **settings)
    assert q_values(trainer).argmax(1).tolist() == [1, 1, 1, 1]


def test_conservative_values_of_rare_actions_lie_below_the_exact_ones() -> None:
    rare = q_values(learned("cql", 0.9))[:, 0]
    assert (rare < optimal_q()[:, 0] - 0.3).all()


def test_the_margin_puts_demonstrated_actions_ahead_by_itself() -> None:
    trainer = made(
        "dqfd",
        data=chain_logs(100, 0.0),  # always left: no reward
        n_step_weight=0.0,
        pretraining=500,
        online_steps=0,
        batch_size=16,
        hidden=(16,),
        learning_rate=3e-3,
    )
    list(trainer.run())
    q = q_values(trainer)
    assert (q[:, 0] > q[:, 1] + 0.5).all()


def test_values_stay_possible_on_random_play() -> None:
    """A hundred episodes of CartPole pay 1 a step: nothing can be worth more than 100.

    Without bounds the values of this run are past 6,000 at its end, and still growing.
    """
    env, rng = gym.make("CartPole-v1"), np.random.default_rng(0)
    data = Dataset.of((play(env, uniform, seed, rng) for seed in range(100)), {})
    trainer = made(
        "offline-dqn",
        env=lambda: gym.make("CartPole-v1"),
        data=data,
        gamma=0.99,
        updates=1500,
        batch_size=64,
        hidden=(32,),
        learning_rate=3e-3,
        target_update_every=10,
    )
    list(trainer.run())
    network: Any = trainer.agent.policy_network()
    with torch.no_grad():
        values = network(torch.from_numpy(np.array(data.observation)))
    assert values.max() < 150  # targets are bounded, the network is nearly
    assert values.max() > 50


def test_bounds_are_those_of_the_rewards_unless_they_are_given() -> None:
    trainer = made("hyq")
    spy, agent = Spy(trainer), trainer.agent
    list(trainer.run(lambda: bool(spy.batches)))
    assert isinstance(agent, HyQ)
    batch = replace(spy.batches[0], value_range=(0.0, 2.0))
    far = replace(batch, reward=torch.full_like(batch.reward, 50.0))
    q_tm1, found = torch.zeros(len(batch), 2), []
    for bounds in ("rewards", (-1.0, 7.0), None):
        agent.config = replace(agent.config, value_range=bounds)
        found.append(agent.td_error(q_tm1, far))
    assert (found[0] == 2).all()
    assert (found[1] == 7).all()
    assert (found[2] > 40).all()


@pytest.mark.parametrize("preset", ["paper-montezuma", "cpu-montezuma", "paper-small-montezuma"])
def test_presets_for_montezuma_bound_no_values(preset: str) -> None:
    assert configure("hyq", preset).agent.value_range is None


def test_gamma_of_the_chain_is_that_of_the_settings() -> None:
    assert SMALL["gamma"] == GAMMA


def test_data_may_scale_the_inputs_of_what_does_not_learn_from_it() -> None:
    """DQN sees the data's mean and spread, and no other trace of the data."""
    given = {n: v for n, v in SMALL.items() if n in setting_groups("dqn")}
    configs = configure("dqn", "default", given)
    scalings = []
    for data in (DATA, None):
        env = envs(Chain, configs.get(OnlineConfig).num_envs)
        trainer = build(configs, env, data, Streams(0))
        assert isinstance(trainer, Trainer)
        assert trainer.sampler.offline is None
        scalings.append(trainer.agent.state()["networks.network.encoder.scalings.0.scale"])
    assert not torch.equal(*scalings)


def test_a_random_action_is_not_repeated_in_the_next_episode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = made("dqn", epsilon=1.0, random_action_repeat=1000, fixed_epsilon_envs=0)
    explore = trainer._explore
    assert explore is not None
    reset: list[Any] = []
    monkeypatch.setattr(explore, "reset", reset.append)
    list(trainer.run())
    assert reset
    assert all(ended.any() for ended in reset)
