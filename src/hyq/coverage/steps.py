"""Play of a policy with a function for each step, as episodes to compare data with."""

from typing import Any

import gymnasium as gym
import numpy as np

import hyq.envs  # noqa: F401  (registers the environments that datasets name)
from hyq.core.errors import HyqError, in_one_line
from hyq.core.seeding import Streams
from hyq.core.settings import check_range
from hyq.core.trust import check_trusted
from hyq.core.types import Transitions
from hyq.data.columns import described
from hyq.data.dataset import Dataset
from hyq.fqi.classes import GreedyPolicy
from hyq.fqi.rollout import VectorEnv, lockstep

FEWEST_EPISODES = 10
"""Fewer have next to no spread between them that could be measured."""


def played_by_step(policy: GreedyPolicy, env: VectorEnv, seed: int) -> Dataset:
    """Play an episode of the policy in each of the environments, and close them."""
    try:
        played = list(lockstep(env, policy, policy.horizon, seed))
    except (ValueError, IndexError, RuntimeError) as error:
        raise HyqError(f"the policy does not fit the environment: {error}") from None
    finally:
        env.close()
    step = np.repeat(np.arange(len(played)), [len(alive) for _, alive in played])
    episode = np.concatenate([alive for _, alive in played])
    order = np.lexsort((step, episode))
    rows = Transitions.concatenate([rows for rows, _ in played])[order]
    last = np.append(np.diff(episode[order]) > 0, True)
    over = rows.discount == 0
    columns = (rows.observation, rows.action, rows.reward, rows.next_observation)
    return Dataset.from_arrays(*columns, over, last & ~over)


def play_in(policy: GreedyPolicy, dataset: Dataset, env: str | None, episodes: int) -> Dataset:
    """Play in the environment named, or the dataset's own, if the data can be from it."""
    check_range("the number of episodes to play", episodes, FEWEST_EPISODES)
    horizon = int((dataset.timestep + dataset.length).max())
    if policy.horizon != horizon:
        raise HyqError(f"the policy knows {policy.horizon} steps, the dataset has {horizon}")
    own: Any = dataset.provenance.get("environment")
    if env is None and own is None:
        raise HyqError("the dataset does not say its environment: name it with --env")
    name, parameters = str(env or own), {}
    if env is None:
        check_trusted([name], "the dataset", None, False, f"give --env {name}")
    if name == own:
        parameters = dataset.provenance.get("parameters", {})
    try:
        made = gym.make_vec(name, num_envs=episodes, **parameters)
    except Exception as error:  # what a file says may break an environment in any way
        raise HyqError(f"cannot make environment {name!r}: {in_one_line(error)}") from None
    found = played_by_step(policy, made, Streams(0).integer("visits"))
    if described(found.observation) != described(dataset.observation):
        raise HyqError(
            f"the data's observations are {described(dataset.observation)}, those of {name} "
            f"{described(found.observation)}"
        )
    return found
