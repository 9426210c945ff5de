"""Datasets of Minari: from it and to it, without loss."""

import contextlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.files import MOST_JSON, parse_json, read_bytes
from hyq.core.trees import tree_map, without_tuples
from hyq.core.trust import check_trusted
from hyq.core.types import Array
from hyq.data.columns import over_columns
from hyq.data.dataset import Dataset, Episode
from hyq.data.fits import check_fits
from hyq.data.importing.table import reading
from hyq.envs.spaces import space_to_json


def export_minari(
    dataset: Dataset,
    dataset_id: str,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    data_format: str = "arrow",
) -> Any:
    """Write a dataset as a Minari dataset without loss, and return it.

    Minari by default stores images as JPEG, which changes pixels; this turns that off. Where a life
    was lost goes into each step's info. The spaces are those of the environment.
    """
    check_fits(dataset, observation_space, action_space)
    try:
        import minari  # noqa: PLC0415
        from minari.data_collector import EpisodeBuffer  # noqa: PLC0415
    except ImportError:
        raise HyqError("this needs Minari: install it with pip install 'hyq[minari]'") from None
    # One episode at a time: the images of all together may not fit into memory.
    buffers = (
        EpisodeBuffer(id=index, **_columns(episode, observation_space))
        for index, episode in enumerate(dataset)
    )
    with warnings.catch_warnings():
        # It advises to name an author and a permalink, which an export by its user does not have.
        warnings.simplefilter("ignore", UserWarning)
        try:
            made = minari.create_dataset_from_buffers(
                dataset_id,
                buffers,
                observation_space=observation_space,
                action_space=action_space,
                data_format=data_format,
                description=json.dumps(dict(dataset.provenance)),
                jpeg_encoding=False,
            )
        except ValueError as error:
            raise HyqError(f"Minari cannot take {dataset_id!r}: {error}") from None
    if "environment_spec" in dataset.provenance:  # without making the environment
        spec = json.dumps(dataset.provenance["environment_spec"])
        made.storage.update_metadata({"env_spec": spec})
        made = minari.load_dataset(dataset_id)
    return made


def is_minari(name: str) -> bool:
    """Tell whether a name is that of a Minari dataset on this machine, or its directory."""
    try:
        from minari.storage import get_dataset_path  # noqa: PLC0415
    except ImportError:
        return False
    path = Path(name)
    if path.is_dir():
        return (path / "data" / "metadata.json").is_file()
    if not re.fullmatch(r"([\w./-]+/)?[\w-]+-v\d+", name):
        return False
    return (get_dataset_path(name) / "data").is_dir()


def import_minari(source: Any) -> Dataset:
    """Read a Minari dataset, by its id, its directory or as it was loaded; infos are left out."""
    import minari  # noqa: PLC0415
    from minari.storage import get_dataset_path  # noqa: PLC0415

    with reading(str(source)):
        if isinstance(source, str):
            data = Path(source) / "data"
            data = data if data.is_dir() else get_dataset_path(source) / "data"
            _check_trusted(data / "metadata.json")
            source = minari.MinariDataset(data)
        about, spec = {}, source.spec.env_spec
        with contextlib.suppress(ValueError, TypeError):  # a description may be anything
            about = dict(json.loads(source.storage.metadata.get("description", "")))
        about |= {"minari": source.spec.dataset_id}
        if spec is not None:
            about |= {"environment": spec.id, "environment_spec": json.loads(spec.to_json())}
        for name in ("observation_space", "action_space"):
            about[name] = space_to_json(getattr(source, name))
        rewards: list[Array] = []

        def episodes() -> Iterator[Episode]:
            for one in source.iterate_episodes():
                rewards.append(np.asarray(one.rewards))
                yield _episode(one)

        dataset = Dataset.of(episodes(), about)
        return replace(dataset, reward=np.concatenate(rewards))  # as precise as they were


def _check_trusted(path: Path) -> None:
    """Raise where Minari would make an environment of anybody's to know its spaces."""
    about = parse_json(path, read_bytes(path, MOST_JSON))
    if "env_spec" not in about or {"observation_space", "action_space"} <= about.keys():
        return
    spec = parse_json(path, str(about["env_spec"]).encode())
    wrappers = spec.get("additional_wrappers") or ()
    names = [spec.get("entry_point"), *(wrapper.get("entry_point") for wrapper in wrappers)]
    remedy = "convert the data with Minari, in a program of your own"
    check_trusted(map(str, names), path, None, False, remedy)


def _episode(one: Any) -> Episode:
    lost = one.infos.get("life_lost") if isinstance(one.infos, Mapping) else None
    return Episode(
        tree_map(np.asarray, without_tuples(one.observations)),
        np.asarray(one.actions),
        np.asarray(one.rewards),
        bool(one.terminations[-1]),
        None if lost is None else np.asarray(lost)[1:].astype(np.bool_),
    )


def _columns(episode: Episode, space: gym.Space[Any]) -> dict[str, Any]:
    steps = len(episode.action)
    last = np.arange(steps) == steps - 1
    lost = np.zeros(steps, np.bool_) if episode.life_lost is None else episode.life_lost
    seen = over_columns(np.asarray, episode.observation)
    if isinstance(space, gym.spaces.Tuple):
        seen = tuple(seen[str(index)] for index in range(len(space)))
    return {
        "observations": seen,
        "actions": np.asarray(episode.action),
        "rewards": np.asarray(episode.reward),
        "terminations": last & episode.terminated,
        "truncations": last & (not episode.terminated),
        # One entry for each observation: nothing is lost before the first step.
        "infos": {"life_lost": [False, *lost.tolist()]},
    }
