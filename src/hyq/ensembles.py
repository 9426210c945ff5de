"""Networks of one shape trained together: all members in one batched product a layer."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, relu_, softmax

from hyq.core.errors import HyqError
from hyq.linear import linear

Activation = Literal["relu", "softmax"]
"""Of hidden layers; a softmax makes one an encoder into latent states."""


class Ensemble(nn.Module):
    """Members without a parameter in common; without hidden layers they are linear.

    Parameters are drawn as those of `nn.Linear` are, from PyTorch's generator: seed it around the
    construction (`core.seeding.torch_seed`).
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        layer_norm: bool = False,
        activation: Activation = "relu",
    ) -> None:
        """Draw weights and biases uniformly within 1/sqrt(inputs of the layer).

        Args:
            members: Number of networks.
            inputs: Length of an input.
            hidden: Units of each hidden layer.
            outputs: Length of an output.
            layer_norm: Normalise every hidden layer before its activation (Ba et al. 2016).
            activation: Of every hidden layer.
        """
        super().__init__()
        sizes = (inputs, *hidden, outputs)
        if min(members, *sizes) < 1:
            raise HyqError(f"every layer needs at least one unit, got hidden={tuple(hidden)}")
        self.members, self.activation = members, activation
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.gains, self.shifts = nn.ParameterList(), nn.ParameterList()
        for n, m in pairwise(sizes):
            bound = 1 / math.sqrt(n)
            self.weights.append(nn.Parameter(torch.empty(members, n, m).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(members, 1, m).uniform_(-bound, bound)))
        for m in hidden if layer_norm else ():
            self.gains.append(nn.Parameter(torch.ones(members, 1, m)))
            self.shifts.append(nn.Parameter(torch.zeros(members, 1, m)))

    def forward(self, inputs: Tensor, members: Tensor | None = None) -> Tensor:
        """Return outputs (members, B, outputs).

        Member i sees `inputs[i]` where inputs are (members, B, n), and all of (B, n).

        Args:
            inputs: Of each member, or of all.
            members: Indices of those to compute; all by default.
        """

        def own(parameters: nn.ParameterList) -> list[Tensor]:
            return [p if members is None else p[members] for p in parameters]

        x = inputs.to(self.weights[0].dtype)  # observations may be whole numbers
        if x.ndim == 2:
            x = x.expand(self.members if members is None else len(members), *x.shape)
        gains, shifts = own(self.gains), own(self.shifts)
        *hidden, output = zip(own(self.weights), own(self.biases), strict=True)
        for i, (weight, bias) in enumerate(hidden):
            x = linear(x, weight.mT, bias.squeeze(1))
            if gains:
                x = torch.addcmul(shifts[i], layer_norm(x, x.shape[-1:]), gains[i])
            # In place: at these sizes every array more costs time.
            x = relu_(x) if self.activation == "relu" else softmax(x, dim=-1)
        weight, bias = output
        if weight.shape[-1] > 1:
            return linear(x, weight.mT, bias.squeeze(1))
        # The library's product with a single column takes eight times as long.
        return (x * weight.mT).sum(-1, keepdim=True) + bias
