"""How acting departs from the policy: random choices, repeated for a while, or noise on actions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hyq.core.actions import Actions
from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear
from hyq.core.settings import check_range
from hyq.core.types import Array, BoolArray


@dataclass(frozen=True)
class ExplorationConfig:
    """Epsilon-greedy exploration, against online steps."""

    epsilon: PiecewiseLinear = PiecewiseLinear(((0, 0.2), (10_000, 0.02)))
    """Chance that a random action begins."""
    random_action_repeat: int = 1
    """Longest repeat of a random action: n steps with a chance in proportion to 1/n^2 (temporally
    extended epsilon-greedy, Dabney et al. 2021), so that some lead out of a stall."""
    fixed_epsilon_envs: int = 0
    """Environments that keep to `fixed_epsilon`, so that some data is always near-greedy."""
    fixed_epsilon: float = 0.01
    """Their chance of a random action."""

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon, 0, 1)
        check_range("fixed_epsilon", self.fixed_epsilon, 0, 1)
        check_range("random_action_repeat", self.random_action_repeat, 1)
        check_range("fixed_epsilon_envs", self.fixed_epsilon_envs, 0)


class EpsilonGreedy:
    """Replaces greedy actions by random ones, some of which are repeated for a while."""

    def __init__(self, config: ExplorationConfig, num_envs: int, actions: int) -> None:
        if config.fixed_epsilon_envs > num_envs:
            raise HyqError(f"fixed_epsilon_envs is more than all {num_envs} environments")
        self._config, self._actions = config, actions
        self._action = np.zeros(num_envs, np.int64)
        self._remaining = np.zeros(num_envs, np.int64)
        """Steps that the random action of each environment is still repeated for."""
        weight = np.arange(1, config.random_action_repeat + 1) ** -2.0
        self._repeat_upto = weight.cumsum() / weight.sum()
        """Chance that a random action is taken for at most 1, 2, ... steps."""

    def __call__(self, greedy: Array, step: int, rng: np.random.Generator) -> Array:
        """Return the actions to take."""
        config, count = self._config, len(greedy)
        chance = np.full(count, config.epsilon(step))
        chance[: config.fixed_epsilon_envs] = config.fixed_epsilon
        explore = rng.random(count) < chance
        anything = (rng.random(count) * self._actions).astype(np.int64)
        repeats = 1 + self._repeat_upto.searchsorted(rng.random(count), side="right")
        begins = explore & (self._remaining == 0)
        self._action[begins], self._remaining[begins] = anything[begins], repeats[begins]
        random = self._remaining > 0
        self._remaining[random] -= 1
        return np.where(random, self._action, greedy)

    def reset(self, envs: BoolArray) -> None:
        """Stop repeating where an episode ended."""
        self._remaining[envs] = 0

    def state(self) -> dict[str, Array]:
        """Return what is being repeated."""
        return {"action": self._action.copy(), "remaining": self._remaining.copy()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Undo `state`."""
        self._action, self._remaining = state["action"].copy(), state["remaining"].copy()


@dataclass(frozen=True)
class NoiseConfig:
    """Exploration of continuous actions, beside what a stochastic policy does by itself."""

    random_steps: int = 0
    """Online steps at the start that are played uniformly at random."""
    action_noise: float = 0.0
    """Standard deviation of the noise that is added to actions, which reach from -1 to 1."""

    def __post_init__(self) -> None:
        check_range("random_steps", self.random_steps, 0)
        check_range("action_noise", self.action_noise, 0)


class ActionNoise:
    """Plays at random for a while, and then adds noise to actions."""

    def __init__(self, config: NoiseConfig, actions: Actions) -> None:
        self._config, self._actions = config, actions

    def __call__(self, actions: Array, step: int, rng: np.random.Generator) -> Array:
        """Return the actions to take."""
        if step < self._config.random_steps:
            return self._actions.random(len(actions), rng)
        noise = self._config.action_noise * rng.standard_normal(actions.shape)
        return (actions + noise).clip(-1.0, 1.0).astype(np.float32)

    def reset(self, envs: BoolArray) -> None:
        """Forget nothing: there is no memory."""

    def state(self) -> dict[str, Array]:
        """Return what is remembered."""
        return {}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Undo `state`."""
