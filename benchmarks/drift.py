"""How often does the drift test of `hyq data check --env` alarm, rightly and wrongly?

    python benchmarks/drift.py OUT.jsonl [--repetitions 40] [--envs CartPole ...] [--first 0]
    python benchmarks/drift.py OUT.jsonl --table

Each repetition logs 200 episodes of its own, of a behaviour between an expert and chance, tests
them against the environment they are from (an alarm is false), and then with one fault at a time:
the live environment's gravity is 20% larger (or smaller, by turns; elsewhere another constant of
its dynamics is changed), observations were logged times 1.2, rewards were logged larger by a tenth
of their range, time limits were logged as ends. Faults that change nothing are left out. A line of
OUT.jsonl is one test; a second call goes on where the first was stopped.
"""

import argparse
import json
import os
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
from scipy.stats import beta

import hyq.envs  # noqa: F401  (registers environments)
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.coverage.drift import drift_test
from hyq.data.columns import over_columns
from hyq.data.dataset import Dataset, Episode
from hyq.data.fits import check_fits
from hyq.envs.make import env_factory
from hyq.experts.scripted import PROBLEMS, open_door

Env = gym.Env[Any, Any]
Expert = Callable[[Env, Any, np.random.Generator], Any]
EPISODES = 200
FEWEST_TIMEOUTS = 5
FAULTS = ("honest", "dynamics", "observations", "rewards", "timeouts")


def balance(env: Env, s: Any, rng: np.random.Generator) -> int:
    """Hold the pole up: push to where it falls."""
    return int(0.1 * s[0] + 0.3 * s[1] + 3 * s[2] + s[3] > 0)


def swing(env: Env, s: Any, rng: np.random.Generator) -> Any:
    """Push the pendulum the way it turns, and hold it where it is up."""
    up = -10 * s[1] - 2 * s[2] if s[0] > 0.9 else 2 * np.sign(s[2])
    return np.clip([up], -2, 2).astype(np.float32)


def steer(env: Env, s: Any, rng: np.random.Generator) -> Any:
    """Push the car the way it rolls."""
    return np.array([1.0 if s[1] >= 0 else -1.0], np.float32)


def regulate(env: Env, s: Any, rng: np.random.Generator) -> Any:
    """Act around the best gain."""
    system = env.unwrapped.batch.system  # type: ignore[attr-defined]
    return -system.riccati().gain[0] @ s + 0.3 * rng.standard_normal(2)


def land(env: Env, s: Any, rng: np.random.Generator) -> int:
    """Land as Gymnasium's own demonstration does."""
    from gymnasium.envs.box2d.lunar_lander import heuristic  # noqa: PLC0415

    return int(heuristic(env.unwrapped, s))  # type: ignore[no-untyped-call]


def unlock(env: Env, s: Any, rng: np.random.Generator) -> int:
    """Take the lock's good action."""
    return int(env.unwrapped.batch.expert_action()[0])  # type: ignore[attr-defined]


def hop(env: Env, s: Any, rng: np.random.Generator) -> Any:
    """Lean on small torques."""
    return (0.3 * rng.standard_normal(3)).clip(-1, 1).astype(np.float32)


def corner(env: Env, s: Any, rng: np.random.Generator) -> int:
    """Press into the corner of the lake where episodes begin, until time is up."""
    return 0


def pump(env: Env, s: Any, rng: np.random.Generator) -> int:
    """Swing up the car or the acrobot: push the way it moves."""
    return 2 if s[-1] >= 0 else 0


def enter(env: Env, s: Any, rng: np.random.Generator) -> int:
    """Open the door, unless chance has dropped the key where it blocks the way."""
    try:
        return open_door(env, s, rng)
    except HyqError:
        return int(env.action_space.sample())


def attribute(name: str) -> Callable[[Env, float], None]:
    """Change a constant that the environment has as an attribute."""

    def change(env: Env, factor: float) -> None:
        setattr(env.unwrapped, name, getattr(env.unwrapped, name) * factor)

    return change


