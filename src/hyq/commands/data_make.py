"""Making datasets, and exporting them."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import tyro

from hyq.commands.data import data_show
from hyq.commands.watch import progress_bar
from hyq.core.files import check_free
from hyq.core.terminal import Terminal
from hyq.data.minari import export_minari
from hyq.data.spaces import spaces_of
from hyq.envs.combination_lock import Emission, LockSpec
from hyq.envs.make import env_factory
from hyq.experts.lock import LockData, lock_dataset
from hyq.runs.named_data import load, make_scripted

console = Terminal()


def data_make(name: Annotated[str, tyro.conf.Positional], *, out: Path, seed: int = 0) -> None:
    """Record one of the scripted datasets of 'hyq data list' on disk, from a seed.

    Args:
        name: Name of the dataset, such as mountaincar/half: its problem and its random share.
        out: New directory for the dataset.
        seed: Chooses the episodes; the same seed gives the same data, to the bit.
    """
    check_free(out)  # before the data is made, which takes a while
    make_scripted(name, seed).save(out)
    data_show(out)


def data_make_lock(
    kind: LockData,
    *,
    out: Path,
    horizon: int = 100,
    size: int = 500_000,
    seed: int = 0,
    anti_reward_probability: float = 0.5,
    emission: Emission = "shared",
) -> None:
    """Make one of the paper's offline datasets for the combination lock, on disk.

    Args:
        kind: Optimal occupancy (random actions) or optimal trajectory (nearly all good ones).
        out: New directory for the dataset; about 1 KB a transition at horizon 100.
        horizon: Number of digits of the lock.
        size: Number of transitions.
        seed: Chooses the lock and the data; a run needs the same seed to be on the same lock.
        anti_reward_probability: Chance that a fall pays 0.1.
        emission: How observations show latent states: see 'hyq run lock'.
    """
    check_free(out)  # before the data is made, which takes a while
    spec = LockSpec(
        horizon=horizon,
        anti_reward_probability=anti_reward_probability,
        emission=emission,
        instance_seed=seed,
    )
    with progress_bar(f"optimal {kind} data", horizon) as update:
        lock_dataset(spec, kind, size, seed, lambda h: update(h + 1)).save(out)
    data_show(out)


def data_export(
    name: Annotated[str, tyro.conf.Positional], *, dataset_id: str, env: str | None = None
) -> None:
    """Export a dataset to Minari, without loss.

    Args:
        name: Directory of a dataset, or a name of 'hyq data list'.
        dataset_id: Its name in Minari, such as lab/lander-v0.
        env: Environment whose spaces are written; without one those that the data carries, or that
            its values show.
    """
    dataset = load(name)
    if env is None:
        spaces = spaces_of(dataset)
    else:
        with closing(env_factory(env)()) as made:
            spaces = made.observation_space, made.action_space
    export_minari(dataset, dataset_id, *spaces)
    console.print(f"exported: minari.load_dataset({dataset_id!r})")
