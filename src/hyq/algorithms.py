"""Every deep algorithm by name: its agent, the settings it has, and how its parts are put together.

A setting that an algorithm does not declare raises: it would have no effect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import gymnasium as gym

from hyq.agents import ppo_rnd
from hyq.agents.base import Loss, OptimizerConfig
from hyq.agents.bc import BC, BCConfig
from hyq.agents.cql import CQLConfig
from hyq.agents.dqfd import DQfDConfig, dqfd_loss
from hyq.agents.hyq_dqn import HyQ, HyQConfig
from hyq.agents.iql import IQL, IQLConfig
from hyq.agents.ppo_rnd import RNDConfig, RNDTrainer, build_rnd
from hyq.collector import (
    Collector,
    EpsilonGreedy,
    ExplorationConfig,
    Preprocessing,
    PreprocessingConfig,
    VectorEnv,
)
from hyq.core.errors import HyqError
from hyq.core.memory import keep_freed_memory
from hyq.core.schedules import schedule
from hyq.core.seeding import Streams, torch_seed
from hyq.core.settings import decode, encode
from hyq.data.dataset import Dataset
from hyq.data.fits import check_fits
from hyq.data.replay_buffer import ReplayBuffer
from hyq.data.sampler import MIXES, HybridSampler, OfflineShare, Source
from hyq.networks import NetworkConfig, NetworkFactory
from hyq.trainer import (
    HybridConfig,
    OfflineConfig,
    OnlineConfig,
    ReturnConfig,
    Trainer,
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
    "batch_size": 64,
    "beta": 0.5,
    "epsilon": "0:0.1, 250e3:0.04, 1e6:0.005",
    "random_action_repeat": 32,
    "fixed_epsilon_envs": 8,
    "learning_rate": "0:5e-4, 200e3:5e-4, 600e3:1e-4, 1e6:5e-5",
    "adam_epsilon": 1e-6,
    "n_step": 10,
    "n_step_offline": 60,
    "cql_weight": "0:1, 1e6:0",
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
network on small images, longer returns, and a CQL penalty that wanes. paper-small-montezuma: the
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
    acts: bool = True
    uses_data: bool = True
    scales_by_data: bool = False
    """Whether data that it does not learn from may still be given, to scale its inputs by."""
    loss: Loss | None = None
    """In place of the agent's own."""
    one_step: bool = False
    """Whether its loss needs single-step rows beside n-step ones."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are others than usual, whatever the preset says."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: PRESETS)
    """Named settings to start from."""

    @property
    def groups(self) -> tuple[type[Any], ...]:
        """The configs that hold all its settings."""
        if self.config is RNDConfig:
            return RNDConfig, PreprocessingConfig
        learns_values = self.config is not BCConfig
        parts: dict[type[Any], bool] = {
            self.config: True,
            OnlineConfig: self.acts,
            HybridConfig: self.acts and self.uses_data,
            UpdatesConfig: not self.acts,
            TrainerConfig: True,
            OfflineConfig: self.uses_data and learns_values,
            ReturnConfig: learns_values,
            ExplorationConfig: self.acts,
            PreprocessingConfig: True,
            NetworkConfig: True,
            OptimizerConfig: True,
        }
        return tuple(group for group, used in parts.items() if used)


ALGORITHMS: dict[str, Algorithm] = {
    "hyq": Algorithm(
        "Hy-Q: Q-learning on offline data and its own experience together", HyQ, HyQConfig
    ),
    "dqn": Algorithm(
        "Q-learning without offline data, which may be given to scale its inputs by",
        HyQ,
        HyQConfig,
        uses_data=False,
        scales_by_data=True,
    ),
    "offline-dqn": Algorithm("Q-learning on offline data alone", HyQ, HyQConfig, acts=False),
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
        presets=ppo_rnd.PRESETS,
    ),
}
"""Every algorithm; all but RND learn off-policy, in one loop."""


class Configs:
    """The configs of one run, found by their type."""

    def __init__(self, parts: Mapping[type[Any], Any]) -> None:
        """Take one config for each group of an algorithm."""
        self._parts = dict(parts)

    def get(self, group: type[Any]) -> Any:
        """Return a config, or one with its defaults for a group that the algorithm does not use."""
        return self._parts[group] if group in self._parts else group()

    def has(self, group: type[Any]) -> bool:
        """Tell whether the algorithm has a group of settings."""
        return group in self._parts

    @property
    def agent(self) -> Any:
        """The algorithm's own settings."""
        return next(iter(self._parts.values()))

    def encoded(self) -> dict[str, Any]:
        """Return every setting by name, as JSON holds it."""
        return {name: v for part in self._parts.values() for name, v in encode(part).items()}


