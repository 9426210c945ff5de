"""The new losses have the gradients that were derived by hand before them."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hyq import losses
from hyq.agents.base import Agent, Loss, OptimizerConfig
from hyq.agents.bc import BC, BCConfig, bc_loss
from hyq.agents.cql import CQLConfig
from hyq.agents.dqfd import DQfDConfig, dqfd_loss
from hyq.agents.hyq_dqn import HyQ, HyQConfig, hyq_loss
from hyq.agents.iql import IQL, IQLConfig, iql_loss
from hyq.algos.deep_baselines import BehaviourCloning, FromDemonstrations, ImplicitQ
from hyq.algos.hyq_dqn import Objective, TemporalDifference, pessimistic_slope
from hyq.core import targets
from hyq.core.schedules import schedule
from hyq.core.types import Array, FloatArray, Transitions
from hyq.data import hybrid
from hyq.data.sampler import Batch

ROWS, OFFLINE, ACTIONS, FEATURES = 40, 15, 3, 6
RNG = np.random.default_rng(0)


def gradient(value: Tensor, leaf: Tensor) -> FloatArray:
    found: FloatArray = torch.autograd.grad(value.sum(), leaf)[0].numpy()
    return found


def test_slopes_of_single_losses() -> None:
    error = torch.from_numpy(3 * RNG.normal(size=ROWS)).requires_grad_()
    numbers = error.detach().numpy()
    np.testing.assert_allclose(
        gradient(losses.huber_loss(error), error), targets.huber_slope(numbers)
    )
    np.testing.assert_allclose(gradient(losses.squared_loss(error), error), 2 * numbers)
    for expectile in (0.5, 0.7, 0.9):
        # The old slope is in v, where the error is a target minus v.
        found = -gradient(losses.expectile_loss(error, expectile), error)
        np.testing.assert_allclose(found, targets.expectile_slope(numbers, expectile))


def test_slopes_of_losses_of_all_actions() -> None:
    q = torch.from_numpy(RNG.normal(size=(ROWS, ACTIONS))).requires_grad_()
    action, numbers = RNG.integers(ACTIONS, size=ROWS), q.detach().numpy()
    taken = torch.from_numpy(action)
    np.testing.assert_allclose(
        gradient(losses.conservative_penalty(q, taken), q),
        targets.log_likelihood_slope(numbers, action),
        atol=1e-12,
    )
    for margin in (0.1, 0.8):
        np.testing.assert_allclose(
            gradient(losses.large_margin_loss(q, taken, margin), q),
            targets.large_margin_slope(numbers, action, margin),
        )


class Table(nn.Module):
    """Outputs by row number: of the rows themselves, then of the next observations."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(RNG.normal(size=(3 * ROWS, outputs))))

    def forward(self, observation: Tensor) -> Tensor:
        return self.weight[observation[:, 0].long()]


def rows_of(batch: Batch) -> Transitions:
    columns: tuple[Any, ...] = (batch.action, batch.reward, batch.discount)
    observed = batch.observation.numpy(), batch.next_observation.numpy()
    action, reward, discount = (column.numpy() for column in columns)
    return Transitions(observed[0], action, reward, discount, observed[1])


def problem() -> tuple[Batch, hybrid.Batch]:
    """Return the same minibatch for the new losses and for the old objectives."""

    def tensor(array: Array) -> Tensor:
        return torch.from_numpy(array)

    def numbered(start: int) -> Tensor:
        return torch.arange(start, start + ROWS, dtype=torch.float64)[:, None]

    def rows(discount: float, start: int, action: Tensor) -> Batch:
        return Batch(
            numbered(0),
            action,
            tensor(2 * RNG.normal(size=ROWS)),
            tensor(discount * (RNG.random(ROWS) < 0.8)),
            numbered(start),
            tensor(weight),
            torch.arange(ROWS) < OFFLINE,
        )

    weight = RNG.uniform(0.1, 1.0, ROWS)
    action = tensor(RNG.integers(ACTIONS, size=ROWS))
    several, single = rows(0.9**10, ROWS, action), rows(0.9, 2 * ROWS, action)
    old = hybrid.Batch(rows_of(several), rows_of(single), weight, OFFLINE, ())
    return replace(several, one_step=single), old


OPTIMIZER = OptimizerConfig(precision="float32")
SPACES = gym.spaces.Box(0.0, 200.0, (1,), np.float64), gym.spaces.Discrete(ACTIONS)


def scrambled(agent: Any, *targets: nn.Module) -> Any:
    """Give target networks other values than the networks'."""
    for target in targets:
        for weight in target.parameters():
            weight.data = torch.from_numpy(RNG.normal(size=weight.shape))
    return agent


