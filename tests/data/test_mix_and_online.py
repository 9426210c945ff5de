"""The offline/online proportion, and the store that only grows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyq.core.errors import HyqError
from hyq.core.types import Transitions
from hyq.data.mix import mixing_weights
from hyq.data.online import OnlineStore


@given(st.integers(1, 400), st.integers(1, 400), st.floats(0, 1))
def test_the_share_is_exact_whatever_the_counts(offline: int, online: int, share: float) -> None:
    weights = mixing_weights(offline, online, share)
    np.testing.assert_allclose(weights[:offline].sum(), share, atol=1e-12)
    np.testing.assert_allclose(weights.sum(), 1.0)
    assert len(weights) == offline + online


def test_pooling_gives_every_row_the_same_weight() -> None:
    np.testing.assert_allclose(mixing_weights(3, 7, None), 0.1)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0, None])
def test_a_single_source_carries_all_the_weight(share: float | None) -> None:
    np.testing.assert_allclose(mixing_weights(4, 0, share), 0.25)
    np.testing.assert_allclose(mixing_weights(0, 4, share), 0.25)


def test_impossible_mixes_are_refused() -> None:
    with pytest.raises(HyqError, match="offline_share"):
        mixing_weights(1, 1, 1.5)
    with pytest.raises(HyqError, match="neither"):
        mixing_weights(0, 0, 0.5)


def batch(start: int, counts: tuple[int, ...]) -> tuple[Transitions, ...]:
    parts, at = [], start
    for n in counts:
        x = np.arange(at, at + n, dtype=float)
        parts.append(Transitions(x[:, None], x.astype(int), x, np.ones(n), x[:, None] + 1))
        at += n
    return tuple(parts)


def test_the_store_keeps_every_batch_by_step() -> None:
    first = OnlineStore() + batch(0, (2, 0, 1))
    store = first + batch(10, (1, 3, 1))
    assert len(first) == 3, "a store that was handed out must not grow"
    assert [len(part) for part in store.at(1)] == [0, 3]
    np.testing.assert_array_equal(store.at(0)[1].reward, [10.0])
    assert len(store) == 8


def test_what_is_stored_batch_by_batch_is_rebuilt() -> None:
    original = batch(5, (2, 0, 3))
    store = OnlineStore() + batch(0, (1, 1, 0))
    stored = [store.newest(), (store + original).newest()]
    for before, after in zip(original, OnlineStore.rebuild(stored).batches[1], strict=True):
        np.testing.assert_array_equal(before.observation, after.observation)
        np.testing.assert_array_equal(before.action, after.action)
