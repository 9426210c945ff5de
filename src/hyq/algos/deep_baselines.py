"""Baselines of deep Hy-Q: other objectives, and other diets, under the very same training.

A method is what it minimises (an `Objective`: the gradient of its loss in the network's outputs,
in closed form) and what it changes in the settings, such as learning from the logs alone. The table
`DEEP_METHODS` at the bottom lists them all. Network, optimiser, replay and loop are Hy-Q's own, so
that a difference in results is a difference of the objective.

Every loss is a mean over the minibatch in which each row counts with its importance weight.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from hyq.algos.deep_config import PRESETS, DeepConfig
from hyq.algos.hyq_dqn import Judged, Objective, TemporalDifference
from hyq.core.errors import HyqError
from hyq.core.schedules import schedule
from hyq.core.targets import (
    expectile_slope,
    huber_slope,
    large_margin_slope,
    log_likelihood_slope,
    softmax,
)
from hyq.core.types import FloatArray
from hyq.data.hybrid import Batch
from hyq.models.learners import Question
from hyq.models.networks import NETWORKS

UNIFORM = (0.0, 1e-3)
"""(exponent, epsilon) of a replay without priorities."""
CQL_ALPHA = 1.0
"""Weight of CQL's penalty, as in d3rlpy's discrete CQL."""
DQFD_STEPS = 10
"""n of DQfD's n-step loss."""
DQFD_L2 = 1e-5
"""lambda_3 of DQfD."""


@dataclass(frozen=True)
class BehaviourCloning:
    """Maximum likelihood of the logged actions: -log softmax f(s)[a], without any reward.

    The errors it reports are these negative log-likelihoods.
    """

    needs_one_step: bool = field(default=False, init=False)

    def extra_outputs(self, actions: int) -> int:
        """Want one logit an action; the Q-values serve."""
        return 0

    def questions(self, batch: Batch) -> list[Question]:
        """Ask nothing more."""
        return []

    def judge(self, outputs: FloatArray, answers: list[FloatArray], batch: Batch) -> Judged:
        """Compare the policy with the actions that were taken."""
        slope = log_likelihood_slope(outputs, batch.rows.action)
        likelihood = softmax(outputs)[np.arange(len(outputs)), batch.rows.action]
        # The smallest positive number stands in for a likelihood that rounding brought to 0.
        log_likelihood = np.log(np.maximum(likelihood, np.finfo(np.float32).tiny))
        return Judged(batch.per_row[:, None] * slope, -log_likelihood, log_likelihood)

    def scores(self, outputs: FloatArray, actions: int) -> FloatArray:
        """Act by the most likely action."""
        return outputs


@dataclass(frozen=True)
class FromDemonstrations:
    """DQfD (Hester et al. 2018): J = J_DQ + lambda_1 J_n + lambda_2 J_E, J_E on the logs alone.

    J_DQ is the single-step Bellman error and J_n the n-step one. The margin loss
    J_E = max_a [Q(s, a) + margin 1(a != a_E)] - Q(s, a_E) puts demonstrated actions ahead of all
    others. Their fourth term, an L2 penalty, is the optimiser's weight decay.
    """

    error: TemporalDifference = TemporalDifference()
    n_step_weight: float = 1.0
    """lambda_1."""
    margin_weight: float = 1.0
    """lambda_2."""
    margin: float = 0.8
    needs_one_step: bool = field(default=True, init=False)

    def extra_outputs(self, actions: int) -> int:
        """Want Q alone."""
        return 0

    def questions(self, batch: Batch) -> list[Question]:
        """Ask what the single-step error asks, then what the n-step one does."""
        return self.error.questions(_one_step(batch)) + self.error.questions(batch)

    def judge(self, outputs: FloatArray, answers: list[FloatArray], batch: Batch) -> Judged:
        """Add up the three losses; priorities follow the single-step error."""
        half = len(answers) // 2
        single = self.error.judge(outputs, answers[:half], _one_step(batch))
        several = self.error.judge(outputs, answers[half:], batch)
        margin = large_margin_slope(outputs, batch.rows.action, self.margin)
        margin[batch.offline :] = 0.0
        gradient = (
            single.gradient
            + self.n_step_weight * several.gradient
            + self.margin_weight * batch.per_row[:, None] * margin
        )
        return replace(single, gradient=gradient)

    def scores(self, outputs: FloatArray, actions: int) -> FloatArray:
        """Act greedily on Q."""
        return outputs


def _one_step(batch: Batch) -> Batch:
    return replace(batch, rows=batch.one_step)


