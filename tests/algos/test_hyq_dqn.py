"""Deep Hy-Q: exact values, every pair of options, and interrupted against uninterrupted runs."""

import itertools
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from hyq.algos.deep_config import PRESETS, DeepConfig
from hyq.algos.hyq_dqn import Judged, Report, TemporalDifference, Training
from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, IntArray, Transitions
from hyq.data.columns import only_column
from hyq.data.dataset import Dataset, Episode
from hyq.data.fits import check_fits
from hyq.data.hybrid import Batch, HybridReplay, MixForm
from hyq.data.replay import Replay
from hyq.envs.make import make_lanes
from hyq.models.learners import Question
from hyq.models.networks import SMALL_CONVOLUTIONS, NetworkSpec
from hyq.models.torch_learner import TorchLearner
from hyq.models.vector_learner import VectorLearner
from hyq.rollout import Outcome, VectorEnv
from tests.fqi.chain import GAMMA, Chain, chain_logs, optimal_q
from tests.test_lanes import Diary

SMALL = DeepConfig(
    online_steps=240,
    pretraining=30,
    gamma=schedule(0.9),
    n_value=2,
    n_target=60,
    batch_size=16,
    learning_starts=40,
    lanes=2,
    network=NetworkSpec(hidden=(16,)),
    report_every=60,
)


def cartpole_logs(episodes: int = 10) -> Dataset:
    env, rng = gym.make("CartPole-v1"), np.random.default_rng(0)

    def one(seed: int) -> Episode:
        observation, action, reward, over = [env.reset(seed=seed)[0]], [], [], False
        while not over:
            action.append(int(rng.integers(2)))
            seen, paid, terminated, truncated, _ = env.step(action[-1])
            observation.append(seen)
            reward.append(float(paid))
            over = terminated or truncated
        return Episode(np.stack(observation), np.array(action), np.array(reward, np.float32), True)

    return Dataset.of((one(seed) for seed in range(episodes)), {})


CARTPOLE = cartpole_logs()


@dataclass
class Spy:
    """The ordinary objective, keeping every minibatch it sees."""

    inner: TemporalDifference = field(default_factory=TemporalDifference)
    batches: list[Batch] = field(default_factory=list)
    needs_one_step: bool = False

    def extra_outputs(self, actions: int) -> int:
        return self.inner.extra_outputs(actions)

    def questions(self, batch: Batch) -> list[Question]:
        return self.inner.questions(batch)

    def judge(self, outputs: FloatArray, answers: list[FloatArray], batch: Batch) -> Judged:
        self.batches.append(batch)
        return self.inner.judge(outputs, answers, batch)

    def scores(self, outputs: FloatArray, actions: int) -> FloatArray:
        return self.inner.scores(outputs, actions)


def spied(config: DeepConfig, env: VectorEnv, logs: Any, seed: int = 0) -> tuple[Training, Spy]:
    spy = Spy(TemporalDifference(config.double, config.loss))
    return Training(config, env, logs, Streams(seed), spy), spy


def part(batch: Batch, logged: bool) -> slice:
    return slice(batch.offline) if logged else slice(batch.offline, None)


def positive(replay: Replay) -> FloatArray:
    priority = replay.priorities()
    return priority[priority > 0]


