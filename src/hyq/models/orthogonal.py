"""Orthogonal first weights (Saxe et al. 2014), which keep signals at their size through layers."""

import math

import numpy as np

from hyq.core.types import FloatArray
from hyq.models.networks import Network

RELU_GAIN = math.sqrt(2)
"""Makes up for the half of the signal that a ReLU takes away."""


def orthogonal_weights(
    network: Network, rng: np.random.Generator, last_gain: float = RELU_GAIN
) -> dict[str, FloatArray]:
    """Draw the parameters of a network: orthogonal weights, biases of zero, gains of one.

    Args:
        network: Whose parameters to draw.
        rng: Where the randomness comes from.
        last_gain: Scale of the layers that make the outputs; a small one starts a policy off as
            good as uniform, and values near zero.
    """
    module = network.module()
    last = {id(list(head.parameters())[-2]) for head in module.heads}  # its weight, then its bias
    parameters: dict[str, FloatArray] = {}
    for name, value in module.named_parameters():
        if name.endswith("bias"):
            parameters[name] = np.zeros(tuple(value.shape), np.float32)
            continue
        if value.ndim == 1:  # of a normalisation
            parameters[name] = np.ones(tuple(value.shape), np.float32)
            continue
        gain = last_gain if id(value) in last else RELU_GAIN
        rows, columns = value.shape[0], math.prod(value.shape[1:])
        matrix = gain * orthogonal_matrix(rows, columns, rng)
        parameters[name] = matrix.reshape(tuple(value.shape)).astype(np.float32)
    return parameters


def orthogonal_matrix(rows: int, columns: int, rng: np.random.Generator) -> FloatArray:
    """Draw a matrix whose rows, or columns where those are fewer, are orthonormal."""
    wide = rng.normal(size=(max(rows, columns), min(rows, columns)))
    basis, triangle = np.linalg.qr(wide)
    basis *= np.sign(np.diag(triangle))  # else the factorisation's own habits would show
    return basis if rows >= columns else basis.T
