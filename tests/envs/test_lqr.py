import numpy as np
import pytest
from scipy.optimize import minimize

from hyq.core.errors import HyqError
from hyq.core.types import FloatArray
from hyq.envs.lqr import LinearQuadratic, make_lqr_vector

COPIES = 20_000


def scalar(noise_scale: float = 0.5) -> LinearQuadratic:
    one = np.ones((1, 1))
    return LinearQuadratic(one, one, one, one, horizon=2, noise_scale=noise_scale)


def test_the_scalar_regulator_by_hand() -> None:
    # Last step: V = -x^2, u = 0. First: minimise u^2 + (x + u)^2, so u = -x/2 and the cost is
    # x^2 + x^2/4 + x^2/4, plus the noise variance 1/4 that the last step pays for.
    solution = scalar().riccati()
    np.testing.assert_allclose(solution.cost.ravel(), [1.5, 1.0, 0.0])
    np.testing.assert_allclose(solution.gain.ravel(), [0.5, 0.0])
    np.testing.assert_allclose(solution.constant, [0.25, 0.0, 0.0])
    assert scalar().optimal_value() == pytest.approx(-1.75)


def test_an_affine_policy_by_hand() -> None:
    # u_0 = 1, u_1 = 2 whatever x: costs 1 + 1 + E(x + 1 + noise)^2 + 4 = 1 + 1 + (1+1+1/4) + 4.
    value = scalar().policy_value(np.zeros((2, 1, 1)), np.array([[1.0], [2.0]]))
    assert value == pytest.approx(-8.25)


def simulate(env_seed: int, gain: FloatArray, offset: FloatArray) -> FloatArray:
    env = make_lqr_vector(COPIES, horizon=4, noise_scale=0.3)
    state, _ = env.reset(seed=env_seed)
    returns = np.zeros(COPIES)
    for h in range(4):
        state, reward, *_ = env.step(-state @ gain[h].T + offset[h])
        returns += reward
    return returns


def test_simulation_matches_the_exact_values() -> None:
    system = make_lqr_vector(1, horizon=4, noise_scale=0.3).system
    rng = np.random.default_rng(0)
    optimal = system.riccati().gain
    gain, offset = optimal + 0.2 * rng.standard_normal(optimal.shape), rng.standard_normal((4, 2))
    zero = np.zeros_like(offset)
    assert system.policy_value(optimal) == pytest.approx(system.optimal_value(), abs=1e-12)
    for k, b in ((optimal, zero), (gain, offset)):
        returns = simulate(1, k, b)
        error = returns.std() / COPIES**0.5
        assert abs(returns.mean() - system.policy_value(k, b)) < 5 * error


def test_without_chance_the_value_is_the_return_of_one_trajectory() -> None:
    rng = np.random.default_rng(0)
    dynamics, control = rng.standard_normal((3, 3)), rng.standard_normal((3, 2))
    system = LinearQuadratic(
        dynamics, control, 2 * np.eye(3), 3 * np.eye(2), 4, noise_scale=0.0, initial_scale=0.0
    )
    gain, offset = rng.standard_normal((4, 2, 3)), rng.standard_normal((4, 2))
    x, total = np.zeros(3), 0.0
    for h in range(4):
        u = -gain[h] @ x + offset[h]
        total -= 2 * x @ x + 3 * u @ u
        x = dynamics @ x + control @ u
    assert system.policy_value(gain, offset) == pytest.approx(total, rel=1e-12)


def test_no_affine_policy_found_by_search_beats_riccati() -> None:
    system = make_lqr_vector(1, horizon=2).system
    shape, size = (2, 2, 3), 12

    def cost(parameters: FloatArray) -> float:
        gain, offset = parameters[:size].reshape(shape), parameters[size:].reshape(2, 2)
        return -system.policy_value(gain, offset)

    found = minimize(cost, np.full(size + 4, 0.3), method="BFGS")
    assert -found.fun == pytest.approx(system.optimal_value(), abs=1e-6)
    np.testing.assert_allclose(found.x[:size].reshape(shape), system.riccati().gain, atol=1e-3)


def test_malformed_systems_raise() -> None:
    one = np.ones((1, 1))
    with pytest.raises(HyqError, match="action_cost must be positive definite"):
        LinearQuadratic(one, one, one, 0 * one, horizon=1, noise_scale=0.0)
    with pytest.raises(HyqError, match="state_cost must be positive semi-definite"):
        LinearQuadratic(one, one, -one, one, horizon=1, noise_scale=0.0)
    with pytest.raises(HyqError, match="dynamics must have shape"):
        LinearQuadratic(np.eye(2), one, one, one, horizon=1, noise_scale=0.0)
    with pytest.raises(HyqError, match="symmetric"):
        LinearQuadratic(
            np.eye(2), np.ones((2, 1)), np.triu(np.ones((2, 2))), one, horizon=1, noise_scale=0.0
        )
    with pytest.raises(HyqError, match="gain and offset must have shapes"):
        scalar().policy_value(np.zeros((1, 1, 1)))