@pytest.mark.parametrize(
    ("exponents", "loss", "steps", "mix"),
    [
        *itertools.product(
            [(0.0, 0.0), (0.6, 0.4), (0.6, 0.0)],
            ["huber", "squared"],
            [(1, 1), (3, 2)],
            ["split", "coin"],
        )
    ],
)
def test_options_that_touch_one_another(
    exponents: tuple[float, float], loss: Any, steps: tuple[int, int], mix: MixForm
) -> None:
    config = replace(
        SMALL,
        beta=schedule(0.3),
        loss=loss,
        mix=mix,
        n_step=steps[0],
        n_step_offline=steps[1],
        priority_online=(exponents[0], 1e-3),
        priority_offline=(exponents[1], 1e-3),
        double=loss == "huber",
    )
    training, spy = spied(config, make_lanes("CartPole-v1", 2), CARTPOLE)
    reports = list(training.run())
    assert all(np.isfinite(v) for report in reports for v in report.metrics.values())

    # one update for every n_value steps once learning has started, and those before acting
    assert training.updates == len(spy.batches) == 30 + (240 - 40) // 2
    pretraining, mixed = spy.batches[:30], spy.batches[30:]
    assert {batch.offline for batch in pretraining} == {16}
    share = np.mean([batch.offline / 16 for batch in mixed])
    deviation = math.sqrt(0.3 * 0.7) if mix == "coin" else math.sqrt(0.8 * 0.2) / 16
    assert abs(share - 0.3) < 4 * deviation / math.sqrt(len(mixed))
    assert {batch.offline for batch in mixed} == ({0, 16} if mix == "coin" else {4, 5})
    assert reports[-1].metrics["offline_share"] == pytest.approx(
        np.mean([batch.offline / 16 for batch in spy.batches[-30:]])
    )

    offline, online = training.replay.offline, training.replay.online
    assert offline is not None
    for source, exponent, n, logged in (
        (online, exponents[0], steps[0], False),
        (offline, exponents[1], steps[1], True),
    ):
        priority = positive(source.replay)
        assert len(priority) == len(source.replay) > 50
        moved = (priority != 1.0).mean()
        assert moved > 0.3 if exponent else moved == 0
        weights = np.concatenate([batch.weight[part(batch, logged)] for batch in mixed])
        assert weights.min() < 0.9 if exponent else (weights == 1).all()
        discount = np.concatenate([batch.rows.discount[part(batch, logged)] for batch in mixed])
        powers = np.array([0.0, *(0.9**k for k in range(1, n + 1))], np.float32)
        assert set(np.unique(discount)) <= set(powers)
        assert np.mean(discount == powers[-1]) > 0.5


def test_the_target_network_is_renewed_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(SMALL, make_lanes("CartPole-v1", 2), CARTPOLE, Streams(0))
    renewed: list[tuple[int, int]] = []
    monkeypatch.setattr(
        training.learner,
        "synchronise_target",
        lambda: renewed.append((training.updates, training.online_steps)),
    )
    list(training.run())
    # one update of pretraining counts as n_value steps; an update at step 40 is the 31st
    assert renewed == [(30, 0), (41, 60), (71, 120), (101, 180)]


