"""The lemmas behind Theorem 1, on random functions: each holds, and each is nearly an equality."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from hyq.core.types import FloatArray
from hyq.theory.structure import distributional_eluder, residual_matrices
from hyq.theory.theorem import (
    Setting,
    cumulative_bound,
    eluder_bound,
    linear_setting,
    low_rank_setting,
    sample_complexity,
)
from hyq.theory.transfer import bellman_residuals
from tests.theory.instances import Instance, random_instance, seeds

MANY = settings(max_examples=250, deadline=None, derandomize=True)


def some_functions(instance: Instance, count: int) -> FloatArray:
    return instance.rng.random((count, *instance.mdp.reward.shape))


@MANY
@given(seeds)
def test_performance_difference(seed: int) -> None:
    """E max_a f_0 - V^{pi^f} = sum_h E_{d^{pi^f}}[f_h - T f_{h+1}], hence <= with moduli."""
    instance = random_instance(seed)
    mdp, f = instance.mdp, some_functions(instance, 1)[0]
    policy = mdp.greedy_policy(f)
    left = float(mdp.initial @ f[0].max(axis=1)) - mdp.value(policy)
    terms = -(mdp.occupancy(policy) * bellman_residuals(mdp, f)).sum(axis=(1, 2))
    assert left == pytest.approx(terms.sum(), abs=1e-9)
    assert left <= np.abs(terms).sum() + 1e-9


@MANY
@given(seeds)
def test_optimism(seed: int) -> None:
    """V^{pi^e} - E max_a f_0 <= sum_h E_{d^{pi^e}}[T f_{h+1} - f_h], equal if pi^e is greedy."""
    instance = random_instance(seed)
    mdp, f = instance.mdp, some_functions(instance, 1)[0]
    for policy, equal in ((instance.policy, False), (mdp.greedy_policy(f), True)):
        left = mdp.value(policy) - float(mdp.initial @ f[0].max(axis=1))
        right = float((mdp.occupancy(policy) * bellman_residuals(mdp, f)).sum())
        assert left <= right + 1e-9
        if equal:
            assert left == pytest.approx(right, abs=1e-9)


def potential(vectors: FloatArray, bound: float) -> float:
    """Return the sum of ||X_t|| in the norm of the inverse of Sigma_{t-1}, lambda = B_X^2."""
    sigma = bound**2 * np.eye(vectors.shape[1])
    total = 0.0
    for x in vectors:
        total += math.sqrt(float(x @ np.linalg.solve(sigma, x)))
        sigma += np.outer(x, x)
    return total


@MANY
@given(seeds)
def test_elliptical_potential(seed: int) -> None:
    rng = np.random.default_rng(seed)
    t, d = int(rng.integers(1, 60)), int(rng.integers(1, 6))
    vectors = rng.standard_normal((t, d)) * rng.exponential(size=d)
    bound = float(np.linalg.norm(vectors, axis=1).max())
    assert potential(vectors, bound) <= math.sqrt(2 * d * t * math.log1p(t / d)) + 1e-9


def test_elliptical_potential_is_nearly_attained() -> None:
    """One vector of full length: 1 against sqrt(2 log 2) = 1.18."""
    assert potential(np.ones((1, 1)), 1.0) / math.sqrt(2 * math.log(2)) > 0.84


@MANY
@given(seeds)
def test_online_shift(seed: int) -> None:
    """Both change-of-distribution lemmas, with X = d^pi and W = the residual of g."""
    instance = random_instance(seed)
    mdp, joint = instance.mdp, some_functions(instance, 5)
    policies = np.array([mdp.greedy_policy(f) for f in joint])
    occupancy = np.array([mdp.occupancy(policy) for policy in policies])
    residual = bellman_residuals(mdp, joint)
    q_type = residual_matrices(mdp, joint, "q-type")
    v_type = residual_matrices(mdp, joint, "v-type")
    for h in range(mdp.horizon):
        own = (policies[-1, h] * residual[-1, h]).sum(axis=1)
        state = occupancy[:, h].sum(axis=2)
        squares_q = np.einsum("fsa,sa->f", occupancy[:-1, h], residual[-1, h] ** 2).sum()
        squares_v = mdp.actions * (state[:-1] @ (residual[-1, h] ** 2).mean(axis=1)).sum()
        for matrix, vectors, weights, squares in (
            (q_type, occupancy[:, h].reshape(5, -1), residual[-1, h].ravel(), squares_q),
            (v_type, state, own, squares_v),
        ):
            width = np.linalg.norm(vectors, axis=1).max()
            sigma = width**2 * np.eye(vectors.shape[1]) + vectors[:-1].T @ vectors[:-1]
            norm = math.sqrt(float(vectors[-1] @ np.linalg.solve(sigma, vectors[-1])))
            right = norm * math.sqrt(squares + width**2 * float(weights @ weights))
            assert abs(matrix[h, -1, -1]) <= right + 1e-9


def test_uniform_actions_cost_a_factor_of_the_number_of_actions_and_no_less() -> None:
    """All of the residual on the greedy action: (E_pi g)^2 = |A| E_uniform g^2."""
    g = np.array([1.0, 0.0, 0.0, 0.0])
    assert g[0] ** 2 == 4 * (g**2).mean()


@pytest.mark.parametrize("drift", [0.0, 0.4])
def test_freedman(drift: float) -> None:
    """Steps of +-1 that lean against the sum so far: |S - E| exceeds the bound in < delta of paths.

    Half of the right-hand side is exceeded more often than delta, so the test can fail.
    """
    rng = np.random.default_rng(0)
    paths, steps, delta, size = 20_000, 200, 0.01, 1.0
    total, centred, spread = np.zeros(paths), np.zeros(paths), np.zeros(paths)
    for _ in range(steps):
        mean = -drift * np.sign(total)
        x = np.where(rng.random(paths) < (1 + mean) / 2, 1.0, -1.0)
        total += x
        centred += x - mean
        spread += 2 * size * np.abs(mean) + 1.0
    rate = min(math.sqrt(math.log(2 / delta) / (steps * (1 + 2 * drift))), 1 / (2 * size))
    right = rate * spread + math.log(2 / delta) / rate
    assert (np.abs(centred) > right).mean() <= delta
    if drift == 0.0:
        assert (np.abs(centred) > right / 2).mean() > delta


def test_least_squares_generalises_as_promised() -> None:
    """The FQI guarantee's regression: error within 256 R^2 log(2 |H| / delta), by a wide margin."""
    rng = np.random.default_rng(0)
    members, cells, samples, delta = 20, 6, 200, 0.05
    worst = 0.0
    for _ in range(200):
        family = rng.random((members, cells))
        truth = family[0]
        law = rng.dirichlet(np.ones(cells))
        x = rng.choice(cells, size=samples, p=law)
        y = (rng.random(samples) < truth[x]).astype(float)
        fitted = family[((family[:, x] - y) ** 2).sum(axis=1).argmin()]
        worst = max(worst, samples * float(law @ (fitted - truth) ** 2))
    assert worst <= 256 * math.log(2 * members / delta)


