"""Layers whose way back is written out, against PyTorch's own."""

import copy
from typing import cast

import pytest
import torch
from torch import nn

from hyq.models.hands import Hands, Job
from hyq.models.layers import (
    Convolution,
    Dense,
    Flat,
    Gradient,
    Layer,
    Normalisation,
    Rectifier,
    length,
    walk,
    walk_back,
)


def network() -> list[nn.Module]:
    return [
        Convolution(3, 5, 4, 2),
        Rectifier(),
        Convolution(5, 6, 3, 1),
        Rectifier(),
        Flat(),
        Dense((6, 5, 5), 8),
        Normalisation(8),
        Rectifier(),
        Dense((8,), 4),
    ]


def make_room(layers: list[nn.Module]) -> None:
    for layer in layers:
        if isinstance(layer, Convolution | Dense | Normalisation):
            assert layer.bias is not None
            layer.gradient = Gradient(
                torch.full_like(layer.weight, 9.0), torch.full_like(layer.bias, 9.0)
            )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_the_gradients_are_pytorchs_own(threads: int, rows: int) -> None:
    torch.set_num_threads(threads)
    try:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn((rows, 3, 16, 16), generator=generator, requires_grad=True)
        at_outputs = torch.randn((rows, 4), generator=generator)
        plain = network()
        expected = nn.Sequential(*plain)(x)
        torch.autograd.backward(expected, at_outputs)
        layers, hands = copy.deepcopy(plain), Hands()
        make_room(layers)
        for layer in layers:
            layer.requires_grad_(False)
        stages = cast(list[Layer], layers)
        for _ in range(2):  # the second time nothing is left of the first
            with hands as later:
                entered = walk(stages, x.detach())
                at_inputs = walk_back(stages, entered, at_outputs, later, below=True)
            torch.testing.assert_close(entered[-1], expected)
            torch.testing.assert_close(at_inputs, x.grad)
        for mine, theirs in zip(layers, plain, strict=True):
            if isinstance(mine, Convolution | Dense | Normalisation):
                found = torch.cat((mine.gradient.weight.flatten(), mine.gradient.bias))
                assert isinstance(theirs.weight, nn.Parameter)
                assert isinstance(theirs.bias, nn.Parameter)
                assert theirs.weight.grad is not None
                assert theirs.bias.grad is not None
                wanted = torch.cat((theirs.weight.grad.flatten(), theirs.bias.grad))
                torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
                norm = float(torch.linalg.vector_norm(wanted))
                assert length([mine.gradient]) == pytest.approx(norm, rel=1e-4)
    finally:
        torch.set_num_threads(1)


def test_the_way_back_does_not_wait_for_the_weights() -> None:
    jobs: list[Job] = []
    layer = Dense((3,), 2).requires_grad_(False)
    make_room([layer])
    x, at_outputs = torch.randn(4, 3), torch.ones(4, 2)
    at_inputs = layer.back(x, layer.forward(x), at_outputs, jobs.append, below=True)
    torch.testing.assert_close(at_inputs, layer.weight.sum(0).expand(4, 3))
    assert layer.gradient.weight.eq(9.0).all()
    for job in jobs:
        job()
    torch.testing.assert_close(layer.gradient.weight, x.sum(0).expand(2, 3))


def test_normalisation_keeps_the_precision_of_what_enters_and_computes_in_its_own() -> None:
    rows = torch.randn(6, 8) * 100
    layer = Normalisation(8)
    rounded = layer(rows.bfloat16())
    assert rounded.dtype == torch.bfloat16
    exact = nn.functional.layer_norm(rows.bfloat16().float(), (8,))
    torch.testing.assert_close(rounded, exact.bfloat16())
