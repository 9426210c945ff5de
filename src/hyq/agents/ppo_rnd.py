"""PPO with random network distillation (Burda et al. 2018): exploration paid by prediction error.

The error of a predictor of random features is large where the agent has hardly been: see
`distillation.py`. It is the intrinsic reward, or bonus, on top of the environment's own.

The two rewards have a value function each. The extrinsic return ends with the episode. The
intrinsic one continues into the next episode, so that dying costs no more than getting there again.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from hyq import losses
from hyq.agents.base import OptimizerConfig, load_training_state, training_state
from hyq.agents.distillation import BonusScale, Distillation
from hyq.collector import Collector, Outcome, PreprocessingConfig, VectorEnv
from hyq.core.errors import HyqError, check_finite
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.seeding import Streams, torch_seed
from hyq.core.settings import check_range
from hyq.core.trees import Tree, flatten, leaves, space_tree, subtree, tree_map
from hyq.core.types import Array, BoolArray, FloatArray, IntArray
from hyq.networks import NETWORKS, ActorCritic, Layers, default_layers, is_image, num_actions
from hyq.trainer import Report

EXTRINSIC, INTRINSIC = 0, 1
"""The order of the two values, rewards and returns, along the last axis."""
LAYERS: dict[str, tuple[Layers, Layers]] = {
    **{name: (layers, layers) for name, layers in NETWORKS.items()},
    "burda": (
        Layers(((32, 8, 4), (64, 4, 2), (64, 4, 1)), hidden=(256, 448), stream_hidden=448),
        Layers(((32, 8, 4), (64, 4, 2), (64, 3, 1)), hidden=(512, 512)),
    ),
}
"""Layers of the policy and of the predictor, by name; burda is for 84x84 images."""


@dataclass(frozen=True)
class RNDConfig:
    """PPO with random network distillation. An online step is one step of one environment."""

    online_steps: int = 1_000_000
    """Steps to take, over all environments."""
    normalisation_steps: int = 8192
    """Random steps at the beginning, which only estimate the mean and std of every pixel. They
    count as online steps."""
    num_envs: int = 32
    """Environments that are stepped together."""
    rollout_steps: int = 128
    """Steps of every environment between two rounds of learning."""
    epochs: int = 4
    """Passes over every rollout."""
    minibatches: int = 4
    """Gradient steps in a pass."""
    learning_rate: PiecewiseLinear = schedule(1e-4)
    """Of Adam, for the policy and the predictor, against online steps."""
    gamma_extrinsic: float = 0.999
    """Discount factor of the environment's reward, whose return ends with the episode."""
    gamma_intrinsic: float = 0.99
    """Discount factor of the bonus, whose return continues from episode to episode."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation."""
    clip: float = 0.1
    """Distance of the probability ratio from 1 beyond which PPO's objective is flat."""
    entropy_weight: float = 0.001
    """Weight of the policy's entropy."""
    extrinsic_weight: float = 2.0
    """Weight of the advantage of the environment's reward."""
    intrinsic_weight: float = 1.0
    """Weight of the advantage of the bonus; 0 is PPO without it."""
    reward: Literal["sign", "raw"] = "sign"
    """sign learns from the sign of the reward, as on Atari; returns are always reported raw."""
    predictor_share: float = 1.0
    """Share of the rows that the predictor learns from; 32 / num_envs makes it learn at the same
    speed for any number of environments."""
    network: str = "auto"
    """auto: by the observations. burda: Burda et al. (2018), for 84x84 images. mlp; nature, small,
    normalised, unnormalised: see the other algorithms. The bonus is for the newest frame alone."""
    hidden: tuple[int, ...] | None = None
    """Units of the hidden layers of policy and predictor; the network's own by default."""
    features: int = 128
    """Outputs of the target network that the predictor has to match."""
    device: str = "cpu"
    """Where the networks are: cpu, cuda, ..."""
    report_every: int = 10_000
    """Online steps between two records, which come at the end of a rollout."""

    def __post_init__(self) -> None:
        counts = ("num_envs", "rollout_steps", "epochs", "minibatches", "features")
        for name in ("online_steps", "report_every", *counts):
            check_range(name, getattr(self, name), 1)
        weights = ("entropy_weight", "extrinsic_weight", "intrinsic_weight")
        for name in ("normalisation_steps", "clip", *weights):
            check_range(name, getattr(self, name), 0)
        for name in ("gamma_extrinsic", "gamma_intrinsic", "gae_lambda", "predictor_share"):
            check_range(name, getattr(self, name), 0, 1)
        if self.minibatches > self.num_envs * self.rollout_steps:
            raise HyqError(f"rollouts do not fill {self.minibatches} minibatches: take fewer")
        if self.network not in ("auto", *LAYERS):
            raise HyqError(f"no network {self.network!r}: choose from auto, {', '.join(LAYERS)}")
        OptimizerConfig(learning_rate=self.learning_rate, device=self.device)  # checks both

    def layers(self, space: gym.Space[Any]) -> tuple[Layers, ...]:
        """Return the layers of the policy and of the predictor."""
        named = LAYERS.get(self.network) or (default_layers(space),) * 2
        images = any(is_image(part) for part in leaves(space_tree(space)))
        if named[0].convolutions and not images:
            raise HyqError(
                f"network {self.network} is for images of bytes, this environment shows {space}: "
                "leave network at auto"
            )
        hidden = self.hidden
        return named if hidden is None else tuple(replace(part, hidden=hidden) for part in named)


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper-montezuma": {
        "online_steps": 30_000 * 128 * 128,
        "normalisation_steps": 50 * 128 * 128,
        "num_envs": 128,
        "predictor_share": 0.25,
        "frame_stack": 4,
        "network": "burda",
        "features": 512,
        "report_every": 100_000,
    },
    "cpu-montezuma": {
        "minibatches": 8,
        "frame_stack": 4,
        "downsample": 2,
        "network": "unnormalised",
    },
}
"""Named settings of `RNDConfig` and `PreprocessingConfig`. paper-montezuma: Burda et al. (2018) on
84x84 images, for a GPU. cpu-montezuma: images averaged to 42x42, and small networks, for a CPU."""


