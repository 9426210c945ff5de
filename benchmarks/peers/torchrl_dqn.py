# mypy: ignore-errors
"""Time double DQN made of TorchRL's parts: its offline-to-online buffer, DQN loss and hard update.

python benchmarks/peers/torchrl_dqn.py --problem montezuma|cartpole [--seconds 30] [--threads 1]
    [--precision float32|bfloat16] [--envs 8] [--vector native|sync|async] [--compile] [--dueling]

TorchRL leaves the loop to its user. This one steps a Gymnasium vector environment directly, which
avoids the overhead of wrapping each step, and writes each vector step as one TensorDict.
`native` is a vector environment without a Python loop: ale-py's in C++ for Montezuma's Revenge and
Gymnasium's in NumPy for CartPole.
"""

import argparse
import logging
import time

import gymnasium as gym
import numpy as np
import torch
import torchrl
from common import (
    CLIP,
    EPSILON,
    GAMMA,
    LEARNING_STARTS,
    OFFLINE_SHARE,
    OFFLINE_STEPS,
    STEPS_PER_UPDATE,
    Dueling,
    Problem,
    Window,
    arguments,
    autocast,
    convolutions,
    lay_out,
    native_montezuma,
    one_environment,
    prepare,
    report,
)
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from tensordict import TensorDict
from torch import Tensor, nn
from torchrl.data import (
    Categorical,
    LazyTensorStorage,
    OfflineToOnlineReplayBuffer,
    ReplayBuffer,
)
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, HardUpdate


class Scale(nn.Module):
    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.float() / 255.0


def q_network(problem: Problem, dueling: bool) -> nn.Module:
    if not problem.pixels:
        return nn.Sequential(
            nn.Linear(problem.observation[0], 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, problem.actions),
        )
    head = [nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, problem.actions)]
    return nn.Sequential(
        Scale(), convolutions(), *([Dueling(3136, problem.actions)] if dueling else head)
    )


def environments(problem: Problem, options: argparse.Namespace) -> VectorEnv:
    if options.vector == "native":
        if problem.pixels:
            return native_montezuma(options.envs, options.threads, "NextStep")
        return gym.make_vec(
            "CartPole-v1", num_envs=options.envs, vectorization_mode="vector_entry_point"
        )
    makers = [lambda: one_environment(problem) for _ in range(options.envs)]
    return AsyncVectorEnv(makers) if options.vector == "async" else SyncVectorEnv(makers)


class Stepper:
    """Steps the vector environment and leaves steps that only reset one out of the data."""

    def __init__(self, env: VectorEnv, seed: int) -> None:
        self._env = env
        self.observations = env.reset(seed=seed)[0].copy()
        self._resetting = np.zeros(env.num_envs, dtype=bool)

    def step(self, actions: np.ndarray) -> TensorDict:
        before = self.observations
        after, rewards, terminated, truncated, _ = self._env.step(actions)
        envs = len(actions)
        done = terminated | truncated
        data = TensorDict(
            {
                "observation": torch.from_numpy(before),
                "action": torch.from_numpy(actions),
                "next": TensorDict(
                    {
                        "observation": torch.from_numpy(after),
                        "reward": torch.from_numpy(rewards.astype(np.float32))[:, None],
                        "done": torch.from_numpy(done)[:, None],
                        "terminated": torch.from_numpy(terminated)[:, None],
                    },
                    batch_size=[envs],
                ),
            },
            batch_size=[envs],
        )
        if self._resetting.any():
            data = data[torch.from_numpy(~self._resetting)]
        self.observations = after
        self._resetting = done
        return data


def random_data(problem: Problem, options: argparse.Namespace) -> ReplayBuffer:
    draw = np.random.default_rng(options.seed)
    stepper = Stepper(environments(problem, options), options.seed + 1)
    buffer = ReplayBuffer(storage=LazyTensorStorage(OFFLINE_STEPS))
    while len(buffer) < OFFLINE_STEPS:
        data = stepper.step(draw.integers(problem.actions, size=options.envs))
        if len(data):
            buffer.extend(data)
    return buffer


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--vector", choices=("native", "sync", "async"), default="native")
    parser.add_argument("--compile", action="store_true", help="torch.compile update and policy")
    options = parser.parse_args()
    problem = prepare(options)
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    window = Window(options)
    draw = np.random.default_rng(options.seed)

    network = q_network(problem, options.dueling)
    lay_out(network, options)
    actor = QValueActor(network, in_keys=["observation"], spec=Categorical(problem.actions))
    losses = DQNLoss(actor, loss_function="smooth_l1", double_dqn=True, delay_value=True)
    losses.make_value_estimator(gamma=GAMMA)
    # The class counts one call more than the interval it is given.
    target = HardUpdate(
        losses, value_network_update_interval=problem.target_steps // STEPS_PER_UPDATE - 1
    )
    parameters = list(losses.parameters())
    optimizer = torch.optim.Adam(parameters, lr=problem.lr, fused=True)
    buffer = OfflineToOnlineReplayBuffer(
        random_data(problem, options),
        online_capacity=problem.buffer,
        offline_fraction=OFFLINE_SHARE,
        batch_size=problem.batch,
    )

    def learn(batch: TensorDict) -> None:
        with autocast(options):
            loss = losses(batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()

    @torch.no_grad()
    @autocast(options)
    def greedy(observations: Tensor) -> Tensor:
        return network(observations).argmax(-1)

    if options.compile:
        learn, greedy = torch.compile(learn), torch.compile(greedy)

    stepper = Stepper(environments(problem, options), options.seed)
    steps = owed = 0
    while window.tick(steps):
        actions = greedy(torch.from_numpy(stepper.observations)).numpy()
        random = draw.integers(problem.actions, size=options.envs)
        actions = np.where(draw.random(options.envs) < EPSILON, random, actions)
        data = stepper.step(actions)
        if not len(data):  # every environment has only been reset
            continue
        buffer.extend(data)
        steps += len(data)
        if steps < LEARNING_STARTS:
            continue
        owed += len(data)
        while owed >= STEPS_PER_UPDATE:
            owed -= STEPS_PER_UPDATE
            began = time.perf_counter()
            learn(buffer.sample())
            target.step()
            window.updated(time.perf_counter() - began)

    notes = [
        "hand-written loop over a Gymnasium vector environment, without TorchRL's collector",
        f"{OFFLINE_SHARE:.0%} of a batch from {OFFLINE_STEPS:,} random steps",
        "Huber loss, fused Adam",
        "observation and next observation are both stored, on pixels 56 KB a step",
    ]
    report("torchrl", torchrl.__version__, options, window, notes)


if __name__ == "__main__":
    main()
