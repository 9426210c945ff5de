"""BRIEE: learn the representation and explore with it (Zhang et al. 2022, arXiv 2202.00063).

    for n = 1, 2, ...:
        for every h: roll in to h with pi, act uniformly at h and h + 1                 two tuples
        for every h: phi_h <- RepLearn(all tuples of step h)                   min-max-min, below
        b_h(s, a) = min(alpha |phi_h(s, a)|_{Sigma_h^-1}, cap),  Sigma_h = sum phi phi^T + lambda I
        for h = H-1, ..., 0:                                                             LSVI-UCB
            Q_h = min(w_h . phi_h + b_h, V_max),  w_h = Sigma_h^-1 sum phi_h (r + max_a' Q_{h+1})
        pi <- greedy policy of Q

The features are those of a block MDP, phi_h(s, a) = softmax(U_h s) x onehot(a). They should predict
every bounded function f of the next state, as well as any other features would:

    min_phi max_f [ min_w E (w . phi(s, a) - f(s'))^2  -  min_{phi~, w~} E (w~ . phi~(s, a) - f(s'))^2 ]

A growing set of discriminators f solves it: phi fits them all, the worst f for that phi is added,
and so on until none is worse than chance. It is a purely online method; of the offline data it
knows nothing but the horizon.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from hyq.algos.base import Step
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, IntArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.online import Batch, OnlineStore
from hyq.models.block import Encoding, softmax
from hyq.rollout import Policy, VectorEnv, lockstep, uniform_actions


@dataclass(frozen=True)
class BRIEEConfig:
    """The settings of BRIEE; the lanes of the environment are the rollouts per step."""

    iterations: int = 500
    """N, the number of iterations."""
    latents: int = 3
    """Number of latent states the encoder may tell apart."""
    encoding: Encoding = "hard"
    """Plan with the encoder's argmax ("hard") or with its softmax ("soft")."""
    share_encoders: bool = True
    """A step that has found no discriminator yet uses the encoder of the step before."""
    discriminators: int = 8
    """Most discriminators a step keeps."""
    rounds: int = 2
    """Most discriminators a step adds in one iteration."""
    confidence: float = 3.0
    """Standard errors by which a discriminator's gap on held-out rows must exceed zero."""
    decay: float = 2.0
    """Squared-norm penalty of encoders and discriminators, per unit of summed squared error."""
    proximal: float = 1.0
    """The same for moving away from the encoder a fit starts at."""
    ridge: float = 0.01
    """Penalty of the weights w in representation learning."""
    steps: int = 30
    """Iterations of L-BFGS, for the encoder and for each new discriminator."""
    alpha: float = 0.05
    """Scale of the bonus."""
    bonus_cap: float = 1.0
    """Largest bonus."""
    lambda_: float = 0.0025
    """Regulariser of Sigma: a pair never seen has the bonus alpha / sqrt(lambda)."""
    v_max: float = 1.0
    """Largest value; optimism never promises more."""

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        for name in ("iterations", "latents", "discriminators", "rounds", "steps"):
            if getattr(self, name) < 1:
                raise HyqError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("ridge", "lambda_", "v_max"):
            if not getattr(self, name) > 0:
                raise HyqError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("confidence", "decay", "proximal", "alpha", "bonus_cap"):
            if not getattr(self, name) >= 0:
                raise HyqError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.encoding not in ("hard", "soft"):
            raise HyqError(f"encoding must be 'hard' or 'soft', got {self.encoding!r}")


@dataclass(frozen=True)
class Representation:
    """phi_h and what it was trained against. Affine maps keep their bias in the last row."""

    encoder: FloatArray
    """U, shape (D + 1, latents)."""
    discriminators: FloatArray
    """One f(s') = tanh(u . s') a column, shape (D + 1, J)."""

    def code(self, observation: Array, encoding: Encoding) -> FloatArray:
        """Return softmax(U s), or its one-hot limit at temperature zero."""
        logits = _affine(observation, self.encoder)
        if encoding == "hard":
            return np.eye(logits.shape[1])[logits.argmax(axis=1)]
        return softmax(logits)


