"""The settings of the deep methods, and named ones to start from."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hyq.core.choices import check_choices, make_whole
from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.data.hybrid import MixForm
from hyq.models.learners import AdamSettings, Precision
from hyq.models.networks import (
    NATURE,
    NORMALISED_CONVOLUTIONS,
    SMALL_CONVOLUTIONS,
    NetworkSpec,
    suitable_network,
)


@dataclass(frozen=True)
class DeepConfig:
    """Every setting of the training. Times are counted in online steps: one lane's one step."""

    online_steps: int = 50_000
    """Steps to take in the environment, over all lanes."""
    pretraining: int = 4000
    """Updates on the logs alone before the first step."""
    gamma: PiecewiseLinear = schedule(0.99)
    """Discount factor, against online steps. To begin with short sight and lengthen it is faster
    than to see far from the start (François-Lavet et al. 2015)."""
    n_value: int = 1
    """Steps between two updates of the network."""
    n_target: int = 50
    """Steps between two updates of the target network (one update counts as n_value steps)."""
    batch_size: int = 64
    """Transitions in a minibatch."""
    beta: PiecewiseLinear = schedule(0.5)
    """Share of the minibatches that comes from the logs, against online steps."""
    mix: MixForm = "split"
    """split: every minibatch holds that share; coin: all of it or nothing, as in the paper."""
    epsilon: PiecewiseLinear = PiecewiseLinear(((0, 0.2), (10_000, 0.02)))
    """Chance that a random action begins, against online steps."""
    hold: int = 1
    """Longest time that a random action is held. Each is held for n steps with a chance in
    proportion to 1/n^2 (Dabney et al. 2021), so that some lead out of where the policy stalls."""
    steady_lanes: int = 0
    """Lanes that keep to `steady_epsilon` instead, so that some data is always near-greedy."""
    steady_epsilon: float = 0.01
    learning_rate: PiecewiseLinear = schedule(1e-3)
    """Of Adam, against online steps."""
    adam: AdamSettings = AdamSettings()
    loss: Literal["huber", "squared"] = "huber"
    """The paper prints the squared loss; Huber is quadratic near zero and linear beyond one."""
    double: bool = True
    """Let the online network choose the action that the target network values."""
    value_range: tuple[float, float] | None = None
    """Bounds that targets are kept inside, where they are known: the paper's class is bounded by
    [0, V_max]. They stop values from feeding on themselves where the logs say nothing."""
    n_step: int = 1
    """Rewards summed before bootstrapping, online. More than one is biased off-policy: the actions
    in between were not the greedy ones. The paper leaves it at one for that reason."""
    n_step_offline: int = 1
    """The same for the logs."""
    pessimism: PiecewiseLinear = schedule(0.0)
    """Weight of CQL's penalty on logged rows, against online steps: it lowers the actions that the
    logs did not take. Where the logs show one action a state, nothing else says that the others are
    no better, until each has been tried. Let it end at 0: the values are then Q-learning's own."""
    priority_online: tuple[float, float] = (0.6, 1e-3)
    """(exponent, epsilon) of prioritised replay; exponent 0 draws uniformly."""
    priority_offline: tuple[float, float] = (0.6, 1e-3)
    importance: PiecewiseLinear = PiecewiseLinear(((0, 0.4), (50_000, 1.0)))
    """Exponent of the importance weights, against online steps."""
    reward: Literal["raw", "signed-log"] = "raw"
    """signed-log learns from sign(r) log(1 + |r|); returns are always reported raw."""
    buffer_size: int = 100_000
    """Slots for online observations; the oldest are overwritten."""
    learning_starts: int = 500
    """Steps before the first update that is not pretraining."""
    lanes: int = 8
    """Environments that are stepped together."""
    stack: int = 1
    """Frames that make one observation."""
    shrink_by: int = 1
    """Factor by which image frames are averaged down before anything else."""
    standardise_pixels: bool = False
    """Scale each pixel by its mean and deviation in the logs, not all alike: in pictures that
    mostly stay the same, what moves then stands out."""
    life_loss_discount: float = 1.0
    """Share of the value that goes on beyond a lost life, in games that count lives: 0 ends it
    there, 1 makes dying no worse than the time it takes."""
    log_end_terminates: bool = False
    """Let the value end where a logged episode was cut off. It does not really end there, but no
    data says how it goes on, and bootstrapping from there has been seen to diverge."""
    network: NetworkSpec | None = None
    """Chosen by the observations where not given."""
    hidden: tuple[int, ...] | None = None
    """Units of the layers that all outputs share, where the network's own will not do."""
    dueling: bool | None = None
    """Whether values have a stream of their own, where it should not be as the network has it."""
    precision: Precision = "auto"
    device: str = "cpu"
    report_every: int = 1000
    """Steps, or updates of pretraining, between two reports."""
    expectile: float = 0.7
    """Of IQL: above 1/2 its V leans towards the best action in the logs."""
    temperature: float = 3.0
    """Inverse temperature of IQL's policy: 0 is behaviour cloning."""
    margin: float = 0.8
    """Of DQfD: how far demonstrated actions should be ahead of all others."""
    margin_weight: float = 1.0
    """lambda_2 of DQfD: weight of the margin loss."""
    n_step_weight: float = 1.0
    """lambda_1 of DQfD: weight of the n-step loss."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot run."""
        check_choices(self)
        make_whole(self)
        positive = ("n_value", "n_target", "batch_size", "n_step", "n_step_offline", "lanes")
        for name in (*positive, "hold", "buffer_size", "stack", "shrink_by", "report_every"):
            if getattr(self, name) < 1:
                raise HyqError(f"{name} must be at least 1, got {getattr(self, name)}")
        counts = ("online_steps", "pretraining", "learning_starts", "steady_lanes")
        for name in (*counts, "margin", "margin_weight", "n_step_weight"):
            if not getattr(self, name) >= 0:
                raise HyqError(f"{name} must not be negative, got {getattr(self, name)}")
        bounds = dict.fromkeys(("gamma", "beta", "epsilon", "importance"), 1.0)
        for name, most in {**bounds, "learning_rate": math.inf, "pessimism": math.inf}.items():
            low, high = getattr(self, name).range
            if not 0 <= low <= high <= most:
                raise HyqError(f"{name} must stay within [0, {most:g}], got {low} to {high}")
        if self.value_range is not None and not self.value_range[0] < self.value_range[1]:
            raise HyqError(f"value_range must have its smaller bound first, got {self.value_range}")
        for name in ("priority_online", "priority_offline"):
            exponent, epsilon = getattr(self, name)
            if exponent < 0 or epsilon < 0 or (exponent and not epsilon):
                raise HyqError(
                    f"{name} must not be negative, and epsilon positive or what has no error is "
                    f"never drawn again; got {exponent} and {epsilon}"
                )
        if not 0 <= self.life_loss_discount <= 1:
            raise HyqError(f"life_loss_discount must lie in [0, 1], got {self.life_loss_discount}")
        if self.steady_lanes > self.lanes:
            raise HyqError(f"{self.steady_lanes} steady lanes are more than all {self.lanes}")
        NetworkSpec(hidden=self.hidden or ())  # which refuses layers without width

    def layers(self, frame: tuple[int, ...], dtype: np.dtype[Any]) -> NetworkSpec:
        """Return the layers of the network for frames of a shape and type."""
        layers = self.network or suitable_network(frame, dtype)
        if self.hidden is not None:
            layers = replace(layers, hidden=self.hidden)
        return layers if self.dueling is None else replace(layers, dueling=self.dueling)


