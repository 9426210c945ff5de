"""Exploration by random network distillation (Burda et al. 2018): PPO paid for surprise.

A *target* network, drawn at random and never changed, maps every frame to features. A *predictor*
learns to do the same from the frames that the agent has seen. Where its error is large, the agent
has hardly been: that error is the intrinsic reward, paid on top of the environment's own.

One iteration, in `Training.run` at the bottom: play `rollout` steps in every lane, pay the bonus,
estimate the advantages of both rewards, and go over that experience a few times, improving the
policy by PPO's clipped objective and the predictor by least squares.

The two rewards have a value function each. The extrinsic one is episodic. The intrinsic one is not:
its return goes on into the next episode, so that dying costs no more than the way back.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from hyq.algos.hyq_dqn import Report
from hyq.core.choices import check_choices, make_whole
from hyq.core.errors import HyqError, refuse_divergence
from hyq.core.moments import RunningMoments
from hyq.core.seeding import Streams
from hyq.core.targets import softmax
from hyq.core.types import Array, BoolArray, FloatArray, IntArray, below
from hyq.envs.make import check_spaces
from hyq.fqi.base import Snapshot
from hyq.models.learners import AdamSettings
from hyq.models.networks import (
    InputScaling,
    Network,
    NetworkSpec,
    smallest_side,
    suitable_network,
    suitable_scaling,
)
from hyq.models.orthogonal import orthogonal_weights
from hyq.models.policy import DeepPolicy
from hyq.models.torch_learner import TorchLearner
from hyq.rollout import Lanes, Outcome, VectorEnv

EXTRINSIC, INTRINSIC = 0, 1
"""The two values, in their order among the network's outputs: they come after the logits."""
FURTHEST = 5.0
"""Deviations from the mean at which a normalised pixel is clipped."""
SMALLEST_DEVIATION = 1e-4
"""Stands in for the deviation of pixels that never changed, so that any change of theirs clips."""
POLICY_GAIN = 0.01
"""Scale of the first weights of the logits and values: the first policy is as good as uniform."""
CHUNK = 512
"""Rows that go through a network at a time where nothing is learned."""
NO_CLIPPING = math.inf