def constant(method: str, value: float) -> Callable[[Env, float], None]:
    """Change a constant that is written into a method of the environment."""

    def change(env: Env, factor: float) -> None:
        inner = env.unwrapped
        code = getattr(inner, method).__func__.__code__
        assert value in code.co_consts
        other = tuple(value * factor if c == value else c for c in code.co_consts)
        made = types.FunctionType(code.replace(co_consts=other), globals_of(inner, method))
        setattr(inner, method, types.MethodType(made, inner))

    return change


def globals_of(env: Any, method: str) -> dict[str, Any]:
    """Return the names that a method of an environment can see."""
    found: dict[str, Any] = getattr(env, method).__func__.__globals__
    return found


def mujoco_gravity(env: Env, factor: float) -> None:
    """Change the gravity of a MuJoCo model."""
    env.unwrapped.model.opt.gravity[2] *= factor  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Problem:
    """An environment, behaviours, and how its dynamics are changed."""

    env: str
    expert: Expert | None = None
    change: Callable[[Env, float], None] | None = None
    other: dict[str, Any] | None = None
    """Parameters of an environment without gravity whose dynamics differ."""
    parameters: dict[str, Any] | None = None
    wrappers: tuple[str, ...] = ()
    most_random: float = 1.0

    def make(self, factor: float | None = None) -> Env:
        """Make the environment, with other dynamics where a factor is given."""
        given = dict(self.parameters or {})
        if factor is not None and self.change is None:
            given |= self.other or {}
        if self.env.startswith("LunarLander") and factor is not None:
            given["gravity"] = -10.0 * min(factor, 1.1999)
        env = env_factory(self.env, self.wrappers, **given)()
        if factor is not None and self.change is not None:
            self.change(env, factor)
        return env

    @property
    def changes(self) -> bool:
        """Whether its dynamics can be changed."""
        lander = self.env.startswith("LunarLander")
        return lander or self.change is not None or self.other is not None


ENVS = {
    "CartPole": Problem("CartPole-v1", balance, attribute("gravity")),
    "MountainCar": Problem("MountainCar-v0", pump, attribute("gravity")),
    "Acrobot": Problem("Acrobot-v1", pump, constant("_dsdt", 9.8)),
    "LunarLander": Problem("LunarLander-v3", land),
    "Pendulum": Problem("Pendulum-v1", swing, attribute("g")),
    "MountainCarContinuous": Problem(
        "MountainCarContinuous-v0", steer, constant("step", 0.0025), most_random=0.9
    ),
    "Hopper": Problem("Hopper-v5", hop, mujoco_gravity),
    "DoorKey": Problem(PROBLEMS["doorkey"].env, enter, wrappers=PROBLEMS["doorkey"].wrappers),
    "FrozenLake": Problem("FrozenLake-v1", corner, other={"success_rate": 0.6}),
    "Taxi": Problem("Taxi-v4", other={"is_rainy": True}),
    "Lock": Problem("hyq/CombinationLock-v0", unlock, parameters={"horizon": 8}),
    "LQR": Problem(
        "hyq/LQR-v0", regulate, other={"spectral_radius": 1.08}, parameters={"horizon": 20}
    ),
}


def logged(problem: Problem, seed: int) -> Dataset:
    """Log episodes of the expert with more or less chance, drawn for each episode."""
    streams = Streams(seed).below("drift-logs", problem.env)
    rng, env = streams.generator("behaviour"), problem.make()
    env.action_space.seed(streams.integer("actions"))
    low, high = ((0.1, 1.0), (0.05, 0.3), (0.7, 1.0))[seed % 3]
    episodes = []
    for number in range(EPISODES):
        chance = min(float(rng.uniform(low, high)), problem.most_random)
        state, _ = env.reset(seed=streams.integer("episode", number))
        seen, actions, rewards = [np.array(state)], [], []
        over = cut = False
        while not (over or cut):
            if problem.expert is None or rng.random() < chance:
                action = env.action_space.sample()
            else:
                action = problem.expert(env, state, rng)
            state, reward, over, cut, _ = env.step(action)
            seen.append(np.array(state))
            actions.append(action)
            rewards.append(float(reward))
        episodes.append(Episode(np.array(seen), np.array(actions), np.array(rewards), bool(over)))
    env.close()
    return Dataset.of(episodes, {"env": problem.env})


