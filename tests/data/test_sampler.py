"""Minibatches of two buffers: their shares, their weights, and where priorities return to."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from hyq.core.actions import Actions
from hyq.core.errors import HyqError
from hyq.core.schedules import schedule
from hyq.core.types import FloatArray
from hyq.data.dataset import Dataset, Episode
from hyq.data.replay_buffer import ReplayBuffer
from hyq.data.sampler import (
    MIXES,
    Bernoulli,
    ByPriority,
    Drawn,
    HybridSampler,
    Mix,
    Source,
    Split,
)

GAMMA = 0.9
OFFLINE = 1000.0
"""Rewards of the offline data start here; those of the agent's own steps lie below."""
BOX, DISCRETE = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32), gym.spaces.Discrete(3)


def offline(steps: int = 8, n_step: int = 1, exponent: float = 0.6) -> Source:
    episode = Episode(
        np.arange(steps + 1, dtype=np.float32)[:, None],
        np.arange(steps) % 3,
        OFFLINE + np.arange(steps, dtype=np.float32),
        terminated=False,
    )
    buffer = ReplayBuffer.of(Dataset.of([episode], {}), BOX, Actions(DISCRETE))
    return Source(buffer, n_step, exponent, 1e-2)


def online(steps: int = 6, n_step: int = 1, exponent: float = 0.4) -> Source:
    buffer = ReplayBuffer(2, 10, BOX, DISCRETE)
    buffer.start(np.arange(2), np.full((2, 1), 100.0, np.float32))
    over = np.zeros(2, np.bool_)
    for k in range(steps):
        reward = np.array([1.0 + k, 101.0 + k], np.float32)
        seen = np.full((2, 1), 101 + k, np.float32)
        buffer.add(np.full(2, k % 3), reward, np.ones(2), over, seen)
    return Source(buffer, n_step, exponent, 1e-3)


def hybrid(beta: float = 0.5, mix: Mix = "split", **changes: Any) -> HybridSampler:
    return replace(HybridSampler(offline(), online(), MIXES[mix](schedule(beta))), **changes)


def drawn(sampler: HybridSampler, size: int = 8, seed: int = 0, **changes: Any) -> Drawn:
    given = {"importance": 0.5, "gamma": GAMMA, "rng": np.random.default_rng(seed), **changes}
    return sampler.draw(size, 0, **given)


@pytest.mark.parametrize(
    ("size", "share"), [(32, 0.01), (32, 0.2), (64, 0.999), (7, 0.5), (1, 0.3)]
)
def test_a_split_has_the_exact_share_on_average(size: int, share: float) -> None:
    rng, rule = np.random.default_rng(0), Split(schedule(share))
    rows = np.array([rule(size, 0, rng) for _ in range(20_000)])
    expected = share * size
    assert set(rows) <= {int(np.floor(expected)), int(np.floor(expected)) + 1}
    std = np.sqrt(expected % 1 * (1 - expected % 1) / len(rows))
    assert abs(rows.mean() - expected) < 4 * std + 1e-9


@pytest.mark.parametrize("mix", MIXES)
def test_shares_of_nothing_and_everything_leave_nothing_to_chance(mix: Mix) -> None:
    rng = np.random.default_rng(0)
    for share, expected in ((0.0, 0), (1.0, 8)):
        rule = MIXES[mix](schedule(share))
        assert {rule(8, 0, rng) for _ in range(200)} == {expected}
    assert {Split(schedule(0.25))(8, 0, rng) for _ in range(200)} == {2}


@pytest.mark.parametrize("mix", MIXES)
def test_the_share_follows_its_schedule(mix: Mix) -> None:
    rule, rng = MIXES[mix](schedule("0:1, 100:0")), np.random.default_rng(0)
    assert [rule(8, step, rng) for step in (0, 100, 500)] == [8, 0, 0]
    assert np.mean([rule(8, 25, rng) for _ in range(2000)]) == pytest.approx(6.0, abs=0.4)


