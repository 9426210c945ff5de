"""Random network distillation: exact advantages and gradients, and a reward that only it finds."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from hyq.algos.rnd import (
    CPU,
    EXTRINSIC,
    INTRINSIC,
    PAPER,
    BonusScale,
    Distillation,
    Experience,
    RNDConfig,
    Rollout,
    Training,
    configured,
    generalised_advantage,
    log_softmax,
    ppo_improvement,
)
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.targets import softmax
from hyq.core.types import Array, FloatArray
from hyq.envs.make import make_lanes
from hyq.models.networks import NetworkSpec
from tests.test_lanes import Diary

LENGTH = 16
PATIENCE = 40

SMALL = RNDConfig(
    online_steps=4096,
    normalisation_steps=256,
    lanes=8,
    rollout=32,
    learning_rate=1e-3,
    policy_network=NetworkSpec(hidden=(64,)),
    predictor_network=NetworkSpec(hidden=(64,)),
    features=32,
    report_every=1024,
)


class Corridor(gym.Env[Array, Any]):
    """One of three actions leads on, the others back; only the far end pays, and ends."""

    observation_space = gym.spaces.Box(0.0, 1.0, (LENGTH,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self._time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._time += 1
        self._place = max(0, self._place + (1 if action == 1 else -1))
        there = self._place == LENGTH - 1
        return self._observe(), float(there), there, self._time >= PATIENCE and not there, {}

    def _observe(self) -> Array:
        return np.eye(LENGTH, dtype=np.float32)[self._place]


def training(config: RNDConfig = SMALL, env: Any = Corridor, seed: int = 0) -> Training:
    return Training(config, make_lanes(env, config.lanes), Streams(seed))


def test_the_bonus_finds_the_reward_that_ppo_alone_does_not() -> None:
    """Random play gets there about once in 20,000 episodes: no reward, nothing to learn from."""

    def share_of_successes(config: RNDConfig) -> float:
        *_, last = training(config).run()
        return float(np.mean([total for _, total, _ in last.episodes]))

    assert share_of_successes(SMALL) > 0.9
    assert share_of_successes(replace(SMALL, intrinsic=0.0)) == 0.0


def test_advantages_of_one_lane_by_hand() -> None:
    # delta = (1 + .5*4 - 2, 0 + 0 - 4, 2 + .5*6 - 1) = (1, -4, 4); nothing crosses the second step.
    advantage = generalised_advantage(
        np.array([[1.0], [0.0], [2.0]]),
        np.array([[2.0], [4.0], [1.0]]),
        np.array([[4.0], [9.0], [6.0]]),
        np.array([[0.5], [0.0], [0.5]]),
        np.array([[0.25], [0.0], [0.25]]),
    )
    np.testing.assert_allclose(advantage, np.array([[1 + 0.25 * -4], [-4.0], [4.0]]))


def test_extrinsic_returns_end_with_the_episode_and_intrinsic_ones_do_not() -> None:
    """Two steps in three lanes whose first step goes on, terminates, and is truncated."""
    config = replace(
        SMALL, lanes=3, gamma_extrinsic=0.5, gamma_intrinsic=0.8, trace=0.5, reward="raw"
    )
    goes_on, dies, is_cut = range(3)
    value = np.zeros((2, 3, 2))
    value[0, :, EXTRINSIC] = 1.0
    value[1, :, EXTRINSIC] = 3.0
    value[0, :, INTRINSIC] = 2.0
    value[1, :, INTRINSIC] = 5.0
    next_value = np.zeros((2, 3, 2))
    next_value[0] = value[1]
    next_value[0, is_cut, EXTRINSIC] = 7.0  # of the last observation before the cut
    next_value[1] = 10.0
    terminated = np.zeros((2, 3), bool)
    terminated[0, dies] = True
    ended = terminated.copy()
    ended[0, is_cut] = True
    rollout = Rollout(
        observation=np.zeros((2, 3, LENGTH), np.float32),
        action=np.zeros((2, 3), np.int64),
        log_likelihood=np.zeros((2, 3)),
        value=value,
        next_value=next_value,
        frame=np.zeros((2, 3, LENGTH), np.float32),
        reward=np.full((2, 3), 4.0),
        terminated=terminated,
        ended=ended,
    )
    experience = training(config)._experience(rollout, bonus=np.full((2, 3), 0.5))
    returns = experience.returns.reshape(2, 3, 2)

    last = 4.0 + 0.5 * 10.0 - 3.0  # the second step's advantage, in every lane
    extrinsic = returns[..., EXTRINSIC]
    np.testing.assert_allclose(extrinsic[1], 3.0 + last)
    assert extrinsic[0, goes_on] == pytest.approx(4.0 + 0.5 * 3.0 + 0.5 * 0.5 * last)
    assert extrinsic[0, dies] == pytest.approx(4.0)
    assert extrinsic[0, is_cut] == pytest.approx(4.0 + 0.5 * 7.0)

    last_bonus = 0.5 + 0.8 * 10.0 - 5.0
    np.testing.assert_allclose(returns[1, :, INTRINSIC], 5.0 + last_bonus)
    np.testing.assert_allclose(returns[0, :, INTRINSIC], 0.5 + 0.8 * 5.0 + 0.8 * 0.5 * last_bonus)

    advantage = returns - value
    np.testing.assert_allclose(
        experience.advantage.reshape(2, 3),
        2.0 * advantage[..., EXTRINSIC] + advantage[..., INTRINSIC],
    )


@pytest.mark.parametrize("stack", [1, 3])
def test_what_came_next_is_valued_as_each_reward_needs_it(stack: int) -> None:
    """The diary shows (number of the episode, time), so every observation can be told."""

    class SmallNumbers(Diary):
        def _observe(self) -> Array:
            return super()._observe() % 100

    config = replace(SMALL, lanes=4, rollout=30, stack=stack)
    run = training(config, SmallNumbers)
    rollout = run._collect(30)
    truncated = rollout.ended & ~rollout.terminated
    assert rollout.terminated.any()
    assert truncated.any()
    newest = rollout.observation[:, :, -1] if stack > 1 else rollout.observation
    for t, lane in np.ndindex(29, 4):
        number, clock = newest[t, lane]
        assert tuple(rollout.frame[t, lane]) == (number, clock + 1), "also of the last step"
        after = rollout.observation[t + 1, lane]
        if truncated[t, lane]:
            last = rollout.frame[t, lane]
            if stack > 1:
                last = np.concatenate((rollout.observation[t, lane, 1:], last[None]))
        else:
            last = after
        for observation, which in ((after, INTRINSIC), (last, EXTRINSIC)):
            if which == INTRINSIC or not rollout.terminated[t, lane]:
                expected = run.learner.outputs(observation[None])[0, -2 + which]
                assert rollout.next_value[t, lane, which] == pytest.approx(expected, abs=1e-4)
    logits = run.learner.outputs(rollout.observation[5])[:, :3]
    chosen = log_softmax(logits)[np.arange(4), rollout.action[5]]
    np.testing.assert_allclose(rollout.log_likelihood[5], chosen, atol=1e-4)


def test_the_gradient_of_ppo_is_that_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    count, actions, clip, entropy = 200, 4, 0.1, 0.3
    outputs = rng.normal(size=(count, actions + 2))
    action = rng.integers(actions, size=count)
    now = log_softmax(outputs[:, :actions])[np.arange(count), action]
    batch = Experience(
        np.empty(0),
        action,
        now + rng.uniform(-0.3, 0.3, size=count),  # on both sides of either bound
        rng.normal(size=count),
        rng.normal(size=(count, 2)),
    )
    improvement = ppo_improvement(outputs, batch, clip, entropy)

    leaf = torch.tensor(outputs, requires_grad=True)
    log_policy = torch.log_softmax(leaf[:, :actions], 1)
    ratio = (log_policy[range(count), action] - torch.tensor(batch.log_likelihood)).exp()
    advantage = torch.tensor(batch.advantage)
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    uncertainty = -(log_policy.exp() * log_policy).sum(1)
    errors = (leaf[:, actions:] - torch.tensor(batch.returns)).square().sum(1) / 2
    (-gain - entropy * uncertainty + errors).mean().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    np.testing.assert_allclose(improvement.gradient, leaf.grad.numpy(), atol=1e-8)
    assert improvement.entropy == pytest.approx(uncertainty.mean().item())
    assert 0.3 < improvement.clipped < 0.9


def test_novelty_falls_where_the_predictor_has_been_and_stays_elsewhere() -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, size=(64, 24, 24)).astype(np.uint8)
    config = replace(SMALL, predictor_network=NetworkSpec(((8, 6, 3),), hidden=(128,)))
    distillation = Distillation(config, frames, Streams(0))
    distillation.seen.update(frames)
    familiar = frames[:16]
    before = distillation.novelty(frames)[0]
    for _ in range(150):
        distillation.learn(familiar, distillation.novelty(familiar)[1], 1e-3)
    after = distillation.novelty(frames)[0]
    assert after[:16].mean() < 0.1 * before[:16].mean()
    assert after[16:].mean() > 5 * after[:16].mean()


def test_pixels_are_normalised_and_clipped() -> None:
    distillation = Distillation(SMALL, np.zeros((1, 3), np.float32), Streams(0))
    distillation.seen.update(np.array([[0.0, 10.0, 7.0], [2.0, 30.0, 7.0]]))
    seen = distillation.normalised(np.array([[2.0, 500.0, 7.0], [0.0, -500.0, 8.0]]))
    np.testing.assert_allclose(seen, [[1.0, 5.0, 0.0], [-1.0, -5.0, 5.0]])


def test_the_bonus_keeps_its_scale_whatever_the_scale_of_the_errors() -> None:
    novelty = np.random.default_rng(0).exponential(size=(50, 3))
    bonus = BonusScale(3, gamma=0.9)(novelty)
    np.testing.assert_allclose(BonusScale(3, gamma=0.9)(1000 * novelty), bonus)
    sums = [novelty[0]]
    for errors in novelty[1:]:
        sums.append(0.9 * sums[-1] + errors)
    np.testing.assert_allclose(bonus, novelty / np.std(sums))


def test_the_bonus_is_discounted_as_intrinsic_returns_are() -> None:
    config = replace(SMALL, gamma_intrinsic=0.5, gamma_extrinsic=0.9)
    errors = np.ones((1, SMALL.lanes))
    scale = training(config)._scale
    scale(errors)
    scale(errors)
    np.testing.assert_allclose(scale.arrays()["sum"], 1.5)


def test_a_policy_begins_as_good_as_uniform() -> None:
    run = training()
    seen = np.random.default_rng(0).random((64, *run.lanes.observation.shape[1:]))
    policy = softmax(run.learner.outputs(seen.astype(np.float32))[:, : run.actions])
    np.testing.assert_allclose(policy, 1 / run.actions, atol=0.01)


def weights(run: Training) -> FloatArray:
    return np.concatenate([value.ravel() for value in run.learner.parameters().values()])


def test_same_seed_same_bits_other_seed_others_and_restored_as_if_never_stopped() -> None:
    config = replace(SMALL, online_steps=1536, report_every=512)
    whole, again, other, first, second = (training(config, seed=s) for s in (0, 0, 1, 0, 0))
    reports = list(whole.run())
    assert [report.online_steps for report in reports] == [512, 1024, 1536]
    list(again.run())
    list(other.run())
    next(first.run())
    second.restore(first.snapshot().replaced)
    rest = list(second.run())
    assert np.array_equal(weights(whole), weights(again))
    assert not np.array_equal(weights(whole), weights(other))
    assert np.array_equal(weights(whole), weights(second))
    for old, new in zip(reports[1:], rest, strict=True):
        assert (old.number, old.episodes, old.metrics) == (new.number, new.episodes, new.metrics)


def test_every_step_counts_and_a_short_last_rollout_is_learned_from() -> None:
    config = replace(SMALL, online_steps=256 + 256 + 40, epochs=2, minibatches=3)
    run = training(config)
    *_, last = run.run()
    assert last.online_steps == 552, "random steps at the beginning included"
    assert run.updates == 2 * 2 * 3
    assert run.distillation.seen.count == 552


def test_a_last_rollout_too_short_for_its_minibatches_leaves_numbers() -> None:
    lanes = SMALL.lanes
    config = replace(
        SMALL, online_steps=SMALL.normalisation_steps + lanes, epochs=1, minibatches=2 * lanes
    )
    run = training(config)
    *_, last = run.run()
    assert run.updates == lanes
    assert all(np.isfinite(number) for number in last.metrics.values())


def test_the_predictor_may_learn_from_a_share_of_the_experience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[int] = []
    run = training(replace(SMALL, online_steps=512, predictor_share=0.25))
    learn = run.distillation.learn

    def counted(frames: Array, features: FloatArray, learning_rate: float) -> float:
        used.append(len(frames))
        return learn(frames, features, learning_rate)

    monkeypatch.setattr(run.distillation, "learn", counted)
    list(run.run())
    assert sum(used) == pytest.approx(4 * 256 * 0.25, rel=0.2)


def test_actions_that_do_not_begin_at_zero_are_played_as_they_are() -> None:
    class From5(Corridor):
        action_space = gym.spaces.Discrete(3, start=5)

        def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
            assert action in (5, 6, 7)
            return super().step(action - 5)

    run = training(replace(SMALL, online_steps=512), From5)
    list(run.run())
    observation = np.eye(LENGTH, dtype=np.float32)
    assert set(run.sampler(np.random.default_rng(0))(observation)) <= {5, 6, 7}
    assert run.policy().act(observation[0]) in (5, 6, 7)


def test_the_presets_are_those_of_the_paper_but_for_their_size() -> None:
    sizes = {"online_steps", "normalisation_steps", "lanes", "minibatches", "predictor_share"}
    sizes |= {"shrink_by", "policy_network", "predictor_network", "features", "report_every"}
    assert {name for name in vars(PAPER) if getattr(PAPER, name) != getattr(CPU, name)} == sizes
    assert PAPER.predictor_share == 32 / PAPER.lanes
    assert CPU.predictor_share == 32 / CPU.lanes


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"lanes": 0}, "at least 1"),
        ({"online_steps": 0}, "at least 1"),
        ({"gamma_intrinsic": 1.5}, "within|lie in"),
        ({"predictor_share": -0.1}, "lie in"),
        ({"entropy": -1.0}, "negative"),
        ({"clip": 0.0}, "above 0"),
        ({"reward": "Raw"}, "reward must be one of sign, raw"),
        ({"minibatches": 999, "lanes": 1}, "do not fill"),
        ({"magic": 1}, "unknown setting magic"),
    ],
)
def test_settings_that_cannot_run_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(HyqError, match=says):
        configured("default", **settings)
    with pytest.raises(HyqError, match="no preset"):
        configured("magic")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_learning_that_diverges_ends_with_a_word() -> None:
    hopeless = replace(SMALL, learning_rate=1e18)
    with pytest.raises(HyqError, match="diverged"):
        list(Training(hopeless, make_lanes(Corridor, 8), Streams(0)).run())
