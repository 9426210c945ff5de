"""Coverage of logged episodes over cells: exact where it can be, and never flattered."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.types import Array
from hyq.coverage.cells import (
    DISCOUNT,
    Best,
    CellCoverage,
    CellData,
    cell_coverage,
    ranked,
)
from hyq.coverage.estimate import Interval
from hyq.coverage.grid import Grid
from hyq.data.dataset import Dataset, Episode

STATES = np.eye(8, dtype=np.float32)
"""Observations of eight states; each falls into a cell of its own."""


def logged(states: Array, action: int, total: float) -> Episode:
    seen = STATES[np.append(states, states[-1])]
    reward = np.zeros(len(states), np.float32)
    reward[-1] = total
    return Episode(seen, np.full(len(states), action), reward, terminated=True)


def mixture(share: float, seed: int, *, length: int = 40, episodes: int = 100) -> Dataset:
    """Return episodes of which a share is the expert's: in states 0 to 3 rather than 4 to 7."""
    rng = np.random.default_rng(seed)
    good = round(share * episodes)
    expert = [logged(rng.integers(4, size=length), 0, 10.0) for _ in range(good)]
    other = [logged(4 + rng.integers(4, size=length), 1, 0.0) for _ in range(episodes - good)]
    return Dataset.of(expert + other, {})


def read(**logs: Dataset) -> list[CellData]:
    cells = Grid.of(list(logs.values()))
    return [CellData.of(name, one, cells) for name, one in logs.items()]


@pytest.mark.parametrize("share", [1.0, 0.8, 0.5, 0.1])
def test_c_is_the_root_of_one_over_the_share(share: float) -> None:
    (log,) = read(data=mixture(share, seed=1))
    best = Best.of([log])
    found = cell_coverage(log, best)
    assert found.share == pytest.approx(share)
    assert found.transfer.value == pytest.approx(1 / math.sqrt(share), rel=0.02)
    assert found.transfer.low <= 1.02 / math.sqrt(share)
    assert found.unseen == 0.0


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_data_is_compared_with_a_policy_that_plays(share: float) -> None:
    logs, cells = mixture(share, seed=1), Grid.of([mixture(0.5, seed=1)])
    log = CellData.of("data", logs, cells)
    own = CellData.of("policy", mixture(1.0, seed=2, episodes=20), cells, played=True)
    found = cell_coverage(log, Best.played(own, [log]))
    assert found.share == 0.0, "the data has none of its very episodes"
    if share:
        assert found.transfer.value == pytest.approx(1 / math.sqrt(share), rel=0.03)
        assert found.unseen == 0.0
        assert found.over_time.tolist() == [1.0] * 40
    else:
        assert not found.known
        assert found.unseen == pytest.approx(1.0)


def test_a_policy_that_repeats_itself_has_still_played() -> None:
    data = mixture(0.5, seed=1)
    cells = Grid.of([data])
    log = CellData.of("data", data, cells)
    same = Dataset.of([logged(np.arange(4), 0, 1.0)] * 5, {})
    own = CellData.of("policy", same, cells, played=True)
    best = Best.played(own, [log])
    assert len(best.keys) == 5
    assert cell_coverage(own, best).transfer.value == pytest.approx(1.0)
    assert cell_coverage(log, best).transfer.value == pytest.approx(math.sqrt(2), rel=0.05)


def test_the_estimate_is_that_of_the_distributions() -> None:
    rng = np.random.default_rng(2)
    d, other = np.array([0.7, 0.1, 0.1, 0.1]), np.array([0.1, 0.1, 0.1, 0.7])
    expert = [logged(rng.choice(4, size=30, p=d), 0, 1.0) for _ in range(40)]
    poor = [logged(rng.choice(4, size=30, p=other), 0, 0.0) for _ in range(60)]
    (log,) = read(data=Dataset.of(expert + poor, {}))
    found = cell_coverage(log, Best.of([log]))
    exact = math.sqrt((d**2 / (0.4 * d + 0.6 * other)).sum())
    assert found.transfer.value == pytest.approx(exact, rel=0.05)
    assert found.transfer.low < exact < found.transfer.high


def test_an_episode_is_no_evidence_for_itself() -> None:
    """Good episodes that share nothing are not covered, however many of them there are."""
    own = [np.full((31, 4), number, np.float32) for number in range(8)]
    lonely = [Episode(o, np.zeros(30, int), np.ones(30, np.float32), True) for o in own]
    for copies in (1, 2):
        (log,) = read(data=Dataset.of(lonely * copies, {}))
        assert cell_coverage(log, Best.of([log])).unseen == pytest.approx(1.0)


def test_more_of_the_experts_data_ranks_first() -> None:
    logs = read(hard=mixture(0.5, 5), easy=mixture(1.0, 3), medium=mixture(0.8, 4))
    best = Best.of(logs)
    order = ranked([cell_coverage(log, best) for log in logs])
    assert [one.name for one in order] == ["easy", "medium", "hard"]
    squares = np.square([one.transfer.value for one in order])
    assert squares[1:] / squares[:-1] == pytest.approx([1.25, 1.6], rel=0.05)