def test_schedules_are_read_at_the_online_step(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(
        SMALL,
        beta=PiecewiseLinear(((40, 1.0), (140, 0.0))),
        importance=PiecewiseLinear(((0, 0.0), (240, 1.0))),
        learning_rate=PiecewiseLinear(((0, 1e-3), (200, 1e-4))),
        gamma=PiecewiseLinear(((0, 0.5), (240, 0.9))),
        pessimism=PiecewiseLinear(((0, 1.0), (240, 0.0))),
    )
    training, spy = spied(config, make_lanes("CartPole-v1", 2), CARTPOLE)
    rates, exponents, discounts, penalties = [], [], [], []
    step, sample = training.learner.step, HybridReplay.sample

    def spied_step(gradient: FloatArray, learning_rate: float) -> float:
        rates.append(learning_rate)
        return step(gradient, learning_rate)

    def spied_sample(self: HybridReplay, *given: Any) -> Batch:
        exponents.append(given[2])
        discounts.append(given[3])
        return sample(self, *given)

    class Penalty(PiecewiseLinear):
        def __call__(self, time: float) -> float:
            penalties.append(time)
            return super().__call__(time)

    training.config = replace(config, pessimism=Penalty(config.pessimism.knots))

    monkeypatch.setattr(training.learner, "step", spied_step)
    monkeypatch.setattr(HybridReplay, "sample", spied_sample)
    list(training.run())
    times = [0] * 30 + list(range(40, 240, 2))
    assert rates == [config.learning_rate(time) for time in times]
    assert penalties == times
    drawn = [0] * 30 + [40, *range(40, 240, 2)]  # while the update before is made
    assert exponents == [config.importance(time) for time in drawn]
    assert discounts == [config.gamma(time) for time in drawn]
    for time, batch in zip(drawn, spy.batches, strict=False):
        assert abs(batch.offline - 16 * config.beta(time)) < 1


def explored(**changes: Any) -> tuple[Training, Transitions, IntArray, FloatArray]:
    """Act in four lanes without learning; return what was done, by which lane, and how late."""
    config = replace(
        SMALL, lanes=4, beta=schedule(0), pretraining=0, learning_starts=10_000, online_steps=800,
        **changes,
    )  # fmt: skip
    training = Training(config, make_lanes(Chain, 4), None, Streams(0))
    list(training.run())
    replay = training.replay.online.replay
    slots = np.flatnonzero(replay.priorities())
    lane, slot = np.divmod(slots, replay.length)
    return training, replay.gather(slots, 1, 1.0), lane, slot / replay.written[lane]


def test_exploration_follows_its_schedule() -> None:
    until_half = PiecewiseLinear(((400, 1.0), (401, 0.0)))
    training, rows, _, time = explored(epsilon=until_half)
    greedy = rows.action == training.greedy(rows.observation)
    assert greedy[time > 0.6].all()
    assert not greedy[time < 0.4].all()


def test_exploration_leaves_steady_lanes_alone() -> None:
    training, rows, lane, _ = explored(epsilon=schedule(1.0), steady_lanes=1, steady_epsilon=0.0)
    steady = lane == 0
    np.testing.assert_array_equal(rows.action[steady], training.greedy(rows.observation[steady]))
    assert 0.4 < rows.action[~steady].mean() < 0.6


def test_random_actions_are_held_for_times_that_fall_with_their_square() -> None:
    config = replace(
        SMALL, lanes=64, epsilon=schedule(0.5), hold=4, beta=schedule(0), pretraining=0
    )
    training = Training(config, make_lanes("CartPole-v1", 64), None, Streams(0))
    durations = training._durations(40_000)
    weights = 1 / np.arange(1, 5) ** 2
    shares = np.bincount(durations, minlength=5)[1:] / 40_000
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.01)
    held, left = np.zeros(64, int), np.zeros(64, int)
    for _ in range(30):
        greedy = training.greedy(training.lanes.observation)
        action = training._act()
        going_on = left > 0
        np.testing.assert_array_equal(action[going_on], held[going_on])
        held, left = training._held.copy(), training._holding.copy()
        assert left.max() < 4
        assert 0 < (action != greedy).sum() < 64
    training._start(np.arange(64))
    assert not training._holding.any()  # an episode begins with a choice of its own


def test_rewards_are_compressed_for_learning_and_reported_raw() -> None:
    config = replace(SMALL, reward="signed-log")
    training, spy = spied(config, make_lanes(Chain, 2), chain_logs(20, 0.8))
    reports = list(training.run())
    rewards = np.concatenate([batch.rows.reward for batch in spy.batches])
    assert set(np.unique(rewards)) == {0.0, np.float32(math.log(2))}
    returns = {total for report in reports for _, total, _ in report.episodes}
    assert returns == {0.0, 1.0}


def test_transitions_without_order_are_prepared_as_episodes_are() -> None:
    """Actions count from 0, rewards are compressed, and an episode that terminated has no more."""
    rows = chain_logs(20, 0.8, first_action=3).by_step().transitions
    logs = Dataset.from_transitions(rows, np.zeros(len(rows), np.int64))
    config = replace(SMALL, reward="signed-log", online_steps=0, beta=schedule(1))
    lanes = make_lanes(Chain, 2, first_action=3)
    training, spy = spied(config, lanes, logs)
    list(training.run())
    seen = Transitions.concatenate([batch.rows for batch in spy.batches])
    assert set(np.unique(seen.action)) == {0, 1}
    assert set(np.unique(seen.reward)) == {0.0, np.float32(math.log(2))}
    np.testing.assert_allclose(seen.discount, np.where(seen.reward > 0, 0.0, 0.9))


