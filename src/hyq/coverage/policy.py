"""Saved policies: the greedy policy of f_0, ..., f_{H-1}, whatever class they belong to.

A policy's directory is that of any run (`final.safetensors`, or its checkpoint while it runs),
or one that `save_policy` wrote. The names of a function's arrays say which class it is of.

A deep policy is one network for all steps, of episodes of any length. What is measured here goes by
step; such a policy is evaluated by `coverage.deep_fqe`, or played.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import hyq.envs  # noqa: F401  (registers the environments that datasets name)
from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.errors import HyqError, in_one_line
from hyq.core.files import new_directory, raising_damage
from hyq.core.seeding import Streams
from hyq.core.settings import check_range
from hyq.core.trees import flatten, subtree
from hyq.core.trust import check_trusted
from hyq.core.types import Array, Transitions
from hyq.data.columns import described
from hyq.data.dataset import Dataset
from hyq.fqi.block import BlockFunction
from hyq.fqi.classes import GreedyPolicy, ValueFunction
from hyq.fqi.linear import LinearFunction
from hyq.fqi.mlp import MLPFunction
from hyq.fqi.rollout import VectorEnv, lockstep
from hyq.fqi.tabular import TabularFunction
from hyq.policy import DESCRIPTION

DEEP_PLACES = (".", "best", "last")
"""Where a deep policy, or a run that trains one, has its description."""
PLACES = ("final.safetensors", "checkpoint/state.safetensors", "state.safetensors")
FEWEST_EPISODES = 10
"""Fewer have next to no spread between them that could be measured."""


def save_policy(directory: Path, functions: Sequence[ValueFunction]) -> None:
    """Write functions into a new directory that `load_policy` reads."""
    with new_directory(directory) as draft:
        arrays = flatten({h: function.arrays() for h, function in enumerate(functions)})
        save_arrays(draft / PLACES[0], arrays)


def holds_deep_policy(directory: Path) -> bool:
    """Tell a deep policy, or a run that trains one, from a policy by step."""
    return any((directory / place / DESCRIPTION).is_file() for place in DEEP_PLACES)


def policy_file(directory: Path) -> Path:
    """Return the file of the newest functions in a run's or a policy's directory."""
    path = next((directory / p for p in PLACES if (directory / p).is_file()), None)
    if path is None:
        raise HyqError(f"{directory} holds no policy: give the directory of a run that has begun")
    return path


def load_policy(directory: Path) -> GreedyPolicy:
    """Read the newest functions in a run's or a policy's directory."""
    if holds_deep_policy(directory):
        raise HyqError(
            f"{directory} holds a deep policy, which has no function for each step: evaluate it "
            "on whole episodes, or let it play, with 'hyq evaluate'"
        )
    path = policy_file(directory)
    arrays = load_arrays(path)
    # A value range may have no end on one side; nothing else may.
    numbers = [a for n, a in arrays.items() if a.dtype.kind == "f" and not n.endswith(".range")]
    if not all(np.isfinite(array).all() for array in numbers):
        raise HyqError(f"{path} has values that are not finite")
    steps = {int(name.split(".")[0]) for name in arrays if name.split(".")[0].isdigit()}
    if not steps or steps != set(range(len(steps))):
        raise HyqError(f"{path} has no function for every step: it is not a policy of this kind")
    with raising_damage(path):
        functions = tuple(_rebuild(subtree(str(h), arrays), path) for h in sorted(steps))
    return GreedyPolicy(functions)


def _rebuild(arrays: Mapping[str, Array], path: Path) -> ValueFunction:
    names = set(arrays)
    if names == {"encoder", "bias", "head", "hard"}:
        encoding = arrays["encoder"], arrays["bias"], arrays["head"]
        latents, _ = encoding[2].shape
        if encoding[0].shape[1:] != (latents,) or encoding[1].shape != (latents,):
            raise ValueError("shapes that do not fit one another")
        return BlockFunction(*encoding, "hard" if arrays["hard"].all() else "soft")
    if names == {"table"} and arrays["table"].ndim == 2:
        return TabularFunction(arrays["table"])
    if names == {"weights"} and arrays["weights"].ndim == 1:
        return LinearFunction(arrays["weights"])
    if "kernel_0" in names:
        return MLPFunction(()).with_arrays(arrays)
    raise HyqError(f"{path} holds functions of an unknown class, with {sorted(names)}")


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
