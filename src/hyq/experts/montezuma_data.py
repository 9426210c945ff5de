"""The paper's three offline datasets for Montezuma's Revenge, kept as recordings.

* *easy*: expert transitions only;
* *medium*: 80 % expert, 20 % of a uniformly random policy;
* *hard*: half and half.

An emulator's seed and the actions taken say everything about an episode, so the package ships no
images: `load("montezuma/hard")` plays the recordings again, checks the result against the SHA-256
of what was recorded, and keeps it in a cache.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any, Literal

import ale_py
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.errors import HyqError
from hyq.core.files import file_digest, locked, new_directory, read_json, write_json
from hyq.core.seeding import Streams
from hyq.data.columns import FORMAT as DATASET_FORMAT
from hyq.data.dataset import Dataset, Episode
from hyq.envs.montezuma import ACTIONS, SIDE, STEP_LIMIT, STICKINESS, Montezuma, emulator
from hyq.experts.montezuma import Recording, play_episode
from hyq.experts.montezuma_planning import Route
from hyq.experts.montezuma_search import Path

MontezumaData = Literal["easy", "medium", "hard"]
EXPERT_PERCENT: dict[MontezumaData, int] = {"easy": 100, "medium": 80, "hard": 50}
FORMAT = "hyq-recordings-1"
SHIPPED = FilePath(__file__).with_name("montezuma_recordings")

Count = Callable[[int], None]
"""Receives how many transitions were just done."""


def _ignore(count: int) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class Recordings:
    """Paths, the expert's and a random policy's episodes, and what their images hash to."""

    paths: Sequence[Path]
    expert: Sequence[Recording]
    random: Sequence[Recording]
    manifest: Mapping[str, Any]
    """`size` transitions in each dataset, the `sha256` of each, and how they were made."""

    def dataset(self, kind: MontezumaData) -> list[Recording]:
        """Return the episodes of one dataset, the last of each policy cut to the exact share."""
        if kind not in EXPERT_PERCENT:
            raise HyqError(f"Montezuma data is one of {', '.join(EXPERT_PERCENT)}, got {kind!r}")
        size = int(self.manifest["size"])
        expert = size * EXPERT_PERCENT[kind] // 100
        return [*first(self.expert, expert), *first(self.random, size - expert)]

    def render(self, kind: MontezumaData, progress: Count = _ignore) -> Dataset:
        """Play a dataset's recordings again; raise if the result is not what was recorded."""
        contents = hashlib.sha256()

        def hashed() -> Iterator[Episode]:
            for episode in render(self.dataset(kind), progress):
                add_to_hash(contents, episode)
                yield episode

        provenance = {
            "environment": "hyq/Montezuma-v0",
            "behaviour": kind,
            **{name: self.manifest[name] for name in ("size", "seed", "ale_py")},
        }
        dataset = Dataset.of(hashed(), provenance)
        if contents.hexdigest() != self.manifest["sha256"][kind]:
            raise HyqError(
                f"montezuma/{kind} came out different with ale-py {ale_py.__version__}: it was "
                f"made with {self.manifest['ale_py']}, install that version"
            )
        return dataset

    def save(self, directory: FilePath) -> None:
        """Write the recordings into a new directory, whole or not at all."""
        arrays = _pack("path", [path.actions for path in self.paths])
        arrays["path_score"] = np.array([path.score for path in self.paths])
        for name, recordings in (("expert", self.expert), ("random", self.random)):
            arrays |= _pack(name, [recording.actions for recording in recordings])
            arrays[f"{name}_seed"] = np.array([recording.seed for recording in recordings])
        with new_directory(directory) as draft:
            np.savez_compressed(draft / "recordings.npz", **arrays)  # type: ignore[arg-type]
            digest = {"recordings": file_digest(draft / "recordings.npz")}
            write_json(draft / "manifest.json", {"format": FORMAT, **self.manifest, **digest})

    @classmethod
    def load(cls, directory: FilePath = SHIPPED) -> "Recordings":
        """Read recordings, by default those that ship with the package."""
        manifest = read_json(directory / "manifest.json")
        if manifest.get("format") != FORMAT:
            raise HyqError(f"{directory} does not hold {FORMAT} recordings")
        file = directory / "recordings.npz"
        if not file.exists() or file_digest(file) != manifest.get("recordings"):
            raise HyqError(f"{file} was altered or is missing: its hash is not the manifest's")
        with np.load(file, allow_pickle=False) as arrays:
            paths = map(Path, _unpack(arrays, "path"), arrays["path_score"].tolist())
            expert, random = (
                list(map(Recording, arrays[f"{name}_seed"].tolist(), _unpack(arrays, name)))
                for name in ("expert", "random")
            )
            return cls(list(paths), expert, random, manifest)


def add_to_hash(total: "hashlib._Hash", episode: Episode) -> None:
    """Take everything in an episode into account."""
    lost = np.zeros(0, np.bool_) if episode.life_lost is None else episode.life_lost
    total.update(repr((len(episode.action), bool(episode.terminated))).encode())
    for column, dtype in (
        (episode.observation, np.uint8),
        (episode.action, np.uint8),
        (episode.reward, "<f4"),
        (lost, np.uint8),
    ):
        total.update(np.ascontiguousarray(column, dtype=dtype).tobytes())


