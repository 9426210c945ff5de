"""What the Montezuma comparison records besides its runs: its datasets, and films of its policies.

SUITE/datasets.json       returns and rooms of the three datasets and of the expert
SUITE/films/METHOD-DATA/  the record of a film of one policy of each method and dataset
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hyq.core.files import read_json, write_json
from hyq.experts.montezuma import Recording
from hyq.experts.montezuma_data import EXPERT_PERCENT, Recordings
from hyq.experts.montezuma_statistics import Journey, journey
from hyq.runs.film import FILE, Actor, Film, play_film, room_shares
from hyq.runs.records import RunDirectory

DATASETS, FILMS = "datasets.json", "films"
FILM_EPISODES, FILM_SEED, FILM_EPSILON = 20, 7, 0.01


@dataclass(frozen=True)
class DatasetFacts:
    """What the episodes of a dataset, or of one policy in it, earn and reach."""

    episodes: int
    transitions: int
    mean_return: float
    room_shares: dict[int, float]
    """Share of the episodes that visited each room."""

    @classmethod
    def of(cls, journeys: list[Journey]) -> "DatasetFacts":
        """Sum episodes up."""
        return cls(
            len(journeys),
            sum(one.length for one in journeys),
            float(np.mean([one.score for one in journeys])),
            room_shares([one.rooms for one in journeys]),
        )


def write_datasets(path: Path, progress: Callable[[int, int], None]) -> None:
    """Play the recordings of the datasets again, and write down what they earn and reach."""
    source = Recordings.load()
    members = {f"montezuma/{kind}": source.dataset(kind) for kind in EXPERT_PERCENT}
    members["expert"] = list(source.expert)
    played: dict[tuple[int, int], Journey] = {}
    # The datasets share their episodes, but for those that were cut to size.
    different = {_key(one): one for episodes in members.values() for one in episodes}
    for done, (key, recording) in enumerate(different.items(), start=1):
        played[key] = journey(recording)
        progress(done, len(different))
    facts = {
        name: vars(DatasetFacts.of([played[_key(one)] for one in episodes]))
        for name, episodes in members.items()
    }
    write_json(path / DATASETS, facts)


def _key(recording: Recording) -> tuple[int, int]:
    return recording.seed, len(recording.actions)


def read_datasets(path: Path) -> dict[str, DatasetFacts]:
    """Read what `write_datasets` wrote: the facts of each dataset by its name, and the expert's."""
    facts = {}
    for name, content in read_json(path / DATASETS).items():
        shares = {int(room): share for room, share in content.pop("room_shares").items()}
        facts[name] = DatasetFacts(**content, room_shares=shares)
    return facts


@dataclass(frozen=True)
class FilmToMake:
    """A finished run whose policy has not been filmed yet, and where its film belongs."""

    run: Path
    place: Path

    def make(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Let the run's best policy play, and keep the record."""
        actor = Actor.load(self.run)
        play_film(actor, FILM_EPISODES, FILM_SEED, FILM_EPSILON, progress).save(self.place)


def film_name(algorithm: str, data: str | None) -> str:
    """Name the film of a method on a dataset."""
    return algorithm if data is None else f"{algorithm}-{data.rpartition('/')[2]}"


def films_to_make(path: Path) -> list[FilmToMake]:
    """List the films that a suite lacks: one of each method and dataset, of its first seed."""
    found: dict[Path, FilmToMake] = {}
    for name in read_json(path / "suite.json")["runs"]:
        run = path / "runs" / name
        if (run / "summary.json").exists() and (run / "last").exists():
            spec = RunDirectory.open(run).manifest["spec"]
            place = path / FILMS / film_name(spec["algorithm"], spec.get("data"))
            found.setdefault(place, FilmToMake(run, place))
    return [film for film in found.values() if not (film.place / FILE).exists()]


def read_film(path: Path, algorithm: str, data: str | None) -> Film | None:
    """Read the film of a method on a dataset, where the suite has one."""
    place = path / FILMS / film_name(algorithm, data)
    return Film.load(place) if (place / FILE).exists() else None