def setting_groups(algorithm: str) -> dict[str, type[Any]]:
    """Return the config that each setting of an algorithm belongs to."""
    if algorithm not in ALGORITHMS:
        raise HyqError(f"no algorithm {algorithm!r}: choose from {', '.join(ALGORITHMS)}")
    return {part.name: g for g in ALGORITHMS[algorithm].groups for part in fields(g)}


def configure(
    algorithm: str, preset: str = "default", settings: Mapping[str, Any] | None = None
) -> Configs:
    """Decode the settings of an algorithm: defaults, then the preset's, its own, and those given.

    A preset is for all algorithms, and what one of them does not use is passed over; a setting that
    is given and not used raises.
    """
    groups = setting_groups(algorithm)
    about = ALGORITHMS[algorithm]
    if preset not in about.presets:
        raise HyqError(f"no preset {preset!r}: choose from {', '.join(about.presets)}")
    for name in settings or {}:
        if name not in groups:
            known = any(name in setting_groups(other) for other in ALGORITHMS)
            what = f"{algorithm} does not use the setting" if known else "unknown setting"
            raise HyqError(f"{what} {name!r}: leave it out (it has {', '.join(sorted(groups))})")
    merged = {**about.presets[preset], **about.defaults, **(settings or {})}
    parts: dict[type[Any], dict[str, Any]] = {g: {} for g in about.groups}
    for name, value in merged.items():
        if name in groups:
            parts[groups[name]][name] = value
    return Configs({group: decode(group, values) for group, values in parts.items()})