PAPER_MONTEZUMA = DeepConfig(
    online_steps=20_000_000,
    pretraining=0,
    n_value=4,
    n_target=10_000,
    batch_size=32,
    beta=PiecewiseLinear(((0, 0.2), (5e6, 0.2), (15e6, 0.01))),
    mix="coin",
    epsilon=PiecewiseLinear(((0, 0.25), (250e3, 0.1), (5e6, 0.01), (15e6, 0.001))),
    learning_rate=PiecewiseLinear(((0, 1e-4), (100e3, 6.25e-5), (15e6, 1e-5))),
    adam=AdamSettings(weight_decay=1e-5, max_gradient_norm=10.0),
    loss="huber",
    priority_online=(0.4, 1e-3),
    priority_offline=(1.0, 1e-4),
    importance=PiecewiseLinear(((0, 0.6), (15e6, 1.0))),
    reward="signed-log",
    buffer_size=2**20,
    learning_starts=1000,
    stack=4,
    network=NATURE,
    report_every=10_000,
)
"""The paper's table for Montezuma's Revenge; where it gives only [a, b], the released schedule."""

CPU_MONTEZUMA = DeepConfig(
    online_steps=3_000_000,
    pretraining=3000,
    gamma=PiecewiseLinear(((0, 0.99), (150e3, 0.99), (400e3, 0.997))),
    n_value=16,
    n_target=4000,
    batch_size=64,
    beta=schedule(0.5),
    epsilon=PiecewiseLinear(((0, 0.1), (250e3, 0.04), (1e6, 0.005))),
    hold=32,
    steady_lanes=8,
    learning_rate=PiecewiseLinear(((0, 5e-4), (200e3, 5e-4), (600e3, 1e-4), (1e6, 5e-5))),
    adam=AdamSettings(epsilon=1e-6),
    n_step=10,
    n_step_offline=60,
    pessimism=PiecewiseLinear(((0, 1.0), (1e6, 0.0))),
    importance=PiecewiseLinear(((0, 0.4), (2e6, 1.0))),
    reward="signed-log",
    buffer_size=400_000,
    learning_starts=2000,
    lanes=16,
    stack=4,
    shrink_by=2,
    standardise_pixels=True,
    life_loss_discount=0.5,
    log_end_terminates=True,
    network=NORMALISED_CONVOLUTIONS,
    report_every=10_000,
)
"""For Montezuma's Revenge on two cores: a small normalised network on smaller pictures, half the
replay of the paper, longer returns, and pessimism that wanes."""

PAPER_SMALL_MONTEZUMA = replace(
    PAPER_MONTEZUMA,
    n_value=16,
    batch_size=128,
    buffer_size=400_000,
    learning_starts=2000,
    lanes=16,
    shrink_by=2,
    network=SMALL_CONVOLUTIONS,
)
"""The paper's table on two cores: a smaller network on smaller pictures, and as much replay for a
step in minibatches four times as large."""

PRESETS: dict[str, DeepConfig] = {
    "default": DeepConfig(),
    "paper-montezuma": PAPER_MONTEZUMA,
    "cpu-montezuma": CPU_MONTEZUMA,
    "paper-small-montezuma": PAPER_SMALL_MONTEZUMA,
}
"""Named settings."""
