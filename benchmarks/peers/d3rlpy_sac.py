# mypy: ignore-errors
"""Time d3rlpy's soft actor-critic, online, with its buffer that mixes offline data in.

python benchmarks/peers/d3rlpy_sac.py [--critics 2] [--seconds 30] [--threads 1]
"""

from contextlib import suppress

import d3rlpy
import structlog
from common import report, stopwatch
from d3rlpy.algos import SACConfig
from d3rlpy.dataset import FIFOBuffer, MixedReplayBuffer, ReplayBuffer
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy_dqn import OverError
from sac_common import (
    BATCH,
    BUFFER,
    GAMMA,
    HIDDEN,
    LEARNING_RATE,
    LEARNING_STARTS,
    OFFLINE_SHARE,
    OFFLINE_STEPS,
    TAU,
    Synthetic,
    arguments,
    prepare,
    random_steps,
)


def main() -> None:
    options = arguments(__doc__).parse_args()
    window = prepare(options)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    encoder = VectorEncoderFactory(list(HIDDEN))
    algorithm = SACConfig(
        batch_size=BATCH,
        gamma=GAMMA,
        actor_learning_rate=LEARNING_RATE,
        critic_learning_rate=LEARNING_RATE,
        temp_learning_rate=LEARNING_RATE,
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        tau=TAU,
        n_critics=options.critics,
    ).create(device="cpu:0")
    env = Synthetic()
    env.reset(seed=options.seed)
    algorithm.build_with_env(env)
    offline = ReplayBuffer(FIFOBuffer(OFFLINE_STEPS), env=env)
    for observation, action, _, reward, truncated in random_steps(options.seed + 1):
        offline.append(observation, action, reward)
        if truncated:
            offline.clip_episode(False)
    buffer = MixedReplayBuffer(ReplayBuffer(FIFOBuffer(BUFFER), env=env), offline, OFFLINE_SHARE)

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
            n_steps=10**9,
            n_steps_per_epoch=10**9,
            update_start_step=LEARNING_STARTS,
            logger_adapter=NoopAdapterFactory(),
            show_progress=False,
            callback=watch,
        )
    notes = [
        f"{OFFLINE_SHARE:.0%} of a batch from {OFFLINE_STEPS:,} random steps",
        "fused Adam is not offered",
    ]
    report("d3rlpy", d3rlpy.__version__, options, window, notes)


if __name__ == "__main__":
    main()
