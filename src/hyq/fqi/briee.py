"""BRIEE: learn the representation and explore with it (Zhang et al. 2022, arXiv 2202.00063).

    for n = 1, 2, ...:
        for every h: roll in to h with pi, act uniformly at h and h + 1; relearn phi_h   see below
        b_h(s, a) = min(alpha |phi_h(s, a)|_{Sigma_h^-1}, cap),  Sigma_h = sum phi phi^T + lambda I
        for h = H-1, ..., 0:                                                             LSVI-UCB
            w_h = Sigma_h^-1 sum phi_h (r + min(max_a' Q_{h+1}, V_max)),  Q_h = w_h . phi_h + b_h
        pi <- greedy policy of Q

The features are those of a block MDP, phi_h(s, a) = softmax(U_h s) x onehot(a). They should predict
every bounded function f of the next state as well as any other features would:

    min_phi max_f [ min_w E (w . phi(s,a) - f(s'))^2 - min_{phi~,w~} E (w~ . phi~(s,a) - f(s'))^2 ]

A growing set of discriminators solves it: phi fits them all and the f of the largest gap joins, as
long as a gap is more than chance. Of the offline data only the horizon is used.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize
from scipy.special import softmax

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.settings import check_choices, check_positive, check_range
from hyq.core.types import Array, FloatArray, IntArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.online import Batch, OnlineStore
from hyq.fqi.base import State, Step
from hyq.fqi.block import Encoding, encode
from hyq.fqi.classes import DiscreteValueFunction, GreedyPolicy, num_actions
from hyq.fqi.rollout import Policy, VectorEnv, lockstep, uniform_from

SOLVER: Any = {"method": "L-BFGS-B", "options": {"maxiter": 30, "ftol": 1e-4, "gtol": 1e-4}}


@dataclass(frozen=True)
class BRIEEConfig:
    """The settings of BRIEE; the environment's `num_envs` is its rollouts per step."""

    iterations: int = 500
    """Iterations; each ends with a policy to evaluate."""
    latents: int = 3
    """Latent states, the width of the encoder."""
    encoding: Encoding = "hard"
    """Plan with the encoder's argmax ("hard") or with its softmax ("soft")."""
    share: bool = True
    """Let every step begin with the encoder and the discriminators of the step before."""
    refresh: float = 0.1
    """Learn a step's features anew when its data has grown by this share; 0 means always."""
    discriminators: int = 8
    """Most discriminators a step's features are trained against."""
    confidence: float = 3.0
    """Standard errors by which the gap of a new discriminator must exceed zero on unseen rows."""
    decay: float = 3.0
    """Penalty of squared norms in the search for a discriminator, against summed errors."""
    proximal: float = 1.0
    """Penalty of an encoder's squared distance from the one it begins with."""
    ridge: float = 0.01
    """Penalty of the weights w in representation learning."""
    alpha: float = 0.05
    """Scale of the bonus, in units of v_max."""
    bonus_cap: float = 1.0
    """Largest value of the bonus, in units of v_max."""
    lambda_: float = 1e-6
    """Regulariser of Sigma: a pair never seen has the bonus alpha / sqrt(lambda), or the cap."""
    v_max: float = 1.0
    """The largest return."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "encoding":
                check_range(name, value, 0)
        check_positive(self, "iterations", "latents", "discriminators", "ridge", "lambda_", "v_max")
        check_choices(self)


@dataclass(frozen=True, eq=False)
class OptimisticQ(DiscreteValueFunction):
    """phi_h and Q_h = w . phi_h + b_h. Affine maps keep their bias in the last row."""

    encoder: FloatArray
    discriminators: FloatArray
    """What phi was trained against: one f(s') = tanh(u . s') a column."""
    weights: FloatArray
    inverse: FloatArray
    """w and Sigma^-1: one row and one block for every action, as actions are one-hot."""
    config: BRIEEConfig

    def code(self, observation: Array) -> FloatArray:
        """Return softmax(U s), or its one-hot limit at temperature zero."""
        matrix = self.encoder.astype(np.float32)
        logits = (observation @ matrix[:-1] + matrix[-1]).astype(np.float64)
        return encode(logits, self.config.encoding)

    def bonus(self, code: FloatArray) -> FloatArray:
        """Return b(s, a) = min(alpha |phi(s, a)|_{Sigma^-1}, cap) for every action."""
        square, config = np.einsum("nk,akl,nl->na", code, self.inverse, code), self.config
        return config.v_max * np.minimum(config.alpha * np.sqrt(square), config.bonus_cap)

    def values(self, observation: Array) -> FloatArray:
        """Return Q_h(s, a) for every action."""
        code = self.code(observation)
        return code @ self.weights.T + self.bonus(code)


def collect(env: VectorEnv, policy: Policy, horizon: int, streams: Streams) -> tuple[Batch, int]:
    """Roll in to every step, act uniformly there and one step on; count every transition."""
    parts: list[list[Transitions]] = [[] for _ in range(horizon)]
    for depth in range(-1, horizon):  # -1 gives step 0 its second tuple
        rng = streams.generator("uniform-actions", depth)
        acting = uniform_from(depth, policy, env, rng)
        seed = streams.integer("roll-in", depth)
        for h, (rows, _) in enumerate(lockstep(env, acting, min(depth + 2, horizon), seed)):
            parts[h].append(rows if h >= depth else rows[:0])
    if not all(parts):
        raise HyqError(f"no episode got to step {parts.index([])} of {horizon}: BRIEE needs some")
    samples = env.num_envs * sum(map(len, parts))
    return tuple(Transitions.concatenate(part) for part in parts), samples


def standardise(x: Array) -> tuple[Array, FloatArray, FloatArray]:
    """Centre, scale to unit mean square norm, add a bias; return also the basis and its inverse."""
    mean = x.mean(axis=0)
    scale = np.sqrt(np.square(x - mean).sum(axis=1).mean()) or 1.0
    inward = np.diag(np.append(np.full(len(mean), scale), 1.0))
    inward[-1, :-1] = mean
    z = np.hstack([(x - mean) / scale, np.ones((len(x), 1))]).astype(np.float32)
    return z, inward, np.linalg.inv(inward)


@dataclass(frozen=True)
class Rows:
    """(Next) observations x (y) of one step, standardised, in one block of rows for each action."""

    x: Array
    y: Array
    blocks: tuple[slice, ...]

    @classmethod
    def of(cls, x: Array, y: Array, action: IntArray, actions: int) -> "Rows":
        """Sort the rows by action."""
        order = np.argsort(action, kind="stable")
        ends = np.searchsorted(action[order], np.arange(actions + 1))
        return cls(x[order], y[order], tuple(slice(a, b) for a, b in pairwise(ends)))

    def code(self, encoder: FloatArray) -> FloatArray:
        """Return softmax(U s)."""
        return softmax((self.x @ encoder.astype(np.float32)).astype(np.float64), axis=1)

    def outcome(self, discriminators: FloatArray) -> FloatArray:
        """Return f(s') = tanh(u . s'), one column each."""
        return np.tanh(self.y @ discriminators.astype(np.float32)).astype(np.float64)


def least_squares(
    code: FloatArray, targets: FloatArray, blocks: Sequence[slice], ridge: float
) -> tuple[FloatArray, FloatArray, float]:
    """Minimise sum |w . phi - f|^2 + ridge |w|^2; return w by action, the residual, the minimum."""
    gram = np.stack([code[rows].T @ code[rows] for rows in blocks])
    moment = np.stack([code[rows].T @ targets[rows] for rows in blocks])
    weights = np.linalg.solve(gram + ridge * np.eye(code.shape[1]), moment)
    residual = targets - _predict(code, weights, blocks)
    return weights, residual, float(np.vdot(residual, residual) + ridge * np.vdot(weights, weights))


def _predict(code: FloatArray, weights: FloatArray, blocks: Sequence[slice]) -> FloatArray:
    return np.concatenate([code[rows] @ w for rows, w in zip(blocks, weights, strict=True)])


def _encoder_loss(
    rows: Rows, encoder: FloatArray, targets: FloatArray, ridge: float
) -> tuple[float, FloatArray, FloatArray]:
    """Return the least-squares minimum, its gradient (partial, as w is optimal), the residual."""
    code = rows.code(encoder)
    weights, residual, loss = least_squares(code, targets, rows.blocks, ridge)
    by_code = -2 * _predict(residual, weights.swapaxes(1, 2), rows.blocks)
    by_logit = code * (by_code - (code * by_code).sum(axis=1, keepdims=True))
    return loss, (rows.x.T @ by_logit.astype(np.float32)).astype(np.float64), residual


def fit_encoder(
    rows: Rows, f: FloatArray, centre: FloatArray, begins: Sequence[FloatArray], config: BRIEEConfig
) -> FloatArray:
    """Minimise the mean error over discriminators and a pull to `centre`, from every begin."""
    targets, share = rows.outcome(f), 1.0 / f.shape[1]

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        encoder = parameters.reshape(centre.shape)
        loss, gradient, _ = _encoder_loss(rows, encoder, targets, config.ridge)
        moved = encoder - centre
        loss = share * loss + config.proximal * float(np.vdot(moved, moved))
        return loss, (share * gradient + 2 * config.proximal * moved).ravel()

    ends = [minimize(objective, begin.ravel(), jac=True, **SOLVER) for begin in begins]
    return min(ends, key=lambda end: end.fun).x.reshape(centre.shape)


def spectral(x: Array, columns: int, rng: Generator) -> FloatArray:
    """Draw a map of the directions in which rows vary most, to start from: clusters show there."""
    leading = np.linalg.eigh(x.T @ x)[1][:, -3:]
    return 2 * leading @ rng.normal(size=(leading.shape[1], columns))


def worst_discriminator(
    rows: Rows, encoder: FloatArray, begins: Sequence[FloatArray], config: BRIEEConfig
) -> tuple[FloatArray, FloatArray]:
    """Maximise the gap over phi~ (whose error it subtracts: no saddle) and f; return f and phi~."""
    code, latents = rows.code(encoder), encoder.shape[1]
    centre = np.hstack([encoder, np.zeros((len(encoder), 1))])

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        both = parameters.reshape(centre.shape)
        f = rows.outcome(both[:, latents:])
        _, residual, error = least_squares(code, f, rows.blocks, config.ridge)
        best, by_rival, rest = _encoder_loss(rows, both[:, :latents], f, config.ridge)
        by_f = rows.y.T @ ((2 * (residual - rest)) * (1 - f * f)).astype(np.float32)
        moved = both - centre
        gradient = np.hstack([by_rival, -by_f]) + 2 * config.decay * moved
        return best - error + config.decay * float(np.vdot(moved, moved)), gradient.ravel()

    ends = [minimize(objective, begin.ravel(), jac=True, **SOLVER) for begin in begins]
    both = min(ends, key=lambda end: end.fun).x.reshape(centre.shape)
    return both[:, latents:], both[:, :latents]


def held_out_gap(
    train: Rows, test: Rows, encoders: Sequence[FloatArray], f: FloatArray, config: BRIEEConfig
) -> tuple[float, float]:
    """Return the gap of phi to phi~ summed over rows nothing was fitted to, and its error."""
    squares, target = [], train.outcome(f)
    for encoder in encoders:
        weights, _, _ = least_squares(train.code(encoder), target, train.blocks, config.ridge)
        predicted = _predict(test.code(encoder), weights, test.blocks)
        squares.append(np.square(predicted - test.outcome(f)))
    gaps = squares[0] - squares[1]
    return float(gaps.sum()), float(np.sqrt(np.square(gaps).sum()))


def learn_representation(
    data: Transitions, old: OptimisticQ, shared: OptimisticQ, config: BRIEEConfig, rng: Generator
) -> OptimisticQ:
    """Fit phi, near the `shared` one, to all discriminators and add the worst one, in turn."""
    x, in_x, out_x = standardise(data.observation)
    y, in_y, out_y = standardise(data.next_observation)
    rows = Rows.of(x, y, data.action, len(old.weights))
    known, found = in_y @ shared.discriminators, np.zeros((y.shape[1], 0))
    encoder = centre = (in_x @ shared.encoder).astype(float)
    if known.shape[1]:
        bold = centre + spectral(x, config.latents, rng)
        encoder = fit_encoder(rows, known, centre, (in_x @ old.encoder, centre, bold), config)
    while found.shape[1] < config.discriminators:
        half = rng.permutation(len(data)) % 2 == 0
        train, test = (Rows.of(x[p], y[p], data.action[p], len(old.weights)) for p in (half, ~half))
        begins = [np.hstack([encoder + spectral(x, config.latents, rng), spectral(y, 1, rng)])]
        begins += [np.hstack([in_x @ old.encoder, in_y @ u[:, None]]) for u in old.discriminators.T]
        f, rival = worst_discriminator(train, encoder, begins[:2], config)
        gap, error = held_out_gap(train, test, (encoder, rival), f, config)
        if gap <= config.confidence * max(error, 1.0):  # f has values in [-1, 1]
            break
        found, known = np.hstack([f, found]), np.hstack([f, known])[:, : config.discriminators]
        encoder = fit_encoder(rows, known, centre, (encoder, rival), config)
    return replace(old, encoder=out_x @ encoder, discriminators=out_y @ found)


def learn_representations(
    online: OnlineStore, functions: Sequence[OptimisticQ], config: BRIEEConfig, streams: Streams
) -> list[OptimisticQ]:
    """Learn phi_0, ..., phi_{H-1}, each near the one before it."""
    learned: list[OptimisticQ] = []
    blind = replace(functions[0], encoder=0 * functions[0].encoder)
    shared = blind = replace(blind, discriminators=blind.discriminators[:, :0])
    for h, old in enumerate(functions):
        parts, new = online.at(h), old
        if _due(sum(map(len, parts[:-1])), sum(map(len, parts)), config.refresh):
            data, rng = Transitions.concatenate(parts), streams.generator("representation", h)
            new = learn_representation(data, old, shared, config, rng)
        learned.append(new)
        pool = np.hstack([new.discriminators, shared.discriminators])[:, : config.discriminators]
        shared = replace(new, discriminators=pool) if config.share else blind
    return learned


def _due(before: int, now: int, growth: float) -> bool:
    levels = [np.log(max(n, 1)) / np.log(1 + growth) if growth else n for n in (before, now)]
    return bool(np.floor(levels[1]) > np.floor(levels[0]))  # past a power of 1 + growth


def plan(online: OnlineStore, learned: Sequence[OptimisticQ]) -> tuple[OptimisticQ, ...]:
    """Optimistic least-squares value iteration with the learned features (LSVI-UCB)."""
    config = learned[0].config
    functions: list[OptimisticQ] = []
    for h in reversed(range(len(learned))):
        data = Transitions.concatenate(online.at(h))
        next_values = functions[-1].values(data.next_observation) if functions else 0.0
        target = data.reward + data.discount * np.minimum(
            np.max(next_values, axis=-1), config.v_max
        )
        code = learned[h].code(data.observation)
        taken = [data.action == action for action in range(len(learned[h].weights))]
        gram = np.stack([code[rows].T @ code[rows] for rows in taken])
        moment = np.stack([code[rows].T @ target[rows] for rows in taken])
        inverse = np.linalg.inv(gram + config.lambda_ * np.eye(config.latents))
        weights = np.einsum("akl,al->ak", inverse, moment)
        functions.append(replace(learned[h], weights=weights, inverse=inverse))
    return tuple(reversed(functions))


@dataclass(frozen=True)
class BRIEE:
    """BRIEE for vector observations and finitely many actions.

    Metrics: the `discriminators` of all steps; the `optimistic_value`, mean max_a Q_0 at the start.
    """

    config: BRIEEConfig = BRIEEConfig()

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: State | None = None
    ) -> Iterator[Step]:
        """Alternate between collecting, learning features and planning optimistically."""
        config, horizon, zero = self.config, offline.by_step().horizon, _ignorance(env, self.config)
        state = state or State.of((zero,) * horizon)
        functions, online, (begin, samples) = state.functions(zero), state.online, state.counts
        for t in range(begin, config.iterations):
            now, clock = Streams(streams.integer("briee", t)), [time.perf_counter()]
            batch, used = collect(env, GreedyPolicy(functions), horizon, now)
            online += batch
            samples += used
            clock.append(time.perf_counter())
            learned = learn_representations(online, functions, config, now)
            clock.append(time.perf_counter())
            functions = plan(online, learned)
            clock.append(time.perf_counter())
            found = sum(f.discriminators.shape[1] for f in functions)
            hope = functions[0].values(batch[0].observation).max(axis=1)
            yield Step(
                State.of(functions, t + 1, samples, online),
                policy=GreedyPolicy(functions),
                metrics={"discriminators": found, "optimistic_value": float(hope.mean())},
                seconds=dict(zip(("collect", "represent", "plan"), np.diff(clock), strict=True)),
            )


def _ignorance(env: VectorEnv, config: BRIEEConfig) -> OptimisticQ:
    """Return Q before any data: no feature, w = 0 and Sigma = lambda I."""
    shape, space = env.single_observation_space.shape, env.single_action_space
    if shape is None or len(shape) != 1:
        raise HyqError(f"BRIEE needs observations that are vectors, not of shape {shape}")
    k, width, actions = config.latents, shape[0] + 1, num_actions(space)
    inverse = np.tile(np.eye(k) / config.lambda_, (actions, 1, 1))
    weights = np.zeros((actions, k))
    return OptimisticQ(np.zeros((width, k)), np.zeros((width, 0)), weights, inverse, config)
