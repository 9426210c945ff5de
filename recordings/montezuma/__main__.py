"""python -m recordings.montezuma: make recordings from nothing, show them, render them."""

import sys
from collections.abc import Iterable
from pathlib import Path as FilePath

import numpy as np
import tyro
from rich.console import Console

from hyq.core.errors import HyqError
from hyq.core.files import check_free
from hyq.core.terminal import progress_bar
from hyq.experts.montezuma_data import SHIPPED, MontezumaData, Recording, Recordings
from hyq.report.tables import TextTable
from recordings.montezuma.planning import Route
from recordings.montezuma.record import (
    finish,
    read_path,
    record_expert,
    record_random,
    save,
    write_path,
)
from recordings.montezuma.search import Path, search_path, tidied
from recordings.montezuma.statistics import Statistics, statistics

SEARCH_SEEDS = (0, 2)
"""Seeds whose searches find the paths of the shipped data: 6,500 and 6,700 points."""

console = Console()


def make(
    *,
    out: FilePath,
    size: int = 100_000,
    seed: int = 0,
    search_seeds: tuple[int, ...] = SEARCH_SEEDS,
    target: int = 6500,
    budget: int = 450_000,
    noise: float = 0.4,
    skip: tuple[int, ...] = (),
) -> None:
    """Make the recordings of all three Montezuma datasets from nothing: search, play, hash.

    Takes about half an hour on one core for 100,000 transitions, and can be interrupted: episodes
    are kept one by one in OUT.recording, and the same command continues from there.

    Args:
        out: New directory for the recordings; make datasets of them with `render`.
        size: Transitions in each dataset; the offline algorithms of the paper use 1,000,000.
        seed: Chooses the games and the expert's imagination; another seed gives other episodes.
        search_seeds: A path is searched with each of these seeds; the expert follows them in turn.
        target: Points at which a search ends.
        budget: Emulator steps after which a search fails.
        noise: Chance that the expert does something random first, where it survives that; with 0
            it plays one simple action in each state.
        skip: Numbers of episodes to leave out, where the expert searches for too long.
    """
    if size < 2:
        raise HyqError(f"size must be at least 2, got {size}")
    if target < 100 or not search_seeds:
        raise HyqError("give a search seed, and a target of at least the first key's 100 points")
    if not 0 <= noise < 1:
        raise HyqError(f"noise must be within [0, 1), got {noise}")
    check_free(out)
    work = out.with_name(f"{out.name}.recording")
    paths = [_path(work, chosen, target, budget) for chosen in search_seeds]
    routes = [Route(path) for path in paths]
    # Episodes along other paths, or with another seed, are kept apart.
    recipe = "-".join(map(str, ("expert", seed, noise, target, budget, *search_seeds)))
    played = record_expert(routes, size, seed, work / recipe, noise, skip)
    episodes = (episode for episode, _ in played)
    expert = _recorded("expert", episodes, size)
    random = _recorded("random", record_random(size - size // 2, seed), size - size // 2)
    manifest = {
        "size": size,
        "seed": seed,
        "search_seeds": list(search_seeds),
        "target": target,
        "budget": budget,
        "noise": noise,
        "skip": list(skip),
    }
    with progress_bar("hashing the images", 3 * size) as update:
        save(finish(expert, random, manifest, lambda rows: update(advance=rows)), paths, out)
    show(recordings=out)


def show(*, recordings: FilePath = SHIPPED["montezuma"]) -> None:
    """Check recordings against their hash and print what the two policies did in them.

    Args:
        recordings: Directory of the recordings; by default those that ship with the package.
    """
    source = Recordings.load(recordings)
    expert, random = _facts(statistics(source.expert)), _facts(statistics(source.random))
    rows = [(name, value, random[name]) for name, value in expert.items()]
    console.print(TextTable(("", "expert", "random"), rows, str(recordings), left=3).rich())


def render(kind: MontezumaData, *, out: FilePath, recordings: FilePath) -> None:
    """Render one of the datasets of your own recordings into a directory.

    Args:
        kind: easy (expert only), medium (80 % expert) or hard (half expert, half random).
        out: New directory for the episodes; about 0.7 KB a transition.
        recordings: Directory that `make` made.
    """
    source = Recordings.load(recordings)
    with progress_bar(f"rendering {kind}", int(source.manifest["size"])) as update:
        source.render(kind, lambda rows: update(advance=rows)).save(out)
    console.print(f"episodes: {out}")


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


def _recorded(label: str, episodes: Iterable[Recording], size: int) -> list[Recording]:
    recorded = []
    with progress_bar(label, size) as update:
        for episode in episodes:
            recorded.append(episode)
            update(advance=len(episode.actions))
    return recorded


def _facts(found: Statistics) -> dict[str, str]:
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


if __name__ == "__main__":
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"make": make, "show": show, "render": render}, prog="python -m recordings.montezuma"
        )
    except HyqError as error:
        sys.exit(f"recordings: {error}")
