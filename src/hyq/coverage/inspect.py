"""`hyq data inspect`: one pass over a dataset, and a plain verdict on what it can be used for."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import gymnasium as gym
import numpy as np

import hyq.envs  # noqa: F401  (registers the environments that datasets name)
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.settings import check_range
from hyq.core.types import Array, FloatArray, IntArray, Transitions
from hyq.coverage.estimate import (
    Counts,
    Covariance,
    PolicyCoverage,
    StepCoverage,
    new_folds,
    next_folds,
)
from hyq.coverage.features import FeatureKind, Features, features_for
from hyq.coverage.inspection import Comparator, Inspection, StepFacts
from hyq.coverage.policy import load_policy
from hyq.coverage.scan import (
    EpisodeLinks,
    action_entropy,
    effective_dimension,
    is_index,
    row_hashes,
    unsupported,
)
from hyq.data.columns import described, first_column
from hyq.data.dataset import Dataset
from hyq.data.steps import StepView
from hyq.fqi.classes import GreedyPolicy
from hyq.fqi.rollout import VectorEnv, lockstep

FEWEST_EPISODES = 10
"""Fewer have next to no spread between them that could be measured."""
SAMPLE_ROWS, SAMPLE_BYTES = 1000, 32 << 20
"""Rows of one step kept for distances and dimensions."""
BLOCK_BYTES = 8 << 20
"""Observations that are read at a time."""


@dataclass(frozen=True)
class Visits:
    """Where a policy goes in the environment: the transitions of each step that it comes to."""

    steps: tuple[Transitions, ...]
    episode: tuple[IntArray, ...]
    """Which episodes the visits of a step are of: those that have not ended."""
    returns: FloatArray


def policy_visits(policy: GreedyPolicy, env: VectorEnv, seed: int) -> Visits:
    """Play an episode of the policy in each of the environments, and close them."""
    try:
        played = list(lockstep(env, policy, policy.horizon, seed))
    except (ValueError, IndexError, RuntimeError) as error:
        raise HyqError(f"the policy does not fit the environment: {error}") from None
    finally:
        env.close()
    total = np.zeros(env.num_envs)
    for rows, episode in played:
        total[episode] += rows.reward
    return Visits(tuple(rows for rows, _ in played), tuple(alive for _, alive in played), total)


def _environment(dataset: Dataset, env: str | None, num_envs: int) -> VectorEnv:
    """Make the environment named, or the dataset's own, and see that the data can be from it."""
    own = dataset.provenance.get("environment")
    name = env or own
    if not isinstance(name, str):
        raise HyqError("the dataset does not say its environment: name it with --env")
    parameters = dict(dataset.provenance.get("parameters", {})) if name == own else {}
    try:
        made = gym.make_vec(name, num_envs=num_envs, **parameters)
    except (gym.error.Error, TypeError, ModuleNotFoundError) as error:
        raise HyqError(f"cannot make environment {name!r}: {error}") from None
    found = first_column(dataset.observation).shape[1:]
    expected = made.single_observation_space.shape
    if found != expected:
        raise HyqError(f"the data's observations have shape {found}, those of {name} {expected}")
    return made


