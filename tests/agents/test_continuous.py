"""Algorithms for continuous actions: losses against twins, exact control, networks of users."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import hyq
from hyq.actor_critic import (
    Actor,
    ClippedNormal,
    Critics,
    StackedCritics,
    TanhNormal,
    TorchPolicy,
    log_likelihood,
)
from hyq.agents.awac import awac_actor_loss, awac_critic_loss
from hyq.agents.calql import calql_critic_loss, cql_critic_loss
from hyq.agents.ddpgfd import ddpgfd_actor_loss, ddpgfd_critic_loss
from hyq.agents.hyq_sac import HySAC, actor_loss, critic_loss
from hyq.agents.td3_bc import td3_bc_actor_loss, td3_critic_loss
from hyq.core.actions import Actions, action_kind
from hyq.core.errors import HyqError
from hyq.core.trees import Tree, leaves
from hyq.data.dataset import Dataset, Episode
from hyq.data.sampler import Batch, ByPriority
from hyq.exploration import ActionNoise, NoiseConfig
from hyq.policy import Policy
from tests.agents.test_conformance import (
    STATES,
    STEERED_DATA,
    Spy,
    assert_same,
    interrupted,
    made,
    unequal,
    weights,
    whole,
)
from tests.fqi.chain import SteeredChain

HYQ = "continuous/hyq"


# Actions


def test_boxes_become_unit_boxes_of_one_axis_and_back() -> None:
    space = gym.spaces.Box(np.array([[-2, 0]]), np.array([[2, 10]]), dtype=np.float64)
    actions = Actions(space)
    assert actions.space == gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    outer = np.array([[[-2.0, 10.0]], [[1.0, 5.0]]])
    inner = actions.from_env(outer)
    np.testing.assert_allclose(inner, np.array([[-1.0, 1.0], [0.5, 0.0]]))
    np.testing.assert_allclose(actions.to_env(inner), outer)
    assert actions.to_env(inner[0]).shape == (1, 2)
    assert actions.to_env(np.array([[5.0, -5.0]], np.float32)).tolist() == [[[2.0, 0.0]]]
    drawn = actions.random(5000, np.random.default_rng(0))
    assert drawn.shape == (5000, 2)
    np.testing.assert_allclose(np.quantile(drawn, [0, 0.25, 1]), [-1, -0.5, 1], atol=0.03)
    unit = Actions(gym.spaces.Box(-1, 1, (3,), np.float32))
    some = np.random.default_rng(1).uniform(-1, 1, (9, 3)).astype(np.float32)
    np.testing.assert_array_equal(unit.to_env(some), some)


def test_choices_are_counted_from_zero_and_back() -> None:
    actions, outer = Actions(gym.spaces.Discrete(3, start=5)), np.array([5, 7, 6])
    assert actions.space == gym.spaces.Discrete(3)
    assert actions.from_env(outer).tolist() == [0, 2, 1]
    assert actions.to_env(np.array([0, 2, 1])).tolist() == outer.tolist()
    assert set(actions.random(200, np.random.default_rng(0)).tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (gym.spaces.Box(-np.inf, np.inf, (2,)), "need a lower and a higher bound"),
        (
            gym.spaces.Box(np.zeros(2), np.array([1.0, 0.0]), dtype=np.float64),
            "need a lower and a higher bound",
        ),
        (gym.spaces.Box(1, 1, (2,)), "need a lower and a higher bound"),
        (gym.spaces.Box(0, 5, (2,), np.int64), "not supported"),
        (gym.spaces.Box(0, 5, (0,)), "not supported"),
        (gym.spaces.MultiBinary(3), "not supported"),
    ],
)
def test_spaces_that_no_agent_can_act_in_raise(space: gym.Space[Any], says: str) -> None:
    with pytest.raises(HyqError, match=says):
        Actions(space)


def test_data_on_another_scale_raises() -> None:
    def logged(action: np.ndarray[Any, Any]) -> Dataset:
        rows = len(action)
        seen = np.eye(5, dtype=np.float32)[np.arange(rows + 1) % 5]
        return Dataset.of([Episode(seen, action, np.zeros(rows, np.float32), False)], {})

    with pytest.raises(
        HyqError, match=r"action reaches 1\.5 in dimension 0, where the environment takes -3 to 1"
    ):
        made(HYQ, data=logged(np.array([[0.0], [1.5]])))
    with pytest.raises(HyqError, match=r"shape \(2,\)"):
        made(HYQ, data=logged(np.zeros((2, 2))))

    class Wide(SteeredChain):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    with pytest.raises(HyqError, match="fill -1 to 1 exactly"):
        made(HYQ, env=Wide, data=logged(np.array([[-1.0], [0.3], [1.0]])))
    with pytest.raises(HyqError, match="finite"):
        logged(np.array([[np.nan]]))
    assert action_kind(Wide().action_space) == "continuous"


# Distributions


@pytest.mark.parametrize("kind", [TanhNormal, ClippedNormal])
def test_likelihoods_are_those_of_pytorch(kind: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn((2, 6, 3), generator=generator, dtype=torch.float64)
    mean, log_std = drawn.unbind(0)
    policy = kind(mean, log_std)
    torch.manual_seed(1)
    action, log_pi = policy.sample()
    torch.manual_seed(1)
    noise = torch.randn_like(mean)
    base: Any = torch.distributions.Normal(mean, log_std.exp())
    if kind is TanhNormal:
        transform = torch.distributions.TanhTransform(cache_size=1)
        same: Any = torch.distributions.TransformedDistribution(base, transform)
        value = (mean + log_std.exp() * noise).tanh()
        same_log = base.log_prob(mean + log_std.exp() * noise) - torch.log(1 - value.square())
        torch.testing.assert_close(log_pi, same_log.sum(-1), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(action, value)
        inside = torch.tensor([[0.1, -0.5, 0.9]], dtype=torch.float64).expand(6, 3)
        expected = same.log_prob(inside).sum(-1)
        torch.testing.assert_close(policy.log_prob(inside), expected, rtol=1e-4, atol=1e-4)
        for edge in (torch.ones(6, 3), -torch.ones(6, 3)):
            assert bool(torch.isfinite(policy.log_prob(edge)).all())
        user = TorchPolicy(torch.distributions.Independent(same, 1))
        torch.testing.assert_close(user.log_prob(inside), expected)
    else:
        normal: Any = torch.distributions.Normal(mean.tanh(), log_std.exp())
        drawn = mean.tanh() + log_std.exp() * noise
        torch.testing.assert_close(action, drawn.clamp(-1, 1))
        torch.testing.assert_close(log_pi, normal.log_prob(drawn).sum(-1))
        user = TorchPolicy(normal)
        torch.testing.assert_close(user.log_prob(drawn), normal.log_prob(drawn).sum(-1))
    torch.testing.assert_close(policy.mode, mean.tanh())


def test_the_mode_of_a_users_distribution() -> None:
    mean = torch.tensor([[0.3, -0.2]])
    normal = torch.distributions.Normal(mean, torch.ones(1, 2))
    assert torch.equal(TorchPolicy(normal).mode, mean)
    squashed = torch.distributions.TransformedDistribution(
        normal, [torch.distributions.TanhTransform()]
    )
    assert torch.equal(TorchPolicy(squashed).mode, mean.tanh())
    assert torch.equal(TorchPolicy(torch.distributions.Independent(squashed, 1)).mode, mean.tanh())


# Losses


def batch_of(algorithm: str, **settings: Any) -> tuple[Any, Batch]:
    """Return an agent, all in double precision, and a minibatch."""
    trainer = made(algorithm, **settings)
    spy = Spy(trainer)
    list(trainer.run(lambda: bool(spy.batches)))
    agent: Any = trainer.agent.double()
    with torch.no_grad():  # far from where gradients vanish
        for parameter in agent.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
        agent.log_alpha.zero_()
    [batch] = spy.batches
    rows = len(batch)

    def double(part: Any) -> Any:
        if isinstance(part, Tensor) and part.is_floating_point():
            return part.double()
        return part

    parts = {name: double(value) for name, value in vars(batch).items() if name != "one_step"}
    made_up = Batch(**parts | {"offline": torch.arange(rows) % 2 == 0})
    object.__setattr__(made_up, "one_step", made_up)
    return agent, made_up


@pytest.mark.parametrize(
    ("algorithm", "loss", "learned"),
    [
        (HYQ, critic_loss, "critic"),
        (HYQ, actor_loss, "actor"),
        ("continuous/cql", cql_critic_loss, "critic"),
        ("continuous/calql", calql_critic_loss, "critic"),
        ("continuous/ddpgfd", ddpgfd_critic_loss, "critic"),
        ("continuous/ddpgfd", ddpgfd_actor_loss, "actor"),
    ],
)
def test_gradients_are_those_of_finite_differences(
    algorithm: str, loss: Callable[..., Any], learned: str
) -> None:
    torch.manual_seed(0)
    agent, batch = batch_of(algorithm)
    parameters = list(getattr(agent, learned).parameters())

    def total() -> Tensor:
        torch.manual_seed(1)
        return loss(agent, batch)[0].mean()

    # The spread of a deterministic policy has no gradient.
    gradients = torch.autograd.grad(total(), parameters, materialize_grads=True)
    direction = [torch.randn_like(parameter) for parameter in parameters]
    values = []
    for sign in (1e-6, -2e-6):
        with torch.no_grad():
            for parameter, step in zip(parameters, direction, strict=True):
                parameter.add_(sign * step)
            values.append(float(total()))
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-4, abs=1e-7)
    assert abs(slope) > 1e-4


def test_targets_are_the_minimum_of_a_random_pair_with_or_without_entropy() -> None:
    for entropy in (False, True):
        agent, batch = batch_of(HYQ, entropy_in_backup=entropy, critics=4)
        agent._members = torch.tensor([2, 0])
        torch.manual_seed(1)
        action, log_pi = agent.policy(batch.next_observation).sample()
        every = agent.target(batch.next_observation, action)
        v = torch.minimum(every[0], every[2]) - (log_pi if entropy else 0.0)
        target = (batch.reward + batch.discount * v).detach()
        q = agent.critic(batch.observation, batch.action)
        torch.manual_seed(1)
        loss, error = critic_loss(agent, batch)
        torch.testing.assert_close(loss, (q - target).square().mean(0))
        torch.testing.assert_close(error, (q - target).abs().mean(0))


@pytest.mark.parametrize("algorithm", ["awac", "td3bc", "ddpgfd"])
def test_the_targets_of_relatives_are_those_of_their_papers(algorithm: str) -> None:
    weights = {"awac": {}, "td3bc": {"target_noise": 3.0, "target_noise_limit": 1.5}}
    settings: dict[str, Any] = weights.get(algorithm, {"n_step_weight": 0.4})
    torch.manual_seed(0)
    agent, batch = batch_of(f"continuous/{algorithm}", critics=3, target_critics=3, **settings)
    policy = agent.policy(batch.next_observation)
    losses = {"awac": awac_critic_loss, "td3bc": td3_critic_loss, "ddpgfd": ddpgfd_critic_loss}
    action = policy.mode
    torch.manual_seed(1)
    if algorithm == "awac":
        action, _ = policy.sample()
    if algorithm == "td3bc":
        action = (action + (3 * torch.randn_like(action)).clamp(-1.5, 1.5)).clamp(-1, 1)
        assert (action.abs() == 1).any()  # the bounds matter
    single = replace(batch, reward=batch.reward + 0.5, discount=batch.discount / 2)
    object.__setattr__(batch, "one_step", single)
    v, q = (
        agent.target(batch.next_observation, action),
        agent.critic(batch.observation, batch.action),
    )
    found = []
    for rows in (single, batch):
        error = q - (rows.reward + rows.discount * v.min(0).values)
        found.append((error.square().mean(0), error.abs().mean(0)))
    (one, one_error), (several, error_now) = found
    expected = (one + 0.4 * several, one_error) if algorithm == "ddpgfd" else (several, error_now)
    torch.manual_seed(1)
    for one_found, wanted in zip(losses[algorithm](agent, batch), expected, strict=True):
        torch.testing.assert_close(one_found, wanted)


def test_the_policy_maximises_value_and_entropy_by_its_temperature() -> None:
    agent, batch = batch_of(HYQ)
    with torch.no_grad():
        agent.log_alpha.fill_(math.log(0.3))
    torch.manual_seed(1)
    action, log_pi = agent.policy(batch.observation).sample()
    q = agent.critic(batch.observation, action).mean(0)
    torch.manual_seed(1)
    loss, entropy = actor_loss(agent, batch)
    temperature = -math.log(0.3) * (log_pi - 0.5)  # the entropy to keep is minus one half
    torch.testing.assert_close(loss, 0.3 * log_pi - q + temperature)
    torch.testing.assert_close(entropy, -log_pi)


def test_the_temperature_follows_the_entropy() -> None:
    agent, batch = batch_of(HYQ, target_entropy=-1.5)
    loss, entropy = actor_loss(agent, batch)
    (slope,) = torch.autograd.grad(loss.mean(), [agent.log_alpha])
    assert float(slope) == pytest.approx(float(entropy.mean()) + 1.5)
    assert HySAC.target_entropy.fget(made(HYQ).agent) == -0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_penalty_is_that_of_a_naive_twin(calibrated: bool) -> None:
    algorithm = "continuous/calql" if calibrated else "continuous/cql"
    agent, batch = batch_of(algorithm, cql_weight=2.0, sampled_actions=3)
    floor = torch.linspace(-1, 1, len(batch), dtype=torch.float64)
    object.__setattr__(batch, "return_to_go", floor)
    torch.manual_seed(1)
    loss = (calql_critic_loss if calibrated else cql_critic_loss)(agent, batch)[0]
    torch.manual_seed(1)
    plain = critic_loss(agent, batch)[0]
    drawn = torch.zeros((9, *batch.action.shape), dtype=torch.float64)
    for k in range(9):  # on offline rows alone
        draw = torch.rand_like if k < 3 else torch.randn_like
        drawn[k, batch.offline] = draw(batch.action[batch.offline])
    for row in range(len(batch)):
        seen, later = batch.observation[row : row + 1], batch.next_observation[row : row + 1]
        noise = drawn[:, row]
        total = torch.zeros(agent.config.critics, dtype=torch.float64)
        for k in range(9):
            if k < 3:
                action, density = 2 * noise[k][None] - 1, -math.log(2)
            else:
                policy = agent.policy(seen if k < 6 else later)
                base: Any = torch.distributions.Normal(policy.mean, policy.log_std.exp())
                before = policy.mean + policy.log_std.exp() * noise[k]
                action = before.tanh()
                density = (base.log_prob(before) - (1 - action.square()).log()).item()
            q = agent.critic(seen, action)[:, 0]
            if calibrated and k >= 3:
                q = q.clamp(min=float(floor[row]))
            total += (q - density).exp()
        penalty = (total / 9).log() - agent.critic(seen, batch.action[row : row + 1])[:, 0]
        expected = 2.0 * penalty.mean() if batch.offline[row] else 0.0
        expected = torch.as_tensor(expected).item()
        assert (loss[row] - plain[row]).item() == pytest.approx(expected, abs=1e-9)


def test_calibration_discounts_returns_as_learning_begins() -> None:
    trainer = made("continuous/calql", gamma="0:0.5, 60:0.9")
    assert trainer.sampler.offline is not None
    buffer, slot = trainer.sampler.offline.buffer, 0
    for episode in STEERED_DATA:
        steps = len(episode.action)
        expected = 0.5 ** (steps - 1.0) if episode.terminated else -math.inf  # one at the end
        assert buffer.return_to_go(np.array([slot]))[0] == np.float32(expected)
        slot += steps + 1


def test_the_policies_that_imitate_weigh_what_they_imitate() -> None:
    agent, batch = batch_of("continuous/awac", advantage_scale=0.5)
    policy = agent.policy(batch.observation)
    torch.manual_seed(1)
    own, _ = policy.sample()
    advantage = agent.critic(batch.observation, batch.action).amin(0) - agent.critic(
        batch.observation, own
    ).amin(0)
    weight = (advantage / 0.5).exp().clamp(max=100.0)
    torch.manual_seed(1)
    loss, reported = awac_actor_loss(agent, batch)
    torch.testing.assert_close(loss, -weight * policy.log_prob(batch.action))
    torch.testing.assert_close(reported, advantage)

    agent, batch = batch_of("continuous/td3bc", value_weight=0.5)
    mode = agent.policy(batch.observation).mode
    q = agent.critic(batch.observation, mode)[0]
    expected = (mode - batch.action).square().mean(-1) - 0.5 * q / q.abs().mean()
    torch.testing.assert_close(td3_bc_actor_loss(agent, batch)[0], expected)


def test_priorities_decide_the_share_of_demonstrations() -> None:
    trainer = made("continuous/ddpgfd")
    spy = Spy(trainer)
    list(trainer.run())
    share = trainer.sampler.share
    assert isinstance(share, ByPriority)
    rng = np.random.default_rng(0)
    drawn = np.mean([share(100, 0, rng) for _ in range(300)]) / 100
    totals = share.offline.total_priority, share.online.total_priority
    assert drawn == pytest.approx(totals[0] / sum(totals), abs=0.02)
    assert any(0 < int(batch.offline.sum()) < len(batch) for batch in spy.batches)


# The update


def test_the_policy_is_updated_once_for_every_step() -> None:
    trainer = made(HYQ, updates_per_step=3, update_every=1, num_envs=1, pretraining=0)
    agent: Any = trainer.agent
    steps: list[int] = []
    agent.optimizers()["actor"].register_step_pre_hook(lambda *_: steps.append(int(agent.updates)))
    list(trainer.run())
    assert trainer.updates == 3 * (60 - 12)
    assert steps == list(range(3, trainer.updates + 1, 3))


def test_every_minibatch_is_drawn_on_its_own() -> None:
    trainer = made(HYQ, updates_per_step=4, update_every=1, num_envs=1, pretraining=0)
    spy = Spy(trainer)
    list(trainer.run())
    drawn = [tuple(batch.observation.flatten().tolist()) for batch in spy.batches]
    assert len(set(drawn)) > 0.95 * len(drawn)
    assert {int(batch.offline.sum()) for batch in spy.batches} == {4}


def test_target_critics_follow_at_their_rate() -> None:
    agent: Any = made(HYQ, target_rate=0.25).agent
    trainer = made(HYQ, target_rate=0.25)
    spy = Spy(trainer)
    before = [p.detach().clone() for p in agent.target.parameters()]
    list(trainer.run(lambda: bool(spy.batches)))
    other: Any = trainer.agent
    moved = zip(before, other.critic.parameters(), other.target.parameters(), strict=True)
    for start, now, target in moved:
        torch.testing.assert_close(target, start + 0.25 * (now - start), atol=1e-6, rtol=1e-4)


def test_a_stochastic_policy_explores_by_sampling_and_plays_its_mode() -> None:
    trainer = made(HYQ, random_steps=0, pretraining=0, learning_starts=10_000, buffer_size=200)
    list(trainer.run())
    assert trainer.buffer is not None
    actions = trainer.buffer.export(0 * trainer.buffer.written)["columns.action"]
    assert len(np.unique(actions[actions != 0])) > 50
    play = trainer.actor(np.random.default_rng(0))
    np.testing.assert_array_equal(play(STATES), play(STATES))
    mode = trainer.policy_network()(torch.from_numpy(STATES)).detach()
    np.testing.assert_allclose(play(STATES), mode)


def test_noise_begins_after_the_random_steps() -> None:
    actions = Actions(gym.spaces.Box(-1, 1, (2,), np.float32))
    given, rng = np.full((2000, 2), 0.75, np.float32), np.random.default_rng(0)
    late = ActionNoise(NoiseConfig(random_steps=4), actions)
    for step, unchanged in ((0, False), (3, False), (4, True), (9, True)):
        assert np.array_equal(late(given, step, rng), given) == unchanged
    for mean in (0.75, -0.75, 0.0):
        found = ActionNoise(NoiseConfig(action_noise=0.25), actions)(0 * given + mean, 0, rng)
        assert found.dtype == np.float32
        assert np.abs(found).max() <= 1
        # One standard deviation from the bound, a sixth is clipped to it.
        assert np.mean(np.abs(found) == 1) == pytest.approx(0.159 if mean else 0.0, abs=0.03)
    assert found.std() == pytest.approx(0.25, rel=0.05)


def test_random_steps_come_first_and_noise_is_bounded() -> None:
    trainer = made("continuous/ddpgfd", random_steps=20, action_noise=0.5, buffer_size=200)
    list(trainer.run())
    assert trainer.buffer is not None
    actions = trainer.buffer.export(0 * trainer.buffer.written)["columns.action"]
    assert (np.abs(actions) <= 1).all()
    assert (np.abs(actions) > 0.5).mean() > 0.2


# A user's own


def user_actor(observation_space: Any, action_space: Any) -> nn.Module:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inputs = sum(int(np.prod(space.shape)) for space in leaves(observation_space))
            length = action_space.shape[0]
            self.layers = nn.Sequential(nn.Linear(inputs, 8), nn.Dropout(0.2), nn.Linear(8, length))

        def forward(self, observation: Tree) -> torch.distributions.Distribution:
            parts = [leaf.float().flatten(1) for leaf in leaves(observation)]
            mean = self.layers(torch.cat(parts, -1))
            normal: Any = torch.distributions.Normal(mean, torch.full_like(mean, 0.5))
            tanh = torch.distributions.TanhTransform(cache_size=1)
            return torch.distributions.Independent(
                torch.distributions.TransformedDistribution(normal, [tanh]), 1
            )

    return Own()


def user_critic(observation_space: Any, action_space: Any) -> nn.Module:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inputs = int(np.prod(observation_space.shape)) + action_space.shape[0]
            self.layers = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, 1))
            self.drop = nn.Dropout(0.1)

        def forward(self, observation: Tensor, action: Tensor) -> Tensor:
            values: Tensor = self.layers(torch.cat((observation, self.drop(action)), -1))
            return values[:, 0]

    return Own()


def test_users_networks_are_taken_and_resume_exactly() -> None:
    def make() -> Any:
        return made(HYQ, network=user_actor, critic=user_critic)

    one = whole(make)
    assert_same(one, interrupted(make, 27))
    assert unequal(one, whole(lambda: made(HYQ)))


def test_stacked_critics_are_their_members_and_learn_apart() -> None:
    box = gym.spaces.Box(-1, 1, (3,), np.float32)
    members = [user_critic(box, box) for _ in range(4)]
    stacked = StackedCritics(members).eval()
    rows, actions = torch.randn(5, 3), torch.randn(5, 3)
    expected = torch.stack([member.eval()(rows, actions) for member in members])
    torch.testing.assert_close(stacked(rows, actions), expected)
    few = torch.tensor([3, 1])
    torch.testing.assert_close(stacked(rows, actions, few), expected[few])
    stacked(rows, actions)[2].sum().backward()
    for parameter in stacked.parameters():
        assert parameter.grad is not None
        touched = parameter.grad.flatten(1).abs().sum(1) > 0
        assert touched.tolist() == [False, False, True, False]


class Wrong(nn.Module):
    """A critic with a column too many."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 1)

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        values: Tensor = self.layer(observation)
        return values


