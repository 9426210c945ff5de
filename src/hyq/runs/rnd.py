"""Runs of random network distillation on any Gymnasium environment, recorded like deep runs."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hyq.algos.hyq_dqn import Report
from hyq.algos.rnd import RNDConfig, Training, configured
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array
from hyq.envs.make import VectorEnv, make_lanes
from hyq.runs.checkpoint import StateCheckpoint
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
class RNDRun:
    """One run of random network distillation. Equal specs are the same run."""

    env: str
    """Gymnasium id of the environment; `module:id` imports a module first."""
    preset: Literal["default", "paper", "cpu"] = "default"
    """Named settings to start from; every option below overrides one of them. paper: Burda et al.
    on 84x84 images, for a GPU. cpu: the same images at half the size, for one core. default:
    networks chosen by the observations, images or vectors."""
    seed: int = 0
    """Chooses every random number of the run."""
    online_steps: FromPreset[int] = None
    """Steps to take in the environment, over all lanes."""
    normalisation_steps: FromPreset[int] = None
    """Random steps at the beginning, for the mean and deviation of every pixel; they count."""
    lanes: FromPreset[int] = None
    """Environments stepped together."""
    rollout: FromPreset[int] = None
    """Steps of every lane between two rounds of learning."""
    epochs: FromPreset[int] = None
    """Times that every rollout is gone over."""
    minibatches: FromPreset[int] = None
    """Gradient steps each time."""
    learning_rate: FromPreset[float] = None
    """Of Adam."""
    gamma_extrinsic: FromPreset[float] = None
    """Discount factor of the environment's reward, which ends with the episode."""
    gamma_intrinsic: FromPreset[float] = None
    """Discount factor of the bonus, which goes on from episode to episode."""
    trace: FromPreset[float] = None
    """Lambda of generalised advantage estimation."""
    clip: FromPreset[float] = None
    """How far the likelihood of an action may move in one round before its gain stops counting."""
    entropy: FromPreset[float] = None
    """Weight of the policy's entropy."""
    extrinsic: FromPreset[float] = None
    """Weight of the advantage of the environment's reward."""
    intrinsic: FromPreset[float] = None
    """Weight of the advantage of the bonus; 0 is PPO without it."""
    reward: FromPreset[Literal["sign", "raw"]] = None
    """Learn from the sign of the reward, or from all of it; returns are always reported raw."""
    predictor_share: FromPreset[float] = None
    """Share of the experience that the predictor learns from."""
    features: FromPreset[int] = None
    """Outputs of the random network that the predictor has to match."""
    stack: FromPreset[int] = None
    """Frames that the policy sees; the bonus is for the newest one alone."""
    shrink_by: FromPreset[int] = None
    """Factor by which image frames are averaged down."""
    device: FromPreset[str] = None
    """Where the networks live: cpu, cuda, ..."""
    report_every: FromPreset[int] = None
    """Steps between two records."""
    evaluation_episodes: int = 0
    """Episodes of the stochastic policy played at every evaluation, on environments of their own.
    Burda et al. judge by the training episodes, which are recorded in any case."""
    evaluate_every: int = 1
    """Records between two evaluations."""
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
        _ = self.parameters, self.config

    @property
    def algorithm(self) -> str:
        """The name under which it is compared with the deep methods."""
        return "rnd"

    @property
    def data(self) -> str | None:
        """The logs it learns from: none."""
        return None

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the environment."""
        return json_object(self.env_parameters)

    @property
    def config(self) -> RNDConfig:
        """The settings of the training."""
        return configured(self.preset, **settings_given(self, RNDConfig))

    @property
    def id(self) -> str:
        """A name that tells this run from others of a suite."""
        name = f"{self.algorithm}-{self.env}{details(self, 'env', 'seed')}-s{self.seed}"
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

    def training(self) -> Training:
        """Make the training, checked and ready to run."""
        config = self.config
        return Training(config, self.lanes_of(config.lanes), Streams(self.seed))

    def is_over(self, report: Report) -> bool:
        """Tell whether a report is the last one."""
        return report.online_steps >= self.config.online_steps

    def player(self, training: Training, rng: np.random.Generator) -> Callable[[Array], Array]:
        """Return what plays when a policy is judged: the policy as it is, which draws its actions.

        Its most likely actions alone would often go nowhere: under a bonus that fades wherever the
        agent has been, no single action stays the best.
        """
        return training.sampler(rng)


def start(
    spec: RNDRun, out: Path, checkpoint_seconds: float = 120.0, keep_checkpoint: bool = False
) -> Iterator[Progress]:
    """Run `spec` into the new directory `out`."""
    began = time.perf_counter()
    RunDirectory.check_free(out)
    examination = examination_lanes(spec)
    training = spec.training()
    manifest = {
        "experiment": "rnd",
        "spec": {"algorithm": spec.algorithm, "data": spec.data, **asdict(spec)},
        "settings": resolved(spec),
        "seed": spec.seed,
        "keep_checkpoint": keep_checkpoint,
        "dataset": None,
    }
    directory = RunDirectory.create(out, manifest)
    checkpoint = StateCheckpoint(directory.checkpoint)
    return record(spec, training, examination, checkpoint, directory, began, checkpoint_seconds)


def resume(out: Path, checkpoint_seconds: float = 120.0) -> Iterator[Progress]:
    """Go on with a run that was interrupted, exactly where its last checkpoint left it."""
    began = time.perf_counter()
    directory = RunDirectory.open(out)
    if directory.summary is not None:
        raise HyqError(f"{out} is finished: its result is in {out / 'summary.json'}")
    spec = rnd_run(directory.manifest["spec"])
    check_settings(out, directory.manifest, spec)
    examination = examination_lanes(spec)
    training = spec.training()
    checkpoint = StateCheckpoint(directory.checkpoint)
    return record(spec, training, examination, checkpoint, directory, began, checkpoint_seconds)


def rnd_run(settings: Mapping[str, Any]) -> RNDRun:
    """Make a spec from what a manifest holds, where tuples have become lists."""
    own = {name: value for name, value in settings.items() if name not in ("algorithm", "data")}
    return RNDRun(**known_settings(own, RNDRun))
