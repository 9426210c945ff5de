# mypy: ignore-errors
"""Time soft actor-critic made of TorchRL's parts: its offline-to-online buffer and SAC loss.

python benchmarks/peers/torchrl_sac.py [--critics 2] [--seconds 30] [--threads 1] [--compile]

They are what TorchRL's offline-to-online trainer is made of. This loop steps the environment
directly, which avoids the trainer's collector and hooks and is the faster one.
"""

import logging
import time

import numpy as np
import torch
import torchrl
from common import report
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
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.data import (
    Bounded,
    LazyTensorStorage,
    OfflineToOnlineReplayBuffer,
    ReplayBuffer,
)
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate


def row(observation, action, after, reward, truncated) -> TensorDict:
    return TensorDict(
        {
            "observation": torch.from_numpy(observation)[None],
            "action": torch.from_numpy(action)[None],
            "next": TensorDict(
                {
                    "observation": torch.from_numpy(after)[None],
                    "reward": torch.tensor([[reward]], dtype=torch.float32),
                    "done": torch.tensor([[truncated]]),
                    "terminated": torch.tensor([[False]]),
                },
                batch_size=[1],
            ),
        },
        batch_size=[1],
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--compile", action="store_true", help="torch.compile the losses")
    options = parser.parse_args()
    window = prepare(options)
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    draw, env = np.random.default_rng(options.seed), Synthetic()

    layers = {"num_cells": list(HIDDEN), "activation_class": nn.ReLU}
    network = nn.Sequential(
        MLP(in_features=17, out_features=12, **layers), NormalParamExtractor("exp")
    )
    actor = ProbabilisticActor(
        TensorDictModule(network, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=Bounded(-1.0, 1.0, (6,), dtype=torch.float32),
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(
        MLP(in_features=23, out_features=1, **layers), in_keys=["observation", "action"]
    )
    losses = SACLoss(actor, critic, num_qvalue_nets=options.critics, loss_function="l2")
    losses.make_value_estimator(gamma=GAMMA)
    target = SoftUpdate(losses, tau=TAU)
    optimizer = torch.optim.Adam(losses.parameters(), lr=LEARNING_RATE, fused=True)
    offline = ReplayBuffer(storage=LazyTensorStorage(OFFLINE_STEPS))
    offline.extend(torch.cat([row(*step) for step in random_steps(options.seed + 1)]))
    buffer = OfflineToOnlineReplayBuffer(
        offline, online_capacity=BUFFER, offline_fraction=OFFLINE_SHARE, batch_size=BATCH
    )

    def learn(batch: TensorDict) -> None:
        found = losses(batch)
        optimizer.zero_grad()
        (found["loss_actor"] + found["loss_qvalue"] + found["loss_alpha"]).backward()
        optimizer.step()

    if options.compile:
        learn = torch.compile(learn)

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        mean, spread = network(torch.from_numpy(observation))
        return torch.tanh(mean + spread * torch.randn_like(mean)).numpy()

    steps, (observation, _) = 0, env.reset(seed=options.seed)
    while window.tick(steps):
        learning = steps >= LEARNING_STARTS
        action = act(observation) if learning else draw.uniform(-1, 1, 6).astype(np.float32)
        after, reward, _, truncated, _ = env.step(action)
        buffer.extend(row(observation, action, after, reward, truncated))
        observation = env.reset()[0] if truncated else after
        steps += 1
        if learning:
            began = time.perf_counter()
            learn(buffer.sample())
            target.step()
            window.updated(time.perf_counter() - began)
    notes = [
        "hand-written loop, without TorchRL's collector and trainer",
        f"{OFFLINE_SHARE:.0%} of a batch from {OFFLINE_STEPS:,} random steps",
        "fused Adam; one optimizer and one backward pass for all losses",
    ]
    report("torchrl", torchrl.__version__, options, window, notes)


if __name__ == "__main__":
    main()