def flat(distribution: Callable[[Tensor], Any]) -> Callable[..., nn.Module]:
    class Own(nn.Module):
        def __init__(self, observation_space: Any, action_space: Any) -> None:
            super().__init__()
            self.layer = nn.Linear(5, action_space.shape[0])

        def forward(self, observation: Tensor) -> Any:
            return distribution(self.layer(observation))

    return Own


@pytest.mark.parametrize(
    ("network", "critic", "says"),
    [
        (flat(lambda mean: mean), None, "must return a distribution of torch.distributions"),
        (
            flat(lambda mean: torch.distributions.Normal(mean + 7, torch.ones_like(mean))),
            None,
            r"within \[-1, 1\], it has",
        ),
        (
            flat(lambda mean: torch.distributions.Normal(mean[:1], torch.ones(1, 1))),
            None,
            r"actions of shape \(2, 1\)",
        ),
        (lambda *_: nn.Linear(3, 1), None, "cannot read observations"),
        (None, lambda *_: Wrong(), r"\(batch,\), for 2 rows it gave"),
    ],
)
def test_users_networks_that_do_not_fit_raise(network: Any, critic: Any, says: str) -> None:
    with pytest.raises(HyqError, match=says):
        made(HYQ, network=network, critic=critic)


def test_a_critic_is_for_algorithms_that_have_one() -> None:
    for algorithm in ("hyq", "continuous/bc"):
        with pytest.raises(HyqError, match="have a critic: leave it out"):
            made(algorithm, critic=user_critic)
    with pytest.raises(HyqError, match="mix both sources by beta"):
        made("continuous/ddpgfd", offline_share=lambda *_: 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"threads": 2},
        {"n_step": 3, "n_step_offline": 2, "priority_online": (0.6, 1e-3), "mix": "bernoulli"},
        {"priority_offline": (0.6, 1e-3), "updates_per_step": 3, "entropy_in_backup": True},
        {"frame_stack": 3, "critics": 1, "target_critics": 1},
    ],
)
def test_variants_resume_exactly(settings: dict[str, Any]) -> None:
    def make() -> Any:
        return made(HYQ, **settings)

    assert_same(whole(make), interrupted(make, 27))


