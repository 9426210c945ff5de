"""Scripted logs: what they hold is what they say."""

import numpy as np
import pytest

from hyq.experts.scripted import PROBLEMS, scripted_dataset


@pytest.mark.parametrize(("problem", "at_least"), [("mountaincar", -125.0), ("acrobot", -220.0)])
def test_the_scripts_are_better_than_chance(problem: str, at_least: float) -> None:
    returns = {
        share: np.mean([episode.reward.sum() for episode in scripted_dataset(problem, share, 0)])
        for share in (0.0, 1.0)
    }
    assert returns[0.0] > at_least
    assert returns[1.0] < returns[0.0] - 50


def test_the_maze_is_solved_every_time() -> None:
    pytest.importorskip("minigrid")
    logs = scripted_dataset("doorkey", 0.0, 0)
    assert logs.terminated.all()
    assert min(episode.reward.sum() for episode in logs) > 0.9


def test_shares_are_by_transitions_and_the_seed_decides() -> None:
    half = scripted_dataset("mountaincar", 0.5, 1)
    wanted = PROBLEMS["mountaincar"].transitions
    random_rows = int(half.length[half.length == 200].sum())  # the script never runs out of time
    assert random_rows == pytest.approx(wanted / 2, abs=400)
    assert half.digest() == scripted_dataset("mountaincar", 0.5, 1).digest()
    assert half.digest() != scripted_dataset("mountaincar", 0.5, 2).digest()
