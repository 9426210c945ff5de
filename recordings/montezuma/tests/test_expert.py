import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.envs.montezuma import STICKINESS, emulator
from hyq.experts.montezuma_data import SHIPPED, Recordings, journey
from recordings.montezuma.expert import play_episode
from recordings.montezuma.planning import Route
from recordings.montezuma.record import recorded_paths
from recordings.montezuma.search import Path, PathSearch, score_of, search_path, tidied


@pytest.fixture(scope="module")
def route() -> Route:
    return Route(recorded_paths()[0])


def test_the_shipped_paths_score_what_they_say() -> None:
    for path in recorded_paths():
        assert score_of(path.actions.tolist()) == path.score >= 6500


def test_the_expert_is_deterministic_and_makes_progress(route: Route) -> None:
    first, score = play_episode(route, game_seed=3, expert_seed=4, limit=60)
    second, _ = play_episode(route, game_seed=3, expert_seed=4, limit=60)
    other, _ = play_episode(route, game_seed=5, expert_seed=4, limit=60)
    np.testing.assert_array_equal(first.actions, second.actions)
    assert not np.array_equal(first.actions, other.actions)
    game = emulator(3, stickiness=STICKINESS)
    before, _ = route.locate(game.getRAM(), 0)
    assert sum(game.act(action) for action in first.actions.tolist()) == score
    after, _ = route.locate(game.getRAM(), score)
    # It may have had to wait for the skull, but not for all of the time.
    assert after > before + 25


def test_recorded_episodes_reach_the_score_of_their_route() -> None:
    first, second = recorded_paths()
    expert = Recordings.load(SHIPPED["montezuma-planner"]).expert[:3]
    for recording, path in zip(expert, (first, second, first), strict=True):
        assert journey(recording)[0] == path.score >= 6500


def test_a_noisy_expert_does_other_things_and_still_gets_on(route: Route) -> None:
    planned, _ = play_episode(route, game_seed=3, expert_seed=4, limit=80)
    noisy, score = play_episode(route, game_seed=3, expert_seed=4, limit=80, noise=0.4)
    again, _ = play_episode(route, game_seed=3, expert_seed=4, limit=80, noise=0.4)
    np.testing.assert_array_equal(noisy.actions, again.actions)
    kinds = [len(set(one.actions.tolist())) for one in (planned, noisy)]
    assert kinds[1] >= 2 * kinds[0], "it tries actions that no plan holds"
    game = emulator(3, stickiness=STICKINESS)
    assert sum(game.act(action) for action in noisy.actions.tolist()) == score
    assert game.lives() == emulator(3).lives()
    assert route.locate(game.getRAM(), score)[0] > 20


def test_the_expert_plays_a_route_to_its_end() -> None:
    to_the_key = Path(recorded_paths()[0].actions[:102], 100)
    assert score_of(to_the_key.actions.tolist()) == 100
    assert score_of(to_the_key.actions[:-1].tolist()) == 0
    episode, score = play_episode(Route(to_the_key), game_seed=4, expert_seed=4)
    assert score == journey(episode)[0] == 100
    assert len(episode.actions) < 200, "it may wait for the skull, but not for ever"


def test_progress_needs_the_same_room_inventory_and_score(route: Route) -> None:
    ram = emulator().getRAM()
    assert route.locate(ram, 0)[0] >= 0
    assert route.locate(ram, 12345)[1] == len(route)
    assert route.locate(ram, 50)[0] < 0


def test_the_search_depends_on_seed_and_budget_alone() -> None:
    found = []
    for seed in (1, 1, 2):
        search = PathSearch(seed)
        list(search.run(budget=1500, target=10_000))
        assert 1500 <= search.steps < 1560
        cells = [(cell.key, cell.length) for cell in search._all]
        found.append((search.best.score, search.best.actions.tolist(), cells))
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_a_search_that_fails_says_so() -> None:
    with pytest.raises(HyqError, match="no search reached 6500"):
        search_path([0, 1], budget=200)


def test_tidying_changes_actions_but_not_the_game() -> None:
    # Jump to the right with the button held for long, then press DOWN in mid-air.
    messy = Path(np.array([11] * 4 + [5] * 6, np.uint8), 0)
    tidy = tidied(messy)
    assert tidy.actions[0] == 11
    assert not (tidy.actions[1:4] == 11).any()
    ends = []
    for path in (messy, tidy):
        game = emulator()
        for action in path.actions.tolist():
            game.act(action)
        ends.append(game.getScreen())
    np.testing.assert_array_equal(ends[0], ends[1])