def build(
    algorithm: str,
    configs: Configs,
    env: VectorEnv | None,
    dataset: Dataset | None,
    streams: Streams,
    *,
    spaces: tuple[Any, Any] | None = None,
    network: NetworkFactory | None = None,
    loss: Loss | None = None,
    offline_share: OfflineShare | None = None,
) -> Trainer | RNDTrainer:
    """Put the parts of an algorithm together; raise before time is spent where they do not fit.

    Args:
        algorithm: Its name.
        configs: Its settings.
        env: Where it acts; an algorithm that does not act needs none.
        dataset: What it learns from, for algorithms that use data.
        streams: All random numbers.
        spaces: (observation_space, action_space), where there is no environment.
        network: A user's own, in place of the one that the settings describe.
        loss: A user's own, in place of the algorithm's.
        offline_share: A user's own rule, in place of beta's.
    """
    about = ALGORITHMS[algorithm]
    if about.uses_data and dataset is None:
        raise HyqError(f"{algorithm} learns from offline data: give some, or take algorithm dqn")
    if dataset is not None and not (about.uses_data or about.scales_by_data):
        raise HyqError(f"{algorithm} does not use offline data: leave it out")
    if about.acts and env is None:
        raise HyqError(f"{algorithm} acts: give an environment")
    if about.config is RNDConfig and env is not None:
        if network or loss or offline_share:
            raise HyqError("rnd has its own networks and loss, and no data to share")
        return build_rnd(configs.get(RNDConfig), configs.get(PreprocessingConfig), env, streams)
    if env is not None:
        spaces = env.single_observation_space, env.single_action_space
    assert spaces is not None, "give an environment, or the spaces of one"
    preprocessing = Preprocessing(configs.get(PreprocessingConfig), spaces[0])
    action_space, first_action = _counted_from_zero(spaces[1])
    returns, online = configs.get(ReturnConfig), configs.get(OnlineConfig)
    frame_stack = preprocessing.config.frame_stack
    offline_source = online_source = sample = collector = explore = None
    if dataset is not None:
        check_fits(dataset, *spaces)
        buffer = _buffer_of(dataset, configs, preprocessing, action_space, first_action)
        sample = buffer.sample_observations
        if about.uses_data:
            learned = configs.get(OfflineConfig)
            priority = learned.priority_offline if configs.has(OfflineConfig) else UNIFORM
            offline_source = Source(buffer, learned.n_step_offline, *priority)
    optimizer = configs.get(OptimizerConfig)
    if optimizer.device == "cpu":
        keep_freed_memory()
    with torch_seed(streams.integer("network")):
        agent = about.agent(
            configs.agent,
            optimizer,
            network or configs.get(NetworkConfig).factory(sample),
            preprocessing.space,
            action_space,
            update_every=online.update_every if about.acts else 1,
            **({"loss": loss or about.loss} if loss or about.loss else {}),
        )
    if about.acts and env is not None:
        if env.num_envs != online.num_envs:
            raise HyqError(f"the environment has num_envs {env.num_envs}, not {online.num_envs}")
        collector = Collector(env, streams.below("collect"), preprocessing.config)
        explore = EpsilonGreedy(configs.get(ExplorationConfig), env.num_envs, int(action_space.n))
        length = max(online.buffer_size // env.num_envs, frame_stack + 2)
        own = ReplayBuffer(
            env.num_envs, length, preprocessing.frame_space, action_space, frame_stack=frame_stack
        )
        online_source = Source(own, online.n_step, *online.priority_online)
    hybrid = configs.get(HybridConfig)
    beta = hybrid.beta if configs.has(HybridConfig) else schedule(0.0 if about.acts else 1.0)
    sampler = HybridSampler(
        offline_source,
        online_source,
        offline_share or MIXES[hybrid.mix](beta),
        optimizer.device,
        one_step=about.one_step or loss is not None,
    )
    pretraining = hybrid.pretraining if configs.has(HybridConfig) else 0
    if not about.acts:
        pretraining = configs.get(UpdatesConfig).updates
    return Trainer(
        agent,
        sampler,
        collector,
        explore,
        streams,
        configs.get(TrainerConfig),
        returns,
        online if about.acts else None,
        gamma=getattr(configs.agent, "gamma", schedule(1.0)),
        pretraining=pretraining,
    )


def _check_unordered(config: OfflineConfig, frame_stack: int) -> None:
    """Raise for settings that need what comes before or after a transition of the data."""
    wanted = {"n_step_offline": 1, "truncation_terminates": False, "frame_stack": 1}
    found = {**vars(config), "frame_stack": frame_stack}
    wrong = [f"{name}={value}" for name, value in wanted.items() if found[name] != value]
    if wrong:
        raise HyqError(
            f"the data is transitions without order: give {', '.join(wrong)}, or whole episodes"
        )


def _buffer_of(
    dataset: Dataset,
    configs: Configs,
    preprocessing: Preprocessing,
    action_space: gym.Space[Any],
    first_action: int,
) -> ReplayBuffer:
    """Hold a dataset as an algorithm looks at it."""
    learned, returns = configs.get(OfflineConfig), configs.get(ReturnConfig)
    if not dataset.ordered:
        _check_unordered(learned, preprocessing.config.frame_stack)
    return ReplayBuffer.of(
        dataset,
        preprocessing.frame_space,
        action_space,
        frame_stack=preprocessing.config.frame_stack,
        first_action=first_action,
        prepare=preprocessing.frames,
        scale_reward=returns.scaled,
        life_loss_discount=returns.life_loss_discount,
        truncation_terminates=learned.truncation_terminates,
    )


def _counted_from_zero(space: Any) -> tuple[Any, int]:
    """Return an action space whose discrete actions are counted from 0, and the first action."""
    if isinstance(space, gym.spaces.Discrete):
        return gym.spaces.Discrete(int(space.n)), int(space.start)
    raise HyqError(f"the algorithms here need discrete actions, this environment has {space}")
