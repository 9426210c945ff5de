# mypy: ignore-errors
"""Time the soft actor-critic of SBX: Stable-Baselines3 with its updates compiled by JAX.

python benchmarks/peers/sbx_sac.py [--critics 2] [--seconds 30] [--threads 1]

JAX takes every core it may run on, whatever it is told, so `--threads` is how many cores this
process may run on.
"""

import os

import jax
import sbx
from common import report, stopwatch
from sac_common import (
    BATCH,
    BUFFER,
    GAMMA,
    HIDDEN,
    LEARNING_RATE,
    LEARNING_STARTS,
    TAU,
    Synthetic,
    arguments,
    prepare,
)
from sb3 import Watch


def main() -> None:
    options = arguments(__doc__).parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    window = prepare(options)
    model = sbx.SAC(
        "MlpPolicy",
        Synthetic(),
        learning_rate=LEARNING_RATE,
        buffer_size=BUFFER,
        learning_starts=LEARNING_STARTS,
        batch_size=BATCH,
        tau=TAU,
        gamma=GAMMA,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": list(HIDDEN), "n_critics": options.critics},
        seed=options.seed,
    )
    model.train = stopwatch(model.train, window.updated)
    model.learn(total_timesteps=10**9, callback=Watch(window), log_interval=10**9)
    notes = ["no offline data in the batches", f"JAX {jax.__version__}"]
    report("sbx", sbx.__version__, options, window, notes)


if __name__ == "__main__":
    main()