class _Pass:
    """The one pass over the data, step after step, and what a step leaves for the next."""

    def __init__(
        self, dataset: Dataset, view: StepView, visits: Visits | None, features: Features | None
    ) -> None:
        self._view, self._visits, self._features = view, visits, features
        self._first = np.searchsorted(view.step, np.arange(view.horizon + 1))
        self._row_bytes = max(view.rows(slice(0, 1)).observation.nbytes, 1)
        self._episode_folds = new_folds(dataset.num_episodes) if dataset.ordered else None
        self._folds, self._alive = new_folds(0), np.zeros(0, np.bool_)
        self._led_to: Array | None = None
        """Sampled next observations of the previous step."""
        self.seen, self.after = np.zeros((2, len(view)), np.uint64)
        """Hashes of observations and of next observations."""
        self.coverage: list[StepCoverage] = []
        self.facts: list[StepFacts] = []

    def step(self, h: int) -> int:
        """Read the rows of a step, a block at a time, and return how many there are so far."""
        view, start, stop = self._view, int(self._first[h]), int(self._first[h + 1])
        whole, rows = slice(start, stop), stop - start
        reward, alive = view.reward[whole], view.discount[whole] > 0
        self._folds = self._next_folds(whole, rows)
        self._alive = alive
        visits, features = self._visits, self._features
        moments: Counts | Covariance | None = None
        if visits and features and h < len(visits.steps):  # its episodes come so far
            there = visits.steps[h]
            group, psi = features(h, there.observation, there.action)
            moments = (Counts if features.states else Covariance)(np.unique(group))
        at_once = max(1, min(BLOCK_BYTES // (2 * self._row_bytes), 1 << 17))
        for first in range(start, stop, at_once):
            part = slice(first, min(first + at_once, stop))
            block = view.rows(part)
            self.seen[part] = row_hashes(block.observation)
            self.after[part] = row_hashes(block.next_observation)
            if features and moments:
                pairs = features(h, block.observation, block.action)
                moments.add(*pairs, self._folds[first - start :][: len(block)])
        kept = min(SAMPLE_ROWS, max(1, SAMPLE_BYTES // self._row_bytes))
        sample = view.rows(slice(start, stop, max(1, rows // kept)))
        if h:
            escaping = self._escaping(whole, sample.observation)
            self.facts[-1] = replace(self.facts[-1], escaping=escaping)
        self._led_to = sample.next_observation[sample.discount > 0]
        lacking = condition = math.nan
        if visits and features and moments:
            most = int(np.diff(self._first).max())
            covered = moments.covers(group, psi, visits.episode[h], len(visits.returns), most)
            self.coverage.append(covered)
            condition = covered.condition
            lacking = float(covered.outside[0] / covered.visits)
            if not features.states:
                lacking = _unsupported_share(
                    sample.observation, sample.action, there.observation, there.action
                )
        self.facts.append(
            StepFacts(
                rows=rows,
                mean_reward=float(reward.mean()) if rows else 0.0,
                terminated=float(1.0 - alive.mean()) if rows else 0.0,
                action_entropy=action_entropy(view.action[whole]),
                distinct=_distinct(row_hashes(sample.observation)) if rows else math.nan,
                dimension=effective_dimension(sample.observation) if rows else math.nan,
                unsupported=lacking,
                condition=condition,
                escaping=0.0,
            )
        )
        return stop

    def _next_folds(self, whole: slice, rows: int) -> IntArray:
        if self._episode_folds is not None:
            return self._episode_folds[self._view.episode[whole]]
        return next_folds(self._folds, self._alive, rows)

    def _escaping(self, whole: slice, sample: Array) -> float:
        """Return the share of the previous step's next observations that this one does not have."""
        if self._led_to is None or not len(self._led_to):
            return 0.0
        if is_index(sample):  # indices have no distance, so that none may be missed
            there = np.isin(self._led_to, self._view.rows(whole).observation)
            return 1.0 - float(there.mean())
        return _unsupported_share(sample, _none(sample), self._led_to, _none(self._led_to))

    def comparator(self, kind: FeatureKind) -> Comparator | None:
        """Add up how the data covers the policy's visits."""
        if self._visits is None:
            return None
        returns = self._visits.returns
        lacking = np.array([step.unsupported for step in self.facts[: len(self.coverage)]])
        visits = np.array([step.visits for step in self.coverage])
        late = np.flatnonzero(lacking > 0.2)
        return Comparator(
            features=kind,
            episodes=len(returns),
            mean_return=float(returns.mean()),
            mean_length=float(visits.sum() / len(returns)),
            unsupported=float(lacking @ visits / visits.sum()),
            first_unsupported=int(late[0]) if len(late) else None,
            **vars(PolicyCoverage.of(self.coverage)),
        )


def _none(rows: Array) -> IntArray:
    return np.zeros(len(rows), np.int64)


def _distinct(hashes: IntArray) -> float:
    return len(np.unique(hashes)) / len(hashes)


def _unsupported_share(data: Array, action: Array, there: Array, taken: Array) -> float:
    """Return the share of visits unlike any pair in the data; vectors of actions have distances."""
    if not len(data):
        return 1.0
    if not is_index(action):
        scale = action.reshape(len(action), -1).std(axis=0) + 1e-12
        data, there = (
            np.concatenate([o.reshape(len(o), -1), a.reshape(len(a), -1) / scale], axis=1)
            for o, a in ((data, action), (there, taken))
        )
        action, taken = _none(data), _none(there)
    return float(unsupported(data, action, there, taken).mean())


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
    """Read the dataset at `path` and say what is in it, and what it covers, step by step.

    With a policy, its visits are compared with the data; they come from `env`, or from the
    environment that the dataset says it was made in.
    """
    check_range("the number of episodes to play", episodes, FEWEST_EPISODES)
    dataset = Dataset.load(path)
    view = dataset.by_step()
    visits = chosen = None
    if policy is not None:
        saved, streams = load_policy(policy), Streams(seed)
        if saved.horizon != view.horizon:
            raise HyqError(
                f"the policy knows {saved.horizon} steps, the dataset has {view.horizon}"
            )
        made = _environment(dataset, env, episodes)
        visits = policy_visits(saved, made, streams.integer("visits"))
        seen, taken = zip(*((rows.observation, rows.action) for rows in visits.steps), strict=True)
        chosen = features_for(features, view, seen, taken, streams.generator("features"), saved)
    elif features != "raw":
        raise HyqError(f"{features} features measure a policy's coverage: name it with --policy")
    elif env is not None:
        _environment(dataset, env, 1).close()
    scan = _Pass(dataset, view, visits, chosen)
    for h in range(view.horizon):
        progress(scan.step(h), len(dataset))
    rows = row_hashes(scan.seen, scan.after, view.action, view.reward, view.step)
    reward, actions = dataset.reward, 0
    described_actions = f"vectors {described(dataset.action)}"
    if is_index(dataset.action):
        actions = len(np.unique(dataset.action))
        described_actions = f"discrete, {actions} different"
    return Inspection(
        path=path,
        provenance=dict(dataset.provenance),
        rows=len(dataset),
        bytes=sum(file.stat().st_size for file in path.glob("*.npy")),
        observation=described(dataset.observation),
        action=described_actions,
        actions=actions,
        reward=(float(reward.min()), float(reward.mean(dtype=float)), float(reward.max())),
        reward_sparsity=float((reward == 0).mean()),
        duplicates=1.0 - _distinct(rows),
        episodes=EpisodeLinks.known(dataset)
        if dataset.ordered
        else EpisodeLinks.found(view, scan.seen, scan.after),
        steps=tuple(scan.facts),
        comparator=scan.comparator(features),
    )
