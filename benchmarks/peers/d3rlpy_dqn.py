# mypy: ignore-errors
"""Time d3rlpy's double DQN, online, with its buffer that mixes offline data in.

python benchmarks/peers/d3rlpy_dqn.py --problem montezuma|cartpole [--seconds 30] [--threads 1]
    [--precision float32|bfloat16] [--frames whole|single]

`fit_online` takes one environment, so there is no `--envs` above 1. `--frames single` stores one
frame a step and stacks on the way out of the buffer.
"""

from contextlib import suppress

import d3rlpy
import gymnasium as gym
import numpy as np
import structlog
from common import (
    CLIP,
    EPSILON,
    GAMMA,
    LEARNING_STARTS,
    OFFLINE_SHARE,
    OFFLINE_STEPS,
    STEPS_PER_UPDATE,
    Problem,
    Window,
    arguments,
    autocast,
    lay_out,
    one_environment,
    prepare,
    report,
    stopwatch,
)
from d3rlpy.algos import ConstantEpsilonGreedy, DoubleDQNConfig
from d3rlpy.dataset import (
    BasicTransitionPicker,
    BasicWriterPreprocess,
    FIFOBuffer,
    FrameStackTransitionPicker,
    LastFrameWriterPreprocess,
    MixedReplayBuffer,
    ReplayBuffer,
)
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models.encoders import PixelEncoderFactory, VectorEncoderFactory
from d3rlpy.optimizers import AdamFactory
from d3rlpy.preprocessing import PixelObservationScaler


class OverError(Exception):
    """Ends `fit_online`, which has no other way out."""


def empty_buffer(limit: int, env: gym.Env, single_frames: bool) -> ReplayBuffer:
    return ReplayBuffer(
        FIFOBuffer(limit),
        env=env,
        transition_picker=FrameStackTransitionPicker(4)
        if single_frames
        else BasicTransitionPicker(),
        writer_preprocessor=LastFrameWriterPreprocess()
        if single_frames
        else BasicWriterPreprocess(),
    )


def random_data(problem: Problem, seed: int, single_frames: bool) -> ReplayBuffer:
    draw = np.random.default_rng(seed)
    env = one_environment(problem)
    buffer = empty_buffer(OFFLINE_STEPS, env, single_frames)
    observation, _ = env.reset(seed=seed + 1)
    for _ in range(OFFLINE_STEPS):
        action = draw.integers(problem.actions)
        after, reward, terminated, truncated, _ = env.step(action)
        buffer.append(observation, action, float(reward))
        observation = after
        if terminated or truncated:
            buffer.clip_episode(terminated)
            observation, _ = env.reset()
    buffer.clip_episode(False)
    return buffer


def main() -> None:
    parser = arguments(__doc__, envs=1)
    parser.add_argument("--frames", choices=("whole", "single"), default="whole")
    options = parser.parse_args()
    if options.envs != 1 or options.dueling:
        parser.error("d3rlpy trains online on one environment, without a dueling network")
    problem = prepare(options)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    window = Window(options)

    algorithm = DoubleDQNConfig(
        batch_size=problem.batch,
        learning_rate=problem.lr,
        optim_factory=AdamFactory(clip_grad_norm=CLIP),
        encoder_factory=PixelEncoderFactory(dropout_rate=None)
        if problem.pixels
        else VectorEncoderFactory([64, 64]),
        gamma=GAMMA,
        target_update_interval=problem.target_steps // STEPS_PER_UPDATE,
        observation_scaler=PixelObservationScaler() if problem.pixels else None,
    ).create(device="cpu:0")
    env = one_environment(problem)
    env.reset(seed=options.seed)
    algorithm.build_with_env(env)
    lay_out(algorithm.impl.modules.q_funcs, options)
    lay_out(algorithm.impl.modules.targ_q_funcs, options)
    for name in ("compute_target", "compute_loss", "inner_predict_best_action"):
        setattr(algorithm.impl, name, autocast(options)(getattr(algorithm.impl, name)))
    single_frames = problem.pixels and options.frames == "single"
    buffer = MixedReplayBuffer(
        empty_buffer(problem.buffer, env, single_frames),
        random_data(problem, options.seed, single_frames),
        OFFLINE_SHARE,
    )

    sampling = 0.0

    def sampled(seconds: float) -> None:
        nonlocal sampling
        sampling = seconds

    def watch(_algorithm: object, _epoch: int, step: int) -> None:
        if not window.tick(step):
            raise OverError

    buffer.sample_transition_batch = stopwatch(buffer.sample_transition_batch, sampled)
    algorithm.update = stopwatch(
        algorithm.update, lambda seconds: window.updated(seconds + sampling)
    )
    with suppress(OverError):
        algorithm.fit_online(
            env,
            buffer,
            ConstantEpsilonGreedy(EPSILON),
            n_steps=10**9,
            n_steps_per_epoch=10**9,
            update_interval=STEPS_PER_UPDATE,
            update_start_step=LEARNING_STARTS,
            logger_adapter=NoopAdapterFactory(),
            show_progress=False,
            callback=watch,
        )
    offline = problem.batch - int((1 - OFFLINE_SHARE) * problem.batch)
    notes = [
        "one environment, which is all that fit_online takes",
        f"{offline} of {problem.batch} in a batch from {OFFLINE_STEPS:,} random steps",
        "Huber loss; fused Adam is not offered",
    ]
    report("d3rlpy", d3rlpy.__version__, options, window, notes)


if __name__ == "__main__":
    main()
