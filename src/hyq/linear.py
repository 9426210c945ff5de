"""Linear layers, on a CPU by the faster of the two libraries in PyTorch.

PyTorch computes products in float32 by MKL, which uses half of the vector width of AMD's
processors; its convolutions are by oneDNN, which uses all of it. Large products are therefore given
to oneDNN too, which takes half the time there.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LARGE = 2**21
"""Multiplications from which on a product is worth the detour through Python."""
_onednn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_available = _onednn is not None and torch.backends.cpu.get_cpu_capability() == "AVX512"


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return inputs weight^T + bias, as `torch.nn.functional.linear` does but for rounding.

    Where all have one more axis in front, it counts members: row i is that of member i.
    """
    by_onednn = (
        not torch.compiler.is_compiling()  # first, because rows have no number there
        and inputs.ndim == weight.ndim
        and inputs.shape[-2] * weight.shape[-2] * weight.shape[-1] >= LARGE
        and _available
        and not torch._C._are_functorch_transforms_active()  # as `torch.func.vmap` is one
        and inputs.device.type == "cpu"
        and inputs.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
    )
    if by_onednn:
        found: Tensor = _Product.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
        return found
    return _plain(inputs, weight, bias)


def _plain(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if weight.ndim == 2:
        return functional.linear(inputs, weight, bias)
    if bias is None:
        return inputs @ weight.mT
    return torch.baddbmm(bias.unsqueeze(-2), inputs, weight.mT)


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if torch.is_grad_enabled():  # somebody differentiates the gradient
        return linear(inputs, weight, bias)
    if weight.ndim == 2:
        found: Tensor = _onednn(inputs, weight, bias, "none", [], "")
        return found
    biases = [None] * len(weight) if bias is None else bias
    members = zip(inputs, weight, biases, strict=True)
    return torch.stack([_onednn(*member, "none", [], "") for member in members])


class _Product(torch.autograd.Function):
    """A large product, whose gradients are such products too."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _product(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        [grad], (inputs, weight) = grads, ctx.saved_tensors
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        # In memory the gradient lies as the weight does.
        transposed = weight.stride(-1) != 1
        left, right = (inputs.mT, grad.mT) if transposed else (grad.mT, inputs.mT)
        slope = _product(left, right) if of_weight else None
        return (
            _product(grad, weight.mT) if of_inputs else None,
            slope.mT if slope is not None and transposed else slope,
            grad.sum(-2) if of_bias else None,
        )


class Linear(nn.Linear):
    """`torch.nn.Linear` by the faster library."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return inputs W^T + b."""
        return linear(inputs, self.weight, self.bias)
