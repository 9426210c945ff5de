# mypy: ignore-errors
"""Train Stable-Baselines3's SAC on Pendulum and print the returns of its evaluations as JSON.

python benchmarks/peers/sb3_sac_pendulum.py --steps 5000 --every 1000 --seed 0
"""

import argparse
import json

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

parser = argparse.ArgumentParser()
for name in ("steps", "every", "seed"):
    parser.add_argument(f"--{name}", type=int, required=True)
options = parser.parse_args()
torch.set_num_threads(1)


def made() -> gym.Env:
    """Make the environment with observations within [-1, 1], as hyq's networks see them."""
    low, high = np.float32(-1), np.float32(1)
    return gym.wrappers.RescaleObservation(gym.make("Pendulum-v1"), low, high)


model = SAC(
    "MlpPolicy",
    made(),
    learning_rate=3e-4,
    batch_size=256,
    learning_starts=1000,
    tau=0.005,
    gamma=0.99,
    seed=options.seed,
    device="cpu",
)
returns = []
for part in range(options.steps // options.every):
    model.learn(options.every, reset_num_timesteps=part == 0)
    env = Monitor(made())
    env.reset(seed=10_000 + options.seed)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=20, deterministic=True)
    returns.append(float(np.mean(mean)))
print(json.dumps(returns))
