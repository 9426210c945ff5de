"""What the Montezuma comparison records besides its runs: its datasets, and videos of policies.

SUITE/datasets.json           returns and rooms of the three datasets and of the expert
SUITE/videos/ALGORITHM-DATA/  the record of a video of one policy of each algorithm and dataset
"""

from collections.abc import Callable
from pathlib import Path

from hyq.core.files import read_json, write_json
from hyq.experts.montezuma_data import EXPERT_PERCENT, Recording, Recordings, journey
from hyq.runs.records import RunDirectory, read_suite
from hyq.runs.video import FILE, Environment, EpisodeFacts, Video, load_policy, play_video

DATASETS, VIDEOS = "datasets.json", "videos"


def write_datasets(path: Path, progress: Callable[[int, int], None]) -> None:
    """Play the recordings of the datasets again; write down their returns and rooms."""
    source = Recordings.load()
    members = {f"montezuma/{kind}": source.dataset(kind) for kind in EXPERT_PERCENT}
    members["expert"] = list(source.expert)
    # The datasets share their episodes, but for those that were cut to size.
    different = {_key(one): one for episodes in members.values() for one in episodes}
    played = {}
    for done, (key, recording) in enumerate(different.items(), start=1):
        played[key] = journey(recording)
        progress(done, len(different))
    facts = {
        name: vars(EpisodeFacts.of([played[_key(one)] for one in episodes]))
        for name, episodes in members.items()
    }
    write_json(path / DATASETS, facts)


def _key(recording: Recording) -> tuple[int, int]:
    return recording.seed, len(recording.actions)


def read_datasets(path: Path) -> dict[str, EpisodeFacts]:
    """Read the facts of each dataset by its name, and the expert's; none before they are there."""
    facts = {}
    written = read_json(path / DATASETS) if (path / DATASETS).exists() else {}
    for name, content in written.items():
        shares = {int(room): share for room, share in content.pop("room_shares").items()}
        facts[name] = EpisodeFacts(**content, room_shares=shares)
    return facts


def video_place(path: Path, algorithm: str, data: str | None) -> Path:
    """Return where the video of an algorithm on a dataset belongs."""
    name = algorithm if data is None else f"{algorithm}-{data.rpartition('/')[2]}"
    return path / VIDEOS / name


def videos_to_make(path: Path) -> dict[Path, Path]:
    """Return the videos that a suite lacks, as {place: run}.

    There is one of each algorithm and dataset, of its first seed, once that has finished.
    """
    found: dict[Path, Path] = {}
    for name in read_suite(path)["runs"]:
        run = path / "runs" / name
        if (run / "summary.json").exists() and (run / "last").exists():
            spec = RunDirectory.open(run).manifest["spec"]
            found.setdefault(video_place(path, spec["algorithm"], spec.get("data")), run)
    return {place: run for place, run in found.items() if not (place / FILE).exists()}


def make_video(run: Path, place: Path, progress: Callable[[int, int], None]) -> None:
    """Let a run's best policy play, and keep the record."""
    policy = load_policy(run)
    play_video(policy, Environment.of(policy), progress=progress).save(place)


def read_video(path: Path, algorithm: str, data: str | None) -> Video | None:
    """Read the video of an algorithm on a dataset, where the suite has one."""
    place = video_place(path, algorithm, data)
    return Video.load(place) if (place / FILE).exists() else None
