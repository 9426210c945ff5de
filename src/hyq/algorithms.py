"""Every deep algorithm by name: its agent, and the settings it has.

A setting that an algorithm does not declare raises: it would have no effect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from hyq.agents import ppo_rnd
from hyq.agents.awac import AWACConfig, awac_actor_loss, awac_critic_loss
from hyq.agents.base import AdamConfig, Loss, OptimizerConfig
from hyq.agents.bc import BC, BCConfig
from hyq.agents.calql import CQLSACConfig, calql_critic_loss, cql_critic_loss
from hyq.agents.cql import CQLConfig
from hyq.agents.ddpgfd import DDPGfDConfig, ddpgfd_actor_loss, ddpgfd_critic_loss
from hyq.agents.dqfd import DQfDConfig, dqfd_loss
from hyq.agents.hyq_dqn import HyQ, HyQConfig
from hyq.agents.hyq_sac import HySAC, HySACConfig
from hyq.agents.iql import IQL, IQLConfig
from hyq.agents.ppo_rnd import RNDConfig, build_rnd
from hyq.agents.td3_bc import TD3BCConfig, td3_bc_actor_loss, td3_critic_loss
from hyq.collector import PreprocessingConfig
from hyq.core.actions import ActionKind
from hyq.core.errors import HyqError
from hyq.core.settings import decode, encode
from hyq.exploration import ExplorationConfig, NoiseConfig
from hyq.networks import EncoderConfig, NetworkConfig
from hyq.trainer import (
    HybridConfig,
    OfflineConfig,
    OnlineConfig,
    PretrainingConfig,
    ReturnConfig,
    TrainerConfig,
    UpdatesConfig,
)

UNIFORM = (0.0, 1e-3)
"""(exponent, epsilon) of a replay without priorities."""


PAPER_MONTEZUMA: dict[str, Any] = {
    "online_steps": 20_000_000,
    "pretraining": 0,
    "updates": 5_000_000,
    "update_every": 4,
    "target_update_every": 10_000,
    "value_range": None,
    "batch_size": 32,
    "beta": "0:0.2, 5e6:0.2, 15e6:0.01",
    "mix": "bernoulli",
    "epsilon": "0:0.25, 250e3:0.1, 5e6:0.01, 15e6:0.001",
    "learning_rate": "0:1e-4, 100e3:6.25e-5, 15e6:1e-5",
    "weight_decay": 1e-5,
    "priority_online": (0.4, 1e-3),
    "priority_offline": (1.0, 1e-4),
    "importance": "0:0.6, 15e6:1",
    "reward": "signed-log",
    "buffer_size": 2**20,
    "learning_starts": 1000,
    "frame_stack": 4,
    "network": "nature",
    "report_every": 10_000,
}
CPU_MONTEZUMA: dict[str, Any] = {
    "online_steps": 3_000_000,
    "pretraining": 3000,
    "updates": 190_500,
    "gamma": "0:0.99, 150e3:0.99, 400e3:0.997",
    "update_every": 16,
    "target_update_every": 4000,
    "value_range": None,
    "batch_size": 64,
    "beta": 0.5,
    "epsilon": "0:0.1, 250e3:0.04, 1e6:0.005",
    "random_action_repeat": 32,
    "fixed_epsilon_envs": 8,
    "learning_rate": "0:5e-4, 200e3:5e-4, 600e3:1e-4, 1e6:5e-5",
    "adam_epsilon": 1e-6,
    "n_step": 10,
    "n_step_offline": 60,
    "importance": "0:0.4, 2e6:1",
    "reward": "signed-log",
    "buffer_size": 400_000,
    "learning_starts": 2000,
    "num_envs": 16,
    "frame_stack": 4,
    "downsample": 2,
    "standardise_pixels": True,
    "life_loss_discount": 0.5,
    "truncation_terminates": True,
    "network": "normalised",
    "report_every": 10_000,
}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper-montezuma": PAPER_MONTEZUMA,
    "cpu-montezuma": CPU_MONTEZUMA,
    "paper-small-montezuma": {
        **PAPER_MONTEZUMA,
        "update_every": 16,
        "batch_size": 128,
        "buffer_size": 400_000,
        "learning_starts": 2000,
        "num_envs": 16,
        "downsample": 2,
        "network": "small",
    },
}
"""Named settings. paper-montezuma: the paper's table for Montezuma's Revenge, and the released
schedules where the table gives only ranges. cpu-montezuma: for the same game on two cores, a small
network on small images and longer returns. paper-small-montezuma: the
paper's table with a small network on small images, and as many rows for a step in larger
minibatches."""


@dataclass(frozen=True)
class Algorithm:
    """What learns, and from what."""

    summary: str
    agent: Callable[..., Any]
    """What makes the agent; of RND, the whole training."""
    config: type[Any]
    """Its own settings."""
    actions: ActionKind = "discrete"
    """The kind of actions that it chooses."""
    acts: bool = True
    uses_data: bool = True
    loss: Loss | None = None
    """In place of the agent's own."""
    one_step: bool = False
    """Whether its loss needs single-step rows beside n-step ones."""
    return_to_go: bool = False
    """Whether its loss needs the data's returns."""
    by_priority: bool = False
    """Whether priorities decide how many rows are offline, and not beta."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are others than usual, whatever the preset says."""

    @property
    def takes_data(self) -> bool:
        """Whether data may be given: to learn from, or only to scale its inputs by."""
        return self.config is not RNDConfig

    @property
    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        """Named settings to start from."""
        if self.config is RNDConfig:
            return ppo_rnd.PRESETS
        if self.actions == "discrete":
            return PRESETS
        # As few critics as speed allows; what was published with one or two keeps them.
        small = {"critics": 4} if self.config is HySACConfig else {}
        return {"default": CONTINUOUS_DEFAULTS, "cpu": CPU_CONTINUOUS | small}

    @property
    def groups(self) -> tuple[type[Any], ...]:
        """The configs that hold all its settings."""
        if self.config is RNDConfig:
            return RNDConfig, PreprocessingConfig
        learns_values, discrete = self.config is not BCConfig, self.actions == "discrete"
        mixes = self.acts and self.uses_data
        parts: dict[type[Any], bool] = {
            self.config: True,
            OnlineConfig: self.acts,
            HybridConfig: mixes and not self.by_priority,
            PretrainingConfig: mixes and self.by_priority,
            UpdatesConfig: not self.acts,
            TrainerConfig: True,
            OfflineConfig: self.uses_data and learns_values,
            ReturnConfig: learns_values,
            ExplorationConfig: self.acts and discrete,
            NoiseConfig: self.acts and not discrete,
            PreprocessingConfig: True,
            NetworkConfig if discrete else EncoderConfig: True,
            OptimizerConfig if discrete else AdamConfig: True,
        }
        return tuple(group for group, used in parts.items() if used)


