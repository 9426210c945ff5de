"""From five CSV files of LunarLander to an evaluated policy, beside d3rlpy's mixed buffer.

python benchmarks/lunar_lander.py files exports/     # 39k rows of a noisy controller
python benchmarks/lunar_lander.py train exports/ --out results/files/lunar_lander.json \
    [--seeds 5] [--online-steps 10000] [--peers PYTHON]

`train` runs the two commands of the README for each seed, and scores the best policy that they
kept on 100 episodes of its own. `--peers` is the Python of an environment with d3rlpy and box2d.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.box2d.lunar_lander import heuristic

ENV = "LunarLander-v3"
ROWS, RANDOM_SHARES = 39_000, (0.1, 0.4, 1.0)
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


def ours(files: list[str], steps: int, seed: int) -> dict[str, Any]:
    """Run the two commands."""
    with tempfile.TemporaryDirectory() as folder:
        logs, run = f"{folder}/logs", f"{folder}/run"
        began = time.perf_counter()
        command("data", "import", *files, "--out", logs)
        imported = time.perf_counter() - began
        words = ["train", "--env", ENV, "--data", logs, "--online-steps", str(steps)]
        command(*words, "--seed", str(seed), "--out", run)
        seconds = time.perf_counter() - began
        from hyq.policy import Policy  # noqa: PLC0415

        policy = Policy.load(Path(run) / "best")
        score = evaluate(policy.act, seed)
    return {"return": score, "import_seconds": imported, "seconds": seconds}


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
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--online-steps", type=int, default=10_000)
    parser.add_argument("--peers")
    options = parser.parse_args()
    if options.what == "files":
        write_files(options.folder)
        return
    files = sorted(str(path) for path in options.folder.glob("*.csv"))
    results: dict[str, list[dict[str, Any]]] = {}
    for seed in range(options.seeds):
        found = {"hyq": ours(files, options.online_steps, seed)}
        for settings in ("own", "ours") if options.peers else ():
            words = [options.peers, str(PEER), *files, "--settings", settings]
            words += ["--seed", str(seed), "--online-steps", str(options.online_steps)]
            said = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
            found[f"d3rlpy, {settings} settings"] = json.loads(said.splitlines()[-1])
        for name, one in found.items():
            results.setdefault(name, []).append({"seed": seed, **one})
            print(seed, name, {key: round(value, 1) for key, value in one.items()}, flush=True)
        if options.out:
            about = {"env": ENV, "rows": ROWS, "online_steps": options.online_steps}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps({**about, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
