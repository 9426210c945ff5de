"""Products by oneDNN: the same values and gradients as PyTorch's own, wherever they are taken."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hyq import linear as module
from hyq.linear import LARGE, Linear, linear

SHAPES = {"plain": ((), 130, 128, 136), "members": ((3,), 130, 128, 136)}


def drawn(members: tuple[int, ...], rows: int, inputs: int, outputs: int) -> list[Tensor]:
    assert rows * inputs * outputs > LARGE
    torch.manual_seed(0)
    shapes = (*members, rows, inputs), (*members, outputs, inputs), (*members, outputs)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def expected(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return inputs @ weight.mT + bias.unsqueeze(-2)


@pytest.fixture(autouse=True)
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take oneDNN on any processor: it is part of every PyTorch for this kind of machine."""
    monkeypatch.setattr(module, "_available", module._onednn is not None)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_and_gradients_are_pytorchs(shape: Any) -> None:
    given = drawn(*shape)
    found, wanted = linear(*given), expected(*given)
    assert "_Product" in type(found.grad_fn).__name__, "otherwise nothing is tested here"
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    slope = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, given, slope),
        torch.autograd.grad(wanted, given, slope),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    without, of_weights = linear(given[0], given[1]), given[0] @ given[1].mT
    torch.testing.assert_close(without, of_weights, rtol=1e-4, atol=1e-4)
    # A policy's gradient leaves the critics' weights out.
    inputs, *fixed = given[0], *(part.detach() for part in given[1:])
    [slope] = torch.autograd.grad(linear(inputs, *fixed).square().sum(), inputs)
    [other] = torch.autograd.grad(expected(inputs, *fixed).square().sum(), inputs)
    torch.testing.assert_close(slope, other, rtol=1e-3, atol=1e-1)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_gradients_lie_in_memory_as_their_weights(shape: Any) -> None:
    inputs, weight, bias = drawn(*shape)
    transposed = weight.detach().mT.contiguous().requires_grad_()
    for given, matrix in ((weight, weight), (transposed, transposed.mT)):
        loss = linear(inputs, matrix, bias).square().sum()
        [slope] = torch.autograd.grad(loss, given)
        assert slope.stride() == given.stride()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_gradients_have_gradients(shape: Any) -> None:
    given = drawn(*shape)
    penalties = []
    for product in (linear, expected):
        loss = product(*given).square().mean()
        [slope] = torch.autograd.grad(loss, given[0], create_graph=True)
        penalties.append(torch.autograd.grad(slope.square().sum(), given[1])[0])
    torch.testing.assert_close(*penalties, rtol=1e-3, atol=1e-6)


def test_what_onednn_does_not_take_is_pytorchs() -> None:
    inputs, weight, bias = (part.detach() for part in drawn(*SHAPES["plain"]))
    small = linear(inputs[:2], weight, bias)
    assert torch.equal(small, functional.linear(inputs[:2], weight, bias))
    double = linear(inputs.double(), weight.double(), bias.double())
    assert torch.equal(double, functional.linear(inputs.double(), weight.double(), bias.double()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(inputs, weight, bias).dtype == torch.bfloat16
    of_three_axes = inputs.expand(2, *inputs.shape)
    assert torch.equal(
        linear(of_three_axes, weight, bias), functional.linear(of_three_axes, weight, bias)
    )


def test_stacked_and_exported_modules_take_it() -> None:
    inputs, weight, bias = drawn(*SHAPES["members"])
    found = torch.func.vmap(linear)(inputs, weight, bias)
    torch.testing.assert_close(found, expected(inputs, weight, bias), rtol=1e-4, atol=1e-4)
    layer = nn.Sequential(Linear(128, 256), nn.ReLU())
    example = torch.randn(130, 128)
    rows = {"input": {0: torch.export.Dim("rows")}}
    exported = torch.export.export(layer, (example,), dynamic_shapes=rows).module()
    for count in (2, 300):
        given = torch.randn(count, 128)
        torch.testing.assert_close(exported(given), layer(given), rtol=1e-4, atol=1e-5)
