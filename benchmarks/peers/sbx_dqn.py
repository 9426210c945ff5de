# mypy: ignore-errors
"""Time the DQN of SBX, which is Stable-Baselines3 with its updates compiled by JAX.

python benchmarks/peers/sbx_dqn.py --problem montezuma|cartpole [--seconds 30] [--threads 1]
    [--envs 8] [--vector dummy|subproc|native]

JAX takes every core it may run on, whatever it is told, so `--threads` is how many cores this
process may run on. Its layers are made without a precision of their own: float32 only.
"""

import os

import jax
import optax
import sbx
from common import (
    CLIP,
    EPSILON,
    GAMMA,
    LEARNING_STARTS,
    STEPS_PER_UPDATE,
    Window,
    arguments,
    prepare,
    report,
    stopwatch,
)
from sb3 import Watch, environments


def clipped_adam(learning_rate: float) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(learning_rate))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--vector", choices=("dummy", "subproc", "native"), default="dummy")
    options = parser.parse_args()
    if options.dueling or options.channels_last or options.precision != "float32":
        parser.error("SBX has no dueling network, no memory formats and no bfloat16")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    problem = prepare(options)
    window = Window(options)
    gradient_steps = max(1, options.envs // STEPS_PER_UPDATE)
    memory = {
        "optimize_memory_usage": True,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    model = sbx.DQN(
        "CnnPolicy" if problem.pixels else "MlpPolicy",
        environments(problem, options),
        learning_rate=problem.lr,
        buffer_size=problem.buffer,
        learning_starts=LEARNING_STARTS,
        batch_size=problem.batch,
        gamma=GAMMA,
        train_freq=max(1, STEPS_PER_UPDATE // options.envs),
        gradient_steps=gradient_steps,
        target_update_interval=problem.target_steps,
        exploration_initial_eps=EPSILON,
        exploration_final_eps=EPSILON,
        policy_kwargs={
            "net_arch": [512 if problem.pixels else 64],
            "optimizer_class": clipped_adam,
        },
        seed=options.seed,
        **(memory if problem.pixels else {}),
    )
    model.train = stopwatch(model.train, lambda took: window.updated(took, gradient_steps))
    model.learn(total_timesteps=10**9, callback=Watch(window), log_interval=10**9)
    notes = [
        "no double DQN, so a forward pass less an update",
        "no offline data in the batches",
        f"Huber loss; the {gradient_steps} updates after a step are drawn and run as one program",
        f"JAX {jax.__version__}",
    ]
    report("sbx", sbx.__version__, options, window, notes)


if __name__ == "__main__":
    main()
