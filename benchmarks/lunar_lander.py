"""From five CSV files of LunarLander to an evaluated policy, beside d3rlpy's mixed buffer.

python benchmarks/lunar_lander.py files exports/     # 39k rows of a noisy controller
python benchmarks/lunar_lander.py train exports/ --out results/files/lunar_lander.json \
    [--seeds 0 1 2 3 4] [--online-steps 50000] [--peers .venv-bench/bin/python]

`train` runs the two commands of the README for each seed, and scores the best policy that they
kept, and the last, on 100 episodes of their own. `--peers` is the Python of an environment with
d3rlpy and Box2D. Results are added to those that the record holds; what it holds is not run again.
"""

import argparse
import csv
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.box2d.lunar_lander import heuristic

from hyq.policy import Policy
from hyq.runs.records import circumstances

ENV = "LunarLander-v3"
ROWS, DEFAULT_STEPS, RANDOM_SHARES = 39_000, 50_000, (0.1, 0.4, 1.0)
"""How often the controller acts at random, by episode."""
PEER = Path(__file__).parent / "peers" / "d3rlpy_lunar_lander.py"


def write_files(out: Path, seed: int = 0) -> None:
    """Log episodes until there are enough rows; each file has every fifth episode, shuffled."""
    env, rng = gym.make(ENV), np.random.default_rng(seed)
    names = ["episode_id", "t", *(f"obs_{i}" for i in range(8))]
    names += ["action", "reward", "done", "timeout"]
    rows: list[list[Any]] = []
    episode = 0
    while len(rows) < ROWS:
        observation, _ = env.reset(seed=int(rng.integers(2**31)))
        share, over, t = RANDOM_SHARES[episode % len(RANDOM_SHARES)], False, 0
        while not over:
            random = rng.random() < share
            action = int(rng.integers(4)) if random else int(heuristic(env.unwrapped, observation))  # type: ignore[no-untyped-call]
            after, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            rows.append(
                [episode, t, *observation.tolist(), action, reward, int(over), int(truncated)]
            )
            observation, t = after, t + 1
        episode += 1
    out.mkdir(parents=True)
    for part in range(5):
        with (out / f"part{part}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            own = [row for row in rows if row[0] % 5 == part]
            writer.writerows(own[i] for i in rng.permutation(len(own)))
    print(f"{len(rows):,} rows of {episode} episodes in {out}")


def ours(files: list[str], steps: int, seed: int) -> dict[str, float]:
    """Run the two commands, the second with its defaults but for the seed."""
    with tempfile.TemporaryDirectory() as folder:
        logs, run = f"{folder}/logs", f"{folder}/run"
        began = time.perf_counter()
        command("data", "import", *files, "--out", logs)
        imported = time.perf_counter() - began
        words = ["train", "--env", ENV, "--data", logs, "--seed", str(seed), "--out", run]
        # The default is not given: it would be a decision.
        command(*words, *(() if steps == DEFAULT_STEPS else ("--online-steps", str(steps))))
        seconds = time.perf_counter() - began
        best, last = (
            evaluate(Policy.load(Path(run) / name).act, seed) for name in ("best", "last")
        )
    return {"return": best, "last": last, "import_seconds": imported, "seconds": seconds}


def theirs(python: str, settings: str, files: list[str], steps: int, seed: int) -> dict[str, float]:
    """Run d3rlpy."""
    words = [python, str(PEER), *files, "--settings", settings]
    words += ["--seed", str(seed), "--online-steps", str(steps)]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


def command(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "hyq", *words], check=True, stdout=subprocess.DEVNULL)


def evaluate(act: Any, seed: int, episodes: int = 100) -> float:
    env, total = gym.make(ENV), 0.0
    for number in range(episodes):
        observation, _ = env.reset(seed=10_000 * (seed + 1) + number)
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total += float(reward)
            over = terminated or truncated
    return total / episodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("files", "train"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--online-steps", type=int, default=DEFAULT_STEPS)
    parser.add_argument("--peers")
    options = parser.parse_args()
    if options.what == "files":
        write_files(options.folder)
        return
    files = sorted(str(path) for path in options.folder.glob("*.csv"))
    steps, python = options.online_steps, options.peers
    methods: dict[str, Callable[[int], dict[str, float]]] = {
        "hyq": lambda seed: ours(files, steps, seed)
    }
    for settings in ("own", "ours") if python else ():
        methods[f"d3rlpy, {settings} settings"] = partial(theirs, python, settings, files, steps)
    record: dict[str, Any] = {"env": ENV, "rows": ROWS, "online_steps": steps, "results": []}
    if options.out and options.out.exists():
        record = json.loads(options.out.read_text())
        if record["online_steps"] != steps:
            raise SystemExit(f"{options.out} is of {record['online_steps']} steps")
    known = {(one["method"], one["seed"]) for one in record["results"]}
    for seed, name in itertools.product(options.seeds, methods):
        if (name, seed) in known:
            continue
        one = {key: round(value, 2) for key, value in methods[name](seed).items()}
        print(seed, name, one, flush=True)
        made = {key: circumstances()[key] for key in ("commit", "versions")}
        record["results"].append({"method": name, "seed": seed, **one, **made})
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(record, indent=2) + "\n")
    for name in methods:
        own = [one for one in record["results"] if one["method"] == name]
        for score in ("return", "last"):
            found = [one[score] for one in own]
            spread = f"{min(found):.0f} to {max(found):.0f}, {len(found)} seeds"
            print(f"{name}, {score}: {np.mean(found):.0f} on average, {spread}")


if __name__ == "__main__":
    main()
