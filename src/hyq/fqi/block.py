"""The paper's class for block MDPs: f(x, a) = w_a . softmax(U x + b), three latents wide.

The least-squares oracle learns the encoder (U, b) by *variable projection*: for any encoder the
best head is a small bounded least-squares problem with an exact solution, so the search runs over
the encoder alone, by L-BFGS on all the data at once. docs/algorithms/hyq_fqi.md measures it:

* it starts from what the observations alone show (`corners`), whatever the emission of the step;
* a weak pull towards that start keeps latents apart where the targets do not tell them apart;
* the head lives in [0, V_max], which bounds f as the paper's class is bounded and forbids encodings
  that hardly differ but are separated by huge weights;
* values are read with the *hard* encoding, the limit of the softmax at temperature zero, so that
  no value leaks from one latent state into another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.optimize import minimize
from scipy.special import softmax

from hyq.core.settings import check_choices, check_range
from hyq.core.types import Array, FloatArray, IntArray
from hyq.fqi.classes import DiscreteValueFunction, Regression

Encoding = Literal["hard", "soft"]


def encode(logits: FloatArray, encoding: Encoding) -> FloatArray:
    """Return the softmax of each row, or its one-hot limit at temperature zero."""
    if encoding == "hard":
        return np.eye(logits.shape[1])[logits.argmax(axis=1)]
    return softmax(logits, axis=1)


@dataclass(frozen=True)
class BlockFunction(DiscreteValueFunction):
    """One Q-function: a linear encoder into latents and a table of their action values."""

    encoder: NDArray[np.float32]
    bias: NDArray[np.float32]
    head: NDArray[np.float32]
    encoding: Encoding

    def values(self, observation: FloatArray) -> FloatArray:
        """Return f(x, a) for every action a."""
        if self.encoding == "hard":
            return self.head[self.latent(observation)]
        return softmax(observation @ self.encoder + self.bias, axis=1) @ self.head

    def latent(self, observation: FloatArray) -> IntArray:
        """Return the most likely latent state of each row."""
        return (observation @ self.encoder + self.bias).argmax(axis=1)

    def arrays(self) -> Mapping[str, Array]:
        """Return the parameters."""
        hard = np.array([self.encoding == "hard"])
        return {**super().arrays(), "hard": hard}

    def with_arrays(self, arrays: Mapping[str, Array]) -> "BlockFunction":
        """Return the function with these parameters and the same encoding."""
        return super().with_arrays({n: array for n, array in arrays.items() if n != "hard"})


@dataclass(frozen=True)
class BlockClass:
    """All block functions of a given size, with values in [0, v_max]."""

    dimension: int
    actions: int
    v_max: float = 1.0
    latents: int = 3
    encoding: Encoding = "hard"
    bounded: bool = True
    """Keep the head inside [0, v_max]; otherwise it is free."""
    proximal: float = 3e-5
    """Pull towards the encoder the fit starts from."""
    ridge: float = 1e-4
    """Pull of the head towards zero, in units of one sample: it decides only what data does not."""
    steps: int = 30
    """Iterations of L-BFGS."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_range("latents", self.latents, 1, self.dimension + 1)

    def zero(self) -> BlockFunction:
        """Return f = 0, with an encoder that tells nothing apart."""
        return BlockFunction(
            np.zeros((self.dimension, self.latents), np.float32),
            np.zeros(self.latents, np.float32),
            np.zeros((self.latents, self.actions), np.float32),
            self.encoding,
        )

    def fit(self, problem: Regression) -> BlockFunction:
        """Minimise the weighted squared error."""
        # Sorting by action makes every per-action sum a sum over a contiguous block of rows.
        order = np.argsort(problem.rows.action, kind="stable")
        action = problem.rows.action[order]
        weight, target = problem.weight[order], problem.target[order] / self.v_max
        # Between one weight for all rows, by which a few online rows hardly count, and theirs, by
        # which the noise of these few is most of what is seen.
        share = np.sqrt(weight) / np.sqrt(weight).sum()
        mean = share @ problem.rows.observation[order]
        x = np.subtract(problem.rows.observation[order], mean, dtype=np.float32)
        # Unit-norm inputs make the pull mean the same whatever the observations' scale. Where all
        # rows are equal there is nothing to scale.
        scale = np.float32(np.sqrt(share @ np.square(x).sum(axis=1))) or np.float32(1)
        x /= scale

        best_head = head_solver(action, target, weight, self)
        begin = SHARPNESS * corners(x, share, self.latents).ravel()

        def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
            matrix = parameters.reshape(-1, self.latents).astype(np.float32)
            code = softmax(x @ matrix[:-1] + matrix[-1], axis=1)
            head = best_head(code)
            chosen = head.T[action]
            residual = np.einsum("ij,ij->i", code, chosen) - target
            moved = parameters - begin
            loss = weight @ residual**2 + self.proximal * (moved @ moved)
            # At the best head the loss is stationary in the head, so its gradient in the encoder
            # is the partial one (the envelope theorem); the rest is the softmax's own derivative.
            pull = (2 * weight * residual)[:, None]
            by_logit = code * (chosen - np.einsum("ij,ij->i", code, chosen)[:, None]) * pull
            by_logit = by_logit.astype(np.float32)
            gradient = np.vstack([x.T @ by_logit, by_logit.sum(axis=0)]).astype(np.float64).ravel()
            gradient += 2 * self.proximal * moved
            return LOSS_SCALE * loss, LOSS_SCALE * gradient

        options = {"maxiter": self.steps, "ftol": 1e-5, "gtol": 1e-5}
        found = minimize(objective, begin, jac=True, method="L-BFGS-B", options=options)
        matrix = found.x.reshape(-1, self.latents).astype(np.float32)
        logits = x @ matrix[:-1] + matrix[-1]
        code = encode(logits, self.encoding).astype(np.float32)
        encoder = matrix[:-1] / scale
        return BlockFunction(
            encoder,
            (matrix[-1] - mean @ encoder).astype(np.float32),
            (self.v_max * best_head(code)).astype(np.float32),
            self.encoding,
        )


