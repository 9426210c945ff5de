# mypy: ignore-errors
"""Train d3rlpy's double DQN on LunarLander online and on CSV files, half and half.

python benchmarks/peers/d3rlpy_lunar_lander.py FILES... --settings own|ours --seed 0

`own` are d3rlpy's defaults; `ours` are those of `hyq train`, as far as d3rlpy has them. Scored are
the last policy, and the best of one evaluation in every 1,000 steps, as hyq keeps it.
"""

import argparse
import copy
import csv
import json
import time

import d3rlpy
import gymnasium as gym
import numpy as np
import structlog
import torch
from d3rlpy.algos import DoubleDQNConfig, LinearDecayEpsilonGreedy
from d3rlpy.dataset import FIFOBuffer, MDPDataset, MixedReplayBuffer, ReplayBuffer
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.optimizers import AdamFactory

ENV = "LunarLander-v3"


def read(files):
    """Sort the rows, and split ends as d3rlpy wants them."""
    rows = []
    for name in files:
        with open(name, newline="") as file:
            rows += [[float(value) for value in row] for row in list(csv.reader(file))[1:]]
    whole = np.array(sorted(rows, key=lambda row: (row[0], row[1])))
    done, timeout = whole[:, -2] == 1, whole[:, -1] == 1
    return MDPDataset(
        whole[:, 2:10].astype(np.float32),
        whole[:, 10].astype(int),
        whole[:, 11].astype(np.float32),
        (done & ~timeout).astype(np.float32),
        timeout.astype(np.float32),
        action_size=4,
    )


def evaluate(algorithm, seed, episodes):
    env, total = gym.make(ENV), 0.0
    for number in range(episodes):
        observation, _ = env.reset(seed=10_000 * (seed + 1) + number)
        over = False
        while not over:
            action = int(algorithm.predict(observation[None])[0])
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            over = terminated or truncated
    return total / episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--settings", choices=("own", "ours"), required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--online-steps", type=int, default=10_000)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    torch.set_num_threads(1)
    d3rlpy.seed(options.seed)
    began = time.perf_counter()
    env, data = gym.make(ENV), read(options.files)
    env.reset(seed=options.seed)
    env.action_space.seed(options.seed)
    config, explorer = DoubleDQNConfig(), None
    if options.settings == "ours":
        config = DoubleDQNConfig(
            batch_size=64,
            learning_rate=1e-3,
            target_update_interval=50,
            optim_factory=AdamFactory(clip_grad_norm=10.0),
            encoder_factory=VectorEncoderFactory([128, 128]),
        )
        explorer = LinearDecayEpsilonGreedy(0.2, 0.02, 10_000)
    algorithm = config.create(device="cpu:0")
    algorithm.build_with_env(env)
    if options.settings == "ours":
        algorithm.fit(
            data,
            n_steps=4_000,
            n_steps_per_epoch=4_000,
            logger_adapter=NoopAdapterFactory(),
            show_progress=False,
        )
    best = [-np.inf, None]

    def keep(now, _epoch, step):
        if step % 1_000 == 0:
            score = evaluate(now, options.seed + 77, 10)
            if score >= best[0]:
                best[:] = [score, copy.deepcopy(now.impl.q_function.state_dict())]

    buffer = MixedReplayBuffer(ReplayBuffer(FIFOBuffer(100_000), env=env), data, 0.5)
    algorithm.fit_online(
        env,
        buffer,
        explorer,
        n_steps=options.online_steps,
        n_steps_per_epoch=options.online_steps,
        update_start_step=500,
        logger_adapter=NoopAdapterFactory(),
        show_progress=False,
        callback=keep,
    )
    seconds = time.perf_counter() - began
    last = evaluate(algorithm, options.seed, 100)
    algorithm.impl.q_function.load_state_dict(best[1])
    best_now = evaluate(algorithm, options.seed, 100)
    print(json.dumps({"return": best_now, "last": last, "seconds": seconds}))


if __name__ == "__main__":
    main()