@dataclass(frozen=True)
class OptimisticQ:
    """Q_h = min(w . phi + b, V_max); with one-hot actions Sigma is a block for every action."""

    representation: Representation
    weights: FloatArray
    """w, shape (A, latents)."""
    inverse: FloatArray
    """Sigma^-1, shape (A, latents, latents)."""

    def bonus(self, code: FloatArray, config: BRIEEConfig) -> FloatArray:
        """Return b(s, a) = min(alpha |phi(s, a)|_{Sigma^-1}, cap) for every action."""
        width = np.einsum("nk,akl,nl->na", code, self.inverse, code)
        return np.minimum(config.alpha * np.sqrt(width), config.bonus_cap)

    def values(self, observation: Array, config: BRIEEConfig) -> FloatArray:
        """Return Q_h(s, a) for every action."""
        code = self.representation.code(observation, config.encoding)
        return np.minimum(code @ self.weights.T + self.bonus(code, config), config.v_max)


@dataclass(frozen=True)
class BRIEEState:
    """Everything the next iteration depends on."""

    iteration: int
    functions: tuple[OptimisticQ, ...]
    online: OnlineStore
    online_samples: int


def greedy_policy(functions: Sequence[OptimisticQ], config: BRIEEConfig) -> Policy:
    """Return the policy that takes argmax_a Q_h(s, a) at step h."""
    return lambda h, observation: functions[h].values(observation, config).argmax(axis=1)


# --- Collection ---------------------------------------------------------------------------------


def collect(env: VectorEnv, policy: Policy, horizon: int, streams: Streams) -> tuple[Batch, int]:
    """For every step h, roll in with the policy and act uniformly at h and h + 1.

    Return the tuples of those two steps, by step, and the transitions everything cost.
    """
    parts: list[list[Transitions]] = [[] for _ in range(horizon)]
    samples = 0
    for depth in range(horizon):
        acting = _uniform_from(depth, policy, env, streams.generator("uniform-actions", depth))
        length = min(depth + 2, horizon)
        for h, (rows, _) in enumerate(
            lockstep(env, acting, length, streams.integer("roll-in", depth))
        ):
            samples += env.num_envs
            if h >= depth:
                parts[h].append(rows)
            nothing = rows[:0]
    first = _uniform_from(0, policy, env, streams.generator("first-action"))
    for rows, _ in lockstep(env, first, 1, streams.integer("first-step")):
        parts[0].append(rows)
        samples += env.num_envs
    return tuple(Transitions.concatenate(part or [nothing]) for part in parts), samples


def _uniform_from(depth: int, policy: Policy, env: VectorEnv, rng: np.random.Generator) -> Policy:
    def act(h: int, observation: Array) -> Array:
        if h < depth:
            return policy(h, observation)
        return uniform_actions(env.single_action_space, env.num_envs, rng)

    return act


# --- Representation learning --------------------------------------------------------------------


@dataclass(frozen=True)
class Standard:
    """Centred inputs of unit mean square norm, in which a penalty means the same at any scale."""

    mean: FloatArray
    scale: float

    @classmethod
    def of(cls, x: Array) -> "Standard":
        """Measure a batch."""
        mean = x.mean(axis=0)
        return cls(mean, float(np.sqrt(np.square(x - mean).sum(axis=1).mean())) or 1.0)

    def apply(self, x: Array) -> Array:
        """Standardise a batch, with a column of ones for the bias."""
        return np.hstack([(x - self.mean) / self.scale, np.ones((len(x), 1))]).astype(np.float32)

    def inward(self, matrix: FloatArray) -> FloatArray:
        """Rewrite an affine map of raw inputs as one of standardised inputs."""
        return np.vstack([matrix[:-1] * self.scale, matrix[-1] + self.mean @ matrix[:-1]])

    def outward(self, matrix: FloatArray) -> FloatArray:
        """Undo `inward`."""
        linear = matrix[:-1] / self.scale
        return np.vstack([linear, matrix[-1] - self.mean @ linear])