def test_logged_episodes_are_prepared_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million pictures fit into memory compressed, not as they are prepared."""
    prepare = Training._prepared_episode
    prepared: list[weakref.ref[Episode]] = []

    def watched(training: Training, episode: Episode) -> Episode:
        assert sum(one() is not None for one in prepared) <= 1, "only the one before is still held"
        ready = prepare(training, episode)
        prepared.append(weakref.ref(ready))
        return ready

    monkeypatch.setattr(Training, "_prepared_episode", watched)
    training = Training(SMALL, make_lanes("CartPole-v1", 2), CARTPOLE, Streams(0))
    assert len(prepared) == len(CARTPOLE.length)
    assert training.replay.offline is not None
    assert len(training.replay.offline.replay) == len(CARTPOLE)


def test_a_life_that_the_logs_lost_costs_its_share() -> None:
    lost = np.arange(len(CARTPOLE.action)) % 5 == 0
    config = replace(SMALL, life_loss_discount=0.5, online_steps=0, beta=schedule(1))
    training, spy = spied(config, make_lanes("CartPole-v1", 2), replace(CARTPOLE, life_lost=lost))
    list(training.run())
    discount = np.concatenate([batch.rows.discount for batch in spy.batches])
    assert set(np.unique(discount.round(4))) >= {np.float32(0.45), np.float32(0.9)}


def test_errors_are_reported_by_source_and_without_their_sign() -> None:
    config = replace(SMALL, online_steps=60, learning_starts=0, report_every=60)
    training, spy = spied(config, make_lanes("CartPole-v1", 2), CARTPOLE)
    judged: list[tuple[int, FloatArray]] = []
    inner = spy.inner

    class Kept(TemporalDifference):
        def judge(self, outputs: FloatArray, answers: list[FloatArray], batch: Batch) -> Judged:
            found = inner.judge(outputs, answers, batch)
            judged.append((batch.offline, found.td_error))
            return found

    spy.inner = Kept()
    before, after = training.run()
    of_logs = np.concatenate([np.abs(e[:n]) for n, e in judged[30:]])
    own = np.concatenate([np.abs(e[n:]) for n, e in judged[30:]])
    assert after.metrics["td_offline"] == pytest.approx(of_logs.mean(), rel=1e-5)
    assert after.metrics["td_online"] == pytest.approx(own.mean(), rel=1e-5)
    assert "td_online" not in before.metrics


def test_a_gradient_that_explodes_where_the_errors_do_not_ends_the_run() -> None:
    class Exploding(TemporalDifference):
        def judge(self, outputs: FloatArray, answers: list[FloatArray], batch: Batch) -> Judged:
            found = super().judge(outputs, answers, batch)
            return replace(found, gradient=np.full_like(found.gradient, np.inf))

    training = Training(
        SMALL, make_lanes("CartPole-v1", 2), CARTPOLE, Streams(0), objective=Exploding()
    )
    with np.errstate(all="ignore"), pytest.raises(HyqError, match="diverged"):
        next(training.run())


@pytest.mark.parametrize("standard", [True, False])
def test_pixels_are_standardised_where_it_is_asked_for(standard: bool) -> None:
    pictures = np.random.default_rng(0).integers(256, size=(5, 24, 24), dtype=np.uint8)
    logs = Dataset.from_arrays(
        pictures[:-1], np.zeros(4, int), np.zeros(4), pictures[1:], np.zeros(4)
    )
    config = replace(SMALL, standardise_pixels=standard, pretraining=2, online_steps=0)
    training = Training(config, make_lanes(Screen, 2), logs, Streams(0))
    assert (training.network.scaling.scale.ndim > 0) == standard


@pytest.mark.parametrize("ends", [False, True])
def test_where_the_logs_stop_the_value_goes_on_unless_told_otherwise(ends: bool) -> None:
    config = replace(SMALL, log_end_terminates=ends, online_steps=0, beta=schedule(1))
    training, spy = spied(config, make_lanes(Chain, 2), chain_logs(20, 0.0))  # never rewarded
    list(training.run())
    discount = np.concatenate([batch.rows.discount for batch in spy.batches])
    assert (discount == 0).any() == ends


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_lost_life_costs_a_share_of_the_value_and_not_the_episode(share: float) -> None:
    config = replace(SMALL, life_loss_discount=share, beta=schedule(0), pretraining=0)
    training, spy = spied(config, make_lanes(Diary, 2), None)
    reports = list(training.run())
    assert max(length for report in reports for _, _, length in report.episodes) > 2
    rows = Transitions.concatenate([batch.rows for batch in spy.batches])
    lost = (rows.next_observation[:, 1] == 2) & (rows.next_observation[:, 0] % 9 > 0)
    assert lost.any()
    np.testing.assert_allclose(rows.discount[lost], share * 0.9)


def test_what_was_earned_counts_less_beyond_a_lost_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the values do: a reward after a lost life is worth its share of one before it."""
    config = replace(
        SMALL, lanes=1, learning_starts=10_000, beta=schedule(0), pretraining=0,
        life_loss_discount=0.5, report_every=1,
    )  # fmt: skip
    training = Training(config, make_lanes(Diary, 1), None, Streams(0))
    receive, outcomes = training.lanes.receive, []

    def watched() -> Outcome:
        outcomes.append(receive())
        return outcomes[-1]

    monkeypatch.setattr(training.lanes, "receive", watched)
    worth, earned, checked = 1.0, 0.0, 0
    for report in training.run():
        outcome = outcomes[-1]
        earned += worth * float(outcome.reward[0])
        worth *= 0.9 * (0.5 if outcome.life_lost[0] else 1.0)
        if report.episodes:
            assert report.metrics["start_return"] == pytest.approx(earned)
            checked += worth < 0.9 ** report.episodes[0][2] * 0.6  # a life was lost on the way
            worth, earned = 1.0, 0.0
    assert checked