@dataclass(frozen=True)
class RNDConfig:
    """Every setting of the training. Times are counted in online steps: one lane's one step."""

    online_steps: int = 1_000_000
    """Steps to take in the environment, over all lanes."""
    normalisation_steps: int = 8192
    """Random steps at the beginning, which only find the mean and deviation of every pixel. They
    count as online steps."""
    lanes: int = 32
    """Environments that are stepped together."""
    rollout: int = 128
    """Steps of every lane between two rounds of learning."""
    epochs: int = 4
    """Times that every rollout is gone over."""
    minibatches: int = 4
    """Gradient steps each time."""
    learning_rate: float = 1e-4
    """Of Adam, for the policy and for the predictor."""
    gamma_extrinsic: float = 0.999
    """Discount factor of the environment's reward, which ends with the episode."""
    gamma_intrinsic: float = 0.99
    """Discount factor of the bonus, which goes on from episode to episode."""
    trace: float = 0.95
    """Lambda of generalised advantage estimation."""
    clip: float = 0.1
    """How far the likelihood of an action may move in one round before its gain stops counting."""
    entropy: float = 0.001
    """Weight of the policy's entropy."""
    extrinsic: float = 2.0
    """Weight of the advantage of the environment's reward."""
    intrinsic: float = 1.0
    """Weight of the advantage of the bonus; 0 is PPO without it."""
    reward: Literal["sign", "raw"] = "sign"
    """sign learns from the sign of the reward, as on Atari; returns are always reported raw."""
    predictor_share: float = 1.0
    """Share of the experience that the predictor learns from; 32 / lanes makes it learn as fast
    whatever the number of lanes."""
    stack: int = 1
    """Frames that the policy sees. The bonus is for the newest one alone."""
    shrink_by: int = 1
    """Factor by which image frames are averaged down before anything else."""
    policy_network: NetworkSpec | None = None
    """Layers of policy and values; chosen by the observations where not given."""
    predictor_network: NetworkSpec | None = None
    """Layers of the predictor; the target has its convolutions and no hidden layers. Chosen by the
    observations where not given."""
    features: int = 128
    """Outputs of the target that the predictor has to match."""
    device: str = "cpu"
    report_every: int = 10_000
    """Steps between two reports, which come at the end of a rollout."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot run."""
        check_choices(self)
        make_whole(self)
        counts = ("lanes", "rollout", "epochs", "minibatches", "stack", "shrink_by", "features")
        for name in ("online_steps", *counts, "report_every"):
            if getattr(self, name) < 1:
                raise HyqError(f"{name} must be at least 1, got {getattr(self, name)}")
        amounts = ("learning_rate", "entropy", "extrinsic", "intrinsic")
        for name in (*amounts, "normalisation_steps"):
            if getattr(self, name) < 0:
                raise HyqError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("gamma_extrinsic", "gamma_intrinsic", "trace", "predictor_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise HyqError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.clip <= 0:
            raise HyqError(f"clip must be above 0, got {self.clip}")
        if self.minibatches > self.lanes * self.rollout:
            raise HyqError(
                f"{self.lanes} lanes of {self.rollout} steps do not fill {self.minibatches} "
                "minibatches"
            )


PAPER = RNDConfig(
    online_steps=30_000 * 128 * 128,
    normalisation_steps=50 * 128 * 128,
    lanes=128,
    predictor_share=0.25,
    stack=4,
    policy_network=NetworkSpec(
        ((32, 8, 4), (64, 4, 2), (64, 4, 1)), hidden=(256, 448), dueling=False, stream_hidden=448
    ),
    predictor_network=NetworkSpec(
        ((32, 8, 4), (64, 4, 2), (64, 3, 1)), hidden=(512, 512), dueling=False
    ),
    features=512,
    report_every=100_000,
)
"""Burda et al. (2018) on Atari, for 84x84 images: meant for a GPU."""

CPU = RNDConfig(
    minibatches=8,
    stack=4,
    shrink_by=2,
    policy_network=NetworkSpec(((16, 6, 3), (32, 3, 2)), hidden=(256,), dueling=False),
    predictor_network=NetworkSpec(((16, 6, 3), (32, 3, 2)), hidden=(256,), dueling=False),
)
"""For Atari on one core: 84x84 images averaged to 42x42, and small networks."""

PRESETS: dict[str, RNDConfig] = {"default": RNDConfig(), "paper": PAPER, "cpu": CPU}
"""Named settings."""


def configured(preset: str, **settings: Any) -> RNDConfig:
    """Return a preset with some settings changed."""
    if preset not in PRESETS:
        raise HyqError(f"no preset {preset!r}: choose from {', '.join(PRESETS)}")
    unknown = settings.keys() - {setting.name for setting in fields(RNDConfig)}
    if unknown:
        raise HyqError(f"unknown setting {', '.join(sorted(unknown))}: see RNDConfig")
    return replace(PRESETS[preset], **settings)


def generalised_advantage(
    reward: FloatArray,
    value: FloatArray,
    next_value: FloatArray,
    discount: FloatArray,
    trace: FloatArray,
) -> FloatArray:
    """Return the advantages of Schulman et al. (2016, equation 16), times first.

    A_t = r_t + discount_t V(s_{t+1}) - V(s_t) + trace_t A_{t+1}. The discount is 0 where the
    return ends; the trace is also 0 where the next row belongs to something else.
    """
    error = reward + discount * next_value - value
    advantage = np.zeros_like(error)
    later = np.zeros_like(error[0])
    for t in reversed(range(len(error))):
        later = error[t] + trace[t] * later
        advantage[t] = later
    return advantage


def log_softmax(logits: FloatArray) -> FloatArray:
    """Return the logarithm of the softmax of each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Experience:
    """Rows to learn from, in any order."""

    observation: Array
    action: IntArray
    log_likelihood: FloatArray
    """Of the action, under the policy that took it."""
    advantage: FloatArray
    returns: FloatArray
    """What the two values should have been (rows, 2)."""

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.action)

    def __getitem__(self, rows: Array) -> "Experience":
        """Pick rows by index."""
        return Experience(*(getattr(self, part.name)[rows] for part in fields(self)))


@dataclass(frozen=True)
class Improvement:
    """What PPO wants of a minibatch, and what there is to watch about it."""

    gradient: FloatArray
    """Of the loss, in the outputs of the network."""
    entropy: float
    clipped: float
    """Share of the rows whose likelihood has moved further than `clip`."""
    value_error: FloatArray
    """Mean squared error of the two values."""


def ppo_improvement(
    outputs: FloatArray, batch: Experience, clip: float, entropy: float
) -> Improvement:
    """Differentiate PPO's loss in the outputs: logits, extrinsic value, intrinsic value.

    The loss is a mean over the rows of (Schulman et al. 2017, equations 7 and 9)

        -min(rho A, clip(rho, 1 - clip, 1 + clip) A)         with rho = pi(a | s) / pi_old(a | s)
        - entropy H(pi(. | s))
        + (V_E(s) - return_E)^2 / 2 + (V_I(s) - return_I)^2 / 2

    The first term has no slope where rho has left the interval on the side that A favours.
    """
    count, every = len(batch), np.arange(len(batch))
    logits, values = _parted(outputs)
    log_policy = log_softmax(logits)
    policy = np.exp(log_policy)
    ratio = np.exp(log_policy[every, batch.action] - batch.log_likelihood)
    too_far = np.where(batch.advantage > 0, ratio > 1 + clip, ratio < 1 - clip)
    push = np.where(too_far, 0.0, batch.advantage * ratio)
    chosen = np.zeros_like(policy)
    chosen[every, batch.action] = 1.0
    uncertainty = -(policy * log_policy).sum(axis=1, keepdims=True)
    to_logits = -push[:, None] * (chosen - policy) + entropy * policy * (log_policy + uncertainty)
    error = values - batch.returns
    gradient = np.concatenate((to_logits, error), axis=1) / count
    return Improvement(
        gradient.astype(np.float32),
        float(uncertainty.mean()),
        float((np.abs(ratio - 1) > clip).mean()),
        np.square(error).mean(axis=0),
    )


REMEDY = "lower learning_rate"
"""Where learning diverges."""


class Distillation:
    """The target, the predictor that chases it, and the moments that normalise what both see."""

    def __init__(self, config: RNDConfig, frame: Array, streams: Streams) -> None:
        """Draw both networks, for frames like those of a batch."""
        shape = frame.shape[1:]
        spec = config.predictor_network or suitable_network(shape, frame.dtype)
        spec = replace(spec, dueling=False)
        plain = InputScaling(np.zeros((), np.float32), np.ones((), np.float32))
        # Convolutions alone make features; a target for vectors needs hidden layers to make any.
        target_spec = replace(spec, hidden=()) if spec.convolutions else spec
        target, predictor = (Network(shape, config.features, s, plain) for s in (target_spec, spec))
        self._target = TorchLearner(
            target,
            orthogonal_weights(target, streams.generator("target")),
            AdamSettings(),
            config.device,
            bfloat16=False,
        )
        self._predictor = TorchLearner(
            predictor,
            orthogonal_weights(predictor, streams.generator("predictor")),
            AdamSettings(max_gradient_norm=NO_CLIPPING),
            config.device,
            bfloat16=False,
        )
        self.seen = RunningMoments(shape)

    def normalised(self, frames: Array) -> FloatArray:
        """Centre and scale every pixel by what has been seen of it, and clip."""
        rows = frames.astype(np.float32)
        rows -= self.seen.mean.astype(np.float32)
        rows *= (1 / np.maximum(self.seen.std, SMALLEST_DEVIATION)).astype(np.float32)
        return np.clip(rows, -FURTHEST, FURTHEST, out=rows)

    def novelty(self, frames: Array) -> tuple[FloatArray, FloatArray]:
        """Return the predictor's mean squared error at each frame, and the target's features."""
        errors, features = [], []
        for start in range(0, len(frames), CHUNK):
            rows = self.normalised(frames[start : start + CHUNK])
            features.append(self._target.outputs(rows))
            errors.append(np.square(self._predictor.outputs(rows) - features[-1]).mean(axis=1))
        return np.concatenate(errors), np.concatenate(features)

    def learn(self, frames: Array, features: FloatArray, learning_rate: float) -> float:
        """Take one step of the predictor towards the features; return its loss before."""
        error = self._predictor.forward(self.normalised(frames))[0] - features
        refuse_divergence(self._predictor.step(2 * error / error.size, learning_rate), REMEDY)
        return float(np.square(error).mean())

    def arrays(self) -> dict[str, Array]:
        """Copy the state out. The target is drawn from the seed and never changes."""
        state = {f"predictor.{name}": array for name, array in self._predictor.arrays().items()}
        return state | {f"seen.{name}": array for name, array in self.seen.state().items()}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take a state that `arrays` gave."""
        self._predictor.load(below("predictor", arrays))
        self.seen.load_state(below("seen", arrays))


class BonusScale:
    """Divides the bonus by the running deviation of its discounted sum, lane by lane.

    The sum runs forward in time: a return of the past, which is known at once, in place of the
    return to come. So the bonus keeps its scale while the predictor's error falls.
    """

    def __init__(self, lanes: int, gamma: float) -> None:
        """Begin with nothing earned."""
        self._gamma = gamma
        self._sum: FloatArray = np.zeros(lanes)
        self._moments = RunningMoments()

    def __call__(self, novelty: FloatArray) -> FloatArray:
        """Take in the errors of a rollout (steps, lanes) and return them as rewards."""
        sums = np.empty_like(novelty, dtype=np.float64)
        for t, errors in enumerate(novelty):
            self._sum = self._gamma * self._sum + errors
            sums[t] = self._sum
        self._moments.update(sums.ravel())
        return novelty / max(float(self._moments.std), 1e-8)

    def arrays(self) -> dict[str, Array]:
        """Copy the state out."""
        return {"sum": self._sum.copy(), **self._moments.state()}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take a state that `arrays` gave."""
        self._sum = arrays["sum"].copy()
        self._moments.load_state(arrays)


@dataclass(frozen=True)
class Rollout:
    """Steps of every lane, times first and lanes second."""

    observation: Array
    action: IntArray
    log_likelihood: FloatArray
    value: FloatArray
    """Both values of what was seen (steps, lanes, 2)."""
    next_value: FloatArray
    """Both values of what came next. Where the episode ended that is the first observation of the
    next one for the intrinsic value, and the last of the old one for the extrinsic."""
    frame: Array
    """The frame that each step led to, the last one of an episode that ended included."""
    reward: FloatArray
    terminated: BoolArray
    ended: BoolArray
    """Terminated or truncated."""


class Training:
    """A run of the algorithm: everything it depends on, in memory, with its loop at the bottom."""

    def __init__(self, config: RNDConfig, env: VectorEnv, streams: Streams) -> None:
        """Check what was given, draw the networks, and start every lane."""
        check_spaces(env)
        if env.num_envs != config.lanes:
            raise HyqError(f"the environment has {env.num_envs} lanes, not {config.lanes}")
        _check_images(config, env)
        self.config = config
        self.actions = int(env.single_action_space.n)  # type: ignore[attr-defined]
        self._first_action = int(env.single_action_space.start)  # type: ignore[attr-defined]
        self.lanes = Lanes(
            env, streams.below("lanes"), stack=config.stack, shrink_by=config.shrink_by
        )
        frame = self.lanes.frame
        spec = config.policy_network or suitable_network(frame.shape[1:], frame.dtype)
        self.network = Network(
            self.lanes.observation.shape[1:],
            self.actions,
            replace(spec, dueling=False),
            suitable_scaling(env.single_observation_space, None),
            extra_outputs=2,
        )
        self.learner = TorchLearner(
            self.network,
            orthogonal_weights(self.network, streams.generator("policy"), POLICY_GAIN),
            AdamSettings(max_gradient_norm=NO_CLIPPING),
            config.device,
            bfloat16=False,
        )
        self.distillation = Distillation(config, frame, streams)
        self._scale = BonusScale(config.lanes, config.gamma_intrinsic)
        self._acting, self._shuffling = streams.generator("act"), streams.generator("shuffle")
        self.online_steps = self.updates = self._reports = 0
        self._clear_metrics()

    def sampler(self, rng: np.random.Generator) -> Callable[[Array], Array]:
        """Return the stochastic policy of now, which draws from `rng`."""

        def sample(observation: Array) -> Array:
            logits, _ = _parted(self.learner.outputs(observation))
            return self._first_action + _drawn(softmax(logits), rng)

        return sample

    def policy(self) -> DeepPolicy:
        """Return the policy of now, to keep; it acts by its most likely action."""
        return DeepPolicy(
            self.network,
            self.learner.parameters(),
            self._first_action,
            shrink_by=self.config.shrink_by,
        )

    def _look_around(self, steps: int) -> None:
        """Act at random, for the moments of the frames alone."""
        for _ in range(steps):
            action = self._acting.integers(self.actions, size=self.config.lanes)
            self.distillation.seen.update(self._play(action).frame)

    def _play(self, action: IntArray) -> Outcome:
        """Take one step in every lane."""
        with self._timed("wait and store"):
            self.lanes.send(self._first_action + action)
            outcome = self.lanes.receive()
        self.online_steps += self.config.lanes
        for _, total, length in outcome.finished:
            self._episodes.append((self.online_steps, total, length))
        return outcome

    def _collect(self, steps: int) -> Rollout:
        """Play with the policy of now, and value what was seen on the way."""
        seen, frame = self.lanes.observation, self.lanes.frame
        count = (steps, self.config.lanes)
        rollout = Rollout(
            observation=np.empty((steps, *seen.shape), seen.dtype),
            action=np.empty(count, np.int64),
            log_likelihood=np.empty(count, np.float32),
            value=np.empty((*count, 2), np.float32),
            next_value=np.empty((*count, 2), np.float32),
            frame=np.empty((steps, *frame.shape), frame.dtype),
            reward=np.empty(count),
            terminated=np.empty(count, bool),
            ended=np.empty(count, bool),
        )
        every = np.arange(self.config.lanes)
        for t in range(steps):
            with self._timed("act"):
                rollout.observation[t] = self.lanes.observation
                logits, rollout.value[t] = _parted(self.learner.outputs(rollout.observation[t]))
                rollout.action[t] = _drawn(softmax(logits), self._acting)
                rollout.log_likelihood[t] = log_softmax(logits)[every, rollout.action[t]]
            outcome = self._play(rollout.action[t])
            rollout.frame[t], rollout.reward[t] = outcome.frame, outcome.reward
            rollout.terminated[t], rollout.ended[t] = outcome.terminated, outcome.ended
        rollout.next_value[:-1] = rollout.value[1:]
        rollout.next_value[-1] = _parted(self.learner.outputs(self.lanes.observation))[1]
        self._value_where_cut(rollout)
        return rollout

    def _value_where_cut(self, rollout: Rollout) -> None:
        """Put the extrinsic value of its last observation where an episode was truncated."""
        cut = rollout.ended & ~rollout.terminated
        if not cut.any():
            return
        last = rollout.frame[cut]
        if self.config.stack > 1:
            last = np.concatenate((rollout.observation[cut][:, 1:], last[:, None]), axis=1)
        value = _parted(self.learner.outputs(last))[1]
        rollout.next_value[cut, EXTRINSIC] = value[:, EXTRINSIC]

    def _learn(self, rollout: Rollout) -> None:
        """Pay the bonus, and improve policy and predictor on what was played."""
        config, distillation = self.config, self.distillation
        for step in rollout.frame:
            distillation.seen.update(step)
        frames = rollout.frame.reshape(-1, *rollout.frame.shape[2:])
        novelty, features = distillation.novelty(frames)
        bonus = self._scale(novelty.reshape(rollout.reward.shape))
        self._watch(novelty=novelty.mean(), bonus=bonus.mean(), largest_bonus=bonus.max())
        experience = self._experience(rollout, bonus)
        for _ in range(config.epochs):
            order = self._shuffling.permutation(len(experience))
            # The last rollout may be too short to fill them all.
            for rows in np.array_split(order, min(config.minibatches, len(order))):
                self._improve_policy(experience[rows])
                some = rows[self._shuffling.random(len(rows)) < config.predictor_share]
                if len(some):
                    error = distillation.learn(frames[some], features[some], config.learning_rate)
                    self._watch(predictor_error=error)
                self.updates += 1

    def _experience(self, rollout: Rollout, bonus: FloatArray) -> Experience:
        """Estimate both advantages of every step, and add them up."""
        config = self.config
        reward = np.sign(rollout.reward) if config.reward == "sign" else rollout.reward
        always = np.ones_like(bonus)
        extrinsic = generalised_advantage(
            reward,
            rollout.value[..., EXTRINSIC],
            rollout.next_value[..., EXTRINSIC],
            config.gamma_extrinsic * ~rollout.terminated,
            config.gamma_extrinsic * config.trace * ~rollout.ended,
        )
        intrinsic = generalised_advantage(
            bonus,
            rollout.value[..., INTRINSIC],
            rollout.next_value[..., INTRINSIC],
            config.gamma_intrinsic * always,
            config.gamma_intrinsic * config.trace * always,
        )
        returns = np.stack((extrinsic, intrinsic), axis=-1) + rollout.value
        rows = rollout.action.size
        self._watch(
            value_extrinsic=rollout.value[..., EXTRINSIC].mean(),
            value_intrinsic=rollout.value[..., INTRINSIC].mean(),
        )
        return Experience(
            rollout.observation.reshape(rows, *rollout.observation.shape[2:]),
            rollout.action.ravel(),
            rollout.log_likelihood.ravel(),
            (config.extrinsic * extrinsic + config.intrinsic * intrinsic).ravel(),
            returns.reshape(rows, 2),
        )

    def _improve_policy(self, batch: Experience) -> None:
        """Take one step on PPO's objective."""
        config = self.config
        outputs, _ = self.learner.forward(batch.observation)
        wanted = ppo_improvement(outputs, batch, config.clip, config.entropy)
        refuse_divergence(self.learner.step(wanted.gradient, config.learning_rate), REMEDY)
        self._watch(
            entropy=wanted.entropy,
            clipped=wanted.clipped,
            value_error_extrinsic=wanted.value_error[EXTRINSIC],
            value_error_intrinsic=wanted.value_error[INTRINSIC],
        )

    def _watch(self, **numbers: float) -> None:
        for name, number in numbers.items():
            self._watched.setdefault(name, []).append(float(number))

    def _clear_metrics(self) -> None:
        self._watched: dict[str, list[float]] = {}
        self._seconds = dict.fromkeys(("act", "learn", "wait and store"), 0.0)
        self._episodes: list[tuple[int, float, int]] = []

    def _report(self) -> Report:
        self._reports += 1
        report = Report(
            self._reports,
            self.online_steps,
            self.updates,
            tuple(self._episodes),
            {name: float(np.mean(numbers)) for name, numbers in self._watched.items()},
            dict(self._seconds),
        )
        self._clear_metrics()
        return report

    def snapshot(self) -> Snapshot:
        """Copy the state out, after a report: no rollout outlives its iteration."""
        state: dict[str, Array] = {
            "counts": np.array([self.online_steps, self.updates, self._reports])
        }
        for name, rng in (("acting", self._acting), ("shuffling", self._shuffling)):
            words = json.dumps(rng.bit_generator.state).encode()
            state[f"random.{name}"] = np.frombuffer(words, np.uint8)
        for name, part in self._parts.items():
            state |= {f"{name}.{key}": array for key, array in part.arrays().items()}
        state |= {f"lanes.{name}": array for name, array in self.lanes.arrays().items()}
        return Snapshot(state, {})

    def restore(self, replaced: Mapping[str, Array]) -> None:
        """Come back to a snapshot."""
        self.online_steps, self.updates, self._reports = map(int, replaced["counts"])
        for name, rng in (("acting", self._acting), ("shuffling", self._shuffling)):
            rng.bit_generator.state = json.loads(replaced[f"random.{name}"].tobytes())
        for name, part in self._parts.items():
            part.load(below(name, replaced))
        self.lanes.restore(below("lanes", replaced))

    @property
    def _parts(self) -> dict[str, TorchLearner | Distillation | BonusScale]:
        return {"policy": self.learner, "distillation": self.distillation, "scale": self._scale}

    def run(self) -> Iterator[Report]:
        """Learn, and yield a report now and then; a restored training goes on where it was."""
        config = self.config
        while self.online_steps < config.online_steps:
            before = self.online_steps
            left = math.ceil((config.online_steps - before) / config.lanes)
            steps = min(config.rollout, left)
            if before < config.normalisation_steps:
                self._look_around(steps)
            else:
                rollout = self._collect(steps)
                with self._timed("learn"):
                    self._learn(rollout)
            passed = self.online_steps // config.report_every > before // config.report_every
            if passed or self.online_steps >= config.online_steps:
                yield self._report()

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - began


def _parted(outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Part the outputs of the network into logits and the two values."""
    return outputs[:, :-2], outputs[:, -2:]


def _check_images(config: RNDConfig, env: VectorEnv) -> None:
    """Refuse settings for images where the environment shows something else."""
    space = env.single_observation_space
    for_images = config.shrink_by > 1 or any(
        spec is not None and spec.convolutions
        for spec in (config.policy_network, config.predictor_network)
    )
    if for_images and not smallest_side(space.shape or (), np.dtype(space.dtype)):
        raise HyqError(
            f"these settings are for images of bytes, this environment shows {space}: "
            "take the preset 'default'"
        )


def _drawn(policy: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw an action of each row of probabilities."""
    below_it = policy.cumsum(axis=1) < rng.random((len(policy), 1))
    # Rounding may leave the sum of a row short of one.
    return np.minimum(below_it.sum(axis=1), policy.shape[1] - 1)