@dataclass(frozen=True)
class Rows:
    """The tuples of one step, standardised and sorted by action."""

    x: Array
    y: Array
    """The next observations."""
    blocks: tuple[slice, ...]
    """The rows of every action."""

    @classmethod
    def of(cls, x: Array, y: Array, action: IntArray, actions: int) -> "Rows":
        """Sort."""
        order = np.argsort(action, kind="stable")
        ends = np.searchsorted(action[order], np.arange(actions + 1))
        blocks = tuple(slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True))
        return cls(x[order], y[order], blocks)


def least_squares(
    code: FloatArray, targets: FloatArray, blocks: Sequence[slice], ridge: float
) -> tuple[FloatArray, FloatArray]:
    """Return argmin_w sum |w . phi - targets|^2 + ridge |w|^2, by action, and its predictions."""
    penalty = ridge * np.eye(code.shape[1])
    weights = np.empty((len(blocks), code.shape[1], targets.shape[1]))
    predicted = np.empty(targets.shape)
    for action, rows in enumerate(blocks):
        c = code[rows]
        weights[action] = np.linalg.solve(c.T @ c + penalty, c.T @ targets[rows])
        predicted[rows] = c @ weights[action]
    return weights, predicted


def _encoder_loss(
    matrix: FloatArray, x: Array, targets: FloatArray, blocks: Sequence[slice], ridge: float
) -> tuple[float, FloatArray, FloatArray]:
    """Return min_w of the squared error of phi = softmax(x matrix), its gradient, the residual.

    At the best w the error is stationary in w, so the gradient is the partial one in the encoder.
    """
    code = softmax(x @ matrix.astype(np.float32)).astype(np.float64)
    weights, predicted = least_squares(code, targets, blocks, ridge)
    residual = targets - predicted
    loss = float(np.vdot(residual, residual)) + ridge * float(np.vdot(weights, weights))
    by_code = np.empty_like(code)
    for action, rows in enumerate(blocks):
        by_code[rows] = -2 * residual[rows] @ weights[action].T
    by_logit = code * (by_code - (code * by_code).sum(axis=1, keepdims=True))
    return loss, (x.T @ by_logit.astype(np.float32)).astype(np.float64), residual


def fit_encoder(
    rows: Rows,
    targets: FloatArray,
    begins: Sequence[FloatArray],
    centre: FloatArray,
    config: BRIEEConfig,
) -> FloatArray:
    """Minimise the error of predicting all discriminators plus the distance to `centre`.

    The search begins at the best of `begins`.
    """
    share = 1.0 / targets.shape[1]

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        matrix = parameters.reshape(centre.shape)
        loss, gradient, _ = _encoder_loss(matrix, rows.x, targets, rows.blocks, config.ridge)
        moved = matrix - centre
        loss = share * loss + config.proximal * float(np.vdot(moved, moved))
        return loss, (share * gradient + 2 * config.proximal * moved).ravel()

    best = min(begins, key=lambda begin: objective(begin)[0])
    return _minimise(objective, best, config.steps)


