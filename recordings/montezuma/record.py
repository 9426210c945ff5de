"""Recording episodes of the expert and of random play, and writing them as hyq ships them."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path as FilePath
from typing import Any

import ale_py
import numpy as np
from numpy.typing import NDArray

from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.files import file_digest, new_directory, write_json
from hyq.core.seeding import Streams
from hyq.envs.montezuma import ACTIONS, STEP_LIMIT, STICKINESS, emulator
from hyq.experts.montezuma_data import (
    EXPERT_PERCENT,
    FORMAT,
    SHIPPED,
    Recording,
    Recordings,
    add_to_hash,
    render,
    unpack,
)
from recordings.montezuma.expert import play_episode
from recordings.montezuma.planning import Route
from recordings.montezuma.search import Path


def record_expert(
    routes: Sequence[Route],
    size: int,
    seed: int,
    directory: FilePath,
    noise: float = 0.0,
    skip: Collection[int] = (),
) -> Iterator[tuple[Recording, int]]:
    """Record expert episodes until they have `size` transitions, one small file each.

    Yields each with its score. Episode i depends on the seed and on i alone, so a recording that
    was interrupted resumes where it stopped. The routes take turns. Episodes to `skip` are left
    out: there are some in which the expert searches for very long.
    """
    directory.mkdir(parents=True, exist_ok=True)
    streams, transitions = Streams(seed), 0
    for index in count():
        if transitions >= size:
            return
        if index in skip:
            continue
        path = directory / f"{index:05d}.safetensors"
        if not path.exists():
            game_seed = streams.integer("montezuma-data", "game", index)
            expert_seed = streams.integer("montezuma-data", "expert", index)
            route = routes[index % len(routes)]
            played, score = play_episode(route, game_seed, expert_seed, noise=noise)
            kept = {"seed": np.array(played.seed), "score": np.array(score)}
            save_arrays(path, {"actions": played.actions, **kept})
        arrays = load_arrays(path)
        recording = Recording(int(arrays["seed"]), arrays["actions"])
        yield recording, int(arrays["score"])
        transitions += len(recording.actions)


def record_random(size: int, seed: int) -> Iterator[Recording]:
    """Play uniformly random actions until game over, again and again, for `size` transitions."""
    streams, transitions, index = Streams(seed), 0, 0
    while transitions < size:
        game_seed = streams.integer("montezuma-data", "random-game", index)
        rng = streams.generator("montezuma-data", "random-actions", index)
        game = emulator(game_seed, stickiness=STICKINESS)
        actions: list[int] = []
        for action in rng.integers(ACTIONS, size=STEP_LIMIT).tolist():
            game.act(action)
            actions.append(action)
            if game.game_over():
                break
        yield Recording(game_seed, np.array(actions, np.uint8))
        transitions += len(actions)
        index += 1


def finish(
    expert: Sequence[Recording],
    random: Sequence[Recording],
    manifest: Mapping[str, Any],
    progress: Callable[[int], None] = lambda rows: None,
) -> Recordings:
    """Render the three datasets to learn their hashes."""
    about, digests = {**manifest, "ale_py": ale_py.__version__}, {}
    made = Recordings(expert, random, about)
    for kind in EXPERT_PERCENT:
        total = hashlib.sha256()
        for episode in render(made.dataset(kind), progress):
            add_to_hash(total, episode)
        digests[kind] = total.hexdigest()
    return Recordings(expert, random, {**about, "sha256": digests})


def save(made: Recordings, paths: Sequence[Path], directory: FilePath) -> None:
    """Write recordings, and the paths they follow, into a new directory, whole or not at all."""
    arrays = _pack("path", [path.actions for path in paths])
    arrays["path_score"] = np.array([path.score for path in paths])
    for name, recordings in (("expert", made.expert), ("random", made.random)):
        arrays |= _pack(name, [recording.actions for recording in recordings])
        arrays[f"{name}_seed"] = np.array([recording.seed for recording in recordings])
    with new_directory(directory) as draft:
        np.savez_compressed(draft / "recordings.npz", **arrays)  # type: ignore[arg-type]
        digest = {"recordings": file_digest(draft / "recordings.npz")}
        write_json(draft / "manifest.json", {"format": FORMAT, **made.manifest, **digest})


def recorded_paths(directory: FilePath = SHIPPED["montezuma"]) -> list[Path]:
    """Read the paths that the expert of some recordings followed."""
    with np.load(directory / "recordings.npz", allow_pickle=False) as arrays:
        return list(map(Path, unpack(arrays, "path"), arrays["path_score"].tolist()))


def write_path(file: FilePath, path: Path) -> None:
    """Keep a path."""
    save_arrays(file, {"actions": path.actions, "score": np.array(path.score)})


def read_path(file: FilePath) -> Path:
    """Read a path that was kept."""
    arrays = load_arrays(file)
    return Path(arrays["actions"], int(arrays["score"]))


def _pack(name: str, actions: Sequence[NDArray[np.uint8]]) -> dict[str, NDArray[Any]]:
    return {
        f"{name}_actions": np.concatenate(actions),
        f"{name}_length": np.array([len(one) for one in actions]),
    }