def q_agent(config: HyQConfig) -> HyQ:
    agent = HyQ(config, OPTIMIZER, lambda _, space: Table(int(space.n)), *SPACES)  # type: ignore[attr-defined]
    made: HyQ = scrambled(agent, agent.target)
    return made


def outputs_of(network: nn.Module, observation: Array) -> FloatArray:
    found: FloatArray = network(torch.from_numpy(observation)).detach().numpy()
    return found


def new_gradient(agent: Agent, loss: Loss, batch: Batch, *networks: nn.Module) -> FloatArray:
    """The gradient of the weighted mean in the outputs of the rows' observations."""
    found, _ = loss(agent, batch)
    total = (batch.weight * found).sum() / ROWS
    weights = [next(network.parameters()) for network in networks]
    gradients = torch.autograd.grad(total, weights)
    for one in gradients:
        assert not one[ROWS:].any(), "targets have no gradient"
    return np.concatenate([one[:ROWS].numpy() for one in gradients], axis=1)


def old_gradient(
    objective: Objective, batch: hybrid.Batch, outputs: FloatArray, networks: Any, target: Any
) -> tuple[FloatArray, FloatArray]:
    answers = [
        np.concatenate(
            [
                outputs_of(n, question.observation)
                for n in (target if question.target else networks)
            ],
            axis=1,
        )
        for question in objective.questions(batch)
    ]
    judged = objective.judge(outputs, answers, batch)
    return judged.gradient, judged.td_error


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("loss", ["huber", "squared"])
@pytest.mark.parametrize("value_range", [None, (-0.5, 0.5)])
def test_q_learning(double: bool, loss: Any, value_range: Any) -> None:
    agent = q_agent(HyQConfig(loss=loss, double=double, value_range=value_range))
    batch, old = problem()
    outputs = outputs_of(agent.network, old.rows.observation)
    expected, error = old_gradient(
        TemporalDifference(double, loss, value_range),
        old,
        outputs,
        [agent.network],
        [agent.target],
    )
    np.testing.assert_allclose(new_gradient(agent, hyq_loss, batch, agent.network), expected)
    np.testing.assert_allclose(hyq_loss(agent, batch)[1].detach().numpy(), -error)


def test_conservative_q_learning() -> None:
    batch, old = problem()
    agent = q_agent(CQLConfig(cql_weight=schedule(0.3)))
    outputs = outputs_of(agent.network, old.rows.observation)
    expected, _ = old_gradient(TemporalDifference(), old, outputs, [agent.network], [agent.target])
    expected = expected + 0.3 * pessimistic_slope(outputs, old)
    found = new_gradient(agent, hyq_loss, batch, agent.network)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.5, 0.0), (0.0, 2.0)])
@pytest.mark.parametrize("double", [True, False])
def test_demonstrations(weights: tuple[float, float], double: bool) -> None:
    batch, old = problem()
    config = DQfDConfig(
        n_step_weight=weights[0], margin_weight=weights[1], margin=0.6, double=double
    )
    agent = q_agent(config)
    outputs = outputs_of(agent.network, old.rows.observation)
    expected, error = old_gradient(
        FromDemonstrations(TemporalDifference(double), *weights, margin=0.6),
        old,
        outputs,
        [agent.network],
        [agent.target],
    )
    found = new_gradient(agent, dqfd_loss, batch, agent.network)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(dqfd_loss(agent, batch)[1].detach().numpy(), -error)


def test_behaviour_cloning() -> None:
    batch, old = problem()
    agent = BC(BCConfig(), OPTIMIZER, lambda _, space: Table(ACTIONS), *SPACES)
    outputs = outputs_of(agent.network, old.rows.observation)
    expected, error = old_gradient(BehaviourCloning(), old, outputs, [], [])
    found = new_gradient(agent, bc_loss, batch, agent.network)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(bc_loss(agent, batch)[1].detach().numpy(), error)


@pytest.mark.parametrize("loss", ["huber", "squared"])
@pytest.mark.parametrize(("expectile", "temperature"), [(0.7, 3.0), (0.9, 10.0), (0.5, 0.0)])
def test_implicit_q_learning(loss: Any, expectile: float, temperature: float) -> None:
    batch, old = problem()
    config = IQLConfig(loss=loss, expectile=expectile, temperature=temperature)
    agent = IQL(config, OPTIMIZER, lambda _, space: Table(int(space.n)), *SPACES)  # type: ignore[attr-defined]
    scrambled(agent, agent.target)
    networks = [agent.q, agent.v, agent.actor]
    outputs = np.concatenate([outputs_of(n, old.rows.observation) for n in networks], axis=1)
    expected, error = old_gradient(
        ImplicitQ(loss, expectile, temperature), old, outputs, networks, [agent.target]
    )
    found = new_gradient(agent, iql_loss, batch, *networks)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(iql_loss(agent, batch)[1].detach().numpy(), -error)