def worst_discriminator(
    rows: Rows, encoder: FloatArray, config: BRIEEConfig, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Maximise the gap over f and, as it is what the gap subtracts, over phi~; return both.

    The inner minimum enters with a minus sign, so both are one maximisation, not a saddle.
    """
    code = softmax(rows.x @ encoder.astype(np.float32)).astype(np.float64)
    width, latents = encoder.shape
    centre = np.hstack([encoder, np.zeros((width, 1))])
    begin = centre.copy()
    begin[:, :latents] += spectral(rows.x, latents) @ rng.normal(size=(latents, latents))
    begin[:, latents:] = spectral(rows.y, latents) @ rng.normal(size=(latents, 1))

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        both = parameters.reshape(begin.shape)
        f = np.tanh(rows.y @ both[:, latents:].astype(np.float32)).astype(np.float64)
        weights, predicted = least_squares(code, f, rows.blocks, config.ridge)
        residual = f - predicted
        error = np.vdot(residual, residual) + config.ridge * np.vdot(weights, weights)
        best, by_encoder, best_residual = _encoder_loss(
            both[:, :latents], rows.x, f, rows.blocks, config.ridge
        )
        by_f = 2 * (residual - best_residual) * (1 - f * f)
        by_u = rows.y.T @ by_f.astype(np.float32)
        moved = both - centre
        gradient = np.hstack([by_encoder, -by_u]) + 2 * config.decay * moved
        return float(best - error + config.decay * np.vdot(moved, moved)), gradient.ravel()

    both = _minimise(objective, begin, config.steps)
    return both[:, latents:], both[:, :latents]


def spectral(x: Array, count: int) -> FloatArray:
    """Return the directions in which the rows vary most, each scaled to move a softmax."""
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    return SPEC * vectors[:, -count:]


SPEC = 2.0
MARGIN = 4.0


def held_out_gap(
    train: Rows,
    test: Rows,
    encoders: tuple[FloatArray, FloatArray],
    discriminator: FloatArray,
    config: BRIEEConfig,
) -> tuple[float, float]:
    """Return the gap summed over rows it was not maximised on, and its standard error."""
    errors = []
    f, target = (np.tanh(rows.y @ discriminator).astype(np.float64) for rows in (train, test))
    for encoder in encoders:
        code = softmax(train.x @ encoder)
        weights, _ = least_squares(code, f, train.blocks, config.ridge)
        code = softmax(test.x @ encoder)
        errors.append([code[r] @ weights[a] - target[r] for a, r in enumerate(test.blocks)])
    mine, best = (np.square(np.concatenate(error)).ravel() for error in errors)
    return float((mine - best).sum()), float(np.sqrt(np.square(mine - best).sum()))


def learn_representation(
    data: Transitions,
    own: Representation,
    shared: Representation,
    actions: int,
    config: BRIEEConfig,
    rng: np.random.Generator,
) -> tuple[Representation, Representation]:
    """Alternate between fitting phi to all discriminators and adding the worst one for it."""
    seen, reached = Standard.of(data.observation), Standard.of(data.next_observation)
    x, y = seen.apply(data.observation), reached.apply(data.next_observation)
    rows = Rows.of(x, y, data.action, actions)
    centre = seen.inward(shared.encoder)
    encoder = seen.inward(own.encoder)
    found = reached.inward(own.discriminators)
    known = np.hstack([found, reached.inward(shared.discriminators)])[:, : config.discriminators]
    if known.shape[1]:
        encoder = fit_encoder(rows, np.tanh(rows.y @ known), (encoder, centre), centre, config)
    else:
        encoder = centre
    for _ in range(min(config.rounds, config.discriminators - found.shape[1])):
        half = rng.permutation(len(data)) % 2 == 0
        train, test = (Rows.of(x[p], y[p], data.action[p], actions) for p in (half, ~half))
        discriminator, rival = worst_discriminator(train, encoder, config, rng)
        gap, error = held_out_gap(train, test, (encoder, rival), discriminator, config)
        if gap <= config.confidence * error:
            break
        found = np.hstack([discriminator, found])
        known = np.hstack([discriminator, known])[:, : config.discriminators]
        targets = np.tanh(rows.y @ known)
        encoder = fit_encoder(rows, targets, (encoder, rival), centre, config)
    learned = seen.outward(encoder)
    return (
        Representation(learned, reached.outward(found)),
        Representation(learned, reached.outward(known)),
    )


def _minimise(
    objective: Callable[[FloatArray], tuple[float, FloatArray]], begin: FloatArray, steps: int
) -> FloatArray:
    options = {"maxiter": steps, "ftol": 1e-4, "gtol": 1e-4}
    found = minimize(objective, begin.ravel(), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(begin.shape)


# --- Planning -----------------------------------------------------------------------------------


def plan(
    online: OnlineStore,
    representations: Sequence[Representation],
    actions: int,
    config: BRIEEConfig,
) -> tuple[OptimisticQ, ...]:
    """Optimistic least-squares value iteration with the learned features (LSVI-UCB)."""
    functions: list[OptimisticQ] = []
    for h in reversed(range(len(representations))):
        data = Transitions.concatenate(online.at(h))
        target = data.reward.astype(np.float64)
        if functions:
            following = functions[-1].values(data.next_observation, config).max(axis=1)
            target = target + data.discount * following
        functions.append(optimistic_q(data, target, representations[h], actions, config))
    return tuple(reversed(functions))


def optimistic_q(
    data: Transitions,
    target: FloatArray,
    representation: Representation,
    actions: int,
    config: BRIEEConfig,
) -> OptimisticQ:
    """Return w = Sigma^-1 sum phi target and Sigma^-1, action by action."""
    code = representation.code(data.observation, config.encoding)
    sigma = np.tile(config.lambda_ * np.eye(config.latents), (actions, 1, 1))
    moment = np.zeros((actions, config.latents))
    for action in range(actions):
        rows = code[data.action == action]
        sigma[action] += rows.T @ rows
        moment[action] = rows.T @ target[data.action == action]
    inverse = np.linalg.inv(sigma)
    return OptimisticQ(representation, np.einsum("akl,al->ak", inverse, moment), inverse)


# --- The loop -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class BRIEE:
    """BRIEE for environments with vector observations and finitely many actions. Its metrics are:

    * `discriminators`: how many discriminators all steps together have needed so far;
    * `optimistic_value`: mean of max_a Q_0 at the start states, what the agent hopes to earn;
    * `bonus`: mean bonus of the pairs just collected, before they were learned from.
    """

    config: BRIEEConfig = BRIEEConfig()

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: BRIEEState | None = None
    ) -> Iterator[Step[BRIEEState]]:
        """Alternate between collecting, learning features and planning optimistically."""
        config, horizon = self.config, offline.horizon
        actions = int(env.single_action_space.n)
        if state is None:
            state = self._begin(env, horizon, actions)
        blind = self._blind(env)
        online, samples = OnlineStore(state.online.batches), state.online_samples
        functions = state.functions
        for t in range(state.iteration, config.iterations):
            started = time.perf_counter()
            collecting = Streams(streams.integer("collect", t))
            batch, used = collect(env, greedy_policy(functions, config), horizon, collecting)
            online.add(batch)
            samples += used
            collected = time.perf_counter()
            representations: list[Representation] = []
            for h, function in enumerate(functions):
                if not h or not config.share_encoders:
                    shared = blind
                rng = streams.generator("representation", t, h)
                data = Transitions.concatenate(online.at(h))
                representation, shared = learn_representation(
                    data, function.representation, shared, actions, config, rng
                )
                representations.append(representation)
            learned = time.perf_counter()
            functions = plan(online, representations, actions, config)
            first = functions[0].values(batch[0].observation, config)
            yield Step(
                state=BRIEEState(t + 1, functions, online, samples),
                iteration=t + 1,
                online_samples=samples,
                policy=greedy_policy(functions, config),
                metrics={
                    "discriminators": float(
                        sum(r.discriminators.shape[1] for r in representations)
                    ),
                    "optimistic_value": float(first.max(axis=1).mean()),
                },
                seconds={
                    "collect": collected - started,
                    "represent": learned - collected,
                    "plan": time.perf_counter() - learned,
                },
            )

    def _blind(self, env: VectorEnv) -> Representation:
        width = env.single_observation_space.shape[0] + 1
        return Representation(np.zeros((width, self.config.latents)), np.zeros((width, 0)))

    def _begin(self, env: VectorEnv, horizon: int, actions: int) -> BRIEEState:
        k = self.config.latents
        inverse = np.tile(np.eye(k) / self.config.lambda_, (actions, 1, 1))
        function = OptimisticQ(self._blind(env), np.zeros((actions, k)), inverse)
        return BRIEEState(0, (function,) * horizon, OnlineStore(), 0)


def _affine(x: Array, matrix: FloatArray) -> Array:
    return x @ matrix[:-1].astype(np.float32) + matrix[-1].astype(np.float32)
