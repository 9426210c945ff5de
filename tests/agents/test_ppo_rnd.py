"""PPO with random network distillation: values by hand, exact resuming, and a reward to find."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hyq.agents.distillation import BonusScale, Distillation
from hyq.agents.ppo_rnd import (
    EXTRINSIC,
    INTRINSIC,
    LAYERS,
    PRESETS,
    RNDConfig,
    RNDTrainer,
    Rollout,
    advantages,
    build_rnd,
    ppo_loss,
    sample,
)
from hyq.collector import PreprocessingConfig
from hyq.core.errors import HyqError
from hyq.core.schedules import schedule
from hyq.core.seeding import Streams, torch_seed
from hyq.core.settings import decode
from hyq.core.types import Array
from hyq.networks import Layers
from hyq.policy import Policy

LENGTH, TIME_LIMIT = 16, 40
SMALL = RNDConfig(
    online_steps=4096,
    normalisation_steps=256,
    num_envs=8,
    rollout_steps=32,
    learning_rate=schedule(1e-3),
    hidden=(64,),
    features=32,
    report_every=1024,
)


class Corridor(gym.Env[Any, Any]):
    """One of three actions leads forward, the others back; only the far end pays, and ends."""

    observation_space: gym.Space[Any] = gym.spaces.Box(0.0, 1.0, (LENGTH,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self._time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        self._place = max(0, self._place + (1 if action == 1 else -1))
        there = self._place == LENGTH - 1
        return self._observe(), float(there), there, self._time >= TIME_LIMIT and not there, {}

    def _observe(self) -> Any:
        return np.eye(LENGTH, dtype=np.float32)[self._place]


class Clock(gym.Env[Any, Any]):
    """Shows (a number of the episode, time); some episodes terminate and others are truncated."""

    observation_space = gym.spaces.Box(0.0, 100.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._number, self._time = int(self.np_random.integers(100)), 0
        return np.array([self._number, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        over, dies = self._time >= 3 + self._number % 5, self._number % 2 == 0
        seen = np.array([self._number, self._time], np.float32)
        return seen, 1.0, over and dies, over and not dies, {}


def trainer(
    config: RNDConfig = SMALL, env: Any = Corridor, seed: int = 0, frame_stack: int = 1
) -> RNDTrainer:
    envs = SyncVectorEnv([env] * config.num_envs, autoreset_mode=AutoresetMode.DISABLED)
    return build_rnd(config, PreprocessingConfig(frame_stack=frame_stack), envs, Streams(seed))


def test_the_bonus_finds_the_reward_that_ppo_alone_does_not() -> None:
    """Random actions get there about once in 20,000 episodes: nothing to learn from."""

    def share_of_successes(config: RNDConfig) -> float:
        *_, last = trainer(config).run()
        return float(np.mean([total for _, total, _ in last.episodes]))

    assert share_of_successes(SMALL) > 0.9
    assert share_of_successes(replace(SMALL, intrinsic_weight=0.0)) == 0.0


def test_the_loss_of_ppo_by_hand() -> None:
    """Uniform over two actions; ratios 2, 2, 1/2 and 1/2, so that half of them are clipped."""
    old = torch.tensor([0.25, 0.25, 1.0, 1.0]).log()
    batch = {
        "action": torch.tensor([0, 1, 0, 1]),
        "log_prob": old,
        "advantage": torch.tensor([1.0, -1.0, 1.0, -1.0]),
        "returns": torch.tensor([[1.0, 0.0]] * 4),
    }
    values = torch.tensor([[3.0, 1.0]] * 4)
    loss, watched = ppo_loss(torch.zeros(4, 2), values, batch, clip=0.1, entropy_weight=0.5)
    surrogate = (-1.1 + 2.0 - 0.5 + 0.9) / 4
    assert loss.item() == pytest.approx(surrogate - 0.5 * np.log(2) + (2**2 + 1**2) / 2)
    assert watched["clip_fraction"].item() == 1.0
    near = batch | {"log_prob": torch.tensor([0.5, 0.48, 0.52, 0.25]).log()}
    _, same = ppo_loss(torch.zeros(4, 2), values, near, clip=0.1, entropy_weight=0.5)
    assert same["clip_fraction"].item() == 0.25
    assert watched["value_error_extrinsic"].item() == 4.0
    assert watched["value_error_intrinsic"].item() == 1.0


def random_rollout(rng: np.random.Generator, steps: int, envs: int) -> Rollout:
    terminated, truncated = rng.random((2, steps, envs)) < 0.2
    return Rollout(
        observation=None,
        action=np.zeros((steps, envs), np.int64),
        log_prob=np.zeros((steps, envs)),
        value=rng.normal(size=(steps, envs, 2)),
        next_value=rng.normal(size=(steps, envs, 2)),
        frame=None,
        reward=3 * rng.normal(size=(steps, envs)),
        terminated=terminated,
        ended=terminated | truncated,
    )


@pytest.mark.parametrize("reward", ["sign", "raw"])
def test_advantages_are_sums_of_discounted_errors_up_to_the_end_that_counts(reward: Any) -> None:
    rng = np.random.default_rng(0)
    steps, envs = 30, 5
    rollout, bonus = random_rollout(rng, steps, envs), rng.random((steps, envs))
    config = replace(SMALL, gamma_extrinsic=0.9, gamma_intrinsic=0.8, gae_lambda=0.7, reward=reward)
    found = advantages(config, rollout, bonus)
    assert (rollout.ended & ~rollout.terminated).any()
    for t, env, which in np.ndindex(steps, envs, 2):
        gamma = (0.9, 0.8)[which]
        total, weight = 0.0, 1.0
        for later in range(t, steps):
            ends = which == EXTRINSIC and rollout.ended[later, env]
            dies = which == EXTRINSIC and rollout.terminated[later, env]
            paid = bonus[later, env]
            if which == EXTRINSIC:
                paid = rollout.reward[later, env]
                paid = np.sign(paid) if reward == "sign" else paid
            bootstrap = 0.0 if dies else gamma * rollout.next_value[later, env, which]
            total += weight * (paid + bootstrap - rollout.value[later, env, which])
            weight *= gamma * 0.7
            if ends:
                break
        assert found[t, env, which] == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("frame_stack", [1, 3])
def test_what_came_next_is_valued_as_each_reward_needs_it(frame_stack: int) -> None:
    """The last observation before a truncation for the extrinsic value, else the next one."""
    run = trainer(replace(SMALL, num_envs=4), Clock, frame_stack=frame_stack)
    rollout = run._collect(30)
    truncated = rollout.ended & ~rollout.terminated
    assert rollout.terminated.any()
    assert truncated.any()
    newest = rollout.observation[:, :, -1] if frame_stack > 1 else rollout.observation
    for t, env in np.ndindex(29, 4):
        number, clock = newest[t, env]
        assert tuple(rollout.frame[t, env]) == (number, clock + 1), "also of the last step"
        after = last = rollout.observation[t + 1, env]
        if truncated[t, env]:
            last = rollout.frame[t, env]
            if frame_stack > 1:
                last = np.concatenate((rollout.observation[t, env, 1:], last[None]))
        found = rollout.next_value[t, env]
        assert found[INTRINSIC] == pytest.approx(value(run, after)[INTRINSIC], abs=1e-5)
        if not rollout.terminated[t, env]:
            assert found[EXTRINSIC] == pytest.approx(value(run, last)[EXTRINSIC], abs=1e-5)
    log_policy = run._evaluate(rollout.observation[5])[0]
    chosen = log_policy[np.arange(4), rollout.action[5]]
    np.testing.assert_allclose(rollout.log_prob[5], chosen, atol=1e-6)


def value(run: RNDTrainer, observation: Array) -> Array:
    return run._evaluate(observation[None])[1][0]


def distillation(space: gym.Space[Any], layers: Layers, features: int = 32) -> Distillation:
    with torch_seed(0):
        return Distillation(space, layers, features)


def test_frames_are_normalised_and_clipped() -> None:
    part = distillation(gym.spaces.Box(-1e3, 1e3, (3,), np.float32), Layers(hidden=(8,)))
    part.update_moments(np.array([[0.0, 10.0, 7.0], [2.0, 30.0, 7.0]]))
    frames = torch.tensor([[2.0, 500.0, 7.0], [0.0, -500.0, 8.0]])
    expected = torch.tensor([[1.0, 5.0, 0.0], [-1.0, -5.0, 5.0]])
    torch.testing.assert_close(part.normalised(frames), expected)


def test_the_bonus_is_the_error_by_the_std_of_its_discounted_sums() -> None:
    # Sums with gamma 1/2: (1, 2), then (1/2 + 3, 1 + 0); all four have mean 15/8.
    scale = BonusScale(2, gamma=0.5)
    bonus = scale(np.array([[1.0, 2.0], [3.0, 0.0]]))
    std = np.sqrt(np.mean((np.array([1.0, 2.0, 3.5, 1.0]) - 15 / 8) ** 2))
    np.testing.assert_allclose(bonus, np.array([[1.0, 2.0], [3.0, 0.0]]) / std)
    scale(np.zeros((1, 2)))
    np.testing.assert_allclose(scale.state()["sum"], [1.75, 0.5]), "sums outlive a rollout"
    errors = np.random.default_rng(0).exponential(size=(50, 3))
    large, small = (BonusScale(3, gamma=0.9)(size * errors) for size in (1000, 1e-3))
    np.testing.assert_allclose(large, small)


def test_the_prediction_error_falls_on_frames_that_were_seen_and_not_on_others() -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, size=(64, 24, 24)).astype(np.uint8)
    space = gym.spaces.Box(0, 255, (24, 24), np.uint8)
    part = distillation(space, Layers(((8, 6, 3),), hidden=(128,)))
    part.update_moments(frames)
    target = {name: tensor.clone() for name, tensor in part.target.state_dict().items()}
    rows = torch.from_numpy(frames)
    before = part(rows).detach()
    adam = torch.optim.Adam([p for p in part.parameters() if p.requires_grad], 1e-3)
    for _ in range(150):
        adam.zero_grad()
        part(rows[:16]).mean().backward()
        adam.step()
    after = part(rows).detach()
    assert after[:16].mean() < 0.1 * before[:16].mean()
    assert after[16:].mean() > 5 * after[:16].mean()
    assert all(torch.equal(tensor, target[n]) for n, tensor in part.target.state_dict().items())


def test_the_target_of_images_is_convolutions_alone_and_that_of_vectors_is_not_linear() -> None:
    images = distillation(gym.spaces.Box(0, 255, (24, 24), np.uint8), Layers(((8, 6, 3),)))
    assert len(images.target.encoder.hidden) == 0
    assert isinstance(images.target.advantage, torch.nn.Linear)
    vectors = distillation(gym.spaces.Box(0, 1, (4,), np.float32), Layers(hidden=(8,)))
    assert len(vectors.target.encoder.hidden) == len(vectors.predictor.encoder.hidden) > 0


def test_training_changes_policy_values_and_predictor_but_never_the_target() -> None:
    run = trainer(replace(SMALL, online_steps=512))
    before = {n: t.clone() for n, t in run._networks.state_dict().items()}
    list(run.run())
    for name, tensor in run._networks.state_dict().items():
        fixed = "target" in name or "scalings" in name
        assert torch.equal(tensor, before[name]) == fixed, name


def test_a_policy_starts_as_good_as_uniform_with_orthogonal_weights() -> None:
    run = trainer()
    log_policy, _ = run._evaluate(np.eye(LENGTH, dtype=np.float32))
    np.testing.assert_allclose(np.exp(log_policy), 1 / 3, atol=0.01)
    weight = run.network.policy.encoder.hidden[0].weight
    assert isinstance(weight, torch.Tensor)
    assert weight.shape == (64, LENGTH)
    torch.testing.assert_close(weight.T @ weight, 2 * torch.eye(LENGTH), atol=1e-5, rtol=0)


def test_the_time_of_a_report_is_that_of_its_parts() -> None:
    began = time.perf_counter()
    reports = list(trainer(replace(SMALL, online_steps=512, report_every=256)).run())
    whole_time = time.perf_counter() - began
    assert [report.online_steps for report in reports] == [256, 512]
    parts = [second for report in reports for second in report.seconds.values()]
    assert min(parts) >= 0
    assert 0 < sum(parts) < whole_time


def test_actions_are_drawn_with_the_chances_of_the_policy() -> None:
    chances = np.array([0.5, 0.3, 0.2])
    drawn = sample(np.log(np.tile(chances, (20_000, 1))), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn) / 20_000, chances, atol=0.015)
    run = trainer()
    observation = np.eye(LENGTH, dtype=np.float32)
    first, again, other = (run.actor(np.random.default_rng(s))(observation) for s in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    logits = run.policy_network()(torch.from_numpy(observation)).detach().numpy()
    log_policy = run._evaluate(observation)[0]
    np.testing.assert_allclose(logits - logits[:, :1], log_policy - log_policy[:, :1], atol=1e-6)


def test_its_policy_is_saved_and_acts_by_the_most_likely_action(tmp_path: Path) -> None:
    run = trainer(replace(SMALL, online_steps=512))
    list(run.run())
    spaces = Corridor.observation_space, Corridor.action_space
    Policy(run.policy_network(), *spaces).save(tmp_path / "policy")
    observation = np.eye(LENGTH, dtype=np.float32)
    chosen = Policy.load(tmp_path / "policy").act(observation)
    assert np.array_equal(chosen, run._evaluate(observation)[0].argmax(axis=1))


def same(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    assert one.keys() == other.keys()
    return all(np.array_equal(array, other[name]) for name, array in one.items())


class Dictionary(Corridor):
    """The corridor as a dictionary of a place and the time."""

    observation_space = gym.spaces.Dict(
        place=Corridor.observation_space, time=gym.spaces.Box(0.0, TIME_LIMIT, (1,), np.float32)
    )

    def _observe(self) -> Any:
        return {"place": super()._observe(), "time": np.array([self._time], np.float32)}


@pytest.mark.parametrize("env", [Corridor, Clock, Dictionary])
def test_same_seed_same_bits_other_seed_others_and_resumed_as_if_never_stopped(env: Any) -> None:
    config = replace(SMALL, online_steps=1536, report_every=512, predictor_share=0.5)
    whole, again, other, first, second = (
        trainer(config, env, seed, frame_stack=2) for seed in (0, 0, 1, 0, 0)
    )
    reports = list(whole.run())
    assert [report.online_steps for report in reports] == [512, 1024, 1536]
    list(again.run())
    list(other.run())
    steps = iter((False, False, False, True))
    assert [report.number for report in first.run(lambda: next(steps))] == [1]
    assert first.online_steps == 768, "between two reports"
    saved = first.state()
    next(first.run())  # a state is a copy: what is learned later must not change it
    second.load_state(saved)
    rest = list(second.run())
    assert same(whole.state(), again.state())
    assert same(whole.state(), second.state())
    differing, own = other.state(), whole.state()
    names = [name for name in differing if name.endswith("hidden.0.weight")]
    assert names
    assert not any(np.array_equal(own[name], differing[name]) for name in names)
    for old, new in zip(reports[1:], rest, strict=True):
        assert (old.number, old.episodes, old.metrics) == (new.number, new.episodes, new.metrics)


def test_images_are_stacked_for_the_policy_and_single_for_the_bonus() -> None:
    class Images(Corridor):
        observation_space = gym.spaces.Box(0, 255, (24, 24), np.uint8)

        def _observe(self) -> Any:
            return np.full((24, 24), 10 * self._place, np.uint8)

    config = replace(SMALL, online_steps=96, normalisation_steps=32, rollout_steps=4)
    run = trainer(replace(config, network="unnormalised"), Images, frame_stack=4)
    *_, last = run.run()
    assert last.metrics["prediction_error"] > 0
    first_layers = [m for m in run._networks.modules() if isinstance(m, torch.nn.Conv2d)][::2]
    assert [layer.in_channels for layer in first_layers] == [4, 1, 1]


def test_every_step_counts_and_a_short_last_rollout_is_learned_from() -> None:
    run = trainer(replace(SMALL, online_steps=256 + 256 + 40, epochs=2, minibatches=3))
    *_, last = run.run()
    assert last.online_steps == 552, "random steps at the beginning included"
    assert run.updates == 2 * 2 * 3
    assert run.distillation.moments()["frames"].count == 552

    envs = SMALL.num_envs
    steps = SMALL.normalisation_steps + envs
    run = trainer(replace(SMALL, online_steps=steps, epochs=1, minibatches=2 * envs))
    *_, last = run.run()
    assert run.updates == envs, "as many minibatches as there are rows"
    assert all(np.isfinite(number) for number in last.metrics.values())


def test_the_predictor_may_learn_from_a_share_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    run = trainer(replace(SMALL, online_steps=512, predictor_share=0.25))
    update = run._update

    def counted(batch: dict[str, Any], frames: Any) -> None:
        used.append(len(frames))
        update(batch, frames)

    monkeypatch.setattr(run, "_update", counted)
    list(run.run())
    assert sum(used) == pytest.approx(4 * 256 * 0.25, rel=0.2)

    run = trainer(replace(SMALL, online_steps=512, predictor_share=0.0))
    before = run.distillation.predictor.advantage.weight.detach().clone()  # type: ignore[operator]
    list(run.run())
    assert torch.equal(run.distillation.predictor.advantage.weight, before)  # type: ignore[arg-type]


def test_actions_that_do_not_start_at_zero_are_played_as_they_are() -> None:
    class From5(Corridor):
        action_space = gym.spaces.Discrete(3, start=5)

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            assert action in (5, 6, 7)
            return super().step(action - 5)

    run = trainer(replace(SMALL, online_steps=512), From5)
    list(run.run())
    chosen = run.actor(np.random.default_rng(0))(np.eye(LENGTH, dtype=np.float32))
    assert set(chosen) <= {0, 1, 2}


def configured(preset: str) -> tuple[RNDConfig, PreprocessingConfig]:
    frames = {n: v for n, v in PRESETS[preset].items() if n in ("frame_stack", "downsample")}
    own = {n: v for n, v in PRESETS[preset].items() if n not in frames}
    return decode(RNDConfig, own), decode(PreprocessingConfig, frames)


def test_the_presets_differ_in_size_alone() -> None:
    assert configured("default") == (RNDConfig(), PreprocessingConfig())
    (paper, paper_frames), (cpu, cpu_frames) = map(configured, ("paper-montezuma", "cpu-montezuma"))
    sizes = {"online_steps", "normalisation_steps", "num_envs", "minibatches", "predictor_share"}
    sizes |= {"network", "features", "report_every"}
    assert {n for n in vars(paper) if getattr(paper, n) != getattr(cpu, n)} == sizes
    assert paper.predictor_share == 32 / paper.num_envs
    assert cpu.predictor_share == 32 / cpu.num_envs
    assert paper_frames == PreprocessingConfig(frame_stack=4)
    assert cpu_frames == PreprocessingConfig(frame_stack=4, downsample=2)
    policy, predictor = LAYERS[cpu.network]
    assert policy == predictor == Layers(((16, 6, 3), (32, 3, 2)), hidden=(256,))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1"),
        ({"online_steps": 0}, "online_steps must be at least 1"),
        ({"gamma_intrinsic": 1.5}, r"within \[0, 1\]"),
        ({"predictor_share": -0.1}, r"within \[0, 1\]"),
        ({"entropy_weight": -1.0}, "entropy_weight must be at least 0"),
        ({"learning_rate": -1.0}, "learning_rate must not be negative"),
        ({"clip": -0.1}, "clip must be at least 0"),
        ({"reward": "Raw"}, "reward must be one of sign, raw"),
        ({"minibatches": 999, "num_envs": 1}, "do not fill"),
        ({"network": "magic"}, "choose from auto, mlp.*burda"),
        ({"hidden": (0,)}, "at least one unit"),
        ({"device": "magic"}, "no device"),
    ],
)
def test_settings_that_cannot_run_raise(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(HyqError, match=says):
        trainer(decode(RNDConfig, settings))


def test_environments_that_do_not_fit_raise() -> None:
    with pytest.raises(HyqError, match="leave network at auto"):
        trainer(replace(SMALL, network="burda"))
    envs = SyncVectorEnv([Corridor] * 3, autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(HyqError, match="num_envs 3, not 8"):
        build_rnd(SMALL, PreprocessingConfig(), envs, Streams(0))


def test_learning_that_diverges_raises() -> None:
    with pytest.raises(HyqError, match="diverged"):
        list(trainer(replace(SMALL, learning_rate=schedule(1e18))).run())


def test_the_predictor_learns_while_the_policy_does() -> None:
    run = trainer()
    losses = [report.metrics["predictor_loss"] for report in run.run()]
    assert len(losses) > 2
    assert losses[-1] < losses[0] / 2