def roaming(seed: int, *, dimensions: int = 6, episodes: int = 30) -> Dataset:
    """Return episodes through so many dimensions that hardly two of them meet."""
    rng = np.random.default_rng(seed)
    return Dataset.of(
        [
            Episode(
                rng.standard_normal((41, dimensions)).astype(np.float32),
                rng.integers(3, size=40),
                rng.random(40).astype(np.float32),
                terminated=True,
            )
            for _ in range(episodes)
        ],
        {},
    )


def test_episodes_meet_in_many_dimensions() -> None:
    """Cells are regions around 256 rows, however many dimensions there are."""
    logs = read(one=roaming(1, episodes=100), other=roaming(2, episodes=100))
    found = [cell_coverage(log, Best.of(logs)) for log in logs]
    assert all(one.unseen < 0.1 and one.known for one in found)
    few = read(one=roaming(1, episodes=12))
    assert not cell_coverage(few[0], Best.of(few)).known, "two good episodes are not enough"


def test_no_interval_contradicts_what_c_is() -> None:
    """C is at least 1, and at most the root of 1 / the share that the best episodes have."""
    for seed in range(5):
        for share in (1.0, 0.3):
            (log,) = read(data=mixture(share, seed, length=6, episodes=30))
            found = cell_coverage(log, Best.of([log]))
            most = math.sqrt(1 / found.share)
            value = found.transfer
            assert 1 <= value.low <= value.value <= value.high <= most * (1 + 1e-12)


def test_data_that_leaves_more_out_is_no_better() -> None:
    """A third of the expert's visits in cells of their own make C smaller, and the data worse."""
    whole, partial = read(whole=mixture(0.5, 3), partial=mixture(0.5, 4))
    early = partial.visits.time < 13
    lonely = np.arange(len(partial.visits), dtype=np.uint64)
    scattered = replace(partial.visits, pair=np.where(early, lonely, partial.visits.pair))
    partial = replace(partial, visits=scattered)
    found = [cell_coverage(log, Best.of([log])) for log in (partial, whole)]
    assert found[0].unseen == pytest.approx((1 - DISCOUNT**13) / (1 - DISCOUNT**40))
    assert found[0].over_time.tolist() == [0.0] * 13 + [1.0] * 27
    assert found[0].transfer.value < found[1].transfer.value
    assert found[0].known
    assert not found[0].covered
    assert [one.name for one in ranked(found)] == ["whole", "partial"]


def test_data_that_shows_what_else_can_be_done_comes_first() -> None:
    """C is smallest for the expert's data alone, which does not say that action 1 is worse."""
    rng = np.random.default_rng(5)
    expert = [logged(rng.integers(4, size=40), 0, 10.0) for _ in range(50)]
    other = [logged(rng.integers(4, size=40), 1, 0.0) for _ in range(50)]
    logs = read(expert=Dataset.of(expert, {}), half=Dataset.of(expert[:25] + other[:25], {}))
    best = Best.of(logs)
    found = {log.name: cell_coverage(log, best) for log in logs}
    assert found["expert"].transfer.value == pytest.approx(1.0, rel=0.02)
    assert found["half"].transfer.value == pytest.approx(math.sqrt(2), rel=0.05)
    assert found["expert"].untried == pytest.approx(0.5), "of the two actions that all logs know"
    assert found["half"].untried == 0.0
    assert [one.name for one in ranked(list(found.values()))] == ["half", "expert"]


def test_hardly_more_that_was_tried_does_not_outweigh_c() -> None:
    (log,) = read(data=mixture(1.0, seed=1))
    known = cell_coverage(log, Best.of([log]))
    c = known.transfer

    def graded(name: str, untried: float, factor: float) -> CellCoverage:
        value = Interval(c.value * factor, c.low * factor, c.high * factor)
        return replace(known, name=name, untried=untried, transfer=value)

    closer, shown = graded("closer", 0.31, 1.5), graded("shown", 0.29, 2.0)
    far = graded("far", 0.0, 100.0)
    assert [one.name for one in ranked([far, shown, closer])] == ["closer", "shown", "far"]
    order = ranked([replace(closer, untried=0.4), shown])
    assert [one.name for one in order] == ["shown", "closer"]
    order = ranked([closer, shown], {"closer": 0.2, "shown": 0.05})
    assert [one.name for one in order] == ["shown", "closer"], "the closer one leads astray"


