"""A network of your own, where observations are a dictionary.

python examples/own_network.py [live steps]
"""

import sys

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import hyq

STEPS = int(sys.argv[1]) if sys.argv[1:] else 8000


class Parts(gym.ObservationWrapper):
    """MountainCar with its two numbers by name."""

    observation_space = gym.spaces.Dict(
        position=gym.spaces.Box(-1.2, 0.6, (1,), np.float32),
        velocity=gym.spaces.Box(-0.07, 0.07, (1,), np.float32),
    )

    def observation(self, observation):
        return {"position": observation[:1], "velocity": observation[1:]}


class TwoBranches(nn.Module):
    """Each part of the observation, a dictionary of tensors, has layers of its own."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.position = nn.Sequential(nn.Linear(1, 32), nn.Tanh())
        self.velocity = nn.Sequential(nn.Linear(1, 32), nn.Tanh())
        self.values = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, actions))

    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return (batch, actions) values."""
        parts = [self.position(obs["position"]), self.velocity(50 * obs["velocity"])]
        return self.values(torch.cat(parts, dim=-1))


def two_branches(observation_space, action_space):
    """Make the network; hyq calls this with the spaces."""
    return TwoBranches(int(action_space.n))


logged = hyq.load("mountaincar/half")  # a dataset that ships; its observations are arrays
parts = {"position": logged.observation[:, :1], "velocity": logged.observation[:, 1:]}
data = hyq.Dataset(**{**vars(logged), "observation": parts, "provenance": {"from": "mountaincar"}})
policy = hyq.train(
    lambda: Parts(gym.make("MountainCar-v0")), data, STEPS,
    network=two_branches, pretraining=min(4000, STEPS),
)  # fmt: skip
policy.save("branches")  # weights, not code:
policy = hyq.Policy.load("branches", network=two_branches)
print(policy.act({"position": [-0.5], "velocity": [0.01]}))
