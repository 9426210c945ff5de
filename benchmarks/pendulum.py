"""Whether Hy-SAC without data is soft actor-critic: beside Stable-Baselines3's on Pendulum.

    python benchmarks/pendulum.py --peers .venv-bench/bin/python --out pendulum.json

Same networks (two hidden layers of 256, two critics without normalisation), batch, learning rate,
discount, target rate, first random steps and entropy in the backup; evaluated by 20 episodes at the
same steps. The policy's gradient differs: SB3 takes the smaller critic, Hy-SAC their mean.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console

import hyq
from hyq.core.files import write_json
from hyq.runs.records import circumstances
from hyq.runs.runner import Progress

SETTINGS: dict[str, Any] = {
    "critics": 2,
    "layer_norm": False,
    "entropy_in_backup": True,
    "target_entropy": -1.0,
    "random_steps": 1000,
    "learning_starts": 1000,
}
console = Console()


def ours(steps: int, every: int, seed: int) -> list[float]:
    """Return the evaluations of Hy-SAC without data."""
    found: list[float] = []

    def note(progress: Progress) -> None:
        found.append(progress.row["eval_return"])

    hyq.train(
        "Pendulum-v1", online_steps=steps, algorithm="sac", seed=seed, evaluation_episodes=20,
        report_every=every, callbacks=[note], progress=False, **SETTINGS,
    )  # fmt: skip
    return found


def theirs(peers: Path, steps: int, every: int, seed: int) -> list[float]:
    """Return the evaluations of Stable-Baselines3's SAC."""
    script = Path(__file__).parent / "peers" / "sb3_sac_pendulum.py"
    options = [f"--steps={steps}", f"--every={every}", f"--seed={seed}"]
    done = subprocess.run([peers, script, *options], capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main(
    peers: Path, steps: int = 6000, every: int = 1000, seeds: int = 5, out: Path | None = None
) -> None:
    """Compare learning curves.

    Args:
        peers: Python of the environment that Stable-Baselines3 is installed in.
        steps: Steps of every run.
        every: Steps between two evaluations.
        seeds: Runs on each side.
        out: File for the curves, as JSON.
    """
    curves: dict[str, list[list[float]]] = {"hyq": [], "sb3": []}
    for seed in range(100, 100 + seeds):
        curves["hyq"].append(ours(steps, every, seed))
        curves["sb3"].append(theirs(peers, steps, every, seed))
        console.print(seed, {name: np.round(curve[-1]).tolist() for name, curve in curves.items()})
    for name, runs in curves.items():
        mean, std = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1 if seeds > 1 else 0)
        shown = ", ".join(f"{m:,.0f} ± {s:,.0f}" for m, s in zip(mean, std, strict=True))
        console.print(f"{name}: {shown} (every {every:,} steps, {seeds} seeds, mean and std)")
    if out is not None:
        write_json(out, {"steps": steps, "every": every, "curves": curves, **circumstances()})


if __name__ == "__main__":
    tyro.cli(main)