def test_what_was_tried_where_episodes_begin_counts_more() -> None:
    """Two datasets try as much beside the best episodes: one of them early, the other late."""
    rooms = (np.arange(4).repeat(100), np.arange(4, 8).repeat(100))
    expert = [
        logged(np.concatenate([np.roll(room, 100 * k) for room in rooms]), 0, 10.0)
        for k in range(4)
    ]
    early, late = ([logged(room, 1, 0.0)] for room in rooms)
    logs = read(late=Dataset.of(expert + late, {}), early=Dataset.of(expert + early, {}))
    found = [cell_coverage(log, Best.of(logs)) for log in logs]
    beyond = DISCOUNT**400 / (1 + DISCOUNT**400)
    assert [one.untried for one in found] == pytest.approx([(1 - beyond) / 2, beyond / 2])
    assert [one.name for one in ranked(found)] == ["early", "late"]


def test_what_was_tried_in_the_very_episode_alone_does_not_count() -> None:
    wandering = [logged(np.roll(np.arange(4), k), int(k == 1), 10.0) for k in range(4)]
    (log,) = read(data=Dataset.of(wandering, {}))
    found = cell_coverage(log, Best.of([log]))
    # Three episodes miss nothing; the one that tried action 1 is the only one that shows it.
    assert found.untried == pytest.approx(0.5 / 4)


def test_data_of_one_good_episode_has_nothing_to_hold_it_against() -> None:
    expert = [logged(np.roll(np.arange(4), k), 0, 10.0) for k in range(3)]
    one, _ = logs = read(one=Dataset.of(expert[:1], {}), rest=Dataset.of(expert[1:], {}))
    found = cell_coverage(one, Best.of(logs))
    assert found.untried == pytest.approx(1 / 3), "all that it has is the one itself"
    assert found.unseen == pytest.approx(1 / 3)


def test_episodes_that_are_shared_are_pooled_once() -> None:
    data = mixture(0.5, 8)
    logs = read(one=data, same=data)
    best = Best.of(logs)
    assert best.pooled == 100
    assert (best.mean_return, len(best.keys)) == (10.0, 50)


def test_too_few_good_episodes_say_nothing() -> None:
    (log,) = read(data=mixture(0.2, 9))
    best = Best.of([log])
    few = replace(best, keys=best.keys[:2], visits=best.visits[best.visits.episode < 2])
    found = cell_coverage(log, few)
    assert not found.known
    known = cell_coverage(log, best)
    assert ranked([found, known])[0] is known


def test_images_that_look_alike_share_a_cell() -> None:
    room = np.zeros((84, 84), np.uint8)
    room[40:, :] = 130
    noisy, moved = room.copy(), room.copy()
    noisy[3, 3] = 9
    room[20:30, 20:30], noisy[20:30, 20:30], moved[20:30, 50:60] = 250, 250, 250
    images = np.stack([room, noisy, moved])
    episode = Episode(images, np.zeros(2, int), np.zeros(2, np.float32), True)
    time = np.zeros(3, int)
    cells = Grid.of([Dataset.of([episode], {})]).place(images, time)
    assert cells[0] == cells[1] != cells[2]
    in_colour = np.repeat(images[..., None], 3, axis=-1)
    episode = replace(episode, observation=in_colour)
    colour = Grid.of([Dataset.of([episode], {})]).place(in_colour, time)
    assert colour[0] == colour[1] != colour[2]


def test_unlike_observations_are_not_compared() -> None:
    flat = [Episode(np.zeros((3, 5), np.float32), np.zeros(2, int), np.zeros(2, np.float32), True)]
    with pytest.raises(HyqError, match="one shape"):
        Grid.of([mixture(0.5, 1), Dataset.of(flat, {})])


def driving(seed: int, steering: float) -> Dataset:
    """Return episodes with dictionary observations, whose actions are points on a line."""
    rng = np.random.default_rng(seed)

    def one() -> Episode:
        state = rng.integers(4, size=21)
        seen: dict[str, Array] = {"state": STATES[state], "parity": state[:, None] % 2}
        action = np.full((20, 1), steering) + rng.uniform(-0.1, 0.1, (20, 1))
        return Episode(seen, action, np.full(20, steering, np.float32), True)

    return Dataset.of([one() for _ in range(30)], {})


def test_dictionaries_and_vectors_of_actions_have_cells() -> None:
    """Half of the data steers left and earns less: C of the best is the root of two."""
    left, right = driving(1, 0.0), driving(2, 1.0)
    (data,) = read(data=Dataset.of([*left, *right], {}))
    found = cell_coverage(data, Best.of([data]))
    assert len(data.actions) == 16
    assert len(np.unique(data.visits.place)) == 4
    assert found.transfer.value == pytest.approx(math.sqrt(2), rel=0.07)
    assert found.unseen == found.untried == 0.0
    (alone,) = read(data=right)
    assert cell_coverage(alone, Best.of([alone])).transfer.value == pytest.approx(1, rel=0.07)


def test_whole_numbers_are_cells_of_their_own() -> None:
    states = np.arange(600)[:, None] + np.array([0, 1])
    data = Dataset.of([Episode(s, np.zeros(1, int), np.ones(1), True) for s in states], {})
    assert len(np.unique(Grid.of([data]).place(np.arange(601), np.zeros(601, int)))) == 601