def test_reports_count_episodes_and_compare_promises_with_returns() -> None:
    config = replace(
        SMALL, learning_starts=10_000, beta=schedule(0), pretraining=0, epsilon=schedule(1.0)
    )
    training = Training(config, make_lanes(Chain, 2), None, Streams(0))
    reports = list(training.run())
    assert [report.number for report in reports] == [1, 2, 3, 4]
    assert [report.online_steps for report in reports] == [60, 120, 180, 240]
    starts = np.eye(5, dtype=np.float32)[:4]
    promises = training.learner.outputs(starts).max(axis=1)
    for report in reports:
        earned = [total * 0.9 ** (length - 1) for _, total, length in report.episodes]
        assert report.metrics["start_return"] == pytest.approx(np.mean(earned))
        assert promises.min() - 1e-6 < report.metrics["start_q"] < promises.max() + 1e-6
        assert report.updates == 0
    lengths = sum(length for report in reports for *_, length in report.episodes)
    assert 240 - 2 * 4 <= lengths <= 240


EXACT = replace(
    SMALL,
    online_steps=8000,
    pretraining=0,
    gamma=schedule(GAMMA),
    n_value=4,
    n_target=60,
    batch_size=32,
    learning_starts=100,
    learning_rate=PiecewiseLinear(((0, 3e-3), (8000, 3e-4))),
    epsilon=schedule(0.5),
    lanes=8,
    report_every=4000,
)


@pytest.mark.parametrize(
    ("changes", "first_action"),
    [
        ({}, 0),
        ({"loss": "squared", "double": False, "mix": "coin"}, 1),
        ({"beta": schedule(0.0), "priority_online": (0.0, 1e-3), "epsilon": schedule(1.0)}, 0),
    ],
)
def test_training_finds_the_exact_values_of_a_chain(
    changes: dict[str, Any], first_action: int
) -> None:
    # A third of the episodes is truncated: a value that ended there would be off by far more.
    config = replace(EXACT, **changes)
    logs = chain_logs(100, 0.5, first_action) if config.beta.range[1] else None
    env = make_lanes(Chain, 8, first_action=first_action)
    training = Training(config, env, logs, Streams(0))
    list(training.run())
    states = np.eye(5, dtype=np.float32)[:4]
    np.testing.assert_allclose(training.learner.outputs(states), optimal_q(), atol=0.05)
    assert training.greedy(states).tolist() == [first_action + 1] * 4


Finished = tuple[dict[str, Any], list[Report]]


def finished(training: Training, reports: list[Report]) -> Finished:
    """Everything that two equal runs must agree on, to the bit."""
    online, offline = training.replay.online.replay, training.replay.offline
    state = {f"learner.{name}": array for name, array in training.learner.arrays().items()}
    state |= {f"lanes.{name}": array for name, array in training.lanes.arrays().items()}
    state |= {f"online.{k}": v for k, v in online.export(np.zeros_like(online.written)).items()}
    state["online.priority"] = online.priorities()
    if offline is not None:
        state["offline.priority"] = offline.replay.priorities()
    return state, [replace(report, seconds={}) for report in reports]


