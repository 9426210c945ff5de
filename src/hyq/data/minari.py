"""Export of a dataset to Minari, so that other libraries can read it."""

import json
import warnings
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.data.columns import over_columns
from hyq.data.dataset import Dataset, Episode
from hyq.data.fits import check_fits


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
            return minari.create_dataset_from_buffers(
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
