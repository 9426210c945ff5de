"""Fitted Q evaluation of a deep policy: its return, from logged episodes, with an interval.

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

Actions that are vectors are inputs of the networks, next to the observation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import t as student

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.settings import check_range
from hyq.core.trees import leaves, space_tree, without_tuples
from hyq.core.types import Array, BoolArray, FloatArray, IntArray
from hyq.coverage.estimate import Interval
from hyq.coverage.fqe import Evaluation
from hyq.coverage.nearby import scale_of
from hyq.coverage.scan import as_rows
from hyq.coverage.support import LEAST_INSIDE, Logged, Support
from hyq.data.columns import named, over_columns
from hyq.data.dataset import Dataset
from hyq.data.fits import check_fits
from hyq.ensembles import Ensemble
from hyq.fqi.networks import StepNetworks
from hyq.losses import chosen
from hyq.networks import is_image
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
LIKE = 0.1
"""Of the spread of logged actions that are vectors: nearer ones count as the same."""
LEAVES = "the policy leaves what was logged, and values there are guesses"
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
    check_range("replicates", replicates, 2)
    check_range("updates", updates, 1)
    rows = _Rows.of(policy, dataset, gamma)
    least, most = (x / (1 - gamma) for x in (min(rows.reward.min(), 0), max(rows.reward.max(), 0)))
    width = max(most - least, 1e-12)
    networks = _learned(rows, least, width, replicates, updates, Streams(seed), progress)
    margin = WIDER * float(networks.std(ddof=1) * student.ppf(0.975, replicates - 1))
    middle = float(networks.mean())
    value = Interval(middle, middle - margin, middle + margin).within(float(least), float(most))
    support = rows.support(gamma)
    uniform = np.ptp(rows.reward) == 0 and not dataset.terminated.any()
    wide = value.high - value.low > WIDEST * (most - least)
    doubts = {
        "every policy looks alike: one reward throughout, and no episode ended": uniform,
        LEAVES: support.inside < LEAST_INSIDE,
        "the networks disagree: the data does not decide the value": wide,
    }
    found = tuple(doubt for doubt, holds in doubts.items() if holds)
    return Evaluation(value, networks, support.agreement, support.inside, found)


def policy_support(policy: Policy, dataset: Dataset, gamma: float = GAMMA) -> Support:
    """Say what `deep_evaluation` says of support, without learning values."""
    return _Rows.of(policy, dataset, gamma).support(gamma)


def sees_vectors(policy: Policy) -> bool:
    """Tell a policy that sees vectors: near and far among images would have to be learned."""
    images = any(map(is_image, leaves(space_tree(without_tuples(policy.observation_space)))))
    return not images and policy.preprocessing.frame_stack == 1


def check_sees_vectors(policy: Policy) -> None:
    """Raise for a policy that sees images."""
    if not sees_vectors(policy):
        raise HyqError("policies that see images or stacks are not evaluated from data: play them")


@dataclass(frozen=True)
class _Rows:
    """The logged transitions as networks learn from them."""

    seen: FloatArray
    """Every observation, those that end an episode included, flat and standardised."""
    own: Array
    """What the policy does there; vectors in units of their spread in the logs."""
    at: IntArray
    """Where each transition begins among the observations; it ends one further."""
    action: Array
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
    discrete: bool

    @classmethod
    def of(cls, policy: Policy, dataset: Dataset, gamma: float) -> "_Rows":
        """Let the policy see every logged observation once, and follow the episodes back."""
        check_sees_vectors(policy)
        check_fits(dataset, policy.observation_space, policy.action_space)
        if not 0 <= gamma < 1:
            raise HyqError(f"gamma must lie in [0, 1), got {gamma}")
        check_range("the number of episodes", dataset.num_episodes, FEWEST_EPISODES)
        # Copies, because PyTorch warns of read-only arrays.
        observation = over_columns(lambda column: np.array(column[:]), dataset.observation)
        flat = as_rows(*named("", observation).values())
        seen = ((flat - flat.mean(axis=0)) / scale_of(flat)).astype(np.float32)
        own, action = policy.choose(observation), policy.actions.from_env(np.array(dataset.action))
        if discrete := policy.is_discrete:
            action = action.astype(np.int64)
        else:
            scale = scale_of(action).astype(np.float32)
            own, action = own / scale, action / scale
        episode = np.repeat(np.arange(dataset.num_episodes), dataset.length)
        at = np.arange(len(dataset)) + episode
        ends = np.cumsum(dataset.length)
        first = ends - dataset.length
        over = np.zeros(len(dataset), np.bool_)
        over[ends[dataset.terminated] - 1] = True
        continued = (own[at] == action).reshape(len(at), -1).all(axis=1)
        continued[first] = False  # no transition leads into the first of an episode
        reward = dataset.reward.astype(np.float64)
        total, discount, bootstrap = reward.copy(), gamma * (1.0 - over), at + 1
        for row in np.flatnonzero(continued)[::-1] - 1:
            total[row] += gamma * total[row + 1]
            discount[row] = gamma * discount[row + 1]
            bootstrap[row] = bootstrap[row + 1]
        logged = (at, action, reward, over, episode, first)
        return cls(seen, own, *logged, total, discount, bootstrap, discrete)

    def support(self, gamma: float) -> Support:
        """Follow the policy from one logged transition to the nearest, and see how far that goes.

        From where a transition ends the policy continues with the nearest one that takes its
        action. It has left the data where none is near: where 99% of the logged transitions are
        nearer to one of another episode with the same action.
        """
        logged = Logged.of(self.seen[self.at], self.action, self.episode)
        near, nearest = logged.nearest(self.seen, self.own)
        always = 1 / (1 - gamma)

        def followed(value: FloatArray, outside: float, at: IntArray) -> FloatArray:
            return np.where(near[at], value[nearest[at]], outside)

        inside = total = np.ones(len(self.at))
        for _ in range(math.ceil(math.log(0.01) / math.log(gamma)) if gamma else 1):
            inside = 1 + gamma * ~self.over * followed(inside, 0.0, self.at + 1)
            total = 1 + gamma * ~self.over * followed(total, always, self.at + 1)
        first = self.at[self.first]
        stays = followed(inside, 0.0, first).sum() / followed(total, always, first).sum()
        apart = np.abs(self.own[self.at] - self.action).reshape(len(self.at), -1).max(axis=1)
        agreement = float((apart <= (0 if self.discrete else LIKE)).mean())
        return Support(agreement, float(stays))


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
    inputs, outputs = rows.seen.shape[1], 1
    if rows.discrete:
        outputs += int(max(rows.own.max(), rows.action.max()))
    else:
        inputs += rows.action.shape[1]
    sizes, seed = (inputs, (HIDDEN, HIDDEN), outputs), streams.integer("weights")
    networks = StepNetworks(replicates, *sizes, learning_rate=LEARNING_RATE, seed=seed)
    spread = (torch.arange(replicates)[:, None, None] + 0.5) / replicates
    for network in (networks.online, networks.target):
        network.biases[-1].data += spread  # first values are spread over all that is possible
    seen = torch.from_numpy(rows.seen)

    def values(network: Ensemble, at: IntArray, action: Array) -> torch.Tensor:
        """Evaluate pairs; actions that are vectors are inputs, others choose an output."""
        taken = torch.from_numpy(action)
        if rows.discrete:
            return chosen(network(seen[at]), taken)
        return network(torch.cat([seen[at], taken.float()], dim=-1)).squeeze(-1)

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