def test_bernoulli_decides_for_the_whole_minibatch() -> None:
    rng, rule = np.random.default_rng(0), Bernoulli(schedule(0.3))
    rows = [rule(8, 0, rng) for _ in range(4000)]
    assert set(rows) == {0, 8}
    assert abs(np.mean(rows) / 8 - 0.3) < 4 * np.sqrt(0.21 / 4000)
    sampler = hybrid(0.3, "bernoulli")
    found = [drawn(sampler, seed=seed) for seed in range(60)]
    assert {one.offline_rows for one in found} == {0, 8}
    assert all(len(one.parts) == 1 and len(one.batch) == 8 for one in found)


def test_the_share_by_priority_is_that_of_one_buffer() -> None:
    data, own = offline(steps=3).buffer, online(steps=2).buffer
    data.set_priorities(np.arange(3), np.array([1.0, 2.0, 3.0]))
    valid = np.flatnonzero(own.priorities())
    own.set_priorities(valid, np.full(len(valid), 0.5))  # 2 in all, beside 6
    rule, rng = ByPriority(data, own), np.random.default_rng(0)
    rows = [rule(8, 0, rng) for _ in range(4000)]
    assert np.mean(rows) == pytest.approx(6.0, abs=4 * np.sqrt(8 * 0.75 * 0.25 / 4000))
    assert np.var(rows) == pytest.approx(8 * 0.75 * 0.25, rel=0.15)


def test_rows_are_tagged_with_their_source() -> None:
    sampler = hybrid(0.4)
    for seed in range(50):
        found = drawn(sampler, seed=seed)
        batch, rows = found.batch, found.offline_rows
        assert rows in {3, 4}
        assert len(batch) == len(batch.weight) == 8
        assert batch.offline.dtype == torch.bool
        assert batch.offline.tolist() == [True] * rows + [False] * (8 - rows)
        assert torch.equal(batch.offline, batch.reward >= OFFLINE)


def test_every_transition_of_either_source_can_be_drawn() -> None:
    sampler = hybrid()
    rewards = np.concatenate([drawn(sampler, seed=s).batch.reward.numpy() for s in range(300)])
    own = [*range(1, 7), *range(101, 107)]
    assert set(rewards) == {*own, *(OFFLINE + np.arange(8))}


def test_a_row_holds_one_transition() -> None:
    batch = drawn(hybrid(), size=64).batch
    before, after = batch.observation[:, 0], batch.next_observation[:, 0]
    torch.testing.assert_close(after, before + 1)
    number = torch.where(batch.offline, before, before - 100)
    assert torch.equal(batch.action, number.long() % 3)
    assert torch.equal(batch.reward % 100 - (~batch.offline).float(), number)
    torch.testing.assert_close(batch.discount, torch.full((64,), GAMMA))


def expected_priorities(source: Source, found: Drawn, error: FloatArray) -> FloatArray:
    """Every slot's priority: that of its row's error where it was drawn, else what it was."""
    priority = np.where(source.buffer.priorities() > 0, 1.0, 0.0)
    start = 0
    for owner, slots in found.parts:
        for slot, one in zip(slots, error[start : start + len(slots)], strict=True):
            if owner is source:
                priority[slot] = (abs(one) + source.epsilon) ** source.exponent
        start += len(slots)
    return priority


def test_priorities_return_to_the_buffer_that_owns_the_row() -> None:
    sampler = hybrid()
    assert sampler.offline is not None
    assert sampler.online is not None
    found = drawn(sampler, size=6, seed=3)
    assert found.offline_rows == 3
    error = np.array([-2.0, 3.0, -4.0, 5.0, 6.0, -7.0])
    # A slot drawn twice keeps the later error; here all errors are distinct, and so are priorities.
    sources = (sampler.offline, sampler.online)
    expected = [expected_priorities(source, found, error) for source in sources]
    found.set_priorities(error)
    for source, priority in zip(sources, expected, strict=True):
        np.testing.assert_allclose(source.buffer.priorities(), priority)
        assert (priority > 1.0).sum() in {2, 3}


def test_without_an_exponent_draws_are_uniform_and_priorities_stay() -> None:
    sampler = HybridSampler(offline(exponent=0.0), online(exponent=0.0), Split(schedule(0.5)))
    found = drawn(sampler, importance=1.0)
    found.set_priorities(np.full(8, 100.0))
    for source in (sampler.offline, sampler.online):
        assert source is not None
        assert set(source.buffer.priorities()) <= {0.0, 1.0}
    assert found.batch.weight.tolist() == [1.0] * 8
    source = online(exponent=0.0)
    valid = np.flatnonzero(source.buffer.priorities())
    source.buffer.set_priorities(valid, 1.0 + np.arange(len(valid)) ** 3)
    slots, _ = source.draw(4000, 1.0, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(slots)[valid] / 4000, 1 / len(valid), atol=0.02)


