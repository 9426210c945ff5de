"""Offline data for Montezuma's Revenge."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath

import numpy as np

from hyq.core.files import write_bytes
from hyq.core.seeding import Streams
from hyq.experts.montezuma import Replay, Route, play_episode


def record_expert(
    routes: Sequence[Route], size: int, seed: int, directory: FilePath
) -> Iterator[tuple[Replay, int]]:
    """Record expert episodes until they have `size` transitions, one small file each.

    Episode i depends on the seed and on i alone, so a recording that was interrupted goes on where
    it stopped. The routes take turns.
    """
    directory.mkdir(parents=True, exist_ok=True)
    streams, transitions, index = Streams(seed), 0, 0
    while transitions < size:
        path = directory / f"{index:05d}.npz"
        if not path.exists():
            game_seed = streams.integer("montezuma-data", "game", index)
            expert_seed = streams.integer("montezuma-data", "expert", index)
            replay, score = play_episode(routes[index % len(routes)], game_seed, expert_seed)
            buffer = io.BytesIO()
            np.savez_compressed(buffer, seed=replay.seed, actions=replay.actions, score=score)
            write_bytes(path, buffer.getvalue())
        with np.load(path, allow_pickle=False) as file:
            replay, score = Replay(int(file["seed"]), file["actions"]), int(file["score"])
        yield replay, score
        transitions += len(replay.actions)
        index += 1
