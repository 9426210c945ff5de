"""Fitted Q evaluation of a deep policy: what it would earn, from logged episodes, with an interval.

A network learns the value of acting as the data did and as the policy would from then on:

    q(s_t, a_t) <- r_t + ... + gamma^(n-1) r_(t+n-1) + gamma^n q'(s_(t+n), pi(s_(t+n)))
    value = E_{first states of the logged episodes} q'(s, pi(s))

(Le et al. 2019, https://arxiv.org/abs/1903.08738). q' follows q slowly. Step t + n is the first
after t where the data leaves the policy, so that what it would have done too is taken as it was
logged and not as q' guesses it: Retrace with lambda = 1 (Munos et al. 2016,
https://arxiv.org/abs/1606.02647) for a policy without chance. Values continue where an episode was
truncated and end where it terminated.

Each of several networks learns from whole episodes drawn with replacement, and they begin at values
spread evenly over all that is possible. Their spread makes the interval: it shows what the episodes
leave to chance, what the networks make of actions that were not logged, and values that have not
come to rest. It does not show what they all get wrong alike, for which it is made wider (`WIDER`),
nor what lies where no episode went: see `Evaluation.doubts`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from scipy.spatial import cKDTree
from scipy.stats import t as student

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.settings import check_range
from hyq.core.types import BoolArray, FloatArray, IntArray
from hyq.coverage.estimate import Interval
from hyq.coverage.fqe import Evaluation
from hyq.data.columns import only_column
from hyq.data.dataset import Dataset
from hyq.ensembles import Ensemble
from hyq.fqi.networks import StepNetworks
from hyq.losses import chosen
from hyq.networks import InputScaling, is_image
from hyq.policy import Policy

GAMMA = 0.99
HIDDEN = 64
"""Units of each of the two layers of a network."""
BATCH = 128
LEARNING_RATE = 1e-3
"""Falls to a twentieth over the second half."""
TAU = 0.15
"""Share of the way that q' goes towards q at each update."""
UPDATES = 2500
FEWEST_EPISODES = 10
ORDINARY = 0.99
"""Share of the logged transitions that have a neighbour in another episode within the limit."""
LEAST_INSIDE = 0.95
"""Share of its time that a supported policy spends where the data is."""
WIDER = 2.0
"""How much wider the interval is than the networks' spread alone makes it.

What the networks share, such as values that lag behind, moves them all alike, and their spread does
not show it: alone it held the mean return of play in 17 of 21 cases. Twice as wide was chosen on
those and held in 17 of 18 others (`benchmarks/deep_evaluation.py`). It is not proved.
"""
WIDEST = 0.5
"""Share of all possible values that an interval may be wide and still say something."""


def deep_evaluation(
    policy: Policy,
    dataset: Dataset,
    *,
    gamma: float = GAMMA,
    replicates: int = 8,
    updates: int = UPDATES,
    seed: int = 0,
    progress: Callable[[int], None] = lambda updates: None,
) -> Evaluation:
    """Evaluate the discounted value of `policy` on logged episodes with so many networks.

    `progress` is called with the number of updates done.
    """
    _check(policy, dataset, gamma, replicates, updates)
    rows = _Rows.of(policy, dataset, gamma)
    least, most = (x / (1 - gamma) for x in (min(rows.reward.min(), 0), max(rows.reward.max(), 0)))
    width = max(most - least, 1e-12)
    networks = _learned(rows, least, width, replicates, updates, Streams(seed), progress)
    margin = WIDER * networks.std(ddof=1) * student.ppf(0.975, replicates - 1)
    middle = networks.mean()
    value, low, high = np.clip([middle, middle - margin, middle + margin], least, most).tolist()
    agreement = float((rows.action == rows.own[rows.at]).mean())
    inside = _inside(rows, gamma)
    uniform = np.ptp(rows.reward) == 0 and not dataset.terminated.any()
    wide = high - low > WIDEST * (most - least)
    doubts = {
        "every policy looks alike: one reward throughout, and no episode ended": uniform,
        "the policy leaves what was logged, and values there are guesses": inside < LEAST_INSIDE,
        "the networks disagree: the data does not decide the value": wide,
    }
    found = tuple(doubt for doubt, holds in doubts.items() if holds)
    return Evaluation(Interval(value, low, high), networks, agreement, inside, found)


