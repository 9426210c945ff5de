"""Export of episodes to Minari, so that other libraries can read them."""

import json
import warnings
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.data.episodes import Episode, Episodes


def export_minari(
    episodes: Episodes,
    dataset_id: str,
    actions: int,
    data_format: str = "arrow",
    first_action: int = 0,
) -> Any:
    """Write episodes as a Minari dataset without loss, and return it.

    Minari by default stores images as JPEG, which changes pixels; this turns that off. Where a life
    was lost goes into each step's info. `actions` is the number of the environment's actions, the
    first of which is `first_action`.
    """
    beyond = (episodes.action < first_action) | (episodes.action >= first_action + actions)
    if beyond.any():
        raise HyqError(
            f"action {int(episodes.action[beyond.argmax()])} is none of the {actions} from "
            f"{first_action} on: give the environment's number of actions and its first one"
        )
    try:
        import minari  # noqa: PLC0415
        from minari.data_collector import EpisodeBuffer  # noqa: PLC0415
    except ImportError:
        raise HyqError("this needs Minari: install it with pip install 'hyq[minari]'") from None
    # One episode at a time: the pictures of all together may not fit into memory.
    buffers = (
        EpisodeBuffer(id=index, **_columns(episode)) for index, episode in enumerate(episodes)
    )
    with warnings.catch_warnings():
        # It advises to name an author and a permalink, which an export by its user does not have.
        warnings.simplefilter("ignore", UserWarning)
        try:
            return minari.create_dataset_from_buffers(
                dataset_id,
                buffers,
                observation_space=_observation_space(episodes),
                action_space=gym.spaces.Discrete(actions, start=first_action),
                data_format=data_format,
                description=json.dumps(dict(episodes.provenance)),
                jpeg_encoding=False,
            )
        except ValueError as error:
            raise HyqError(f"Minari refused {dataset_id!r}: {error}") from None


def _columns(episode: Episode) -> dict[str, Any]:
    steps = len(episode.action)
    last = np.arange(steps) == steps - 1
    lost = np.zeros(steps, np.bool_) if episode.life_lost is None else episode.life_lost
    return {
        "observations": np.asarray(episode.observation),
        "actions": np.asarray(episode.action),
        "rewards": np.asarray(episode.reward),
        "terminations": last & episode.terminated,
        "truncations": last & (not episode.terminated),
        # One entry for each observation: nothing is lost before the first step.
        "infos": {"life_lost": [False, *lost.tolist()]},
    }


def _observation_space(episodes: Episodes) -> gym.spaces.Box:
    shape, dtype = episodes.observation.shape[1:], np.dtype(episodes.observation.dtype)
    if dtype == np.uint8:
        return gym.spaces.Box(0, 255, shape, np.uint8)
    return gym.spaces.Box(-np.inf, np.inf, shape, dtype.type)