@dataclass(frozen=True)
class ImplicitQ:
    """Implicit Q-learning (Kostrikov et al. 2022) for discrete actions: no maximum over actions.

    The outputs are Q of every action, then V, then the policy's logit of every action. With Q~ of
    the target network, and no gradient through it or through V where they serve as targets:

        V      |expectile - 1(u < 0)| u^2 / 2 with u = Q~(s, a) - V(s)                  (equation 5)
        Q      the squared or Huber loss of r + gamma V(s') - Q(s, a)                   (equation 6)
        policy -min(exp(temperature (Q~(s, a) - V(s))), clip) log pi(a | s)             (equation 7)
    """

    loss: Literal["huber", "squared"] = "huber"
    expectile: float = 0.7
    """Above 1/2 V leans towards the best action in the data; they use 0.7, or 0.9 in mazes."""
    temperature: float = 3.0
    """Inverse temperature beta: 0 is behaviour cloning. They use 3, or 10 in mazes."""
    clip: float = 100.0
    """Largest weight of a row in the policy's loss."""
    needs_one_step: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        if not 0 < self.expectile < 1 or self.temperature < 0:
            raise HyqError(
                "expectile must lie strictly between 0 and 1 and temperature not be negative, "
                f"got {self.expectile} and {self.temperature}"
            )

    def extra_outputs(self, actions: int) -> int:
        """Want V and the policy's logits as well."""
        return 1 + actions

    def questions(self, batch: Batch) -> list[Question]:
        """Ask for V(s') and for Q~(s, .)."""
        rows = batch.rows
        return [
            Question(rows.next_observation, target=False),
            Question(rows.observation, target=True),
        ]

    def judge(self, outputs: FloatArray, answers: list[FloatArray], batch: Batch) -> Judged:
        """Move V towards Q~, Q towards r + gamma V(s'), and the policy towards good actions."""
        following, target_q = answers
        rows, every = batch.rows, np.arange(len(batch.rows))
        actions = (outputs.shape[1] - 1) // 2
        value, v = outputs[every, rows.action], outputs[:, actions]
        error = value - (rows.reward + rows.discount * following[:, actions])
        advantage = target_q[every, rows.action] - v
        # Clipping the exponent rather than the weight is the same and cannot overflow.
        favour = np.exp(np.minimum(self.temperature * advantage, np.log(self.clip)))
        clone = log_likelihood_slope(outputs[:, actions + 1 :], rows.action)
        gradient = np.zeros_like(outputs)
        gradient[every, rows.action] = huber_slope(error) if self.loss == "huber" else 2 * error
        gradient[:, actions] = expectile_slope(advantage, self.expectile)
        gradient[:, actions + 1 :] = favour[:, None] * clone
        gradient *= batch.per_row[:, None]
        return Judged(gradient, error, value)

    def scores(self, outputs: FloatArray, actions: int) -> FloatArray:
        """Act by the most likely action of the policy."""
        return outputs[:, actions + 1 :]


@dataclass(frozen=True)
class DeepMethod:
    """A method: what it minimises, and what it changes in the settings of the training."""

    summary: str
    objective: Callable[[DeepConfig], Objective]
    adjust: Callable[[DeepConfig], DeepConfig]
    fixed: tuple[str, ...] = ()
    """Settings that belong to the method and are not for others to choose."""
    unused: tuple[str, ...] = ()
    """Settings that make no difference to it."""
    own: tuple[str, ...] = ()
    """Settings that make no difference to any other."""


def _unchanged(config: DeepConfig) -> DeepConfig:
    return config


def _online_alone(config: DeepConfig) -> DeepConfig:
    return replace(config, beta=schedule(0.0), pretraining=0)


def _logs_alone(config: DeepConfig) -> DeepConfig:
    """Make as many updates as the hybrid run would, but none of its steps."""
    updates = config.pretraining + config.online_steps // config.n_value
    return replace(
        config,
        online_steps=0,
        pretraining=updates,
        beta=schedule(1.0),
        pessimism=schedule(0.0),
    )


def _logs_alone_drawn_uniformly(config: DeepConfig) -> DeepConfig:
    """Leave out the priorities: these losses are expectations under the logs as they are."""
    return replace(_logs_alone(config), priority_offline=UNIFORM)


def _conservatively(config: DeepConfig) -> DeepConfig:
    return replace(_logs_alone_drawn_uniformly(config), pessimism=schedule(CQL_ALPHA))


def _demonstrations(config: DeepConfig) -> DeepConfig:
    """Leave the unlogged actions to the margin."""
    return replace(
        config,
        pessimism=schedule(0.0),
        n_step=DQFD_STEPS,
        n_step_offline=DQFD_STEPS,
        adam=replace(config.adam, weight_decay=DQFD_L2),
    )


_OF_ACTING = (
    "mix", "epsilon", "hold", "steady_lanes", "steady_epsilon", "n_step", "priority_online",
    "buffer_size", "learning_starts",
)  # fmt: skip
_OF_VALUES = (
    "gamma", "n_target", "loss", "double", "value_range", "reward", "n_step_offline",
    "life_loss_discount", "log_end_terminates",
)  # fmt: skip
_OF_LOGS = (
    "pretraining", "mix", "n_step_offline", "pessimism", "priority_offline", "log_end_terminates",
)  # fmt: skip


def _temporal_difference(config: DeepConfig) -> TemporalDifference:
    return TemporalDifference(config.double, config.loss, config.value_range)


