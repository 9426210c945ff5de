"""Minibatches of two replays: their shares, their weights, and where priorities return to."""

from dataclasses import replace

import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.types import FloatArray
from hyq.data.dataset import Episode
from hyq.data.hybrid import (
    Batch,
    HybridReplay,
    MixForm,
    Source,
    importance_weights,
    offline_rows,
)
from hyq.data.replay import Replay

GAMMA = 0.9
LOGGED = 1000.0
"""Rewards of the logs start here; those of the agent's own steps lie below."""


def logged(steps: int = 8, n_step: int = 1, exponent: float = 0.6) -> Source:
    episode = Episode(
        np.arange(steps + 1, dtype=np.float32)[:, None],
        np.zeros(steps, np.int64),
        LOGGED + np.arange(steps, dtype=np.float32),
        terminated=False,
    )
    return Source(Replay.of([episode], steps + 1), n_step, exponent, 1e-2)


def lived(steps: int = 6, n_step: int = 1, exponent: float = 0.4) -> Source:
    replay = Replay(2, 10, (1,), np.float32)
    replay.start(np.arange(2), np.zeros((2, 1), np.float32))
    over = np.zeros(2, np.bool_)
    for k in range(steps):
        reward = np.array([1.0 + k, 101.0 + k], np.float32)
        replay.add(np.zeros(2, np.int64), reward, ~over, over, np.full((2, 1), k, np.float32))
    return Source(replay, n_step, exponent, 1e-3)


def hybrid(form: MixForm = "split") -> HybridReplay:
    return HybridReplay(logged(), lived(), form)


@pytest.mark.parametrize(
    ("size", "share"), [(32, 0.01), (32, 0.2), (64, 0.999), (7, 0.5), (1, 0.3)]
)
def test_a_split_has_the_exact_share_on_average(size: int, share: float) -> None:
    rng = np.random.default_rng(0)
    rows = np.array([offline_rows(size, share, "split", rng) for _ in range(20_000)])
    expected = share * size
    assert set(rows) <= {int(np.floor(expected)), int(np.floor(expected)) + 1}
    deviation = np.sqrt(expected % 1 * (1 - expected % 1) / len(rows))
    assert abs(rows.mean() - expected) < 4 * deviation + 1e-9


@pytest.mark.parametrize("form", ["split", "coin"])
def test_a_share_of_whole_rows_or_of_all_or_none_leaves_nothing_to_chance(form: MixForm) -> None:
    rng = np.random.default_rng(0)
    for share, expected in ((0.0, 0), (1.0, 8)):
        assert {offline_rows(8, share, form, rng) for _ in range(200)} == {expected}
    assert {offline_rows(8, 0.25, "split", rng) for _ in range(200)} == {2}


def test_a_coin_decides_for_the_whole_minibatch() -> None:
    rng, both = np.random.default_rng(0), hybrid("coin")
    batches = [both.sample(8, 0.3, 0.5, GAMMA, rng) for _ in range(2000)]
    assert {batch.offline for batch in batches} == {0, 8}
    share = np.mean([batch.offline == 8 for batch in batches])
    assert abs(share - 0.3) < 4 * np.sqrt(0.21 / 2000)
    assert all(len(batch.parts) == 1 and len(batch.rows) == 8 for batch in batches)


def test_offline_rows_come_first() -> None:
    rng, both = np.random.default_rng(0), hybrid()
    for _ in range(50):
        batch = both.sample(8, 0.4, 0.5, GAMMA, rng)
        assert len(batch.rows) == len(batch.weight) == 8
        assert batch.offline in {3, 4}
        assert (batch.rows.reward[: batch.offline] >= LOGGED).all()
        assert (batch.rows.reward[batch.offline :] < LOGGED).all()


def test_every_transition_of_either_source_can_be_drawn() -> None:
    rng, both = np.random.default_rng(0), hybrid()
    rewards = np.concatenate([both.sample(8, 0.5, 0.5, GAMMA, rng).rows.reward for _ in range(300)])
    own = [*range(1, 7), *range(101, 107)]
    assert set(rewards) == {*own, *(LOGGED + np.arange(8))}


def expected_priorities(source: Source, batch: Batch, error: FloatArray) -> FloatArray:
    """Every slot's priority: that of its reward's error where it was drawn, else what it was."""
    priority = np.where(source.replay.priorities() > 0, 1.0, 0.0)
    for part, start in zip(batch.parts, [0, batch.offline], strict=True):
        if part.source is source:
            slots = part.slots
            drawn = np.abs(error[start : start + len(slots)]) + source.epsilon
            priority[slots] = drawn**source.exponent
    return priority


def test_priorities_return_to_the_replay_that_owns_the_row() -> None:
    both = hybrid()
    assert both.offline is not None
    batch = both.sample(6, 0.5, 0.5, GAMMA, np.random.default_rng(3))
    # A slot drawn twice has one reward, so this error is the same both times.
    error = np.where(batch.rows.reward >= LOGGED, -1.0, 1.0) * (batch.rows.reward % 500 + 2)
    expected = [expected_priorities(source, batch, error) for source in (both.offline, both.online)]
    batch.prioritise(error)
    for source, priority in zip((both.offline, both.online), expected, strict=True):
        np.testing.assert_allclose(source.replay.priorities(), priority)
        assert (priority > 1.0).sum() in {1, 2, 3}


