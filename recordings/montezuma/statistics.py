"""What recorded episodes of Montezuma's Revenge hold: returns, rooms, actions and how varied."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from ale_py import Action
from numpy.typing import NDArray

from hyq.envs.montezuma import ACTIONS, STICKINESS, emulator
from hyq.experts.montezuma_data import Recording
from recordings.montezuma.console import ROOM, SPARE_LIVES, X, Y


@dataclass(frozen=True)
class Statistics:
    """Numbers about a set of episodes."""

    returns: NDArray[np.int64]
    lengths: NDArray[np.int64]
    lives_lost: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    room_shares: dict[int, float]
    """Share of the transitions that start in each room."""
    action_shares: dict[str, float]
    action_entropy: float
    """Bits that the action is uncertain by, given the room and the player's place to 4 pixels."""


def statistics(recordings: Iterable[Recording]) -> Statistics:
    """Play recordings again without images and count."""
    episodes, places, actions = [], [], []
    for recording in recordings:
        game, score = emulator(recording.seed, stickiness=STICKINESS), 0
        lives = int(game.getRAM()[SPARE_LIVES])
        for action in recording.actions.tolist():
            ram = game.getRAM()
            places.append((int(ram[ROOM]), int(ram[X]) >> 2, int(ram[Y]) >> 2))
            score += game.act(action)
        # The last life's end takes the counter below zero, in one byte.
        lost = min(lives - int(game.getRAM()[SPARE_LIVES]), lives) + game.game_over()
        episodes.append((score, len(recording.actions), lost, game.game_over()))
        actions.extend(recording.actions.tolist())
    returns, lengths, losses, over = zip(*episodes, strict=True)
    rooms, counts = np.unique([room for room, _, _ in places], return_counts=True)
    frequency = np.bincount(actions, minlength=ACTIONS) / len(actions)
    return Statistics(
        np.array(returns),
        np.array(lengths),
        np.array(losses),
        np.array(over),
        dict(zip(rooms.tolist(), (counts / len(places)).tolist(), strict=True)),
        {Action(index).name: float(frequency[index]) for index in range(ACTIONS)},
        conditional_entropy(places, actions),
    )


def conditional_entropy(places: list[tuple[int, int, int]], actions: list[int]) -> float:
    """Return H(action | place) of the empirical distribution, in bits."""
    _, place = np.unique(np.array(places), axis=0, return_inverse=True)
    joint = np.unique(place.ravel() * ACTIONS + np.array(actions), return_counts=True)[1]
    marginal = np.unique(place, return_counts=True)[1]
    return _entropy(joint) - _entropy(marginal)


def _entropy(counts: NDArray[np.int64]) -> float:
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum())
