"""Runs of the deep methods on any Gymnasium environment: watched, recorded, killed, resumed."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hyq.algos.deep_baselines import ADAM_SETTINGS, DEEP_METHODS, configured
from hyq.algos.deep_config import DeepConfig
from hyq.algos.hyq_dqn import Report, Training
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array
from hyq.data.dataset import Dataset
from hyq.envs.make import VectorEnv, make_lanes
from hyq.fqi.rollout import uniform_actions
from hyq.runs.checkpoint import RingCheckpoint
from hyq.runs.deep_data import fitting, load
from hyq.runs.records import RunDirectory
from hyq.runs.trainings import (
    FromPreset,
    Progress,
    as_file_name,
    check_settings,
    check_watching,
    details,
    examination_lanes,
    json_object,
    known_settings,
    record,
    resolved,
    settings_given,
)


@dataclass(frozen=True)
class DeepRun:
    """One run of one deep method. Equal specs are the same run."""

    env: str
    """Gymnasium id of the environment; `module:id` imports a module first."""
    data: str | None = None
    """Directory of the logs, or a named dataset (see 'hyq data list'); none trains without."""
    algorithm: str = "hyq"
    """What learns: see 'hyq methods'."""
    preset: str = "default"
    """Settings to start from: default, paper-montezuma, cpu-montezuma or paper-small-montezuma.
    An option below that is not given is as there."""
    seed: int = 0
    """Chooses every random number of the run."""
    online_steps: FromPreset[int] = None
    """Steps to take in the environment."""
    beta: FromPreset[str] = None
    """Share of each minibatch that comes from the logs: a number, or knots '0:0.5, 1e5:0.2'."""
    mix: FromPreset[Literal["split", "coin"]] = None
    """split: the exact share in every minibatch; coin: all or nothing, as the paper has it."""
    epsilon: FromPreset[str] = None
    """Chance that a random action begins: a number or knots."""
    hold: FromPreset[int] = None
    """Longest time in steps that a random action is held; 1 holds none."""
    learning_rate: FromPreset[str] = None
    """Of Adam: a number or knots."""
    adam_epsilon: FromPreset[float] = None
    """Of Adam: what is added to the deviation of a gradient."""
    weight_decay: FromPreset[float] = None
    """Of Adam: coefficient of the L2 penalty."""
    max_gradient_norm: FromPreset[float] = None
    """Gradients that are longer are shortened to it."""
    importance: FromPreset[str] = None
    """Exponent of the importance weights: a number or knots."""
    pretraining: FromPreset[int] = None
    """Updates on the logs alone before the first step."""
    gamma: FromPreset[str] = None
    """Discount factor: a number or knots."""
    n_value: FromPreset[int] = None
    """Steps between two updates."""
    n_target: FromPreset[int] = None
    """Steps between two updates of the target network."""
    batch_size: FromPreset[int] = None
    """Transitions in a minibatch."""
    n_step: FromPreset[int] = None
    """Rewards summed before bootstrapping, online; more than one is biased off-policy."""
    n_step_offline: FromPreset[int] = None
    """The same for the logs."""
    loss: FromPreset[Literal["huber", "squared"]] = None
    """Of the Bellman error."""
    double: FromPreset[bool] = None
    """Double Q-learning."""
    value_range: FromPreset[tuple[float, float]] = None
    """Bounds of the values, where they are known."""
    reward: FromPreset[Literal["raw", "signed-log"]] = None
    """Scale of the rewards that are learned from."""
    pessimism: FromPreset[str] = None
    """Weight of CQL's penalty on the logs: a number or knots."""
    priority_online: FromPreset[tuple[float, float]] = None
    """Exponent and epsilon of prioritised replay; exponent 0 draws uniformly."""
    priority_offline: FromPreset[tuple[float, float]] = None
    """The same for the logs."""
    buffer_size: FromPreset[int] = None
    """Slots for online observations."""
    learning_starts: FromPreset[int] = None
    """Steps before the first update."""
    lanes: FromPreset[int] = None
    """Environments stepped together."""
    stack: FromPreset[int] = None
    """Newest frames that make one observation."""
    shrink_by: FromPreset[int] = None
    """Factor by which frames of bytes are shrunk."""
    steady_lanes: FromPreset[int] = None
    """How many of them explore with a chance of only 0.01, whatever epsilon says."""
    network: FromPreset[Literal["nature", "small", "normalised", "unnormalised"]] = None
    """Layers for images: of Mnih et al. (2015), or three small kinds for pictures of 42x42."""
    hidden: FromPreset[tuple[int, ...]] = None
    """Units of the layers that all outputs share, such as '128 128'."""
    dueling: FromPreset[bool] = None
    """Whether values have a stream of their own, apart from those of the actions."""
    standardise_pixels: FromPreset[bool] = None
    """Scale each pixel by its mean and deviation in the logs."""
    life_loss_discount: FromPreset[float] = None
    """Share of the value that goes on beyond a lost life, 0 to 1."""
    log_end_terminates: FromPreset[bool] = None
    """Let the value end where a logged episode was cut off."""
    precision: FromPreset[Literal["auto", "float32", "bfloat16"]] = None
    """Arithmetic of the network; auto takes bfloat16 where the processor has it."""
    device: FromPreset[str] = None
    """Where the network lives: cpu, cuda, ..."""
    report_every: FromPreset[int] = None
    """Steps between two records."""
    evaluation_episodes: int = 20
    """Greedy episodes played at every evaluation, on environments of their own; 0 for none."""
    evaluate_every: int = 1
    """Records between two evaluations."""
    evaluation_epsilon: float = 0.0
    """Chance of a random action when evaluating."""
    threshold: float | None = None
    """Mean return that counts as solved; its first confirmed evaluation is recorded."""
    stop_when_solved: bool = False
    """End the run there."""
    wrappers: tuple[str, ...] = ()
    """module:Class of wrappers around the environment, innermost first."""
    env_parameters: str = "{}"
    """Parameters of the environment, as a JSON object."""
    processes: bool = False
    """Step the environments in processes of their own."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is made."""
        check_watching(self)
        if not 0 <= self.evaluation_epsilon <= 1:
            raise HyqError(f"evaluation_epsilon must lie in [0, 1], got {self.evaluation_epsilon}")
        _ = self.parameters
        if not (self.config.online_steps or self.config.pretraining):
            raise HyqError("nothing to learn from: give online_steps, or logs and pretraining")

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the environment."""
        return json_object(self.env_parameters)

    @property
    def config(self) -> DeepConfig:
        """The settings of the training, with what the method changes about them."""
        with_logs = self.data is not None
        return configured(self.algorithm, self.preset, with_logs=with_logs, **self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """What is said of the training itself, and not left to the preset."""
        return settings_given(self, DeepConfig, ADAM_SETTINGS)

    @property
    def id(self) -> str:
        """A name that tells this run from others of a suite."""
        told = details(self, "env", "data", "algorithm", "seed")
        name = f"{self.algorithm}-{self.env}-{self.data or 'no-data'}{told}-s{self.seed}"
        return as_file_name(name)

    def lanes_of(self, count: int) -> VectorEnv:
        """Make `count` copies of the environment."""
        return make_lanes(
            self.env,
            count,
            wrappers=self.wrappers,
            processes=self.processes,
            **self.parameters,
        )

    def logs(self) -> Dataset | None:
        """Load or make the logs."""
        return None if self.data is None else load(self.data, self.seed)

    def training(self, lanes: VectorEnv, logs: Dataset | None) -> Training:
        """Make the training, checked and ready to run."""
        config = self.config
        objective = DEEP_METHODS[self.algorithm].objective(config)
        return Training(config, lanes, logs, Streams(self.seed), objective)

    def is_over(self, report: Report) -> bool:
        """Tell whether a report is the last one."""
        config = self.config
        return report.online_steps >= config.online_steps and report.updates >= config.pretraining

    def player(self, training: Training, rng: np.random.Generator) -> Callable[[Array], Array]:
        """Return what plays when a policy is judged: the greedy policy, or nearly."""
        chance = self.evaluation_epsilon
        if not chance:
            return training.greedy

        def nearly_greedy(observation: Array) -> Array:
            greedy = training.greedy(observation)
            explore = rng.random(len(greedy)) < chance
            space = training.lanes.env.single_action_space
            return np.where(explore, uniform_actions(space, len(greedy), rng), greedy)

        return nearly_greedy


def start(
    spec: DeepRun, out: Path, checkpoint_seconds: float = 120.0, keep_checkpoint: bool = False
) -> Iterator[Progress]:
    """Run `spec` into the new directory `out`."""
    began = time.perf_counter()
    RunDirectory.check_free(out)
    with fitting(spec.data, spec.wrappers):
        # They may be refused; the logs may take minutes to load.
        lanes = spec.lanes_of(spec.config.lanes)
        examination = examination_lanes(spec)
        logs = spec.logs()
        training = spec.training(lanes, logs)
    manifest = {
        "experiment": "deep",
        "spec": asdict(spec),
        "settings": resolved(spec),
        "bfloat16": training.learner.bfloat16,
        "seed": spec.seed,
        "keep_checkpoint": keep_checkpoint,
        "dataset": _describe(logs),
    }
    directory = RunDirectory.create(out, manifest)
    checkpoint = RingCheckpoint(directory.checkpoint)
    return record(spec, training, examination, checkpoint, directory, began, checkpoint_seconds)


def resume(out: Path, checkpoint_seconds: float = 120.0) -> Iterator[Progress]:
    """Go on with a run that was interrupted, exactly where its last checkpoint left it."""
    directory = RunDirectory.open(out)
    if directory.summary is not None:
        raise HyqError(f"{out} is finished: its result is in {out / 'summary.json'}")
    manifest = directory.manifest
    spec = deep_run(manifest["spec"])
    check_settings(out, manifest, spec)
    began = time.perf_counter()
    lanes = spec.lanes_of(spec.config.lanes)
    examination = examination_lanes(spec)
    logs = spec.logs()
    if _describe(logs) != manifest["dataset"]:
        raise HyqError(f"the offline data of {out} has changed since the run began")
    checkpoint = RingCheckpoint(directory.checkpoint)
    training = spec.training(lanes, logs)
    return record(spec, training, examination, checkpoint, directory, began, checkpoint_seconds)


def deep_run(settings: Mapping[str, Any]) -> DeepRun:
    """Make a spec from what a manifest holds, where tuples have become lists."""
    return DeepRun(**known_settings(settings, DeepRun))


def _describe(logs: Dataset | None) -> dict[str, Any] | None:
    if logs is None:
        return None
    return {"sha256": logs.digest(), "transitions": len(logs), "provenance": dict(logs.provenance)}
