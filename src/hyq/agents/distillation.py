"""The bonus of random network distillation (Burda et al. 2018): the error of predicting features.

A *target* network, drawn at random and never changed, maps every frame to features. A *predictor*
learns to do the same from the frames that the agent has seen. Where its error is large, the agent
has hardly been.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from hyq.core.moments import RunningMoments
from hyq.core.trees import Tree, flatten, space_tree, tree_map
from hyq.core.types import Array, FloatArray
from hyq.networks import Encoder, InputScaling, Layers, QNetwork, input_scaling, orthogonal_

LARGEST_INPUT = 5.0
"""Standard deviations from the mean at which an entry of a normalised frame is clipped."""
SMALLEST_STD = 1e-4
"""Stands in for the std of entries that never changed, so that any change of theirs clips."""


class Distillation(nn.Module):
    """The target, the predictor, and the moments that normalise the frames that both see."""

    def __init__(self, space: gym.Space[Any], layers: Layers, features: int) -> None:
        super().__init__()
        # Convolutions alone make features; on vectors, a linear target would be learned at once.
        plain = replace(layers, hidden=(), stream_hidden=0) if layers.convolutions else layers
        self.target, self.predictor = (
            QNetwork(
                Encoder(space, kind, {n: InputScaling() for n in input_scaling(space)}),
                replace(kind, dueling=False),
                features,
            )
            for kind in (plain, layers)
        )
        orthogonal_(self)
        self.target.requires_grad_(False)
        self._moments = tree_map(lambda part: RunningMoments(part.shape), space_tree(space))

    def update_moments(self, frames: Tree) -> None:
        """Count frames in the mean and std of every entry."""
        tree_map(lambda moments, rows: moments.update(rows), self._moments, frames)

    def normalised(self, frames: Tree) -> Tree:
        """Centre and scale every entry by what has been seen of it, and clip."""

        def normalise(rows: Tensor, moments: RunningMoments) -> Tensor:
            mean = torch.as_tensor(moments.mean, dtype=torch.float32, device=rows.device)
            std = torch.as_tensor(moments.std, dtype=torch.float32, device=rows.device)
            standardised = (rows.float() - mean) / std.clamp(min=SMALLEST_STD)
            return standardised.clamp(-LARGEST_INPUT, LARGEST_INPUT)

        return tree_map(normalise, frames, self._moments)

    def forward(self, frames: Tree) -> Tensor:
        """Return the mean squared error of the predictor at each frame."""
        rows = self.normalised(frames)
        return (self.predictor(rows) - self.target(rows)).square().mean(-1)

    def moments(self) -> dict[str, RunningMoments]:
        """Return the moments of every leaf of the frames, by its path: they are state too."""
        return flatten({"frames": self._moments})


class BonusScale:
    """Divides prediction errors by the running std of their discounted sums in each environment.

    The sums run forward in time: a return of the past, which is known at once, in place of the
    return to come. So the bonus keeps its scale while the prediction error falls.
    """

    def __init__(self, num_envs: int, gamma: float) -> None:
        self._gamma = gamma
        self._sum: FloatArray = np.zeros(num_envs)
        self._moments = RunningMoments()

    def __call__(self, errors: FloatArray) -> FloatArray:
        """Return the errors of a rollout (steps, num_envs) as rewards, their sums counted."""
        sums = np.empty_like(errors, dtype=np.float64)
        for t, error in enumerate(errors):
            sums[t] = self._sum = self._gamma * self._sum + error
        self._moments.update(sums.ravel())
        return errors / max(float(self._moments.std), 1e-8)

    def state(self) -> dict[str, Array]:
        """Return the sums and their moments."""
        return {"sum": self._sum.copy(), **self._moments.state()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Undo `state`."""
        self._sum = state["sum"].copy()
        self._moments.load_state(state)