def assert_same(one: Finished, other: Finished) -> None:
    assert one[0].keys() == other[0].keys()
    for name, array in one[0].items():
        np.testing.assert_array_equal(array, other[0][name], err_msg=name)
    assert one[1] == other[1]


Make = Callable[[], Training]


def whole(make: Make) -> Finished:
    training = make()
    return finished(training, list(training.run()))


def interrupted(make: Make, after: int) -> Finished:
    """Save at every report, lose everything after some of them, and go on from the files."""
    first = make()
    reports, snapshots = [], []
    for report in first.run():
        reports.append(report)
        snapshots.append(first.snapshot())
        if len(reports) == after:
            break
    second = make()
    second.restore(snapshots[-1].replaced, [snapshot.appended for snapshot in snapshots])
    return finished(second, reports + list(second.run()))


def cartpole(seed: int = 0, **changes: Any) -> Make:
    config = replace(SMALL, **{"report_every": 20, "n_step": 3, **changes})
    return lambda: Training(
        config, make_lanes("CartPole-v1", config.lanes), CARTPOLE, Streams(seed)
    )


def test_the_seed_decides_everything() -> None:
    state, reports = whole(cartpole(seed=1))
    assert_same((state, reports), whole(cartpole(seed=1)))
    other, _ = whole(cartpole(seed=2))
    for name in ("learner.online", "online.action", "online.priority", "offline.priority"):
        assert not np.array_equal(state[name], other[name]), name
    assert any(report.episodes for report in reports)


@pytest.mark.parametrize("after", [1, 2, 3, 9, 14])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stack": 3, "mix": "coin", "priority_offline": (0.0, 1e-3)},
        {"network": NetworkSpec(hidden=(8,), stream_hidden=8)},
        {"hold": 9, "gamma": schedule("0:0.9, 100:0.99"), "life_loss_discount": 0.5},
        {"pessimism": schedule("0:1, 150:0")},
    ],
)
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    changes: dict[str, Any], after: int
) -> None:
    make = cartpole(**changes)
    learner = TorchLearner if "network" in changes else VectorLearner
    assert isinstance(make().learner, learner)
    assert_same(whole(make), interrupted(make, after))


def test_a_helper_draws_ahead_and_changes_nothing() -> None:
    make = cartpole(
        network=NetworkSpec(hidden=(8,), stream_hidden=8), lanes=6, n_value=2, report_every=24
    )
    alone = whole(make)
    torch.set_num_threads(2)
    try:
        assert make().learner.hands.helped
        assert_same(alone, whole(make))
        assert_same(alone, interrupted(make, 4))
    finally:
        torch.set_num_threads(1)


def test_an_interrupted_run_whose_buffer_was_full() -> None:
    make = cartpole(buffer_size=60)
    assert_same(whole(make), interrupted(make, 10))


@pytest.mark.parametrize(
    ("game", "parameters", "shrink_by", "shape"),
    [
        ("hyq/Montezuma-v0", {"stack": 1}, 2, (2, 1, 42, 42)),
        ("ale_py:ALE/Pong-v5", {"obs_type": "grayscale"}, 5, (2, 42, 32)),
    ],
)
def test_a_game_on_pixels_resumes_exactly(
    game: str, parameters: dict[str, Any], shrink_by: int, shape: tuple[int, ...]
) -> None:
    pytest.importorskip("ale_py")
    if game.startswith("hyq/") and game not in gym.registry:
        pytest.skip(f"{game} is not registered")
    config = replace(
        SMALL,
        online_steps=48,
        pretraining=0,
        beta=schedule(0),
        learning_starts=16,
        batch_size=4,
        stack=2,
        shrink_by=shrink_by,
        network=SMALL_CONVOLUTIONS,
        report_every=16,
    )

    def make() -> Training:
        training = Training(config, make_lanes(game, 2, **parameters), None, Streams(0))
        assert training.network.shape == shape
        assert training.lanes.frame.dtype == np.uint8
        return training

    assert_same(whole(make), interrupted(make, 2))