def test_two_threads_learn_as_one_does() -> None:
    one, two = (whole(lambda n=n: made(HYQ, threads=n)) for n in (1, 2))  # type: ignore[misc]
    for name, array in weights(one).items():
        np.testing.assert_allclose(array, two[0][name], atol=1e-4, err_msg=name)


def test_images_and_dictionaries_reach_actor_and_critics() -> None:
    space = gym.spaces.Dict(
        {"camera": gym.spaces.Box(0, 255, (24, 24), np.uint8), "arm": gym.spaces.Box(-1, 1, (3,))}
    )

    class Seen(gym.Env[Any, Any]):
        observation_space, action_space = space, gym.spaces.Box(-1, 1, (2,), np.float32)

        def reset(self, **given: Any) -> Any:
            super().reset(**given)
            return space.sample(), {}

        def step(self, action: Any) -> Any:
            return space.sample(), 0.0, False, False, {}

    trainer = made("continuous/sac", env=lambda: gym.wrappers.TimeLimit(Seen(), 5), hidden=(4,))
    list(trainer.run())
    agent: Any = trainer.agent
    assert any(isinstance(module, nn.Conv2d) for module in agent.critic.modules())
    assert isinstance(agent.actor, Actor)
    assert isinstance(agent.critic, Critics)


