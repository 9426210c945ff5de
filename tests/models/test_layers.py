"""Layers with gradients apart, against PyTorch's own."""

import copy

import pytest
import torch
from torch import nn

from hyq.models.hands import Hands, Job
from hyq.models.layers import Convolution, Dense, Destination, Flat, Normalisation


def network() -> nn.Sequential:
    return nn.Sequential(
        Convolution(3, 5, 4, 2),
        nn.ReLU(inplace=True),
        Convolution(5, 6, 3, 1),
        nn.ReLU(inplace=True),
        Flat(),
        Dense((6, 5, 5), 8),
        Normalisation(8),
        nn.ReLU(inplace=True),
        Dense((8,), 4),
    )


def destinations(module: nn.Module, hands: Hands) -> dict[str, Destination]:
    found = {}
    for name, layer in module.named_modules():
        if isinstance(layer, Convolution | Dense):
            assert layer.bias is not None
            room = torch.full_like(layer.weight, 9.0), torch.full_like(layer.bias, 9.0)
            found[name] = layer.gradient_to = Destination(hands.later, *room)
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_the_gradients_are_pytorchs_own(threads: int, rows: int) -> None:
    torch.set_num_threads(threads)
    try:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn((rows, 3, 16, 16), generator=generator)
        at_outputs = torch.randn((rows, 4), generator=generator)
        plain, hands = network(), Hands()
        apart = copy.deepcopy(plain)
        expected = plain(x)
        torch.autograd.backward(expected, at_outputs)
        found = destinations(apart, hands)
        for _ in range(2):  # the second time nothing is left of the first
            apart[6].zero_grad()
            with hands:
                outputs = apart(x)
                torch.testing.assert_close(outputs, expected)
                torch.autograd.backward(outputs, at_outputs)
        for name, layer in plain.named_modules():
            if name in found:
                torch.testing.assert_close(
                    found[name].weight, layer.weight.grad, atol=1e-4, rtol=1e-4
                )
                torch.testing.assert_close(found[name].bias, layer.bias.grad, atol=1e-4, rtol=1e-4)
        for mine, theirs in zip(apart[6].parameters(), plain[6].parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
    finally:
        torch.set_num_threads(1)


def test_the_way_back_does_not_wait_for_the_weights() -> None:
    jobs: list[Job] = []
    layer = Dense((3,), 2)
    layer.gradient_to = Destination(jobs.append, torch.zeros(2, 3), torch.zeros(2))
    x = torch.randn(4, 3, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.detach().sum(0).expand(4, 3))
    assert layer.weight.grad is None
    assert not layer.gradient_to.weight.any()
    with torch.no_grad():
        for job in jobs:
            job()
    torch.testing.assert_close(layer.gradient_to.weight, x.detach().sum(0).expand(2, 3))


def test_a_layer_that_is_not_trained_is_pytorchs_own() -> None:
    layer = Dense((3,), 2)
    layer(torch.randn(4, 3)).sum().backward()
    assert layer.weight.grad is not None


def test_normalisation_keeps_the_precision_of_what_enters_and_computes_in_its_own() -> None:
    rows = torch.randn(6, 8) * 100
    layer = Normalisation(8)
    rounded = layer(rows.bfloat16())
    assert rounded.dtype == torch.bfloat16
    exact = nn.functional.layer_norm(rows.bfloat16().float(), (8,))
    torch.testing.assert_close(rounded, exact.bfloat16())
