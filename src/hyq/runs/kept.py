"""What a run keeps beside records and policies: networks, experience, an estimate from data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hyq.agents.base import Agent
from hyq.collector import Preprocessing, PreprocessingConfig
from hyq.core.actions import Actions
from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.coverage.deep_fqe import GAMMA, deep_evaluation
from hyq.data.dataset import Dataset
from hyq.envs.spaces import space_to_json
from hyq.policy import Policy
from hyq.runs.spec import RunSpec

NETWORKS, EXPERIENCE = "networks.safetensors", "experience"
HELD_OUT, FEWEST_HELD_OUT = 0.2, 10
"""Share of the episodes that a policy is evaluated on without an environment, and the fewest."""


def held_out(dataset: Dataset, seed: int) -> tuple[Dataset, Dataset | None]:
    """Split episodes into those to learn from and those to evaluate on, if there are enough."""
    count = round(HELD_OUT * dataset.num_episodes)
    if not dataset.ordered or count < FEWEST_HELD_OUT:
        return dataset, None
    order = Streams(seed).generator("held out").permutation(dataset.num_episodes)
    return dataset.episodes(order[count:]), dataset.episodes(order[:count])


def estimate(policy: Policy, unseen: Dataset | None, seed: int) -> dict[str, Any]:
    """Estimate the return of a policy from episodes that it did not learn from."""
    if unseen is None:
        return {"doubts": ["there are too few episodes to hold some out"]}
    try:
        found = deep_evaluation(policy, unseen, seed=seed)
    except HyqError as error:
        return {"doubts": [str(error)]}
    value = {"return": found.value.value, "interval": [found.value.low, found.value.high]}
    return {
        **({} if found.doubts else value),
        "gamma": GAMMA,
        "episodes": unseen.num_episodes,
        "doubts": list(found.doubts),
    }


def said(found: Mapping[str, Any]) -> str:
    """Put an estimate into words."""
    if found["doubts"]:
        return f"cannot tell from this data the policy's return: {'; '.join(found['doubts'])}"
    low, high = found["interval"]
    return (
        f"on {found['episodes']} held-out episodes the policy's return is about "
        f"{found['return']:.4g} ({low:.4g} to {high:.4g}), discounted by {found['gamma']:g}: "
        "an estimate from the data"
    )


def save_experience(directory: Path, spec: RunSpec, training: Any, spaces: tuple[Any, Any]) -> None:
    """Keep what a run collected as a dataset, unless it is there already."""
    if (directory / EXPERIENCE).exists():
        return
    preprocessing = Preprocessing(spec.configs.get(PreprocessingConfig), spaces[0])
    encoded = spec.encoded()
    about = {name: encoded[name] for name in ("env", "wrappers", "env_parameters", "seed")} | {
        "observation_space": space_to_json(preprocessing.frame_space),
        "action_space": space_to_json(spaces[1]),
        "behaviour": f"{spec.algorithm}, exploring",
    }
    collected = Dataset.of(training.buffer.episodes(Actions(spaces[1])), about)
    collected.save(directory / EXPERIENCE)


def save_networks(directory: Path, training: Any) -> None:
    """Write all networks of an agent, for a run that starts from this one."""
    state = _networks(training).state_dict()
    arrays = {name: tensor.float().cpu().numpy() for name, tensor in state.items()}
    save_arrays(directory / NETWORKS, arrays)


def load_networks(directory: Path, training: Any) -> None:
    """Take over weights of the same names and shapes: those of the policy at least."""
    path = directory / NETWORKS
    if not path.exists():
        raise HyqError(f"{path} does not exist: start from a run that 'hyq train' has finished")
    networks = _networks(training)
    # Networks that compute in bfloat16 are modules within modules, which their names show.
    saved = {name.replace("module.", ""): array for name, array in load_arrays(path).items()}
    if not all(np.isfinite(array).all() for array in saved.values()):
        raise HyqError(f"{path} has values that are not finite")
    fitting = {}
    for name, tensor in networks.state_dict().items():
        found = saved.get(name.replace("module.", ""))
        if found is not None and found.shape == tuple(tensor.shape) and name != "updates":
            fitting[name] = torch.from_numpy(found)
    policy = {id(parameter) for parameter in training.policy_network().parameters()}
    needed = {name for name, parameter in networks.named_parameters() if id(parameter) in policy}
    if missing := needed - fitting.keys():
        raise HyqError(
            f"the policy in {directory} is of other networks ({min(missing)}): give the same "
            "network settings, and an algorithm with the same kind of policy"
        )
    networks.load_state_dict(fitting, strict=False)
    if isinstance(networks, Agent):
        networks.renew_masters()


def _networks(training: Any) -> torch.nn.Module:
    networks: torch.nn.Module = getattr(training, "agent", None) or training.network
    return networks