def corners(x: FloatArray, share: FloatArray, count: int) -> FloatArray:
    """Return an affine map (bias in the last row) of centred rows to weights of `count` corners.

    Where noise is smaller than the distances between latents, the directions in which rows vary
    most are those that tell latents apart, and in these the rows lie around the corners of a
    simplex. A pivoted QR factorisation picks a row near each, and the map is the rows' barycentric
    coordinates: about one for the corner of a row's own latent, about zero for the others.
    """
    width = x.shape[1]
    leading = np.linalg.eigh((x * share[:, None]).T @ x)[1][:, width + 1 - count :]
    inward = np.vstack([leading, np.zeros(count - 1)])
    inward = np.hstack([inward, np.eye(width + 1)[:, -1:]])
    rows = np.hstack([x @ leading, np.ones((len(x), 1))])
    picked = qr(rows.T, mode="r", pivoting=True)[1][:count]
    return np.asarray(inward @ np.linalg.pinv(rows[picked]))


SHARPNESS = 5.0
"""Logits by which a row's own corner leads at the start."""
LOSS_SCALE = 1e4
"""L-BFGS measures progress against max(|loss|, 1); a mean squared error is far below one."""


def head_solver(
    action: IntArray, target: FloatArray, weight: FloatArray, family: BlockClass
) -> Callable[[NDArray[np.float32]], FloatArray]:
    """Return what finds, for any code, the head (latents, actions) of the least squared error.

    That is sum_i weight_i (code_i . head[:, a_i] - target_i)^2 over rows that are sorted by action.
    Actions never seen get zero.
    """
    k, weight, target = family.latents, weight[:, None], target[:, None]
    seen, first = np.unique(action, return_index=True)
    ridge = family.ridge / len(action) * np.eye(k)

    def solve(code: NDArray[np.float32]) -> FloatArray:
        p = code.astype(np.float64)
        weighted = p * weight
        products = (weighted[:, :, None] * p[:, None, :]).reshape(len(p), k * k)
        gram = np.add.reduceat(products, first, axis=0).reshape(-1, k, k) + ridge
        moment = np.add.reduceat(weighted * target, first, axis=0)
        rows = np.linalg.solve(gram, moment[:, :, None])[:, :, 0]
        outside = ((rows < 0) | (rows > 1)).any(axis=1)
        if family.bounded and outside.any():
            rows[outside] = _box_least_squares(gram[outside], moment[outside], rows[outside])
        head = np.zeros((k, family.actions))
        head[:, seen] = rows.T
        return head

    return solve


def _box_least_squares(gram: FloatArray, moment: FloatArray, start: FloatArray) -> FloatArray:
    """Minimise w.G w / 2 - m.w over the unit box, many small problems at once.

    Cyclic coordinate descent, which converges to the minimum because each G is positive definite.
    """
    w = np.clip(start, 0.0, 1.0)
    for _ in range(60):
        before = w.copy()
        for j in range(w.shape[1]):
            gradient = np.einsum("ij,ij->i", gram[:, j], w) - moment[:, j]
            w[:, j] = np.clip(w[:, j] - gradient / gram[:, j, j], 0.0, 1.0)
        if np.abs(w - before).max() < 1e-6:
            break
    return w
