"""Policies that tests play without training them."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from hyq.collector import Preprocessing, PreprocessingConfig
from hyq.core.seeding import torch_seed
from hyq.networks import SMALL, Encoder, Layers, QNetwork, input_scaling
from hyq.policy import Policy

PLAIN = Layers(hidden=(16,), dueling=False)
PIXELS = gym.spaces.Box(0, 255, (1, 84, 84), np.uint8)


def fresh_policy(
    observation_space: gym.Space[Any],
    action_space: gym.spaces.Discrete,
    layers: Layers = PLAIN,
    preprocessing: PreprocessingConfig | None = None,
    about: Mapping[str, Any] | None = None,
) -> Policy:
    """Return a policy whose network has learned nothing."""
    config = preprocessing or PreprocessingConfig()
    seen = Preprocessing(config, observation_space).space
    with torch_seed(1):
        encoder = Encoder(seen, layers, input_scaling(seen))
        network = QNetwork(encoder, layers, int(action_space.n))
    return Policy(network, observation_space, action_space, config, about or {})


def constant_policy(
    action: int, observation_space: gym.Space[Any], actions: int, start: int = 0
) -> Policy:
    """Return a policy that prefers one action, counted from 0, everywhere."""
    policy = fresh_policy(observation_space, gym.spaces.Discrete(actions, start=start))
    with torch.no_grad():
        for parameter in policy.network.parameters():
            parameter.zero_()
        policy.network.get_parameter("advantage.bias")[action] = 1.0
    return policy


def pixel_policy(about: Mapping[str, Any] | None = None) -> Policy:
    """Return a policy of Montezuma's Revenge that has learned nothing."""
    return fresh_policy(PIXELS, gym.spaces.Discrete(18), SMALL, PreprocessingConfig(4, 2), about)
