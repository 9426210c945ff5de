# mypy: ignore-errors
"""What the programs that time the peers share: settings, environments, the window, the result.

Every peer trains with the same settings, prints one line of JSON, and is timed over a window that
starts only when it has been learning for a while. A gradient update is taken for every four
environment steps. `update_ms` includes drawing the batch, and is the median over the window.
With `--precision bfloat16` the networks compute under PyTorch's autocast: weights, gradients,
optimizer and loss stay in float32, which is what a user of the peer can have without changing it.
`cpu_seconds` is what all threads of this process used of the processor during the window: where it
is far from `seconds` times the busy threads, the machine was busy with something else.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ale_py
import cv2
import gymnasium as gym
import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

STEPS_PER_UPDATE = 4
GAMMA = 0.99
CLIP = 10.0
"""The largest norm of a gradient."""
EPSILON = 0.05
"""The share of random actions, constant, so that nearly every step pays for a forward pass."""
LEARNING_STARTS = 1000
OFFLINE_STEPS = 10_000
OFFLINE_SHARE = 0.2
STICKINESS = 0.25
FRAME_LIMIT = 18_000
"""Frames in an episode of Montezuma's Revenge: 4,500 steps."""
UPDATES_BEFORE_WARMUP = 20


@dataclass(frozen=True)
class Problem:
    """The settings of a problem; `target_steps` is how many steps a target network lives."""

    name: str
    pixels: bool
    observation: tuple[int, ...]
    actions: int
    batch: int
    lr: float
    target_steps: int
    buffer: int


PROBLEMS = {
    "cartpole": Problem("cartpole", False, (4,), 2, 64, 1e-3, 500, 50_000),
    "montezuma": Problem("montezuma", True, (4, 84, 84), 18, 32, 1e-4, 10_000, 100_000),
}


def arguments(description: str, envs: int = 8) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all peers take."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--problem", choices=sorted(PROBLEMS), required=True)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the timed window")
    parser.add_argument("--warmup", type=float, default=5.0, help="seconds of learning before it")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch and native ALE")
    parser.add_argument("--envs", type=int, default=envs, help="environments side by side")
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32", help="of the layers"
    )
    parser.add_argument(
        "--channels-last", action="store_true", help="the memory format of the convolutions"
    )
    parser.add_argument(
        "--dueling", action="store_true", help="the paper's network, with streams for V and A"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


class Dueling(torch.nn.Module):
    """Two streams of 512 units from what the convolutions see: Q = V + A - mean A."""

    def __init__(self, features: int, actions: int) -> None:
        super().__init__()
        self.value, self.advantage = (
            torch.nn.Sequential(
                torch.nn.Linear(features, 512), torch.nn.ReLU(), torch.nn.Linear(512, outputs)
            )
            for outputs in (1, actions)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(-1, keepdim=True)


def convolutions() -> torch.nn.Sequential:
    """Return the convolutions of Mnih et al. (2015), flattened to 3,136 features."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(4, 32, 8, 4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 4, 2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, 1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
    )


def prepare(options: argparse.Namespace) -> Problem:
    """Set the number of threads and the seeds, and return the problem asked for."""
    if options.dueling and not PROBLEMS[options.problem].pixels:
        raise SystemExit("--dueling is for pixels")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)  # noqa: NPY002 - the peers draw from NumPy's global generator
    return PROBLEMS[options.problem]


def one_environment(problem: Problem) -> gym.Env:
    """Make one environment, stepped in Python."""
    if not problem.pixels:
        return gym.make("CartPole-v1")
    cv2.setNumThreads(1)  # an 84x84 image is too small to share
    gym.register_envs(ale_py)
    game = gym.make(
        "ALE/MontezumaRevenge-v5",
        frameskip=1,
        repeat_action_probability=STICKINESS,
        full_action_space=True,
        max_num_frames_per_episode=FRAME_LIMIT,
    )
    return FrameStackObservation(AtariPreprocessing(game, frame_skip=4, noop_max=0), 4)


def native_montezuma(envs: int, threads: int, autoreset: str) -> AtariVectorEnv:
    """Make ale-py's own vector environment, which steps and draws all games in C++."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return AtariVectorEnv(
        "montezuma_revenge",
        envs,
        num_threads=threads,
        repeat_action_probability=STICKINESS,
        full_action_space=True,
        max_num_frames_per_episode=FRAME_LIMIT,
        noop_max=0,
        use_fire_reset=False,
        reward_clipping=False,
        autoreset_mode=autoreset,
    )


class Window:
    """The timed window: counts environment steps and updates from the end of the warm-up."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._seconds = options.seconds
        self._warmup = options.warmup
        self._updates = 0
        self._learning_since = None
        self._began = None
        self._cpu_began = 0.0
        self._first_step = self._first_update = 0
        self._update_seconds: list[float] = []
        self.steps = self.updates = 0
        self.seconds = self.cpu_seconds = 0.0

    def tick(self, steps: int) -> bool:
        """Count `steps` steps so far; return whether to continue."""
        now = time.perf_counter()
        if self._learning_since is None:
            if self._updates >= UPDATES_BEFORE_WARMUP:
                self._learning_since = now
        elif self._began is None:
            if now - self._learning_since >= self._warmup:
                self._update_seconds.clear()
                self._first_step, self._first_update = steps, self._updates
                self._cpu_began = time.process_time()
                self._began = now
        elif now - self._began >= self._seconds:
            self.seconds = now - self._began
            self.cpu_seconds = time.process_time() - self._cpu_began
            self.steps = steps - self._first_step
            self.updates = self._updates - self._first_update
            return False
        return True

    def updated(self, seconds: float, updates: int = 1) -> None:
        """Count `updates` updates that took `seconds` together."""
        self._updates += updates
        self._update_seconds.append(seconds / updates)

    @property
    def update_ms(self) -> float | None:
        times = self._update_seconds
        return 1e3 * statistics.median(times) if times else None


def autocast(options: argparse.Namespace) -> torch.autocast:
    """Return a context, or a decorator, in which layers compute in the precision asked for.

    One is to be entered for each forward pass or update: within it, autocast keeps the weights it
    has converted, and would not see what an optimizer did to them since.
    """
    return torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16")


def lay_out(module: torch.nn.Module, options: argparse.Namespace) -> None:
    """Give the convolutions' weights the memory format asked for."""
    if options.channels_last:
        module.to(memory_format=torch.channels_last)


def stopwatch(work: Callable[..., Any], report: Callable[[float], None]) -> Callable[..., Any]:
    """Return `work` that reports how long each call took."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        result = work(*args, **kwargs)
        report(time.perf_counter() - began)
        return result

    return timed


def report(
    peer: str, version: str, options: argparse.Namespace, window: Window, notes: list[str]
) -> None:
    """Print the result as one line of JSON."""
    skipped = ("problem", "seconds", "warmup", "threads", "precision", "seed")
    line = {
        "peer": peer,
        "version": version,
        "problem": options.problem,
        "threads": options.threads,
        "precision": options.precision,
        "options": {key: value for key, value in vars(options).items() if key not in skipped},
        "env_steps": int(window.steps),
        "seconds": round(window.seconds, 3),
        "cpu_seconds": round(window.cpu_seconds, 3),
        "steps_per_second": round(window.steps / window.seconds, 1),
        "updates": window.updates,
        "update_ms": round(window.update_ms, 3),
        "notes": "; ".join(notes),
    }
    print(json.dumps(line), flush=True)
