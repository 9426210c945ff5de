"""Algorithm 2 with learned features: what it loses on small block MDPs, beside the V-type bound.

    python -m benchmarks.v_type --out results/theory/v_type.json

The lock with few steps is a block MDP: three latent states behind noisy observations, and the class
has an encoder to learn. As in the theorem every run has its T, m_off = T offline tuples a step and
m_on = |A| online ones. Offline tuples are i.i.d. from nu_h: with probability p a state of the
optimal policy, else the bad state, and a uniform action, so that C_pi is about sqrt(H |A| / p).
Policies are worth what they are worth on the latent MDP, with the share of each action in a latent
state taken over 2,000 observations of it. The bound is that for known features (log |Phi| = 0):
with learned ones it is larger still.
"""

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.comparison import console
from hyq.core.files import write_json
from hyq.core.mdp import FiniteMDP
from hyq.core.seeding import Streams
from hyq.core.types import Transitions
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import BAD, LATENTS, CombinationLockVector, LockSpec
from hyq.fqi.block import BlockClass
from hyq.fqi.classes import GreedyPolicy
from hyq.fqi.hyq_fqi import HyQ, HyQConfig
from hyq.runs.records import circumstances
from hyq.theory.theorem import cumulative_bound, low_rank_setting
from hyq.theory.transfer import tabular_transfer

OBSERVATIONS = 2000
ROUNDS = (8, 16, 32, 64, 128, 256)
SHARES = (1.0, 1 / 4, 1 / 16)


def offline_data(lock: LockSpec, share: float, samples: int, streams: Streams) -> Dataset:
    """Draw i.i.d. tuples of every step from nu_h."""
    env, rng = CombinationLockVector(samples, **vars(lock)), streams.generator("offline")
    env.reset(seed=streams.integer("offline"))
    parts = []
    for h in range(lock.horizon):
        good = rng.integers(2, size=samples)  # the optimal policy is in either, equally likely
        latent = np.where(rng.random(samples) < share, good, BAD)
        observation, action = env.place(latent, h), rng.integers(lock.actions, size=samples)
        after, reward, terminated, _, _ = env.step(action)
        parts.append(Transitions(observation, action, reward, 1.0 - terminated, after))
    step = np.repeat(np.arange(lock.horizon), samples)
    return Dataset.from_transitions(Transitions.concatenate(parts), step)


def transfer(lock: LockSpec, mdp: FiniteMDP, share: float) -> float:
    """Return C_pi of the optimal policy over the latent states."""
    nu = np.zeros((lock.horizon, LATENTS, lock.actions))
    nu[:, :BAD], nu[:, BAD] = share / 2 / lock.actions, (1 - share) / lock.actions
    return tabular_transfer(mdp.occupancy(mdp.greedy_policy(mdp.optimal_q())), nu)


def value(policy: GreedyPolicy, lock: LockSpec, mdp: FiniteMDP, seed: int) -> float:
    """Return what a policy of observations is worth on the latent MDP."""
    env = CombinationLockVector(OBSERVATIONS, **vars(lock))
    env.reset(seed=seed)
    chances = np.zeros((lock.horizon, LATENTS, lock.actions))
    for h, latent in itertools.product(range(lock.horizon), range(LATENTS)):
        actions = policy(h, env.place(np.full(OBSERVATIONS, latent), h))
        chances[h, latent] = np.bincount(actions, minlength=lock.actions) / OBSERVATIONS
    return mdp.value(chances)


def values(lock: LockSpec, share: float, rounds: int, seed: int) -> Iterator[float]:
    """Yield the values of pi^1, ..., pi^T; the first is that of f^1 = 0."""
    mdp, streams = lock.latent_mdp(), Streams(seed)
    family = BlockClass(lock.observation_dim, lock.actions, v_max=lock.max_return)
    config = HyQConfig(iterations=rounds - 1, offline_share=None, value_range=(0, lock.max_return))
    offline = offline_data(lock, share, rounds, streams)
    env = CombinationLockVector(lock.actions, **vars(lock))
    yield value(GreedyPolicy((family.zero(),) * lock.horizon), lock, mdp, seed)
    for step in HyQ(family, config).run(env, offline, streams):
        yield value(step.policy, lock, mdp, seed)


def measure(horizon: int, share: float, rounds: int, seed: int) -> dict[str, Any]:
    """Run Algorithm 2 for T iterations; return its cumulative loss and the bound."""
    lock = LockSpec(horizon=horizon, instance_seed=seed)
    mdp = lock.latent_mdp()
    found = np.array(list(values(lock, share, rounds, seed)))
    coverage = transfer(lock, mdp, share)
    setting = low_rank_setting(coverage, LATENTS, horizon, lock.actions, log_features=0.0)
    return {
        "horizon": horizon,
        "share": share,
        "iterations": rounds,
        "seed": seed,
        "transfer": coverage,
        "cumulative": float((mdp.optimal_value() - found).sum()),
        "final_value": float(found[-1]),
        "bound": cumulative_bound(setting, rounds, rounds, lock.actions),
    }


def main(out: Path, horizon: int = 5, seeds: int = 3) -> None:
    """Measure every share and T, print means over instances, and write the record.

    Args:
        out: The record, a new JSON file.
        horizon: Steps of the lock.
        seeds: Instances.
    """
    rows = []
    for share, rounds in itertools.product(SHARES, ROUNDS):
        cases = [measure(horizon, share, rounds, seed) for seed in range(seeds)]
        rows += cases
        lost = [case["cumulative"] for case in cases]
        console.print(
            f"p {share:.4f}, C_pi {cases[0]['transfer']:.1f}, T {rounds}: lost {np.mean(lost):.2f} "
            f"({min(lost):.2f} to {max(lost):.2f}), sqrt(T) {math.sqrt(rounds):.1f}, "
            f"bound {cases[0]['bound']:.2g}"
        )
    command = ["python", "-m", "benchmarks.v_type", *sys.argv[1:]]
    write_json(out, {**circumstances(), "command": command, "rows": rows})


if __name__ == "__main__":
    tyro.cli(main)
