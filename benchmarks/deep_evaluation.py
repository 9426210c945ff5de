"""Does fitted Q evaluation of deep policies tell what they then earn?

    python benchmarks/deep_evaluation.py DIR [--seed SEED]

Trains policies from good to bad on three small problems, evaluates each from data that it was not
trained on, and compares the intervals with what it earns in 200 episodes. These are played for up
to 1,000 steps, so that a limit on steps does not count at a discount of 0.99. Each seed has logs
and policies of its own: seed 0 chose how wide the intervals are, any other tests it. Policies are
kept in DIR, and a second call evaluates them again. About 20 minutes of one core.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.stats import t as student

import hyq
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray
from hyq.coverage.deep_fqe import GAMMA, WIDER, deep_evaluation
from hyq.data.dataset import Dataset, Episode
from hyq.experts.scripted import scripted_dataset
from hyq.policy import Policy

EPISODES, LIMIT = 200, 1000
ENVS = {"mountaincar": "MountainCar-v0", "acrobot": "Acrobot-v1", "cartpole": "CartPole-v1"}
SCRIPTED = {"expert": 0.0, "half": 0.5, "random80": 0.8, "random": 1.0}
"""Share of random play in logs of MountainCar and Acrobot."""
NOISE = {"expert": (0.1,), "half": (0.1, 1.0), "noisy": (0.3, 0.6, 1.0), "random": (1.0,)}
"""Chance of a random action in equal parts of logs of CartPole."""
BC: dict[str, Any] = {"algorithm": "bc", "evaluation_episodes": 0}
POLICIES: Mapping[str, Mapping[str, tuple[str | None, Mapping[str, Any]]]] = {
    "mountaincar": {
        "hyq": ("half", {"online_steps": 4000, "pretraining": 3000, "seed": 3}),
        "early": ("half", {"online_steps": 500, "pretraining": 500, "seed": 4}),
        "bc": ("expert", BC | {"updates": 1500, "seed": 5}),
        "bchalf": ("half", BC | {"updates": 1500, "seed": 6}),
        "hyq80": ("random80", {"online_steps": 3000, "pretraining": 3000, "seed": 7}),
    },
    "acrobot": {
        "hyq": ("half", {"online_steps": 4000, "pretraining": 3000, "seed": 3}),
        "early": ("half", {"online_steps": 500, "pretraining": 500, "seed": 4}),
        "bc": ("expert", BC | {"updates": 1500, "seed": 5}),
        "bc80": ("random80", BC | {"updates": 300, "seed": 6}),
        "hyq80": ("random80", {"online_steps": 3000, "pretraining": 3000, "seed": 7}),
    },
    "cartpole": {
        "hyq": ("half", {"online_steps": 4000, "pretraining": 3000, "seed": 3}),
        "early": ("half", {"online_steps": 300, "pretraining": 200, "seed": 4}),
        "bc": ("expert", BC | {"updates": 1500, "seed": 5}),
        "bcnoisy": ("noisy", BC | {"updates": 600, "seed": 6}),
        "dqn": (None, {"algorithm": "dqn", "online_steps": 4000, "seed": 7}),
    },
}
"""What each policy learned from, and how."""
OTHERS = (
    ("mountaincar", "bc", "expert"),
    ("mountaincar", "bchalf", "random80"),
    ("acrobot", "hyq", "expert"),
    ("acrobot", "bc", "expert"),
    ("acrobot", "bc", "random"),
    ("acrobot", "hyq80", "random80"),
    ("cartpole", "hyq", "noisy"),
    ("cartpole", "dqn", "noisy"),
    ("cartpole", "bc", "random"),
)
"""Evaluated besides every policy on data of the kind half."""


def logs_of(problem: str, kind: str, seed: int) -> Dataset:
    if problem == "cartpole":
        return cartpole_logs(NOISE[kind], 10_000, seed)
    return scripted_dataset(problem, SCRIPTED[kind], seed)


def cartpole_logs(noise: tuple[float, ...], transitions: int, seed: int) -> Dataset:
    """Push to the side where the pole is falling, but for random actions."""
    env, episodes = gym.make(ENVS["cartpole"]), []
    for part, chance in enumerate(noise):
        rng, left, number = Streams(seed).generator("cp", part), transitions // len(noise), 0
        while left > 0:
            seen, _ = env.reset(seed=Streams(seed).integer("r", part, number))
            observations, actions, rewards, ended, cut = [seen], [], [], False, False
            while not (ended or cut):
                falling = int(seen[2] + 0.5 * seen[3] > 0)
                action = int(rng.integers(2)) if rng.random() < chance else falling
                seen, reward, ended, cut, _ = env.step(action)
                observations.append(seen)
                actions.append(action)
                rewards.append(float(reward))
            left, number = left - len(actions), number + 1
            earned = np.array(rewards, np.float32)
            episodes.append(Episode(np.array(observations), np.array(actions), earned, ended))
    return Dataset.of(episodes, {"env": ENVS["cartpole"]})


def played(env: str, policy: Policy) -> FloatArray:
    """Return discounted returns of episodes that are played side by side."""
    games = [gym.make(env, max_episode_steps=LIMIT) for _ in range(EPISODES)]
    seen: Array = np.array([game.reset(seed=90_000 + k)[0] for k, game in enumerate(games)])
    total, going = np.zeros(EPISODES), list(range(EPISODES))
    for step in range(LIMIT):
        over = set()
        for k, action in zip(going, policy.act(seen[going]).tolist(), strict=True):
            seen[k], reward, ended, cut, _ = games[k].step(action)
            total[k] += GAMMA**step * float(reward)
            if ended or cut:
                over.add(k)
        going = [k for k in going if k not in over]
        if not going:
            break
    return total


def policy_of(root: Path, problem: str, name: str, seed: int) -> tuple[Policy, list[float]]:
    """Train a policy and let it play, or read what an earlier call has kept."""
    directory = root / f"{problem}_{name}"
    if not directory.exists():
        kind, settings = POLICIES[problem][name]
        logs = None if kind is None else logs_of(problem, kind, 2 * seed)
        given = {"evaluation_episodes": 3, "progress": False, **settings}
        given["seed"] += 10 * seed
        hyq.train(ENVS[problem], logs, **given).save(directory)
    policy, kept = Policy.load(directory), directory / "played.json"
    if not kept.exists():
        kept.write_text(json.dumps(played(ENVS[problem], policy).tolist()))
    returns: list[float] = json.loads(kept.read_text())
    return policy, returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    root: Path = given.root
    seed: int = given.seed
    root.mkdir(parents=True, exist_ok=True)
    pairs = [(problem, name, "half") for problem in POLICIES for name in POLICIES[problem]]
    print("| problem | policy | logs | played | estimate | spread |", end="")
    print(" interval | inside | held | doubts |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    held: dict[bool, list[bool]] = {True: [], False: []}
    plain, errors, started = [], [], time.perf_counter()
    for problem, name, kind in (*pairs, *OTHERS):
        policy, returns = policy_of(root, problem, name, seed)
        found = deep_evaluation(policy, logs_of(problem, kind, 2 * seed + 1), seed=seed)
        truth, value, networks = float(np.mean(returns)), found.value, found.replicates
        holds, spread = value.low <= truth <= value.high, float(networks.std(ddof=1))
        held[not found.doubts].append(holds)
        if not found.doubts:
            errors.append(abs(value.value - truth) / abs(truth))
            away = abs(float(networks.mean()) - truth)
            plain.append(away <= spread * float(student.ppf(0.975, len(networks) - 1)))
        print(
            f"| {problem} | {name} | {kind} | {truth:.1f} | {value.value:.1f} | {spread:.2f} | "
            f"{value.low:.1f} to {value.high:.1f} | {found.inside:.2f} | "
            f"{'yes' if holds else 'no'} | {'; '.join(found.doubts)} |",
            flush=True,
        )
    print(f"\nsupported: {sum(held[True])} of {len(held[True])} intervals hold the played mean,")
    print(f"{sum(plain)} if they were not widened by {WIDER:g};")
    print(f"relative error {np.median(errors):.1%} in the median, {max(errors):.1%} at most;")
    print(f"not supported: {sum(held[False])} of {len(held[False])};", end=" ")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