def test_importance_weights_by_hand() -> None:
    source = offline(steps=3, exponent=1.0)
    source.buffer.set_priorities(np.arange(3), np.array([1.0, 2.0, 5.0]))  # N P = 3/8, 3/4, 15/8
    slots, weight = source.draw(64, 1.0, np.random.default_rng(0))
    assert set(slots) == {0, 1, 2}
    np.testing.assert_allclose(weight, np.array([1.0, 0.5, 0.2])[slots], rtol=1e-6)
    slots, weight = source.draw(64, 0.5, np.random.default_rng(1))
    np.testing.assert_allclose(weight, np.sqrt([1.0, 0.5, 0.2])[slots], rtol=1e-6)
    assert weight.dtype == np.float32
    slots, weight = source.draw(64, 0.0, np.random.default_rng(1))
    assert (weight == 1).all()


def test_each_source_weighs_its_rows_by_its_own_priorities() -> None:
    sampler, exponent = hybrid(), 0.7
    for source in (sampler.offline, sampler.online):
        assert source is not None
        valid = np.flatnonzero(source.buffer.priorities())
        source.buffer.set_priorities(valid, 1.0 + np.arange(len(valid)))
    found = drawn(sampler, size=64, importance=exponent)
    for rows, (source, slots) in zip((slice(32), slice(32, 64)), found.parts, strict=True):
        priority = source.buffer.priorities()
        weight = (len(source.buffer) * priority[slots] / priority.sum()) ** -exponent
        np.testing.assert_allclose(found.batch.weight[rows], weight / weight.max(), rtol=1e-5)
        assert found.batch.weight[rows].min() < 0.5


def test_returns_are_those_of_the_drawn_rows_where_they_are_wanted() -> None:
    assert drawn(hybrid()).batch.return_to_go is None
    episode = Episode(np.zeros((3, 1), np.float32), np.zeros(2, int), np.array([1.0, 4.0]), True)
    buffer = ReplayBuffer.of(Dataset.of([episode], {}), BOX, Actions(DISCRETE), return_gamma=0.5)
    sampler = hybrid(offline=Source(buffer, 1, 0.6, 1e-2), return_to_go=True)
    batch = drawn(sampler, size=32).batch
    assert batch.return_to_go is not None
    expected = torch.where(batch.reward == 1.0, 3.0, 4.0)  # 1 + 4 / 2, and 4
    expected[~batch.offline] = -torch.inf
    assert torch.equal(batch.return_to_go, expected)


def test_only_offline_rows_where_that_is_asked_for_or_nothing_else_is_there() -> None:
    assert drawn(hybrid(0.0)).offline_rows == 0
    assert drawn(hybrid(1.0)).offline_rows == 8
    assert drawn(hybrid(0.0), offline_only=True).offline_rows == 8
    alone = drawn(hybrid(0.3, online=None))
    assert alone.offline_rows == 8
    assert alone.batch.offline.all()


@pytest.mark.parametrize("mix", MIXES)
def test_a_source_that_is_not_there_raises(mix: Mix) -> None:
    assert drawn(hybrid(0.0, mix, offline=None)).offline_rows == 0
    with pytest.raises(HyqError, match="no offline data"):
        drawn(hybrid(1.0, mix, offline=None))
    with pytest.raises(HyqError, match="act before learning"):
        drawn(hybrid(0.5, online=online(steps=0)))


def test_a_share_rule_of_the_users_own() -> None:
    asked: list[tuple[int, int]] = []

    def rule(batch_size: int, step: int, rng: np.random.Generator) -> int:
        asked.append((batch_size, step))
        return int(rng.integers(2, 4))

    sampler = hybrid(share=rule)
    rng = np.random.default_rng(0)
    rows = {sampler.draw(8, 17, importance=0.5, gamma=GAMMA, rng=rng).offline_rows for _ in "x" * 9}
    assert rows == {2, 3}
    assert asked == [(8, 17)] * 9