def changed(**columns: Any) -> Dataset:
    return replace(CARTPOLE, **columns)


def as_dataset() -> Dataset:
    episode = next(iter(CARTPOLE))
    seen = only_column(episode.observation)
    steps = len(episode.action)
    return Dataset.from_arrays(seen[:-1], episode.action, episode.reward, seen[1:], np.zeros(steps))


def test_transitions_without_order_serve_as_logs() -> None:
    training, spy = spied(SMALL, make_lanes("CartPole-v1", 2), as_dataset())
    list(training.run())
    seen = np.concatenate([batch.rows.observation[: batch.offline] for batch in spy.batches])
    assert {tuple(row) for row in seen} == {
        tuple(row) for row in as_dataset().by_step().at(0).observation
    }
    for config, says in (
        (replace(SMALL, n_step_offline=3), "give n_step_offline=1, or whole episodes"),
        (replace(SMALL, stack=2, log_end_terminates=True), "stack=1, log_end_terminates=False, or"),
    ):
        with pytest.raises(HyqError, match=says):
            Training(config, training.lanes.env, as_dataset(), Streams(0))


class Screen(gym.Env[Array, Any]):
    """A picture with one channel, as some wrappers show it."""

    observation_space = gym.spaces.Box(0, 255, (1, 24, 24), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        return np.zeros((1, 24, 24), np.uint8), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return np.ones((1, 24, 24), np.uint8), 0.0, True, False, {}


def test_logged_pictures_without_a_channel_fit_an_environment_with_one() -> None:
    pictures = np.random.default_rng(0).integers(256, size=(5, 24, 24), dtype=np.uint8)
    logs = Dataset.from_arrays(
        pictures[:-1], np.zeros(4, int), np.zeros(4), pictures[1:], np.zeros(4)
    )
    config = replace(SMALL, pretraining=2, online_steps=0)
    training, spy = spied(config, make_lanes(Screen, 2), logs)
    list(training.run())
    assert spy.batches[0].rows.observation.shape == (SMALL.batch_size, 1, 24, 24)


class Brightness(gym.Env[Array, Any]):
    """Shows numbers within bounds that a test chooses."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, low: float, high: float, dtype: Any) -> None:
        self.observation_space = gym.spaces.Box(low, high, (3,), dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        return np.zeros(3, self.observation_space.dtype), {}


@pytest.mark.parametrize("whole_episodes", [True, False])
@pytest.mark.parametrize(
    ("space", "logged", "dtype", "message"),
    [
        ((0, 255, np.uint8), (0.0, 1.0), np.float32, "holds float32, .* shows uint8"),
        ((0, 1, np.float32), (0, 255), np.uint8, "holds uint8, .* shows float32"),
        (
            (0, 1, np.float32),
            (0, 255),
            np.float32,
            "reaches 255 in dimension 2, where .* has 0 to 1: .*or correct",
        ),
        ((0, 1, np.float32), (-1, 1), np.float64, "reaches -1 in dimension 0, where"),
        ((0, 9, np.uint8), (0, 30), np.uint8, "reaches 30 in dimension 2, where .* has 0 to 9"),
        ((0, 1, np.float32), (-0.01, 1.2), np.float32, None),
        ((-np.inf, np.inf, np.float32), (-1e30, 1e30), np.float32, None),
        ((-1, np.inf, np.float32), (0, 1e30), np.float64, None),
        ((0, 255, np.uint8), (0, 255), np.uint8, None),
        ((0.1, 0.1, np.float32), (0.1, 0.1), np.float64, None),
    ],
)
def test_logs_on_another_scale_are_refused(
    space: tuple[float, float, Any],
    logged: tuple[float, float],
    dtype: Any,
    message: str | None,
    whole_episodes: bool,
) -> None:
    seen = np.full((5000, 3), logged[0], dtype)
    seen[-1, -1] = logged[1]  # once, in the last of several blocks
    action, reward, end = np.zeros(4999, int), np.zeros(4999, np.float32), np.zeros(4999)
    logs = (
        Dataset.of([Episode(seen, action, reward, False)], {})
        if whole_episodes
        else Dataset.from_arrays(seen[:-1], action, reward, seen[1:], end)
    )
    env = Brightness(*space)
    spaces = env.observation_space, env.action_space
    if message is None:
        check_fits(logs, *spaces)
    else:
        with pytest.raises(HyqError, match=message) as refused:
            check_fits(logs, *spaces)
        assert "\n" not in str(refused.value)


NO_ACTION = np.zeros_like(CARTPOLE.action)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_lanes("Pendulum-v1", 2), "discrete actions"),
        (lambda: Training(SMALL, make_lanes("CartPole-v1", 2), None, Streams(0)), "without logs"),
        (
            lambda: Training(
                replace(SMALL, beta=schedule(0)), make_lanes("CartPole-v1", 2), None, Streams(0)
            ),
            "pretraining is on logs",
        ),
        (
            lambda: Training(SMALL, make_lanes("MountainCar-v0", 2), CARTPOLE, Streams(0)),
            "shape",
        ),
        (
            lambda: Training(
                SMALL, make_lanes("CartPole-v1", 2), changed(action=NO_ACTION + 2), Streams(0)
            ),
            "outside",
        ),
        (
            lambda: Training(
                SMALL, make_lanes("CartPole-v1", 2), changed(action=NO_ACTION - 1), Streams(0)
            ),
            "outside",
        ),
        (
            lambda: Training(
                SMALL, make_lanes("CartPole-v1", 2), changed(action=NO_ACTION + 0.5), Streams(0)
            ),
            "no actions of Discrete",
        ),
        (lambda: changed(reward=CARTPOLE.reward * np.nan), "NaN"),
        (lambda: changed(observation=np.asarray(CARTPOLE.observation) * np.inf), "NaN"),
        (lambda: Training(SMALL, make_lanes("CartPole-v1", 3), CARTPOLE, Streams(0)), "lanes"),
        (
            lambda: Training(
                SMALL,
                gym.make_vec("Pendulum-v1", 2, vectorization_mode="sync"),
                None,
                Streams(0),
            ),
            "discrete actions",
        ),
    ],
)
def test_input_that_cannot_work_is_refused_before_any_step(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(HyqError, match=message):
        make()


@pytest.mark.parametrize(
    "changes",
    [
        {"n_value": 0},
        {"batch_size": 0},
        {"n_step": 0},
        {"n_step_offline": 0},
        {"lanes": 0},
        {"stack": 0},
        {"online_steps": -1},
        {"pretraining": -1},
        {"beta": schedule(1.5)},
        {"epsilon": schedule(-0.1)},
        {"importance": schedule("0:0.4, 10:1.1")},
        {"gamma": schedule(1.01)},
        {"life_loss_discount": 1.01},
        {"pessimism": schedule("0:1, 10:-1")},
        {"steady_lanes": 3},
        {"priority_online": (0.6, 0.0)},
        {"loss": "Huber"},
        {"reward": "log"},
        {"mix": "halves"},
        {"precision": "float16"},
    ],
)
def test_settings_that_cannot_run_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(HyqError, match=next(iter(changes)).replace("_", "[_ ]")):
        replace(SMALL, **changes)


def test_the_papers_preset_is_the_papers_table() -> None:
    """Its last table, row by row; [a, b] are the ends of a schedule."""
    paper = PRESETS["paper-montezuma"]
    ends = {
        name: (getattr(paper, name)(0), getattr(paper, name)(1e9))
        for name in ("learning_rate", "beta", "epsilon", "importance", "gamma")
    }
    assert ends == {
        "learning_rate": (1e-4, 1e-5),
        "beta": (0.2, 0.01),
        "epsilon": (0.25, 0.001),
        "importance": (0.6, 1.0),
        "gamma": (0.99, 0.99),
    }
    assert (paper.batch_size, paper.n_value, paper.n_target) == (32, 4, 10_000)
    assert (paper.adam.weight_decay, paper.adam.max_gradient_norm) == (1e-5, 10.0)
    assert paper.buffer_size == 2**20
    assert (paper.priority_online, paper.priority_offline) == ((0.4, 1e-3), (1.0, 1e-4))
    assert (paper.n_step, paper.n_step_offline, paper.pretraining) == (1, 1, 0)
    assert paper.pessimism == schedule(0.0)
