"""The moments of an optimiser, as named tensors."""

from collections.abc import Mapping

import torch
from torch import Tensor


def load_moments(optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> None:
    """Load moments by the number of their parameter and their name, as `flatten` names them.

    Shapes are checked: a fused optimiser takes them for granted, and writes beyond smaller tensors.
    """
    [group] = optimizer.param_groups
    moments: dict[int, dict[str, Tensor]] = {}
    for key, tensor in state.items():
        index, _, part = key.partition(".")
        number = int(index)
        wanted = torch.zeros(()) if part == "step" else group["params"][number]
        if tensor.shape != wanted.shape or not tensor.is_floating_point():
            raise ValueError(f"{key} has the shape {tuple(tensor.shape)}")
        if part == "step" and tensor.dtype != wanted.dtype:
            raise ValueError(f"{key} is of {tensor.dtype}")
        moments.setdefault(number, {})[part] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})