def check_sees_vectors(policy: Policy) -> None:
    """Raise for a policy that sees images: near and far among those would have to be learned."""
    space = policy.observation_space
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        raise HyqError("only policies that see one array are evaluated from data: flatten it first")
    if is_image(space) or policy.preprocessing.frame_stack > 1:
        raise HyqError("policies that see images or stacks are not evaluated from data: play them")


def _check(policy: Policy, dataset: Dataset, gamma: float, replicates: int, updates: int) -> None:
    """Raise for what cannot be evaluated, before time is spent."""
    check_sees_vectors(policy)
    shape, seen = only_column(dataset.observation).shape[1:], policy.observation_space.shape
    if shape != seen:
        raise HyqError(f"the dataset's observations have shape {shape}, the policy's {seen}")
    first = int(policy.action_space.start)
    last = first + int(policy.action_space.n) - 1
    low, high = int(dataset.action.min()), int(dataset.action.max())
    if low < first or high > last:
        raise HyqError(f"the dataset has actions {low} to {high}, the policy {first} to {last}")
    if not 0 <= gamma < 1:
        raise HyqError(f"gamma must lie in [0, 1), got {gamma}")
    check_range("the number of episodes", dataset.num_episodes, FEWEST_EPISODES)
    check_range("replicates", replicates, 2)
    check_range("updates", updates, 1)


@dataclass(frozen=True)
class _Rows:
    """The logged transitions as networks learn from them."""

    seen: FloatArray
    """Every observation, those that end an episode included, flat and standardised."""
    own: IntArray
    """What the policy does there."""
    at: IntArray
    """Where each transition begins among the observations; it ends one further."""
    action: IntArray
    reward: FloatArray
    over: BoolArray
    """Whether the episode terminated with it."""
    episode: IntArray
    first: IntArray
    """The first transition of each episode."""
    total: FloatArray
    """Discounted rewards until the data leaves the policy, or ends."""
    discount: FloatArray
    """Of the value from there on."""
    bootstrap: IntArray
    """That place among the observations."""

    @classmethod
    def of(cls, policy: Policy, dataset: Dataset, gamma: float) -> "_Rows":
        """Let the policy see every logged observation once, and follow the episodes back."""
        observation = np.array(dataset.observation)  # a copy: PyTorch warns of read-only arrays
        scaling = InputScaling.of_data(policy.observation_space, observation)
        seen = scaling(torch.from_numpy(observation)).flatten(1).numpy()
        first_action = int(policy.action_space.start)
        own = policy.act(observation) - first_action
        episode = np.repeat(np.arange(dataset.num_episodes), dataset.length)
        at = np.arange(len(dataset)) + episode
        ends = np.cumsum(dataset.length)
        over = np.zeros(len(dataset), np.bool_)
        over[ends[dataset.terminated] - 1] = True
        action = dataset.action.astype(np.int64) - first_action
        continued = own[at] == action
        continued[ends - dataset.length] = False  # no transition leads into the first of an episode
        reward = dataset.reward.astype(np.float64)
        total, discount, bootstrap = reward.copy(), gamma * (1.0 - over), at + 1
        for row in np.flatnonzero(continued)[::-1] - 1:
            total[row] += gamma * total[row + 1]
            discount[row] = gamma * discount[row + 1]
            bootstrap[row] = bootstrap[row + 1]
        first = ends - dataset.length
        columns = (seen, own, at, action, reward, over, episode, first, total, discount, bootstrap)
        return cls(*columns)