def load(name: str, recordings: FilePath = SHIPPED, cache: FilePath | None = None) -> Dataset:
    """Return `montezuma/easy`, `montezuma/medium` or `montezuma/hard`, rendered on first use.

    Rendering takes a minute or two; the result is kept in `cache`, by default the directory that
    the variable HYQ_CACHE names, or else `~/.cache/hyq`.
    """
    kinds = {f"montezuma/{kind}": kind for kind in EXPERT_PERCENT}
    if name not in kinds:
        raise HyqError(f"no dataset {name!r}: choose from {', '.join(kinds)}")
    kind = kinds[name]
    source = Recordings.load(recordings)
    digest = source.manifest["sha256"][kind]
    # With the format in its name, so that what an earlier version kept is not taken for this one's.
    place = (cache or cache_directory()) / "montezuma" / f"{kind}-{digest[:16]}-{DATASET_FORMAT}"
    if not place.exists():
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(f"rendering {name}", total=int(source.manifest["size"]))
            with locked(place.with_name(f".{place.name}.lock")):
                # Another process may have rendered it while this one waited.
                if not place.exists():
                    _keep(source.render(kind, partial(bar.advance, task)), place)
    return Dataset.load(place)


def _keep(dataset: Dataset, place: FilePath) -> None:
    """Save rendered data, unless another process did: some network disks ignore the lock."""
    try:
        dataset.save(place)
    except HyqError:
        if not place.exists():
            raise


def cache_directory() -> FilePath:
    """Return where rendered data is kept."""
    chosen = os.environ.get("HYQ_CACHE")
    return FilePath(chosen) if chosen else FilePath.home() / ".cache" / "hyq"


def render(recordings: Iterable[Recording], progress: Count = _ignore) -> Iterator[Episode]:
    """Play recordings in the environment, giving single images of 84x84 instead of stacks."""
    env = Montezuma(stack=1)
    for recording in recordings:
        yield _render(env, recording)
        progress(len(recording.actions))


def _render(env: Montezuma, recording: Recording) -> Episode:
    steps = len(recording.actions)
    images = np.empty((steps + 1, SIDE, SIDE), np.uint8)
    rewards = np.empty(steps, np.float32)
    lives = np.empty(steps + 1, np.int64)
    images[:1], info = env.reset(seed=recording.seed)
    lives[0] = info["lives"]
    over = terminated = False
    for t, action in enumerate(recording.actions.tolist()):
        if over:
            raise HyqError(f"recording {recording.seed} continues after its game is over")
        images[t + 1 : t + 2], rewards[t], terminated, truncated, info = env.step(action)
        lives[t + 1] = info["lives"]
        over = terminated or truncated
    actions = recording.actions.astype(np.int64)
    return Episode(images, actions, rewards, terminated, np.diff(lives) < 0)


def first(recordings: Iterable[Recording], transitions: int) -> list[Recording]:
    """Return the first episodes with exactly so many transitions, cutting the last one off."""
    chosen = []
    for recording in recordings:
        if transitions <= 0:
            break
        chosen.append(Recording(recording.seed, recording.actions[:transitions]))
        transitions -= len(chosen[-1].actions)
    if transitions > 0:
        raise HyqError(f"the recordings are {transitions} transitions too short")
    return chosen


def record_expert(
    routes: Sequence[Route], size: int, seed: int, directory: FilePath
) -> Iterator[tuple[Recording, int]]:
    """Record expert episodes until they have `size` transitions, one small file each.

    Yields each with its score. Episode i depends on the seed and on i alone, so a recording that
    was interrupted resumes where it stopped. The routes take turns.
    """
    directory.mkdir(parents=True, exist_ok=True)
    streams, transitions, index = Streams(seed), 0, 0
    while transitions < size:
        path = directory / f"{index:05d}.safetensors"
        if not path.exists():
            game_seed = streams.integer("montezuma-data", "game", index)
            expert_seed = streams.integer("montezuma-data", "expert", index)
            played, score = play_episode(routes[index % len(routes)], game_seed, expert_seed)
            kept = {"seed": np.array(played.seed), "score": np.array(score)}
            save_arrays(path, {"actions": played.actions, **kept})
        arrays = load_arrays(path)
        recording = Recording(int(arrays["seed"]), arrays["actions"])
        yield recording, int(arrays["score"])
        transitions += len(recording.actions)
        index += 1


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
    paths: Sequence[Path],
    expert: Sequence[Recording],
    random: Sequence[Recording],
    manifest: Mapping[str, Any],
    progress: Count = _ignore,
) -> Recordings:
    """Render the three datasets to learn their hashes."""
    made = Recordings(paths, expert, random, {**manifest, "ale_py": ale_py.__version__})
    digests = {}
    for kind in EXPERT_PERCENT:
        total = hashlib.sha256()
        for episode in render(made.dataset(kind), progress):
            add_to_hash(total, episode)
        digests[kind] = total.hexdigest()
    return replace(made, manifest={**made.manifest, "sha256": digests})


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


def _unpack(arrays: Mapping[str, NDArray[Any]], name: str) -> list[NDArray[np.uint8]]:
    return np.split(arrays[f"{name}_actions"], np.cumsum(arrays[f"{name}_length"])[:-1])
