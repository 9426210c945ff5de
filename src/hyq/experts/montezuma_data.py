"""The paper's three offline datasets for Montezuma's Revenge, kept as recordings.

* *easy*: expert transitions only;
* *medium*: 80 % expert, 20 % of a uniformly random policy;
* *hard*: half and half.

There are two experts. That of `montezuma/...` often does something else than it planned and finds
its route, as a policy that samples its actions does; that of `montezuma-planner/...` shows one
simple action in each state.

An emulator's seed and the actions taken say everything about an episode, so the package ships no
images: `load("montezuma/hard")` plays the recordings again, checks the result against the SHA-256
of what was recorded, and keeps it in a cache. How they were recorded: recordings/montezuma, beside
the package.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import ale_py
import numpy as np
from numpy.typing import NDArray

from hyq.core.errors import HyqError
from hyq.core.files import file_digest, locked, read_json
from hyq.core.terminal import Terminal, progress_bar
from hyq.data.columns import FORMAT as DATASET_FORMAT
from hyq.data.dataset import Dataset, Episode
from hyq.envs.montezuma import ROOM, SIDE, STICKINESS, Montezuma, emulator

MontezumaData = Literal["easy", "medium", "hard"]
EXPERT_PERCENT: dict[MontezumaData, int] = {"easy": 100, "medium": 80, "hard": 50}
FORMAT = "hyq-recordings-1"
_RECORDINGS = Path(__file__).with_name("montezuma_recordings")
SHIPPED = {
    "montezuma": _RECORDINGS / "noisy",
    "montezuma-planner": _RECORDINGS / "planner",
}
"""Recordings by the name that their datasets begin with."""
SIZE = 100_000
"""Transitions in each dataset that ships."""
DATASETS = [f"{name}/{kind}" for name in SHIPPED for kind in EXPERT_PERCENT]

Count = Callable[[int], object]
"""Receives how many transitions were just done."""


@dataclass(frozen=True)
class Recording:
    """An episode as the game's ALE seed and the actions taken: enough to render it again."""

    seed: int
    actions: NDArray[np.uint8]


@dataclass(frozen=True)
class Recordings:
    """The expert's and a random policy's episodes, and what their images hash to."""

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

    def render(self, kind: MontezumaData, progress: Count = lambda count: None) -> Dataset:
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

    @classmethod
    def load(cls, directory: Path = SHIPPED["montezuma"]) -> "Recordings":
        """Read recordings, by default those of the datasets `montezuma/...`."""
        manifest = read_json(directory / "manifest.json")
        if manifest.get("format") != FORMAT:
            raise HyqError(f"{directory} does not hold {FORMAT} recordings")
        file = directory / "recordings.npz"
        if not file.exists() or file_digest(file) != manifest.get("recordings"):
            raise HyqError(f"{file} was altered or is missing: its hash is not the manifest's")
        with np.load(file, allow_pickle=False) as arrays:
            expert, random = (
                list(map(Recording, arrays[f"{name}_seed"].tolist(), unpack(arrays, name)))
                for name in ("expert", "random")
            )
            return cls(expert, random, manifest)


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


def load(name: str, recordings: Path | None = None, cache: Path | None = None) -> Dataset:
    """Return one of the `DATASETS` by name, such as `montezuma/hard`, rendered on first use.

    Rendering takes a minute or two; the result is kept in `cache`, by default the directory that
    the variable HYQ_CACHE names, or else `~/.cache/hyq`.
    """
    if name not in DATASETS:
        raise HyqError(f"no dataset {name!r}: choose from {', '.join(DATASETS)}")
    group, _, kind = name.partition("/")
    source = Recordings.load(recordings or SHIPPED[group])
    digest = source.manifest["sha256"][kind]
    # With the format in its name, so that what an earlier version kept is not taken for this one's.
    kept = cache or Path(os.environ.get("HYQ_CACHE") or Path.home() / ".cache" / "hyq")
    place = kept / "montezuma" / f"{kind}-{digest[:16]}-{DATASET_FORMAT}"
    if not place.exists():
        size, lock = int(source.manifest["size"]), place.with_name(f".{place.name}.lock")
        with progress_bar(f"rendering {name}", size, Terminal(stderr=True)) as bar, locked(lock):
            # Another process may have rendered it while this one waited.
            if not place.exists():
                done = source.render(cast(MontezumaData, kind), lambda count: bar(advance=count))
                _keep(done, place)
    return Dataset.load(place)


def _keep(dataset: Dataset, place: Path) -> None:
    """Save rendered data, unless another process did: some network disks ignore the lock."""
    try:
        dataset.save(place)
    except HyqError:
        if not place.exists():
            raise


def render(
    recordings: Iterable[Recording], progress: Count = lambda count: None
) -> Iterator[Episode]:
    """Play recordings in the environment, giving single images of 84x84 instead of stacks."""
    env = Montezuma(stack=1)
    for recording in recordings:
        steps = len(recording.actions)
        images = np.empty((steps + 1, SIDE, SIDE), np.uint8)
        rewards, lives = np.empty(steps, np.float32), np.empty(steps + 1, np.int64)
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
        yield Episode(images, actions, rewards, terminated, np.diff(lives) < 0)
        progress(steps)


def journey(recording: Recording) -> tuple[int, int, tuple[int, ...]]:
    """Play a recording again without images: its score, its length, and its rooms in order."""
    game, score = emulator(recording.seed, stickiness=STICKINESS), 0
    rooms = {int(game.getRAM()[ROOM]): None}
    for action in recording.actions.tolist():
        score += game.act(action)
        rooms.setdefault(int(game.getRAM()[ROOM]))
    return score, len(recording.actions), tuple(rooms)


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


def unpack(arrays: Mapping[str, NDArray[Any]], name: str) -> list[NDArray[np.uint8]]:
    """Take apart actions that lie end to end: of the expert, of random play, or of the paths."""
    return np.split(arrays[f"{name}_actions"], np.cumsum(arrays[f"{name}_length"])[:-1])
