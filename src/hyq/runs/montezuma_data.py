"""Making, showing and exporting the data of Montezuma's Revenge: the verbs of `hyq data`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.data.minari import export_minari
from hyq.envs.montezuma import SIDE
from hyq.experts.montezuma_data import (
    SHIPPED,
    MontezumaData,
    Recordings,
    finish,
    load,
    read_path,
    record_expert,
    record_random,
    write_path,
)
from hyq.experts.montezuma_planning import Route
from hyq.experts.montezuma_search import Path, search_path, tidied
from hyq.experts.montezuma_statistics import Statistics, statistics

SEARCH_SEEDS = (0, 2)
"""Seeds whose searches find the paths of the shipped data: 6,500 and 6,700 points."""

console = Console()


def data_make_montezuma(
    *,
    out: FilePath,
    size: int = 100_000,
    seed: int = 0,
    search_seeds: tuple[int, ...] = SEARCH_SEEDS,
    target: int = 6500,
    budget: int = 450_000,
) -> None:
    """Make the recordings of all three Montezuma datasets from nothing: search, play, hash.

    Takes about an hour on one core for 100,000 transitions, and can be interrupted: episodes are
    kept one by one in OUT.recording, and the same command goes on from there.

    Args:
        out: New directory for the recordings; render them with `hyq data render montezuma`.
        size: Transitions in each dataset; the offline methods of the paper use 1,000,000.
        seed: Chooses the games and the expert's imagination; another seed gives other episodes.
        search_seeds: A path is searched with each of these seeds; the expert follows them in turn.
        target: Points at which a search ends.
        budget: Emulator steps after which a search fails.
    """
    if size < 2:
        raise HyqError(f"size must be at least 2, got {size}")
    if target < 100 or not search_seeds:
        raise HyqError("give a search seed, and a target of at least the first key's 100 points")
    if out.exists():
        raise HyqError(f"{out} exists already: choose another path, or remove it first")
    work = out.with_name(f"{out.name}.recording")
    paths = [_path(work, chosen, target, budget) for chosen in search_seeds]
    expert = []
    with _bar("expert", size) as advance:
        routes = [Route(path) for path in paths]
        # Episodes along other paths, or with another seed, are kept apart.
        recipe = "-".join(map(str, ("expert", seed, target, budget, *search_seeds)))
        for recording, _ in record_expert(routes, size, seed, work / recipe):
            expert.append(recording)
            advance(len(recording.actions))
    with _bar("random", size - size // 2) as advance:
        random = []
        for recording in record_random(size - size // 2, seed):
            random.append(recording)
            advance(len(recording.actions))
    manifest = {
        "size": size,
        "seed": seed,
        "search_seeds": list(search_seeds),
        "target": target,
        "budget": budget,
    }
    with _bar("hashing the images", 3 * size) as advance:
        finish(paths, expert, random, manifest, advance).save(out)
    data_show_montezuma(recordings=out)


def data_show_montezuma(*, recordings: FilePath = SHIPPED) -> None:
    """Check recordings against their hash and print what the two policies did in them.

    Args:
        recordings: Directory of the recordings; by default those that ship with the package.
    """
    source = Recordings.load(recordings)
    table = Table("", "expert", "random", title=str(recordings), title_justify="left")
    expert, random = _rows(statistics(source.expert)), _rows(statistics(source.random))
    for name, value in expert.items():
        table.add_row(name, value, random[name])
    console.print(table)


def data_render_montezuma(kind: MontezumaData, *, out: FilePath, recordings: FilePath) -> None:
    """Render one of the datasets of your own recordings into a directory.

    Args:
        kind: easy (expert only), medium (80 % expert) or hard (half expert, half random).
        out: New directory for the episodes; about 0.7 KB a transition.
        recordings: Directory that `hyq data make montezuma` made.
    """
    source = Recordings.load(recordings)
    with _bar(f"rendering {kind}", int(source.manifest["size"])) as advance:
        source.render(kind, advance).save(out)
    console.print(f"episodes: {out}")


def data_export_montezuma(kind: MontezumaData, *, dataset_id: str) -> None:
    """Export one of the shipped datasets to Minari, without loss.

    Args:
        kind: easy (expert only), medium (80 % expert) or hard (half expert, half random).
        dataset_id: Its name in Minari, such as hyq/montezuma-hard-v0.
    """
    images = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
    export_minari(load(f"montezuma/{kind}"), dataset_id, images, gym.spaces.Discrete(18))
    console.print(f"exported: minari.load_dataset({dataset_id!r})")


def _path(work: FilePath, seed: int, target: int, budget: int) -> Path:
    """Search a path, or read the one that was found before the last interruption."""
    file = work / f"path-{seed}-{target}-{budget}.safetensors"
    if not file.exists():
        work.mkdir(parents=True, exist_ok=True)
        with console.status(f"searching a path with seed {seed} ..."):
            found = search_path([seed], target=target, budget=budget, progress=_announce)
            write_path(file, tidied(found))
    return read_path(file)


def _announce(seed: int, steps: int, path: Path) -> None:
    console.print(f"seed {seed}: {path.score:,} points after {steps:,} steps", highlight=False)


@contextmanager
def _bar(label: str, total: int) -> Iterator["_Advance"]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        yield _Advance(bar, label, total)


class _Advance:
    """Moves one bar on by what it is called with."""

    def __init__(self, bar: Progress, label: str, total: int) -> None:
        self._bar, self._task = bar, bar.add_task(label, total=total)

    def __call__(self, count: int) -> None:
        self._bar.advance(self._task, count)


def _rows(found: Statistics) -> dict[str, str]:
    shares = {f"room {room}": f"{share:.1%}" for room, share in found.room_shares.items()}
    return {
        "episodes": f"{len(found.returns)}",
        "transitions": f"{found.lengths.sum():,}",
        "return, mean (least to most)": _spread(found.returns),
        "length, mean (least to most)": _spread(found.lengths),
        "lives lost an episode": f"{found.lives_lost.mean():.2f}",
        "ended by game over": f"{found.terminated.mean():.0%}",
        "entropy of the action given the place": f"{found.action_entropy:.2f} bits",
        "actions": ", ".join(f"{n} {s:.1%}" for n, s in found.action_shares.items() if s > 0),
        "transitions by room": ", ".join(f"{name} {share}" for name, share in shares.items()),
    }


def _spread(numbers: np.typing.NDArray[np.int64]) -> str:
    return f"{numbers.mean():,.0f} ({numbers.min():,} to {numbers.max():,})"
