"""`hyq data inspect`: one pass over a dataset, and a plain verdict on what it can be used for."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import gymnasium as gym
import numpy as np

import hyq.envs  # noqa: F401  (registers the environments that datasets name)
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array, BoolArray, FloatArray, IntArray
from hyq.coverage.estimate import (
    Counts,
    Covariance,
    PolicyCoverage,
    StepCoverage,
    new_folds,
    next_folds,
)
from hyq.coverage.features import FeatureKind, Features, check_pairs, choose_features
from hyq.coverage.inspection import Comparator, Inspection, StepFacts
from hyq.coverage.policy import load_policy
from hyq.coverage.scan import (
    DistinctCounter,
    EpisodeLinker,
    Tally,
    effective_dimension,
    row_hashes,
)
from hyq.coverage.stream import DatasetFiles
from hyq.coverage.support import unsupported
from hyq.coverage.verdict import findings, verdict
from hyq.fqi.classes import GreedyPolicy
from hyq.fqi.rollout import VectorEnv, lockstep

PILOT = 1000
FEWEST_EPISODES = 10
"""Fewer have next to no spread between them that could be measured."""
SAMPLE_ROWS, SAMPLE_BYTES = 1000, 32 << 20
"""Logged rows of one step kept for distances and dimensions."""


@dataclass(frozen=True)
class Visits:
    """Where a policy goes in the environment, step by step."""

    observation: tuple[Array, ...]
    action: tuple[Array, ...]
    lanes: tuple[IntArray, ...]
    """Which episodes the visits of a step are of: those that have not ended."""
    returns: FloatArray


def policy_visits(policy: GreedyPolicy, env: VectorEnv, seed: int) -> Visits:
    """Play an episode of the policy in every lane of `env`, and close it."""
    total = np.zeros(env.num_envs)
    observations, actions, going = [], [], []
    try:
        for rows, lanes in lockstep(env, policy, policy.horizon, seed):
            total[lanes] += rows.reward
            going.append(lanes)
            observations.append(rows.observation)
            actions.append(np.asarray(rows.action))
    except (ValueError, IndexError, RuntimeError) as error:
        raise HyqError(f"the policy does not fit the environment: {error}") from None
    finally:
        env.close()
    return Visits(tuple(observations), tuple(actions), tuple(going), total)


def _environment(files: DatasetFiles, env: str | None, lanes: int) -> VectorEnv:
    """Make the environment named, or the dataset's own, and see that the data can be from it."""
    own = files.provenance.get("environment")
    name = env or own
    if not isinstance(name, str):
        raise HyqError("the dataset does not say its environment: name it with --env")
    parameters = dict(files.provenance.get("parameters", {})) if name == own else {}
    try:
        made = gym.make_vec(name, num_envs=lanes, **parameters)
    except (gym.error.Error, TypeError, ModuleNotFoundError) as error:
        raise HyqError(f"cannot make environment {name!r}: {error}") from None
    logged, lives = files.columns["observation"].shape[1:], made.single_observation_space.shape
    if logged != lives:
        raise HyqError(f"the data's observations have shape {logged}, those of {name} {lives}")
    return made