def faulty(dataset: Dataset, fault: str) -> Dataset | None:
    """Return the data with a fault; None where it would change nothing."""
    if fault == "observations":
        seen = over_columns(lambda c: (np.asarray(c[:]) * 1.2).astype(c.dtype), dataset.observation)
        return replace(dataset, observation=seen)
    if fault == "rewards":
        reward = dataset.reward
        shift = 0.1 * (float(np.ptp(reward)) or float(np.abs(reward).max()))
        return replace(dataset, reward=reward + np.float32(shift)) if shift else None
    if fault == "timeouts":
        if (~dataset.terminated).sum() < FEWEST_TIMEOUTS:
            return None
        return replace(dataset, terminated=np.ones_like(dataset.terminated))
    return dataset


def tested(problem: Problem, seed: int) -> Iterator[dict[str, Any]]:
    """Log once and test with every fault."""
    honest = logged(problem, seed)
    spaces = problem.make()
    for fault in FAULTS:
        if fault == "dynamics" and not problem.changes:
            continue
        data = faulty(honest, fault)
        if data is None:
            continue
        factor = (1.2 if seed % 2 else 0.8) if fault == "dynamics" else None
        started = time.perf_counter()
        row: dict[str, Any] = {"fault": fault, "seed": seed, "rows": len(data)}
        try:
            check_fits(data, spaces.observation_space, spaces.action_space)
            found = drift_test(data, partial(problem.make, factor), seed=seed)
            row |= {"alarms": [p.name for p in found.alarms], "matched": round(found.matched, 3)}
            row["p"] = {p.name: round(p.p_value, 5) for p in found.parts if p.p_value == p.p_value}
            row["text"] = [p.text for p in found.alarms]
        except HyqError as error:
            row |= {"alarms": ["fit"], "text": [str(error)]}
        yield row | {"seconds": round(time.perf_counter() - started, 2)}
    spaces.close()


def table(path: Path) -> str:
    """Count alarms of each environment and fault."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    names = [name for name in ENVS if any(row["env"] == name for row in rows)]
    lines = ["| environment | " + " | ".join(FAULTS) + " |", "|---|" + "---:|" * len(FAULTS)]
    for name in [*names, "all"]:
        cells = []
        for fault in FAULTS:
            mine = [r for r in rows if r["fault"] == fault and name in (r["env"], "all")]
            alarms = sum(bool(row["alarms"]) for row in mine)
            cells.append(f"{alarms} of {len(mine)}" if mine else "-")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    honest = [bool(row["alarms"]) for row in rows if row["fault"] == "honest"]
    high = beta.ppf(0.95, sum(honest) + 1, max(len(honest) - sum(honest), 1))
    lines.append(f"\nFalse alarms: {np.mean(honest):.1%}, 95% sure to be below {high:.1%}.")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--envs", nargs="+", choices=ENVS, default=list(ENVS))
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="gymnasium")
    if not args.table:
        text = args.out.read_text() if args.out.exists() else ""
        done = {(row["env"], row["seed"]) for row in map(json.loads, text.splitlines())}
        for seed in range(args.first, args.first + args.repetitions):
            for name in args.envs:
                if (name, seed) in done:
                    continue
                rows = [{"env": name, **row} for row in tested(ENVS[name], seed)]
                with args.out.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
    print(table(args.out))


if __name__ == "__main__":
    main()