DEEP_METHODS: dict[str, DeepMethod] = {
    "hyq": DeepMethod(
        "Hy-Q: Q-learning on the logs and on its own experience together",
        _temporal_difference,
        _unchanged,
    ),
    "dqn": DeepMethod(
        "Q-learning without the logs",
        _temporal_difference,
        _online_alone,
        fixed=("beta",),
        unused=_OF_LOGS,
    ),
    "offline": DeepMethod(
        "Q-learning on the logs alone, with as many updates as Hy-Q",
        _temporal_difference,
        _logs_alone,
        fixed=("beta",),
        unused=_OF_ACTING,
    ),
    "bc": DeepMethod(
        "behaviour cloning of the logs",
        lambda config: BehaviourCloning(),
        _logs_alone_drawn_uniformly,
        fixed=("beta", "pessimism"),
        unused=_OF_ACTING + _OF_VALUES,
    ),
    "cql": DeepMethod(
        "conservative Q-learning on the logs alone",
        _temporal_difference,
        _conservatively,
        fixed=("beta",),
        unused=_OF_ACTING,
    ),
    "dqfd": DeepMethod(
        "deep Q-learning from demonstrations: the logs are taken for an expert's",
        lambda config: FromDemonstrations(
            _temporal_difference(config), config.n_step_weight, config.margin_weight, config.margin
        ),
        _demonstrations,
        own=("margin", "margin_weight", "n_step_weight"),
    ),
    "iql": DeepMethod(
        "implicit Q-learning on the logs alone",
        lambda config: ImplicitQ(config.loss, config.expectile, config.temperature),
        _logs_alone_drawn_uniformly,
        fixed=("beta", "pessimism"),
        unused=(*_OF_ACTING, "double", "value_range"),
        own=("expectile", "temperature"),
    ),
}
"""Every deep method by name."""


def configured(
    algorithm: str, preset: str, *, with_logs: bool = True, **settings: Any
) -> DeepConfig:
    """Return a preset with what the method and then `settings` change about it.

    Schedules may be given as numbers or as text, networks by name, and Adam's settings one by one
    (`ADAM_SETTINGS`). Without logs there is no pretraining, unless it is asked for. Steps and
    pretraining are those of Hy-Q: a method that learns from the logs alone makes as many updates.
    """
    if algorithm not in DEEP_METHODS:
        raise HyqError(f"no method {algorithm!r}: choose from {', '.join(DEEP_METHODS)}")
    if preset not in PRESETS:
        raise HyqError(f"no preset {preset!r}: choose from {', '.join(PRESETS)}")
    unknown = settings.keys() - {setting.name for setting in fields(DeepConfig)} - ADAM_SETTINGS
    if unknown:
        raise HyqError(f"unknown setting {', '.join(sorted(unknown))}: see hyq.DeepConfig")
    if not with_logs:
        settings.setdefault("pretraining", 0)
    for name in SCHEDULES & settings.keys():
        settings[name] = schedule(settings[name])
    network = settings.get("network")
    if isinstance(network, str):
        if network not in NETWORKS:
            raise HyqError(f"no network {network!r}: choose from {', '.join(NETWORKS)}")
        settings["network"] = NETWORKS[network]
    adam = {
        name.removeprefix("adam_"): settings.pop(name) for name in ADAM_SETTINGS & settings.keys()
    }
    given = replace(PRESETS[preset], **settings)
    adjusted = DEEP_METHODS[algorithm].adjust(given)
    for name in DEEP_METHODS[algorithm].fixed:
        if name in settings and getattr(adjusted, name) != getattr(given, name):
            raise HyqError(f"{algorithm} sets {name} itself: leave it out")
    kept = settings.keys() - {"online_steps", "pretraining"}
    made = replace(adjusted, **{name: settings[name] for name in kept})
    return replace(made, adam=replace(made.adam, **adam))


def refuse_unused(algorithm: str, given: Mapping[str, Any]) -> None:
    """Refuse settings that would make no difference to a method: whoever gave them expects one.

    What turns something off may be said of a method that does not have it.
    """
    usual = DeepConfig()
    off = {"pretraining": 0, "epsilon": schedule(0.0)}
    of_others = {
        name for other, about in DEEP_METHODS.items() if other != algorithm for name in about.own
    }
    idle = sorted(
        name
        for name in of_others.union(DEEP_METHODS[algorithm].unused).intersection(given)
        if (schedule(given[name]) if name in SCHEDULES else given[name])
        not in (getattr(usual, name), off.get(name))
    )
    if idle:
        raise HyqError(
            f"{algorithm} makes no use of {', '.join(idle)}: leave out what does nothing"
        )


ADAM_SETTINGS = {"weight_decay", "max_gradient_norm", "adam_epsilon"}
"""Names under which the fields of `DeepConfig.adam` can be given one by one."""
SCHEDULES = {"gamma", "beta", "epsilon", "learning_rate", "importance", "pessimism"}
"""The settings that change with time."""