_q_learning = partial(Algorithm, agent=HyQ, config=HyQConfig)
_DISCRETE: dict[str, Algorithm] = {
    "hyq": _q_learning("Hy-Q: Q-learning on offline data and its own experience together"),
    "hyq+cql": _q_learning(
        "Hy-Q with CQL's penalty on offline rows, which wanes over a million steps",
        defaults={"cql_weight": "0:1, 1e6:0"},
    ),
    "dqn": _q_learning(
        "Q-learning without offline data, which may be given to scale its inputs by",
        uses_data=False,
    ),
    "offline-dqn": _q_learning("Q-learning on offline data alone", acts=False),
    "dqfd": Algorithm(
        "deep Q-learning from demonstrations: the data is taken for an expert's",
        HyQ,
        DQfDConfig,
        loss=dqfd_loss,
        one_step=True,
        defaults={"n_step": 10, "n_step_offline": 10, "weight_decay": 1e-5, "cql_weight": 0.0},
    ),
    "cql": Algorithm(
        "conservative Q-learning on offline data alone",
        HyQ,
        CQLConfig,
        acts=False,
        defaults={"cql_weight": 1.0, "priority_offline": UNIFORM},
    ),
    "iql": Algorithm(
        "implicit Q-learning on offline data alone",
        IQL,
        IQLConfig,
        acts=False,
        defaults={"priority_offline": UNIFORM},
    ),
    "bc": Algorithm("behaviour cloning of offline data", BC, BCConfig, acts=False),
    "rnd": Algorithm(
        "PPO with the prediction error of a random network as a bonus, without offline data",
        build_rnd,
        RNDConfig,
        uses_data=False,
    ),
}
CONTINUOUS_DEFAULTS: dict[str, Any] = {
    "batch_size": 256,
    "hidden": (256, 256),
    "learning_rate": 3e-4,
    "num_envs": 1,
    "buffer_size": 1_000_000,
    "priority_online": UNIFORM,
    "priority_offline": UNIFORM,
}
"""What all algorithms for continuous actions share, where an algorithm has the setting."""
CPU_CONTINUOUS: dict[str, Any] = {
    **CONTINUOUS_DEFAULTS,
    "batch_size": 128,
    "hidden": (128, 128),
    "gamma": 0.98,
    "target_rate": 0.01,
    "n_step": 3,
    "n_step_offline": 3,
    "updates_per_step": 2,
    "pretraining": 2000,
    "learning_starts": 0,
    "online_steps": 10_000,
    "report_every": 1000,
}
"""For sparse tasks of some tens of steps on two cores: small networks, a nearer horizon, short sums
of rewards, and two updates a step."""