@pytest.mark.parametrize("rows", [-1, 9])
def test_a_rule_that_asks_for_what_does_not_fit_raises(rows: int) -> None:
    with pytest.raises(HyqError, match=f"offline share of {rows} rows does not fit in 8"):
        drawn(hybrid(share=lambda batch_size, step, rng: rows))


@pytest.mark.parametrize("rows", [0, 8])
def test_a_rule_may_ask_for_all_or_nothing(rows: int) -> None:
    assert drawn(hybrid(share=lambda batch_size, step, rng: rows)).offline_rows == rows


def test_each_source_has_returns_of_its_own_length() -> None:
    sampler = hybrid(offline=offline(n_step=2), online=online(n_step=3), one_step=True)
    batch = drawn(sampler, size=64).batch
    single = batch.one_step
    assert single is not None
    np.testing.assert_allclose(single.discount, GAMMA)
    for name in ("observation", "action", "weight", "offline"):
        assert torch.equal(getattr(single, name), getattr(batch, name)), name
    torch.testing.assert_close(single.next_observation, batch.observation + 1)
    for rows, n in ((slice(32), 2), (slice(32, 64), 3)):
        discount = batch.discount[rows]
        assert discount.min() == pytest.approx(GAMMA**n)
        whole = np.isclose(discount, GAMMA**n)  # the others are cut short by the end of the data
        powers = GAMMA ** np.arange(n)
        first = single.reward[rows][whole]
        expected = first * powers.sum() + powers @ np.arange(n)  # rewards go up by one a step
        np.testing.assert_allclose(batch.reward[rows][whole], expected, rtol=1e-5)


def test_single_steps_are_gathered_only_where_they_differ() -> None:
    assert drawn(hybrid()).batch.one_step is None
    found = drawn(hybrid(one_step=True)).batch
    assert found.one_step is not None
    assert torch.equal(found.one_step.reward, found.reward)
    several = drawn(hybrid(one_step=True, offline=offline(n_step=2))).batch
    assert several.one_step is not None
    assert not torch.equal(several.one_step.reward, several.reward)
    # Only the source with one step was drawn from.
    alone = drawn(hybrid(0.0, one_step=True, offline=offline(n_step=2))).batch
    assert alone.one_step is not None
    assert torch.equal(alone.one_step.reward, alone.reward)


def test_the_value_range_holds_every_return_of_the_rewards_stored() -> None:
    sampler = hybrid(one_step=True, offline=offline(n_step=2))
    batch = drawn(sampler).batch
    assert batch.value_range == pytest.approx((0.0, (OFFLINE + 7) / (1 - GAMMA)))
    assert batch.one_step is not None
    assert batch.one_step.value_range == batch.value_range
    # It follows gamma's schedule and rewards not drawn yet, of both sources.
    assert drawn(sampler, gamma=0.5).batch.value_range == pytest.approx((0.0, 2 * (OFFLINE + 7)))
    assert drawn(sampler, gamma=1.0).batch.value_range is None
    assert sampler.online is not None
    sampler.online.buffer.add(
        np.zeros(2, int), np.array([-5.0, 0.0]), np.ones(2), np.zeros(2, bool), np.zeros((2, 1))
    )
    assert drawn(sampler, offline_only=True).batch.value_range == pytest.approx(
        (-50.0, (OFFLINE + 7) / (1 - GAMMA))
    )


def test_dictionaries_stay_dictionaries() -> None:
    space = gym.spaces.Dict({"a": BOX, "b": gym.spaces.Box(0, 9, (2,), np.uint8)})
    episode = Episode(
        {"a": np.arange(5, dtype=np.float32)[:, None], "b": np.zeros((5, 2), np.uint8)},
        np.zeros(4, int),
        np.arange(4, dtype=np.float32),
        terminated=True,
    )
    buffer = ReplayBuffer.of(Dataset.of([episode], {}), space, Actions(DISCRETE))
    source = Source(buffer, 1, 0.6, 1e-2)
    batch = drawn(HybridSampler(source, source, Split(schedule(0.5)))).batch
    assert set(batch.observation) == {"a", "b"}
    assert torch.equal(batch.observation["a"][:, 0], batch.reward)
    assert batch.next_observation["b"].shape == (8, 2)
