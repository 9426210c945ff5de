"""The learner that suits a network and a device."""

import numpy as np
import torch

from hyq.models.learners import AdamSettings, Learner, Precision
from hyq.models.networks import Network
from hyq.models.torch_learner import TorchLearner
from hyq.models.vector_learner import VectorLearner


def make_learner(
    network: Network,
    rng: np.random.Generator,
    adam: AdamSettings,
    *,
    device: str = "cpu",
    precision: Precision = "auto",
) -> Learner:
    """Choose the learner that is fastest for a network on a device."""
    spec = network.spec
    plain = not (spec.convolutions or spec.stream_hidden or spec.normalise)
    if plain and device == "cpu" and precision != "bfloat16":
        return VectorLearner(network, network.initial(rng), adam)
    bfloat16 = precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))
    return TorchLearner(network, network.initial(rng), adam, device, bfloat16)


def has_bfloat16(device: str) -> bool:
    """Tell whether a device computes in bfloat16; emulated, it is tens of times slower."""
    if device.startswith("cuda"):
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    if device != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