_actor_critic = partial(Algorithm, agent=HySAC, config=HySACConfig)
_CONTINUOUS: dict[str, Algorithm] = {
    "hyq": _actor_critic(
        "Hy-SAC: soft actor-critic on offline data and its own experience together"
    ),
    "sac": _actor_critic(
        "soft actor-critic without offline data, which may be given to scale its inputs by",
        uses_data=False,
        defaults={"random_steps": 1000, "learning_starts": 1000},
    ),
    "calql": Algorithm(
        "calibrated CQL: a penalty that the data's returns limit, on both sources together",
        partial(HySAC, loss=calql_critic_loss),
        CQLSACConfig,
        return_to_go=True,
    ),
    "awac": Algorithm(
        "imitation of what did better than the policy, in offline data and experience together",
        partial(HySAC, loss=awac_critic_loss, actor_loss=awac_actor_loss, squashed=False),
        AWACConfig,
    ),
    "ddpgfd": Algorithm(
        "deterministic policy gradients from demonstrations: the data is taken for an expert's",
        partial(
            HySAC,
            loss=ddpgfd_critic_loss,
            actor_loss=ddpgfd_actor_loss,
            squashed=False,
            stochastic=False,
        ),
        DDPGfDConfig,
        one_step=True,
        by_priority=True,
        defaults={
            "n_step": 5,
            "n_step_offline": 5,
            "weight_decay": 1e-5,
            "action_noise": 0.1,
            "priority_online": (0.3, 1e-3),
            "priority_offline": (0.3, 1.0),
        },
    ),
    "td3bc": Algorithm(
        "deterministic policy gradients near the data's actions, on offline data alone",
        partial(
            HySAC,
            loss=td3_critic_loss,
            actor_loss=td3_bc_actor_loss,
            squashed=False,
            stochastic=False,
            actor_every=2,
        ),
        TD3BCConfig,
        acts=False,
    ),
    "cql": Algorithm(
        "conservative soft actor-critic on offline data alone",
        partial(HySAC, loss=cql_critic_loss),
        CQLSACConfig,
        acts=False,
    ),
    "iql": Algorithm("implicit Q-learning on offline data alone", IQL, IQLConfig, acts=False),
    "bc": Algorithm("behaviour cloning of offline data", BC, BCConfig, acts=False),
}
ALGORITHMS: dict[ActionKind, dict[str, Algorithm]] = {
    "discrete": _DISCRETE,
    "continuous": {n: replace(one, actions="continuous") for n, one in _CONTINUOUS.items()},
}
"""Every algorithm by the kind of its actions; all but RND learn off-policy, in one loop."""


def find_algorithm(name: str, actions: ActionKind = "discrete") -> Algorithm:
    """Look an algorithm up; raise with what there is."""
    found = ALGORITHMS[actions].get(name)
    if found is None:
        elsewhere = any(name in known for known in ALGORITHMS.values())
        what = f"{name!r} is not for {actions} actions" if elsewhere else f"no algorithm {name!r}"
        raise HyqError(f"{what}: choose from {', '.join(ALGORITHMS[actions])}")
    return found


@dataclass(frozen=True)
class Configs:
    """The configs of one run, found by their type."""

    algorithm: Algorithm
    parts: tuple[Any, ...]
    """One for each group of the algorithm, its own settings first."""

    def get(self, group: type[Any]) -> Any:
        """Return a config, or one with its defaults for a group that the algorithm does not use."""
        return next((part for part in self.parts if isinstance(part, group)), None) or group()

    def has(self, group: type[Any]) -> bool:
        """Tell whether the algorithm has a group of settings."""
        return any(isinstance(part, group) for part in self.parts)

    @property
    def agent(self) -> Any:
        """The algorithm's own settings."""
        return self.parts[0]

    def encoded(self) -> dict[str, Any]:
        """Return every setting by name, as JSON holds it."""
        return {name: v for part in self.parts for name, v in encode(part).items()}


def setting_groups(algorithm: str, actions: ActionKind = "discrete") -> dict[str, type[Any]]:
    """Return the config that each setting of an algorithm belongs to."""
    return {p.name: g for g in find_algorithm(algorithm, actions).groups for p in fields(g)}


def configure(
    algorithm: str,
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    actions: ActionKind = "discrete",
) -> Configs:
    """Decode the settings of an algorithm: defaults, then the preset's, its own, and those given.

    A preset is for all algorithms, and what one of them does not use is passed over; a setting that
    is given and not used raises.
    """
    about, groups = find_algorithm(algorithm, actions), setting_groups(algorithm, actions)
    if preset not in about.presets:
        raise HyqError(f"no preset {preset!r}: choose from {', '.join(about.presets)}")
    for name in settings or {}:
        if name not in groups:
            every = [(other, kind) for kind, known in ALGORITHMS.items() for other in known]
            known = any(name in setting_groups(*other) for other in every)
            what = f"{algorithm} does not use the setting" if known else "unknown setting"
            raise HyqError(f"{what} {name!r}: leave it out (it has {', '.join(sorted(groups))})")
    merged = {**about.presets[preset], **about.defaults, **(settings or {})}
    parts = []
    for group in about.groups:
        own = {name: value for name, value in merged.items() if groups.get(name) is group}
        parts.append(decode(group, own))
    return Configs(about, tuple(parts))