# Policies


def test_a_policy_of_continuous_actions_is_saved_and_exported(tmp_path: Path) -> None:
    policy = hyq.train(
        SteeredChain, STEERED_DATA, 40, pretraining=5, hidden=(8,), critics=2, learning_starts=8,
        batch_size=8, evaluation_episodes=0, progress=False,
    )  # fmt: skip
    rows = STATES
    actions = policy.act(rows)
    assert actions.shape == (4, 1)
    assert SteeredChain().action_space.contains(policy.act(rows[0]))
    with pytest.raises(HyqError, match="no scores"):
        policy.scores(rows)
    policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    np.testing.assert_array_equal(loaded.act(rows), actions)
    policy.export_onnx(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    assert [output.name for output in session.get_outputs()] == ["action"]
    [found] = session.run(None, {"observation": rows})
    np.testing.assert_allclose(found, actions, atol=1e-5)


def test_a_users_actor_is_given_again_to_load_a_policy(tmp_path: Path) -> None:
    trainer = made(HYQ, network=user_actor)
    space = SteeredChain().action_space
    policy = Policy(trainer.policy_network(), SteeredChain.observation_space, space)
    policy.save(tmp_path)
    with pytest.raises(HyqError, match="network of your own"):
        Policy.load(tmp_path)
    loaded = Policy.load(tmp_path, user_actor)
    np.testing.assert_array_equal(loaded.act(STATES), policy.act(STATES))


def test_likelihoods_of_both_kinds() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)]])
    assert log_likelihood(logits, torch.tensor([1])).exp().item() == pytest.approx(0.75)