def test_without_an_exponent_priorities_stay_as_they_are() -> None:
    both = HybridReplay(logged(exponent=0.0), lived(exponent=0.0), "split")
    assert both.offline is not None
    batch = both.sample(8, 0.5, 1.0, GAMMA, np.random.default_rng(0))
    batch.prioritise(np.full(8, 100.0))
    for source in (both.offline, both.online):
        assert set(source.replay.priorities()) <= {0.0, 1.0}
    np.testing.assert_array_equal(batch.weight, 1.0)


def test_importance_weights_by_hand() -> None:
    probability = np.array([0.125, 0.25, 0.625])  # of three rows: N P = 3/8, 3/4, 15/8
    np.testing.assert_allclose(importance_weights(probability, 3, 1.0), [1.0, 0.5, 0.2])
    half = importance_weights(probability, 3, 0.5)
    np.testing.assert_allclose(half, np.sqrt([1.0, 0.5, 0.2]), rtol=1e-6)
    np.testing.assert_array_equal(importance_weights(probability, 3, 0.0), 1.0)
    assert half.dtype == np.float32


def test_each_source_weighs_its_rows_by_its_own_priorities() -> None:
    both = hybrid()
    assert both.offline is not None
    rng, exponent = np.random.default_rng(0), 0.7
    for source in (both.offline, both.online):
        drawable = np.flatnonzero(source.replay.priorities())
        source.replay.prioritise(drawable, 1.0 + np.arange(len(drawable)))
    batch = both.sample(64, 0.5, exponent, GAMMA, rng)
    for rows, (source, slots, _) in zip((slice(32), slice(32, 64)), batch.parts, strict=True):
        priority = source.replay.priorities()
        weight = (len(source.replay) * priority[slots] / priority.sum()) ** -exponent
        np.testing.assert_allclose(batch.weight[rows], weight / weight.max(), rtol=1e-5)
        assert batch.weight[rows].min() < 0.5


def test_shares_of_nothing_and_of_everything() -> None:
    both, rng = hybrid(), np.random.default_rng(0)
    assert both.sample(8, 0.0, 0.5, GAMMA, rng).offline == 0
    assert both.sample(8, 1.0, 0.5, GAMMA, rng).offline == 8
    unborn = replace(both, online=lived(steps=0))
    assert unborn.sample(8, 0.0, 0.5, GAMMA, rng).offline == 8  # nothing else is there yet


@pytest.mark.parametrize("form", ["split", "coin"])
def test_drawing_from_logs_that_are_not_there_is_refused(form: MixForm) -> None:
    alone = HybridReplay(None, lived(), form)
    assert alone.sample(8, 0.0, 0.5, GAMMA, np.random.default_rng(0)).offline == 0
    with pytest.raises(HyqError, match="no offline data"):
        alone.sample(8, 1.0, 0.5, GAMMA, np.random.default_rng(0))


def test_each_source_has_returns_of_its_own_length() -> None:
    both = HybridReplay(logged(n_step=2), lived(n_step=3), "split")
    batch = both.sample(64, 0.5, 0.5, GAMMA, np.random.default_rng(0), with_one_step=True)
    single = batch.one_step
    np.testing.assert_allclose(single.discount, GAMMA)
    np.testing.assert_array_equal(single.observation, batch.rows.observation)
    np.testing.assert_array_equal(single.action, batch.rows.action)
    for rows, n in ((slice(32), 2), (slice(32, 64), 3)):
        discount = batch.rows.discount[rows]
        assert discount.min() == pytest.approx(GAMMA**n)
        whole = np.isclose(discount, GAMMA**n)  # the others are cut short by the end of the data
        powers = GAMMA ** np.arange(n)
        first = single.reward[rows][whole]
        expected = first * powers.sum() + powers @ np.arange(n)  # rewards go up by one a step
        np.testing.assert_allclose(batch.rows.reward[rows][whole], expected, rtol=1e-5)


def test_single_steps_are_not_gathered_twice() -> None:
    both = hybrid()
    batch = both.sample(8, 0.5, 0.5, GAMMA, np.random.default_rng(0), with_one_step=True)
    assert batch.one_step is batch.rows


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("with_one_step", [False, True])
def test_a_batch_can_be_rebuilt_from_arrays(share: float, with_one_step: bool) -> None:
    both = HybridReplay(logged(n_step=2), lived(n_step=3), "split")
    batch = both.sample(8, share, 0.5, GAMMA, np.random.default_rng(0), with_one_step)
    again = both.rebuild(batch.arrays())
    assert (again.one_step is again.rows) == (batch.one_step is batch.rows)
    assert again.offline == batch.offline
    assert [part.source for part in again.parts] == [part.source for part in batch.parts]
    for name, value in batch.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], value)