def test_least_squares_over_an_infinite_class_pays_for_its_grid() -> None:
    """Tables of [0, 1] and random targets: the error is within 256 log(2 |N| / delta) + 20 eta n.

    Here the grid has 1 / (2 eta) values for each of the cells and of the two next values.
    """
    rng = np.random.default_rng(0)
    cells, samples, eta, delta = 4, 200, 0.01, 0.05
    log_grid = (cells + 2) * math.log(1 / (2 * eta))
    for _ in range(100):
        law, chance = rng.dirichlet(np.ones(cells)), rng.random(cells)
        x = rng.choice(cells, size=samples, p=law)
        seen = rng.random(samples) < chance[x]
        next_state = np.sort(rng.random(2))  # the next value, chosen after the data is seen
        y = np.where(seen, next_state[1], next_state[0])
        mass = np.bincount(x, minlength=cells)
        fitted = np.bincount(x, y, minlength=cells) / np.maximum(mass, 1)
        truth = next_state[0] + chance * (next_state[1] - next_state[0])
        error = samples * float(law @ (fitted - truth) ** 2)
        assert error <= 256 * (math.log(2 / delta) + log_grid) + 20 * eta * samples


def test_the_bound_of_theorem_1() -> None:
    setting = Setting(2.0, rank=3, horizon=4, largest=1.5, length=2.0, log_class=5.0)
    log_term = math.log(2 * 4 * 100 / 0.05) + 5.0
    potential_term = math.log(1 + 100 / 3)
    expected = (
        1.5
        + 16 * 1.5 * 2.0 * 100 * math.sqrt(4 / 100 * log_term)
        + 16 * 1.5 * math.sqrt(2 * 3 * 16 * 100 * potential_term * log_term)
        + 4 * 2.0 * math.sqrt(2 * 3 * 100 * potential_term)
    )
    assert cumulative_bound(setting, 100, m_off=100) == pytest.approx(expected)
    # Sublinear when m_off = T, linear when m_off stays behind (forgetting).
    long = 10**10
    assert cumulative_bound(setting, long, long) < 0.1 * long
    assert cumulative_bound(setting, long, 100) > 0.1 * long
    samples = sample_complexity(setting, 0.5)
    iterations = samples // 8
    assert cumulative_bound(setting, iterations, iterations) <= 0.5 * iterations
    assert cumulative_bound(setting, iterations // 2, iterations // 2) > 0.5 * (iterations // 2)


def test_an_infinite_class_is_charged_for_its_grid() -> None:
    """T values a parameter, and 20 R (R / 2T) n for what lies between them, n = m_off + T."""
    infinite = Setting(2.0, rank=3, horizon=4, largest=1.5, length=0.0, parameters=12)
    t, m_off = 100, 50
    log_term = math.log(2 * 4 * t / 0.05) + 12 * math.log(t)
    squares = 256 * 1.5**2 * log_term + 20 * 1.5 * (1.5 / (2 * t)) * (m_off + t)
    expected = (
        1.5
        + 2.0 * t * math.sqrt(4 * squares / m_off)
        + math.sqrt(2 * 3 * 16 * t * math.log(1 + t / 3) * squares)
    )
    assert cumulative_bound(infinite, t, m_off) == pytest.approx(expected)
    assert math.isfinite(sample_complexity(infinite, 1e-3))


def test_the_bound_of_the_v_type_theorem() -> None:
    """|A| in the online term, which m_on = |A| takes back."""
    q_type = Setting(2.0, rank=3, horizon=4, largest=1.5, length=2.0, log_class=5.0)
    v_type = replace(q_type, actions=7)
    log_term = math.log(2 * 4 * 100 / 0.05) + 5.0
    online = 16 * 1.5 * math.sqrt(2 * 3 * 16 * 100 * math.log(1 + 100 / 3) * log_term)
    known = cumulative_bound(q_type, 100, m_off=100)
    assert cumulative_bound(v_type, 100, m_off=100) - known == pytest.approx(
        online * (math.sqrt(7) - 1)
    )
    assert cumulative_bound(v_type, 100, m_off=100, m_on=7) == pytest.approx(known)
    # The corollary: as many iterations, each of m_off / T + |A| tuples a step.
    assert sample_complexity(v_type, 0.5) / 8 == sample_complexity(q_type, 0.5) / 2


def test_the_settings_of_linear_and_low_rank_models() -> None:
    linear = linear_setting(2.0, dimension=9, horizon=4, reward=0.5)
    low_rank = low_rank_setting(2.0, 9, 4, actions=5, log_features=math.log(11), reward=0.5)
    assert (linear.largest, linear.length, linear.rank) == (2.0, 12.0, 9)
    assert (low_rank.largest, low_rank.length, low_rank.actions) == (2.0, 6.0, 5)
    t = 1000
    log_linear = math.log(2 * 4 * t / 0.05) + 36 * math.log(18 * t)
    expected = 2.0 * (
        1.0
        + math.sqrt(256 * log_linear + 20) * 2.0 * math.sqrt(4 * t)
        + math.sqrt(256 * log_linear + 20) * math.sqrt(2 * 9 * 16 * t * math.log1p(t / 9))
        + 4 * 6.0 * math.sqrt(2 * 9 * t * math.log1p(t / 9))
    )
    assert cumulative_bound(linear, t, t) == pytest.approx(expected)
    log_class = log_linear + 4 * math.log(11)
    error = math.sqrt(256 * log_class + 10 * (1 + 5))
    expected = 2.0 * (
        1.0
        + error * 2.0 * math.sqrt(4 * t)
        + error * math.sqrt(2 * 9 * 16 * t * math.log1p(t / 9))
        + 4 * 3.0 * math.sqrt(2 * 9 * t * math.log1p(t / 9))
    )
    assert cumulative_bound(low_rank, t, t, m_on=5) == pytest.approx(expected)


@pytest.mark.parametrize("dimension", [4, 32])
def test_a_grid_in_the_ball_is_as_fine_as_the_bound_says(dimension: int) -> None:
    """2 d T values a weight leave no function further than R / 2T from one of the grid."""
    rng = np.random.default_rng(0)
    horizon, t = 3, 50
    setting = linear_setting(1.0, dimension, horizon)
    width = math.sqrt(dimension) * setting.largest
    spacing = 2 * width / (setting.spread * t)
    features = rng.normal(size=(200, dimension))
    features = np.vstack([features, np.ones(dimension)])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    moved = np.abs(features) @ np.full(dimension, spacing / 2)
    assert moved.max() == pytest.approx(setting.largest / (2 * t))


def test_sample_complexities_grow_as_printed() -> None:
    """In epsilon by the square and a logarithm, in d of linear models by the square and one."""

    def grows(before: Setting, after: Setting, by: float, epsilon: float = 0.1) -> None:
        ratio = sample_complexity(after, epsilon) / sample_complexity(before, 0.1)
        assert by < ratio < 1.35 * by

    small = linear_setting(2.0, 8, 4)
    grows(small, small, 4, epsilon=0.05)
    few, many = (low_rank_setting(2.0, 8, 4, a, math.log(100)) for a in (10, 40))
    grows(few, many, 41 / 11)


@MANY
@given(seeds)
def test_the_eluder_lemma(seed: int) -> None:
    """The sum of |E_{mu_t} g_t| against 2 sqrt(d beta k) + min(k, d) C + k gamma."""
    rng = np.random.default_rng(seed)
    k, width = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    values = rng.normal(size=(k, width)) @ rng.normal(size=(width, k))  # E_{mu_i} g_j
    gamma = float(rng.choice([0.01, 0.3, 1.0]))
    before = np.tril(np.square(values).T, -1).sum(axis=1)  # of g_t over the measures before t
    d, beta = distributional_eluder(values, gamma), float(before.max())
    bound = 2 * math.sqrt(d * beta * k) + min(k, d) * np.abs(values).max() + k * gamma
    assert np.abs(np.diag(values)).sum() <= bound + 1e-9


def test_the_bound_by_the_eluder_dimension() -> None:
    setting = Setting(2.0, rank=3, horizon=4, largest=1.5, length=0.0, log_class=5.0)
    t, m_off, m_on, gamma = 100, 400, 16, 0.025
    root = 16 * 1.5 * math.sqrt(math.log(2 * 4 * t / 0.05) + 5.0)
    a_step = 2 * math.sqrt(3 * t / m_on) * root + 3 * 1.5 + t * gamma
    expected = 1.5 + t * 2.0 * math.sqrt(4 / m_off) * root + 4 * a_step
    assert eluder_bound(setting, t, m_off, m_on, gamma) == pytest.approx(expected)
