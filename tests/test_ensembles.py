"""Ensembles against members written out one by one."""

import math

import pytest
import torch
from torch import nn

from hyq.core.errors import HyqError
from hyq.core.seeding import torch_seed
from hyq.ensembles import Ensemble


def ensemble(seed: int = 0, *, outputs: int = 2, layer_norm: bool = False) -> Ensemble:
    with torch_seed(seed):
        return Ensemble(3, 4, (5, 6), outputs, layer_norm=layer_norm)


def inputs(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_each_member_is_a_network_of_its_own(outputs: int, layer_norm: bool) -> None:
    made, x = ensemble(outputs=outputs, layer_norm=layer_norm), inputs(3, 7, 4)
    with torch.no_grad():
        for gain, shift in zip(made.gains, made.shifts, strict=True):
            gain.normal_(generator=torch.Generator().manual_seed(2))
            shift.normal_(generator=torch.Generator().manual_seed(3))
    together = made(x)
    assert together.shape == (3, 7, outputs)
    together.square().sum().backward()
    for i in range(3):
        alone = nn.Sequential()
        for layer, (n, m) in enumerate([(4, 5), (5, 6), (6, outputs)]):
            linear = nn.Linear(n, m)
            linear.weight.data = made.weights[layer][i].T
            linear.bias.data = made.biases[layer][i, 0]
            alone.append(linear)
            if layer < 2 and layer_norm:
                norm = nn.LayerNorm(m)
                norm.weight.data = made.gains[layer][i, 0]
                norm.bias.data = made.shifts[layer][i, 0]
                alone.append(norm)
            if layer < 2:
                alone.append(nn.ReLU())
        torch.testing.assert_close(together[i], alone(x[i]))
        alone(x[i]).square().sum().backward()
        gradients = {name: p.grad for name, p in alone.named_parameters()}
        linears = [n for n, module in alone.named_children() if isinstance(module, nn.Linear)]
        norms = [n for n, module in alone.named_children() if isinstance(module, nn.LayerNorm)]
        for stacked, names in (
            (made.weights, [f"{n}.weight" for n in linears]),
            (made.biases, [f"{n}.bias" for n in linears]),
            (made.gains, [f"{n}.weight" for n in norms]),
            (made.shifts, [f"{n}.bias" for n in norms]),
        ):
            for parameter, name in zip(stacked, names, strict=True):
                expected, found = gradients[name], parameter.grad
                assert expected is not None
                assert found is not None
                torch.testing.assert_close(found[i].T.squeeze(), expected.squeeze())


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_few_members_can_be_asked_alone(outputs: int) -> None:
    made, few = ensemble(outputs=outputs, layer_norm=True), torch.tensor([2, 0])
    torch.testing.assert_close(made(inputs(7, 4), few), made(inputs(7, 4))[few])


def test_rows_without_an_axis_of_members_are_shown_to_all() -> None:
    x = inputs(7, 4)
    torch.testing.assert_close(ensemble()(x), ensemble()(torch.stack([x, x, x])))


def test_inputs_may_be_whole_numbers() -> None:
    x = torch.arange(12).reshape(3, 1, 4)
    torch.testing.assert_close(ensemble()(x), ensemble()(x.float()))


def test_parameters_are_drawn_within_pytorchs_bounds_from_the_callers_seed() -> None:
    with torch_seed(0):
        wide = Ensemble(10, 25, (100,), 4)
    for parameters, inputs_of_layer in ((wide.weights, (25, 100)), (wide.biases, (25, 100))):
        for parameter, n in zip(parameters, inputs_of_layer, strict=True):
            bound = 1 / math.sqrt(n)
            assert parameter.abs().max().item() <= bound
            assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.2)
    first, again, other = (ensemble(seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["weights.0"], other["weights.0"])


def test_members_do_not_learn_from_one_another() -> None:
    made = ensemble()
    made(inputs(7, 4))[1].sum().backward()
    gradient = made.weights[0].grad
    assert gradient is not None
    assert gradient[1].any()
    assert not gradient[[0, 2]].any()


def test_layers_without_units_raise() -> None:
    with pytest.raises(HyqError, match="at least one unit"):
        Ensemble(1, 3, (0,), 2)