def ppo_loss(
    logits: Tensor, values: Tensor, batch: Mapping[str, Tensor], clip: float, entropy_weight: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return PPO's loss, a mean over rows, and numbers to watch (Schulman et al. 2017, eq. 9).

    -min(rho A, clip(rho, 1 - c, 1 + c) A) - entropy_weight H(pi(. | s))
    + (V_E(s) - return_E)^2 / 2 + (V_I(s) - return_I)^2 / 2,  with rho = pi(a | s) / pi_old(a | s).
    A batch has action, log_prob (of pi_old), advantage, and returns, which are (B, 2) as values.
    """
    log_policy = logits.log_softmax(-1)
    ratio = (losses.chosen(log_policy, batch["action"]) - batch["log_prob"]).exp()
    entropy = -(log_policy.exp() * log_policy).sum(-1)
    squared_error = (values - batch["returns"]).square()
    surrogate = losses.clipped_surrogate(ratio, batch["advantage"], clip)
    loss = surrogate - entropy_weight * entropy + squared_error.sum(-1) / 2
    watched = {
        "entropy": entropy.mean(),
        "clip_fraction": ((ratio - 1).abs() > clip).float().mean(),
        "value_error_extrinsic": squared_error[:, EXTRINSIC].mean(),
        "value_error_intrinsic": squared_error[:, INTRINSIC].mean(),
    }
    return loss.mean(), watched


@dataclass(frozen=True)
class Rollout:
    """Steps of every environment: time is the first axis, environments are the second."""

    observation: Tree
    action: IntArray
    log_prob: FloatArray
    """Of the action, under the policy that took it."""
    value: FloatArray
    """Both values of the observation (steps, num_envs, 2)."""
    next_value: FloatArray
    """Both values of what came next. Where the episode ended, that is the first observation of the
    next one for the intrinsic value, and the last of the old one for the extrinsic."""
    frame: Tree
    """The frame that each step led to: of an episode that ended, its last."""
    reward: FloatArray
    terminated: BoolArray
    ended: BoolArray
    """Terminated or truncated."""


def advantages(config: RNDConfig, rollout: Rollout, bonus: FloatArray) -> FloatArray:
    """Return the advantages of both rewards (steps, num_envs, 2)."""
    reward = np.sign(rollout.reward) if config.reward == "sign" else rollout.reward
    always = np.ones_like(rollout.ended)
    gamma = np.array([config.gamma_extrinsic, config.gamma_intrinsic])
    discount_t = gamma * np.stack((~rollout.terminated, always), -1)
    lambda_t = config.gae_lambda * np.stack((~rollout.ended, always), -1)
    parts = np.stack((reward, bonus), -1), discount_t, rollout.value, rollout.next_value, lambda_t
    return losses.generalised_advantage(*(torch.as_tensor(x).float() for x in parts)).numpy()


def build_rnd(
    config: RNDConfig, preprocessing: PreprocessingConfig, env: VectorEnv, streams: Streams
) -> "RNDTrainer":
    """Put the parts together; raise before time is spent where they do not fit."""
    if env.num_envs != config.num_envs:
        raise HyqError(f"the environment has num_envs {env.num_envs}, not {config.num_envs}")
    actions = num_actions(env.single_action_space)
    collector = Collector(env, streams.below("collect"), preprocessing)
    spaces = collector.preprocessing
    policy, predictor = config.layers(spaces.frame_space)
    with torch_seed(streams.integer("network")):
        network = ActorCritic(spaces.space, policy, actions, values=2)
        distillation = Distillation(spaces.frame_space, predictor, config.features)
    return RNDTrainer(config, network, distillation, collector, streams)


class RNDTrainer:
    """Everything a run depends on, in memory, with its loop at the bottom."""

    buffer = None
    """Nothing is replayed."""

    def __init__(
        self,
        config: RNDConfig,
        network: ActorCritic,
        distillation: Distillation,
        collector: Collector,
        streams: Streams,
    ) -> None:
        self.config, self.collector, self._streams = config, collector, streams
        self.network, self.distillation = network, distillation
        self._networks = nn.ModuleList((network, distillation)).to(config.device)
        self._learned = [p for p in self._networks.parameters() if p.requires_grad]
        self._optimizer = torch.optim.Adam(self._learned, fused=True)
        self._bonus = BonusScale(config.num_envs, config.gamma_intrinsic)
        parts = {"bonus": self._bonus, "collector": collector}
        self._parts: dict[str, Any] = parts | distillation.moments()
        self.online_steps = self.updates = self._reports = 0
        self._clear_metrics()

    def actor(self, rng: np.random.Generator) -> Callable[[Tree], Array]:
        """Return what plays in evaluations: actions sampled from the policy, counted from 0."""
        return lambda observation: sample(self._evaluate(observation)[0], rng)

    def policy_network(self) -> nn.Module:
        """Return the module whose outputs are the logits."""
        return self.network.policy

    def _evaluate(self, observation: Tree) -> tuple[FloatArray, FloatArray]:
        """Return log pi(. | s) and both values of each row."""
        with torch.inference_mode():
            logits, values = self.network(self._tensors(observation))
            return logits.log_softmax(-1).cpu().numpy(), values.cpu().numpy()

    def _step(self, action: IntArray) -> Outcome:
        """Take one step in every environment, and count what it showed."""
        with self._timed("wait and store"):
            self.collector.send(action)
            outcome = self.collector.receive()
            self.distillation.update_moments(outcome.frame)
        self.online_steps += self.config.num_envs
        for _, total, length in outcome.finished:
            self._episodes.append((self.online_steps, total, length))
        return outcome

    def _collect(self, steps: int) -> Rollout:
        """Act with the current policy, and evaluate what was seen on the way."""
        taken: list[Tree] = []
        for _ in range(steps):
            with self._timed("act"):
                observation = self.collector.observation
                log_policy, value = self._evaluate(observation)
                action = sample(log_policy, self._rng("act"))
            outcome = self._step(action)
            step = {
                "observation": observation,
                "action": action,
                "log_prob": np.take_along_axis(log_policy, action[:, None], 1)[:, 0],
                "value": value,
                "frame": outcome.frame,
                "reward": outcome.reward,
                "terminated": outcome.terminated,
                "ended": outcome.ended,
            }
            taken.append(tree_map(np.copy, step))  # an environment may reuse its arrays
        steps_first = tree_map(lambda *parts: np.stack(parts), *taken)
        last_value = self._evaluate(self.collector.observation)[1]
        next_value = np.concatenate((steps_first["value"][1:], last_value[None]))
        rollout = Rollout(**steps_first, next_value=next_value)
        truncated = rollout.ended & ~rollout.terminated
        if truncated.any():
            seen = rollout.observation, rollout.frame
            before, last = (tree_map(lambda x: x[truncated], tree) for tree in seen)
            if self.collector.preprocessing.config.frame_stack > 1:
                last = tree_map(lambda x, y: np.append(x[:, 1:], y[:, None], 1), before, last)
            next_value[truncated, EXTRINSIC] = self._evaluate(last)[1][:, EXTRINSIC]
        return rollout

    def _learn(self, rollout: Rollout) -> None:
        """Compute the bonus, and improve policy, values and predictor on a rollout."""
        config, value, rng = self.config, rollout.value, self._rng("shuffle")
        with torch.inference_mode():
            steps = [self._tensors(rollout.frame, t) for t in range(len(value))]
            error = torch.stack([self.distillation(frames) for frames in steps]).cpu().numpy()
        bonus = self._bonus(error)
        self._watch(prediction_error=error.mean(), bonus=bonus.mean(), largest_bonus=bonus.max())
        self._watch(value_extrinsic=value[..., 0].mean(), value_intrinsic=value[..., 1].mean())
        both = advantages(config, rollout, bonus)
        weights = np.array([config.extrinsic_weight, config.intrinsic_weight], np.float32)
        names = ("observation", "action", "log_prob", "frame")
        experience = {name: getattr(rollout, name) for name in names}
        experience |= {"advantage": both @ weights, "returns": both + value}
        experience = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), experience)
        frames = experience.pop("frame")
        for _ in range(config.epochs):
            order = rng.permutation(value.size // 2)
            # The last rollout may be too short to fill all minibatches.
            for rows in np.array_split(order, min(config.minibatches, len(order))):
                some = rows[rng.random(len(rows)) < config.predictor_share]
                self._update(self._tensors(experience, rows), self._tensors(frames, some))

    def _update(self, batch: dict[str, Any], frames: Tree) -> None:
        """Take one step of Adam on both losses; policy and predictor share no parameter."""
        config = self.config
        logits, values = self.network(batch["observation"])
        loss, watched = ppo_loss(logits, values, batch, config.clip, config.entropy_weight)
        if len(next(leaves(frames))):
            watched["predictor_loss"] = self.distillation(frames).mean()
            loss = loss + watched["predictor_loss"]
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self._learned, math.inf, foreach=True)  # clips nothing
        check_finite(norm.cpu().numpy(), "lower learning_rate")
        for group in self._optimizer.param_groups:
            group["lr"] = config.learning_rate(self.online_steps)
        self._optimizer.step()
        self.updates += 1
        watched["gradient_norm"] = norm
        self._watch(**{name: number.item() for name, number in watched.items()})

    def _tensors(self, tree: Tree, rows: Any = slice(None)) -> Tree:
        """Put arrays, or some rows of them, where the networks are."""
        device = self.config.device
        return tree_map(lambda x: torch.from_numpy(np.ascontiguousarray(x[rows])).to(device), tree)

    def _rng(self, name: str) -> np.random.Generator:
        return self._streams.generator(name, self.online_steps)

    def _watch(self, **numbers: float) -> None:
        for name, number in numbers.items():
            self._sums[name] = self._sums.get(name, 0) + np.array([number, 1.0])

    def _clear_metrics(self) -> None:
        self._sums: dict[str, FloatArray] = {}
        """(sum, count) of every metric since the last report."""
        self._seconds = dict.fromkeys(("act", "learn", "wait and store"), 0.0)
        self._episodes: list[tuple[int, float, int]] = []

    def _report(self) -> Report:
        self._reports += 1
        metrics = {name: float(total / n) for name, (total, n) in sorted(self._sums.items())}
        counts = self._reports, self.online_steps, self.updates
        report = Report(*counts, tuple(self._episodes), metrics, self._seconds)
        self._clear_metrics()
        return report

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - began

    def state(self) -> dict[str, Array]:
        """Return everything the run depends on, at a report or where `run` ended."""
        tensors = training_state(self._networks, {"adam": self._optimizer})
        state: dict[str, Any] = {name: part.state() for name, part in self._parts.items()}
        state["networks"] = {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()}
        state["counts"] = np.array([self.online_steps, self.updates, self._reports])
        state["episodes"] = np.array(self._episodes, np.float64).reshape(-1, 3)
        return flatten(state | {"sums": self._sums})

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Undo `state`."""
        self.online_steps, self.updates, self._reports = map(int, state["counts"])
        self._sums, arrays = subtree("sums", state), subtree("networks", state)
        self._episodes = [(int(t), total, int(n)) for t, total, n in state["episodes"].tolist()]
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        load_training_state(self._networks, {"adam": self._optimizer}, tensors)
        for name, part in self._parts.items():
            part.load_state(subtree(name, state))

    def run(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Report]:
        """Learn, and yield reports; `stop` is called before every rollout, and ends the loop."""
        config, actions = self.config, num_actions(self.collector.env.single_action_space)
        while self.online_steps < config.online_steps and not stop():
            before = self.online_steps
            left = math.ceil((config.online_steps - before) / config.num_envs)
            steps = min(config.rollout_steps, left)
            if before < config.normalisation_steps:
                for _ in range(steps):  # for the moments of the frames alone
                    self._step(self._rng("act").integers(actions, size=config.num_envs))
            else:
                rollout = self._collect(steps)
                with self._timed("learn"):
                    self._learn(rollout)
            passed = self.online_steps // config.report_every > before // config.report_every
            if passed or self.online_steps >= config.online_steps:
                yield self._report()


def sample(log_policy: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw an action of each row of log-probabilities, by the Gumbel-max trick."""
    return (log_policy + rng.gumbel(size=log_policy.shape)).argmax(axis=1)