def _learned(
    rows: _Rows,
    low: float,
    width: float,
    replicates: int,
    updates: int,
    streams: Streams,
    progress: Callable[[int], None],
) -> FloatArray:
    """Train the networks side by side and return the value that each gives the policy.

    Values are learned in units of all that is possible, from 0 to 1.
    """
    episodes = len(rows.first)
    rng = streams.generator("bootstrap")
    resamples = rng.integers(episodes, size=(replicates, episodes))
    count = [np.bincount(mine, minlength=episodes) for mine in resamples]
    drawn = [np.repeat(np.arange(len(rows.at)), times[rows.episode]) for times in count]
    actions = 1 + int(max(rows.own.max(), rows.action.max()))
    sizes, seed = (rows.seen.shape[1], (HIDDEN, HIDDEN), actions), streams.integer("weights")
    networks = StepNetworks(replicates, *sizes, learning_rate=LEARNING_RATE, seed=seed)
    spread = (torch.arange(replicates)[:, None, None] + 0.5) / replicates
    for network in (networks.online, networks.target):
        network.biases[-1].data += spread  # first values are spread over all that is possible
    seen = torch.from_numpy(rows.seen)

    def values(network: Ensemble, at: IntArray, action: IntArray) -> torch.Tensor:
        return chosen(network(seen[at]), torch.from_numpy(action))

    rng = streams.generator("batches")
    for update in range(updates):
        batch = np.stack([mine[rng.integers(len(mine), size=BATCH)] for mine in drawn])
        then = rows.bootstrap[batch]
        v_t = values(networks.target, then, rows.own[then]).clamp(0.0, 1.0).numpy()
        target = (rows.total[batch] + rows.discount[batch] * (low + width * v_t) - low) / width
        q_tm1 = values(networks.online, rows.at[batch], rows.action[batch])
        loss = (q_tm1 - torch.from_numpy(target.astype(np.float32))).square().sum() / BATCH
        rate = LEARNING_RATE * min(1.0, max(0.05, 2 - 2 * update / updates))
        networks.optimizer.param_groups[0]["lr"] = rate
        networks.descend(loss, TAU)
        progress(update + 1)
    starts = np.tile(rows.at[rows.first], (replicates, 1))
    found = values(networks.target, starts, rows.own[starts]).numpy().astype(np.float64)
    return low + width * (found * np.stack(count)).sum(axis=1) / episodes


def _inside(rows: _Rows, gamma: float) -> float:
    """Follow the policy from one logged transition to the nearest, and see how far that goes.

    From where a transition ends the policy continues with the nearest one that takes its action.
    It has left the data where none is near: where 99% of the logged transitions are nearer to one
    of another episode with the same action.
    """
    start, taken = rows.seen[rows.at], rows.action
    groups = {int(a): np.flatnonzero(taken == a) for a in np.unique(taken)}
    apart = np.full(len(taken), np.inf)
    nearest, distance = np.zeros(len(rows.seen), np.int64), np.full(len(rows.seen), np.inf)
    for a, mine in groups.items():
        tree = cKDTree(start[mine])
        length, neighbour = tree.query(start[mine], k=range(1, 1 + min(20, len(mine))))
        other = rows.episode[mine][neighbour] != rows.episode[mine][:, None]
        apart[mine] = np.where(other.any(1), np.where(other, length, np.inf).min(1), length[:, -1])
        here = np.flatnonzero(rows.own == a)
        distance[here], found = tree.query(rows.seen[here])
        nearest[here] = mine[found]
    left = distance > np.quantile(apart, ORDINARY)

    def followed(value: FloatArray, outside: float, at: IntArray) -> FloatArray:
        return np.where(left[at], outside, value[nearest[at]])

    inside = total = np.ones(len(taken))
    for _ in range(math.ceil(math.log(0.01) / math.log(gamma)) if gamma else 1):
        inside = 1 + gamma * ~rows.over * followed(inside, 0.0, rows.at + 1)
        total = 1 + gamma * ~rows.over * followed(total, 1 / (1 - gamma), rows.at + 1)
    first = rows.at[rows.first]
    whole = followed(total, 1 / (1 - gamma), first).sum()
    return float(followed(inside, 0.0, first).sum() / whole)
