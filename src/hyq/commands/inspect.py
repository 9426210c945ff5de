"""The subcommand that inspects data before anything is trained on it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from hyq.commands.watch import progress_bar
from hyq.core.errors import HyqError
from hyq.core.files import check_writable, read_json
from hyq.core.terminal import Terminal
from hyq.coverage.cells import FEWEST_BEST
from hyq.coverage.episodes import EpisodesInspection
from hyq.coverage.features import FeatureKind
from hyq.coverage.inspect import inspect_dataset
from hyq.coverage.inspection import Inspection, easier, ranked, too_close
from hyq.coverage.policy import holds_deep_policy
from hyq.data.columns import Observation, over_columns
from hyq.data.dataset import Dataset, Episode
from hyq.report.inspect import print_inspection, write_episodes, write_inspection
from hyq.runs.named_data import described_names, load
from hyq.runs.video import Environment, EpisodeResult, load_policy, play

BY_STEP, WHOLE = 500, 30
"""Episodes that a policy plays: by step they are played together, whole ones may be long."""


def data_inspect(
    *names: Annotated[str, tyro.conf.Positional],
    env: str | None = None,
    policy: Path | None = None,
    features: FeatureKind = "raw",
    episodes: int | None = None,
    page: Path = Path("inspect.html"),
) -> None:
    """Say what is in a dataset, what is wrong with it, and what Hy-Q can compete with given it.

    Several datasets are ranked, the easiest for Hy-Q first. Transitions by step are compared with a
    policy; whole episodes, such as montezuma/hard, with a deep policy, or the best of them.

    Args:
        names: Directories of datasets, which may be larger than memory, or names of 'hyq data
            list'.
        env: Environment to play the policy in; by default the one the dataset was made in.
        policy: Directory of a run or a saved policy to measure the data against: for whole
            episodes a deep one, for transitions by step one with a function for each step.
        features: By step, measure coverage in raw observations, random Fourier features, or the
            last layer of the policy's own network.
        episodes: Episodes of the policy to play: 500 by step, 30 whole ones, if not given.
        page: Where to write the report; of several datasets by step, each has one beside it.
    """
    if not names:
        raise HyqError("name at least one dataset")
    if len(set(names)) != len(names):
        raise HyqError("name each dataset once")
    console = Terminal()
    kinds = {_is_by_step(name) for name in names}
    if len(kinds) > 1:
        raise HyqError("transitions by step and whole episodes cannot be compared")
    if kinds == {False}:
        if features != "raw":
            raise HyqError("whole episodes are compared by cells, not by features: leave them out")
        if policy is None and (env is not None or episodes is not None):
            raise HyqError("an environment and episodes are for a policy to play: give --policy")
        _inspect_episodes(
            names, page, console, policy, env, WHOLE if episodes is None else episodes
        )
        return
    if len(names) > 1 and policy is None:
        raise HyqError("to rank datasets, name the policy to compare them with (--policy)")
    check_writable(page)
    found = []
    for name in names:
        with progress_bar("reading", console=console) as update:
            found.append(
                inspect_dataset(
                    Path(name),
                    env=env,
                    policy=policy,
                    features=features,
                    episodes=BY_STEP if episodes is None else episodes,
                    progress=update,
                )
            )
        print_inspection(found[-1], console)
        place = page if len(names) == 1 else page.with_stem(f"{page.stem}-{Path(name).name}")
        write_inspection(found[-1], place)
        console.print(f"report: {place}")
    if len(found) > 1:
        console.print(f"> Easiest first: {ranking(found)}.")


def _is_by_step(name: str) -> bool:
    """Tell a directory of transitions by step from whole episodes."""
    known = described_names()
    if name in known:
        return False
    if not Path(name).exists():
        raise HyqError(f"no dataset {name!r}: give a directory, or one of {', '.join(known)}")
    manifest = Path(name) / "manifest.json"
    if not manifest.exists():
        return True  # what is wrong with it is said when it is opened
    found = read_json(manifest)
    return bool(found.get("episodes") == found.get("transitions"))


def _inspect_episodes(
    names: Sequence[str],
    page: Path,
    console: Console,
    policy: Path | None,
    env: str | None,
    episodes: int,
) -> None:
    check_writable(page)
    if policy is not None and not holds_deep_policy(policy):
        raise HyqError(
            f"{policy} holds no deep policy, and others go by step: whole episodes are compared "
            "with what 'hyq train' or hyq.train has learned"
        )
    if episodes < FEWEST_BEST:
        raise HyqError(f"visits are compared between episodes: play at least {FEWEST_BEST}")
    playing = None
    if policy is not None:
        loaded = load_policy(policy)
        playing = play(loaded, Environment.of(loaded, env), episodes, seed=0)
    whole = {name: load(name) for name in names}
    played = None if playing is None else (str(policy), _played(playing, episodes, whole, console))
    with progress_bar("reading", sum(map(len, whole.values())), console) as update:
        found = EpisodesInspection.of(whole, lambda rows: update(advance=rows), played)
    print_inspection(found, console)
    write_episodes(found, page)
    console.print(f"report: {page}")


def _played(
    playing: Iterator[tuple[EpisodeResult, Episode]],
    episodes: int,
    datasets: Mapping[str, Dataset],
    console: Console,
) -> Dataset:
    """Let a policy play, and raise where it sees something else than the datasets show."""
    parts = []
    logged = {name: _shape(one.observation) for name, one in datasets.items()}
    with progress_bar("playing", episodes, console) as update:
        for _, episode in playing:
            seen = _shape(episode.observation)
            for name, shape in logged.items():
                if seen not in (shape, (1, *shape)):  # images may come as stacks of one
                    raise HyqError(
                        f"{name} has observations of shape {shape}, the policy plays with {seen}"
                    )
            parts.append(episode)
            update(advance=1)
    return Dataset.of(parts, {})


def _shape(observation: Observation) -> Any:
    return over_columns(lambda column: column.shape[1:], observation)


def ranking(found: Sequence[Inspection]) -> str:
    """Name datasets, the easiest first, with a sign of equality between neighbours that tie.

    Where it was not C_pi that put one before another, whose C_pi may be smaller, that is said.
    """
    order = ranked(found)
    text = str(order[0].path)
    for left, right in pairwise(order):
        if easier(left, right) is None:
            text += f" = {right.path}"
            continue
        text += f", then {right.path}"
        if too_close(left, right):
            text += f" (C_pi too close to tell; fewer next states of {left.path} are unlogged)"
    return text
