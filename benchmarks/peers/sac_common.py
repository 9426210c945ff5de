# mypy: ignore-errors
"""What the programs that time the peers' soft actor-critic share; see common.py for the rest.

One environment, one update of critics, policy and temperature for every step, batches of 256, two
hidden layers of 256 units everywhere, the target the minimum of all critics, float32.
"""

import argparse
import os

import numpy as np
import torch
from common import Window
from synthetic import Synthetic

BATCH = 256
HIDDEN = (256, 256)
LEARNING_RATE = 3e-4
GAMMA = 0.99
TAU = 0.005
LEARNING_STARTS = 1000
BUFFER = 100_000
OFFLINE_STEPS = 10_000
OFFLINE_SHARE = 0.5


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all of them take."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--critics", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the timed window")
    parser.add_argument("--warmup", type=float, default=5.0, help="seconds of learning before it")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch, cores of JAX")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(problem="synthetic", precision="float32")
    return parser


def prepare(options: argparse.Namespace) -> Window:
    """Set the number of threads and the seeds, and return the window."""
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)  # noqa: NPY002 - the peers draw from NumPy's global generator
    return Window(options)


def random_steps(seed: int):
    """Yield (observation, action, next observation, reward, truncated) of random play."""
    draw, env = np.random.default_rng(seed), Synthetic()
    observation, _ = env.reset(seed=seed)
    for _ in range(OFFLINE_STEPS):
        action = draw.uniform(-1, 1, 6).astype(np.float32)
        after, reward, _, truncated, _ = env.step(action)
        yield observation, action, after, reward, truncated
        observation = env.reset()[0] if truncated else after
