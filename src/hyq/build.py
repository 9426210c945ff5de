"""How the parts of a deep algorithm are put together, and checked before time is spent."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym

from hyq.actor_critic import CriticFactory
from hyq.agents.base import AdamConfig, Loss
from hyq.agents.bc import BCConfig
from hyq.agents.building import ContinuousNetworks, DiscreteNetworks, Networks
from hyq.agents.ppo_rnd import RNDConfig, RNDTrainer, build_rnd
from hyq.algorithms import ALGORITHMS, UNIFORM, Algorithm, Configs
from hyq.collector import Collector, Preprocessing, PreprocessingConfig, VectorEnv
from hyq.core.actions import Actions
from hyq.core.errors import HyqError
from hyq.core.memory import keep_freed_memory
from hyq.core.schedules import schedule
from hyq.core.seeding import Streams, torch_seed
from hyq.data.dataset import Dataset
from hyq.data.fits import check_fits
from hyq.data.replay_buffer import ReplayBuffer
from hyq.data.sampler import MIXES, ByPriority, HybridSampler, OfflineShare, Source
from hyq.exploration import ActionNoise, EpsilonGreedy, ExplorationConfig, NoiseConfig
from hyq.networks import EncoderConfig, EncoderFactory, NetworkFactory, num_actions
from hyq.trainer import (
    HybridConfig,
    OfflineConfig,
    OnlineConfig,
    PretrainingConfig,
    ReturnConfig,
    Trainer,
    TrainerConfig,
    UpdatesConfig,
)


@dataclass(frozen=True)
class Custom:
    """A user's own functions in place of what the settings describe."""

    network: NetworkFactory | None = None
    """Of Q-values or logits; of the policy, where actions are continuous."""
    critic: CriticFactory | None = None
    """Of Q(s, a), where actions are continuous; an ensemble is made of it."""
    loss: Loss | None = None
    """In place of the algorithm's own; of the critics, where actions are continuous."""
    offline_share: OfflineShare | None = None
    """In place of beta."""


def build(
    configs: Configs,
    env: VectorEnv | None,
    dataset: Dataset | None,
    streams: Streams,
    *,
    spaces: tuple[Any, Any] | None = None,
    custom: Custom = Custom(),
) -> Trainer | RNDTrainer:
    """Put the parts of an algorithm together; raise before time is spent where they do not fit.

    Args:
        configs: The algorithm with its settings.
        env: Where it acts; an algorithm that does not act needs none.
        dataset: What it learns from, for algorithms that use data.
        streams: All random numbers.
        spaces: (observation_space, action_space), where there is no environment.
        custom: A user's own functions.
    """
    about = configs.algorithm
    check_parts(about, env, dataset, custom)
    if about.config is RNDConfig and env is not None:
        return build_rnd(configs.get(RNDConfig), configs.get(PreprocessingConfig), env, streams)
    if env is not None:
        spaces = env.single_observation_space, env.single_action_space
    assert spaces is not None, "give an environment, or the spaces of one"
    preprocessing = Preprocessing(configs.get(PreprocessingConfig), spaces[0])
    actions = Actions(spaces[1])
    if actions.kind != about.actions:
        raise HyqError(
            f"this algorithm is for {about.actions} actions, the environment has {spaces[1]}: "
            f"choose from {', '.join(ALGORITHMS[actions.kind])}"
        )
    returns, online = configs.get(ReturnConfig), configs.get(OnlineConfig)
    frame_stack = preprocessing.config.frame_stack
    offline_source = online_source = sample = collector = None
    explore: EpsilonGreedy | ActionNoise | None = None
    if dataset is not None:
        check_fits(dataset, *spaces)
        buffer = _buffer_of(dataset, configs, preprocessing, actions)
        sample = buffer.sample_observations
        if about.uses_data:
            learned = configs.get(OfflineConfig)
            priority = learned.priority_offline if configs.has(OfflineConfig) else UNIFORM
            offline_source = Source(buffer, learned.n_step_offline, *priority)
    optimizer = configs.get(AdamConfig)
    if optimizer.device == "cpu":
        keep_freed_memory()
    loss = custom.loss or about.loss
    with torch_seed(streams.integer("network")):
        agent = about.agent(
            configs.agent,
            optimizer,
            _networks(configs, preprocessing.space, actions.space, sample, custom),
            steps_per_update=online.update_every / online.updates_per_step if about.acts else 1,
            **({"loss": loss} if loss else {}),
        )
    if about.acts and env is not None:
        if env.num_envs != online.num_envs:
            raise HyqError(f"the environment has num_envs {env.num_envs}, not {online.num_envs}")
        collector = Collector(env, streams.below("collect"), preprocessing.config)
        if about.actions == "discrete":
            choices = int(actions.space.n)  # type: ignore[attr-defined]
            explore = EpsilonGreedy(configs.get(ExplorationConfig), env.num_envs, choices)
        else:
            explore = ActionNoise(configs.get(NoiseConfig), actions)
        length = max(online.buffer_size // env.num_envs, frame_stack + 2)
        own = ReplayBuffer(
            env.num_envs, length, preprocessing.frame_space, actions.space, frame_stack=frame_stack
        )
        online_source = Source(own, online.n_step, *online.priority_online)
    hybrid = configs.get(HybridConfig)
    beta = hybrid.beta if configs.has(HybridConfig) else schedule(0.0 if about.acts else 1.0)
    share = custom.offline_share or MIXES[hybrid.mix](beta)
    if about.by_priority and offline_source and online_source:
        share = ByPriority(offline_source.buffer, online_source.buffer)
    sampler = HybridSampler(
        offline_source,
        online_source,
        share,
        optimizer.device,
        one_step=about.one_step or custom.loss is not None,
        return_to_go=about.return_to_go,
    )
    before = configs.get(PretrainingConfig).pretraining if configs.has(PretrainingConfig) else 0
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
        pretraining=before if about.acts else configs.get(UpdatesConfig).updates,
    )


