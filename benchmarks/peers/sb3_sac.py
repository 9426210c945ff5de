# mypy: ignore-errors
"""Time Stable-Baselines3's soft actor-critic.

python benchmarks/peers/sb3_sac.py [--critics 2] [--seconds 30] [--threads 1]
"""

import stable_baselines3
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
    window = prepare(options)
    model = stable_baselines3.SAC(
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
        policy_kwargs={
            "net_arch": list(HIDDEN),
            "n_critics": options.critics,
            "optimizer_kwargs": {"fused": True},
        },
        seed=options.seed,
        device="cpu",
    )
    model.train = stopwatch(model.train, window.updated)
    model.learn(total_timesteps=10**9, callback=Watch(window), log_interval=10**9)
    notes = ["no offline data in the batches", "fused Adam"]
    report("stable-baselines3", stable_baselines3.__version__, options, window, notes)


if __name__ == "__main__":
    main()