@dataclass
class _Pass:
    """The state of the one pass over the data."""

    counts: IntArray
    features: Features | None
    visits: Visits | None
    tally: Tally
    duplicates: DistinctCounter = field(default_factory=DistinctCounter)
    linker: EpisodeLinker = field(default_factory=EpisodeLinker)
    steps: list[tuple[float, float, float]] = field(default_factory=list)
    escaping: list[float] = field(default_factory=list)
    following: Array | None = None
    """Sampled next observations of the previous step."""
    followed: BoolArray | None = None
    """Which of these this step has logged so far, where observations are indices of states."""
    coverage: list[StepCoverage] = field(default_factory=list)
    sample: list[tuple[Array, Array, Array]] = field(default_factory=list)
    covariance: Covariance | Counts | None = None
    folds: IntArray = field(init=False)
    """Which group of episodes each row of the step belongs to."""
    alive: list[BoolArray] = field(default_factory=list)
    h: int = 0
    seen: int = 0

    def __post_init__(self) -> None:
        """Deal the rows of the first step to folds."""
        self.folds = new_folds(int(self.counts[0]))

    def add(self, block: dict[str, Array]) -> None:
        """Take a block, cut where its step changes."""
        self.tally.add(block)
        step = block["step"]
        cuts = [0, *(np.flatnonzero(np.diff(step)) + 1), len(step)]
        for start, stop in pairwise(cuts):
            self._piece(int(step[start]), {n: c[start:stop] for n, c in block.items()})

    def _piece(self, h: int, rows: dict[str, Array]) -> None:
        while self.h < h:
            self.close()
        observation = row_hashes(rows["observation"])
        following = row_hashes(rows["next_observation"])
        self.linker.add(h, observation, following, rows)
        mixed = (observation, following, rows["action"], rows["reward"], rows["step"])
        self.duplicates.add(row_hashes(*mixed))
        logged, action = rows["observation"], rows["action"]
        keep = min(SAMPLE_ROWS, max(1, SAMPLE_BYTES // max(logged[:1].nbytes, 1)))
        stride = max(1, int(self.counts[h]) // keep)
        picked = slice(-self.seen % stride, None, stride)
        going = rows["next_observation"][picked][rows["discount"][picked] > 0]
        self.sample.append((logged[picked].copy(), action[picked].copy(), going))
        fold = self.folds[self.seen : self.seen + len(logged)]
        self.alive.append(rows["discount"] > 0)
        self.seen += len(logged)
        if _is_index(logged) and self.following is not None:
            # Indices have no distance, so that no logged one may be missed.
            found = np.isin(self.following, logged)
            self.followed = found if self.followed is None else self.followed | found
        if self.features is not None and self.visits is not None and h < len(self.visits.action):
            group, psi = self.features(h, logged, action)
            sound = np.isfinite(psi.sum(axis=1))
            if self.covariance is None:
                visits = self.visits.observation[h], self.visits.action[h]
                wanted = np.unique(self.features(h, *visits)[0])
                counting = self.features.states > 0
                self.covariance = (
                    Counts(wanted) if counting else Covariance(self.features.width, wanted)
                )
            self.covariance.add(group[sound], psi[sound], fold[sound])

    def close(self) -> None:
        """Finish a step: measure its sample, and compare it with the policy's visits."""
        h = self.h
        observation: Array | None = None
        action: Array | None = None
        going: Array | None = None
        distinct = dimension = math.nan
        if self.sample:
            observation, action, going = map(np.concatenate, zip(*self.sample, strict=True))
            distinct = len(np.unique(row_hashes(observation))) / len(observation)
            dimension = effective_dimension(observation)
        if h:
            self.escaping.append(self._escaped(observation))
        lacking = math.nan
        if self.visits is not None and h < len(self.visits.action):
            covered = self._covered(self.visits)
            self.coverage.append(covered)
            lacking = self._lacked(self.visits, covered, observation, action)
        self.steps.append((distinct, dimension, lacking))
        if h + 1 < len(self.counts):
            alive = np.concatenate([np.zeros(0, bool), *self.alive])
            self.folds = next_folds(self.folds, alive, int(self.counts[h + 1]))
        self.h, self.seen, self.following = h + 1, 0, going
        self.sample, self.alive = [], []
        self.covariance = self.followed = None

    def _escaped(self, observation: Array | None) -> float:
        """Return the share of the previous step's next observations that this one never logged."""
        if self.following is None or not len(self.following):
            return 0.0
        if observation is None:
            return 1.0
        if self.followed is not None:
            return 1.0 - float(self.followed.mean())
        return _unseen(observation, self.following)

    def _lacked(
        self,
        visits: Visits,
        covered: StepCoverage,
        observation: Array | None,
        action: Array | None,
    ) -> float:
        """Return the share of the policy's visits that this step's data does not support."""
        if observation is None or action is None:
            return 1.0
        if self.features is not None and self.features.states:
            return float(covered.outside[0] / covered.visits)
        return _unsupported(observation, action, visits.observation[self.h], visits.action[self.h])

    def _covered(self, visits: Visits) -> StepCoverage:
        h, episodes = self.h, len(visits.returns)
        lanes, most = visits.lanes[h], int(self.counts.max())
        if self.covariance is None or self.features is None:
            return StepCoverage.nothing(len(lanes), episodes)
        group, psi = self.features(h, visits.observation[h], visits.action[h])
        return self.covariance.covers(group, psi, lanes, episodes, most)


def _is_index(column: Array) -> bool:
    """Tell indices of states or actions from vectors."""
    return column.ndim == 1 and np.issubdtype(column.dtype, np.integer)


def _unsupported(logged: Array, action: Array, there: Array, taken: Array) -> float:
    if action.ndim > 1:
        scale = action.std(axis=0) + 1e-12
        logged, there = (
            np.concatenate([o.reshape(len(o), -1), a / scale], axis=1)
            for o, a in ((logged, action), (there, taken))
        )
        action, taken = np.zeros(len(logged), np.int64), np.zeros(len(there), np.int64)
    return float(unsupported(logged, action, there, taken).mean())


def _unseen(logged: Array, following: Array) -> float:
    """Return the share of next observations unlike any that the next step logged."""
    none = np.zeros(len(logged), np.int64), np.zeros(len(following), np.int64)
    return float(unsupported(logged, none[0], following, none[1]).mean())


def inspect_dataset(
    path: Path,
    *,
    env: str | None = None,
    policy: Path | None = None,
    features: FeatureKind = "raw",
    episodes: int = 500,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Inspection:
    """Read the dataset at `path` once and say what is in it, and what it covers.

    With a policy, its visits are compared with the data; they come from `env`, or from the
    environment that the dataset says it was made in.
    """
    if episodes < FEWEST_EPISODES:
        raise HyqError(
            f"visits are compared between episodes: play at least {FEWEST_EPISODES}, not {episodes}"
        )
    files = DatasetFiles.open(path)
    counts = files.steps()
    horizon = len(counts)
    streams = Streams(seed)
    saved = load_policy(policy) if policy is not None else None
    visits = None
    if saved is not None:
        if saved.horizon != horizon:
            raise HyqError(f"the policy knows {saved.horizon} steps, the dataset has {horizon}")
        lanes = _environment(files, env, episodes)
        visits = policy_visits(saved, lanes, streams.integer("visits"))
    elif env is not None:
        _environment(files, env, 1).close()
    if saved is None and features != "raw":
        raise HyqError(f"{features} features measure a policy's coverage: name it with --policy")
    pilot_rows = np.unique(np.linspace(0, len(files) - 1, PILOT).astype(np.int64))
    observation = files.columns["observation"].pick(pilot_rows)
    action = files.columns["action"].pick(pilot_rows)
    chosen = None
    if visits is not None:
        actions, states = _sizes(files, visits, action, observation)
        rng = streams.generator("features")
        chosen = choose_features(features, observation, action, actions, states, rng, saved)
    scan = _Pass(counts, chosen, visits, Tally(horizon))
    altered: set[str] = set()
    done = 0
    for block in files.blocks(altered):
        scan.add(block)
        progress(done := done + len(block["step"]), len(files))
    scan.close()
    result = _assemble(files, scan, features, tuple(sorted(altered)), observation, action)
    return replace(result, findings=findings(result, scan.tally), verdict=verdict(result))


def _sizes(
    files: DatasetFiles, visits: Visits, action: Array, observation: Array
) -> tuple[int, int]:
    """Count discrete actions and states, over the data and the policy's visits."""
    actions = states = 0
    if _is_index(action):
        actions = 1 + max(_largest(files, "action"), *(int(a.max()) for a in visits.action))
    if _is_index(observation):
        seen = max(int(o.max()) for o in visits.observation)
        states = 1 + max(_largest(files, "observation"), seen)
        if not actions:
            raise HyqError("observations that are indices of states need actions that are, too")
        check_pairs(states, actions)
    return actions, states


def _largest(files: DatasetFiles, name: str) -> int:
    column = files.columns[name]
    with column.path.open("rb") as file:
        file.seek(column.offset)
        rows = len(files)
        return max(
            int(column.read(file, min(1 << 20, rows - start)).max())
            for start in range(0, rows, 1 << 20)
        )


def _assemble(
    files: DatasetFiles,
    scan: _Pass,
    kind: FeatureKind,
    altered: tuple[str, ...],
    observation: Array,
    action: Array,
) -> Inspection:
    tally = scan.tally
    entropy = tally.action_entropy()
    rows = np.maximum(tally.rows, 1)
    steps = tuple(
        StepFacts(
            rows=int(tally.rows[h]),
            mean_reward=float(tally.reward_sum[h] / rows[h]),
            terminated=float(tally.ended[h] / rows[h]),
            action_entropy=math.nan if entropy is None else float(entropy[h]),
            distinct=distinct,
            dimension=dimension,
            unsupported=lacking,
            condition=scan.coverage[h].condition if h < len(scan.coverage) else math.nan,
            escaping=scan.escaping[h] if h < len(scan.escaping) else 0.0,
        )
        for h, (distinct, dimension, lacking) in enumerate(scan.steps)
    )
    if tally.actions is not None:
        described = f"discrete, {int((tally.actions.sum(axis=0) > 0).sum())} different"
    else:
        described = f"vectors {action.shape[1:]} {action.dtype}"
    return Inspection(
        path=files.path,
        provenance=dict(files.provenance),
        rows=len(files),
        bytes=sum(column.path.stat().st_size for column in files.columns.values()),
        observation=f"{observation.shape[1:]} {observation.dtype}",
        action=described,
        reward=(tally.reward_low, float(tally.reward_sum.sum() / len(files)), tally.reward_high),
        reward_sparsity=1.0 - float(tally.rewarded.sum() / len(files)),
        duplicates=scan.duplicates.duplicate_share(),
        broken=dict(tally.broken),
        altered=altered,
        episodes=scan.linker.finish(),
        steps=steps,
        comparator=_comparator(scan, kind),
    )


def _comparator(scan: _Pass, kind: FeatureKind) -> Comparator | None:
    if scan.visits is None:
        return None
    coverage = PolicyCoverage.of(scan.coverage)
    lacking = np.array([step[2] for step in scan.steps[: len(scan.coverage)]])
    visits = np.array([step.visits for step in scan.coverage])
    late = np.flatnonzero(lacking > 0.2)
    return Comparator(
        features=kind,
        episodes=len(scan.visits.returns),
        mean_return=float(scan.visits.returns.mean()),
        mean_length=float(visits.sum() / len(scan.visits.returns)),
        transfer=coverage.transfer,
        condition=coverage.condition,
        outside=coverage.outside,
        unsupported=float(lacking @ visits / visits.sum()),
        first_unsupported=int(late[0]) if len(late) else None,
    )