# Learning, against exact values


class Regulator(gym.Env[Any, Any]):
    """x' = 0.9 x + u + noise, which costs x^2 + u^2 / 2 a step."""

    observation_space = gym.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gym.spaces.Box(-4, 4, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._x = self.np_random.uniform(-2, 2)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        u = float(action[0])
        cost = self._x**2 + u * u / 2
        self._x = float(np.clip(0.9 * self._x + u + 0.1 * self.np_random.standard_normal(), -9, 9))
        return self._seen(), -cost, False, False, {}

    def _seen(self) -> Any:
        return np.array([self._x], np.float32)


def riccati_gain(gamma: float) -> float:
    """The gain K of the optimal u = -K x, by iterating the discounted Riccati equation."""
    p = 1.0
    for _ in range(200):
        p = 1 + 0.81 * gamma * p - (0.9 * gamma * p) ** 2 / (0.5 + gamma * p)
    return 0.9 * gamma * p / (0.5 + gamma * p)


def discounted_cost(act: Callable[[Any], Any], gamma: float) -> float:
    rng, total = np.random.default_rng(5), 0.0
    x = rng.uniform(-2, 2, 4000)
    for step in range(30):
        u = np.clip(act(x[:, None].astype(np.float32))[:, 0], -4, 4)
        total += gamma**step * np.mean(x**2 + u**2 / 2)
        x = 0.9 * x + u + 0.1 * rng.standard_normal(len(x))
    return float(total)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("hyq", {"critics": 3, "updates_per_step": 1}),
        ("sac", {"critics": 2, "random_steps": 300, "learning_starts": 300, "updates_per_step": 2}),
        # With one critic, as published, most seeds end 6 to 16 % above: a policy that takes what a
        # critic prefers most takes its errors too. Of three, pretrained for as long, five seeds end
        # 1 to 4 % above.
        (
            "ddpgfd",
            {"n_step": 1, "n_step_offline": 1, "weight_decay": 0.0, "pretraining": 4000}
            | {"layer_norm": True, "critics": 3},
        ),
    ],
)
def test_regulators_come_within_a_twentieth_of_the_riccati_optimum(
    algorithm: str, settings: dict[str, Any]
) -> None:
    gamma = 0.8
    env = gym.wrappers.TimeLimit(Regulator(), 20)
    rng, episodes = np.random.default_rng(0), []
    for seed in range(50):
        seen, actions, rewards = [env.reset(seed=seed)[0]], [], []
        for _ in range(20):
            actions.append(rng.uniform(-4, 4, 1).astype(np.float32))
            after, reward, *_ = env.step(actions[-1])
            seen.append(after)
            rewards.append(float(reward))
        episodes.append(Episode(np.array(seen), np.array(actions), np.array(rewards), False))
    data = None if algorithm == "sac" else Dataset.of(episodes, {})
    if data is not None:
        settings = {"pretraining": 1200, "learning_starts": 0, **settings}
    policy = hyq.train(
        lambda: gym.wrappers.TimeLimit(Regulator(), 20), data, 1000, algorithm=algorithm,
        hidden=(32, 32), batch_size=64, gamma=gamma, learning_rate="0:3e-3, 1000:3e-4",
        target_rate=0.02, evaluation_episodes=0, progress=False, **{"seed": 1, **settings},
    )  # fmt: skip
    gain = riccati_gain(gamma)
    optimal = discounted_cost(lambda x: -gain * x, gamma)
    assert discounted_cost(policy.act, gamma) < 1.05 * optimal
    assert discounted_cost(lambda x: 0 * x, gamma) > 1.2 * optimal