def check_parts(
    about: Algorithm, env: VectorEnv | None, dataset: Dataset | None, custom: Custom
) -> None:
    """Raise where an algorithm lacks what it needs, or was given what it has no use for."""
    if about.uses_data and dataset is None:
        without = "dqn" if about.actions == "discrete" else "sac"
        raise HyqError(
            f"this algorithm learns from offline data: give some, or take algorithm {without}"
        )
    if dataset is not None and not about.takes_data:
        raise HyqError("this algorithm does not use offline data: leave it out")
    if about.acts and env is None:
        raise HyqError("this algorithm acts: give an environment")
    if about.config is RNDConfig and any(vars(custom)[part.name] for part in fields(Custom)):
        raise HyqError("rnd has its own networks and loss, and no data to share")
    if custom.critic and not (about.actions == "continuous" and about.config is not BCConfig):
        raise HyqError("only algorithms for continuous actions have a critic: leave it out")
    if custom.offline_share and not (about.acts and about.uses_data and not about.by_priority):
        raise HyqError("only algorithms that mix both sources by beta have an offline share")


def _networks(
    configs: Configs,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    sample: Callable[[int], Any] | None,
    custom: Custom,
) -> Networks:
    """Return what builds the networks, all scaled by one sample of the data if there is some."""
    optimizer = configs.get(AdamConfig)
    encoders = EncoderFactory(configs.get(EncoderConfig), observation_space, sample)
    if configs.algorithm.actions == "continuous":
        return ContinuousNetworks(encoders, action_space, optimizer, custom.network, custom.critic)
    make = custom.network or (lambda _, outputs: encoders.q_network(num_actions(outputs)))
    return DiscreteNetworks(make, observation_space, action_space, optimizer)


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
    dataset: Dataset, configs: Configs, preprocessing: Preprocessing, actions: Actions
) -> ReplayBuffer:
    """Hold a dataset as an algorithm looks at it."""
    learned, returns = configs.get(OfflineConfig), configs.get(ReturnConfig)
    if not dataset.ordered:
        _check_unordered(learned, preprocessing.config.frame_stack)
    return ReplayBuffer.of(
        dataset,
        preprocessing.frame_space,
        actions,
        frame_stack=preprocessing.config.frame_stack,
        prepare=preprocessing.frames,
        scale_reward=returns.scaled,
        life_loss_discount=returns.life_loss_discount,
        truncation_terminates=learned.truncation_terminates,
        return_gamma=configs.agent.gamma(0) if configs.algorithm.return_to_go else None,
    )
