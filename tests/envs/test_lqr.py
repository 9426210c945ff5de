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


def test_a_linear_policy_by_hand() -> None:
    # u = -x in both steps, so x_1 is the noise: costs (1 + 1) + 2 * 1/4.
    assert scalar().policy_value(np.ones((2, 1, 1))) == pytest.approx(-2.5)


def simulate(env_seed: int, gain: FloatArray) -> FloatArray:
    env = make_lqr_vector(COPIES, horizon=4, noise_scale=0.3)
    state, _ = env.reset(seed=env_seed)
    returns = np.zeros(COPIES)
    for h in range(4):
        state, reward, *_ = env.step(-state @ gain[h].T)
        returns += reward
    return returns


def test_simulation_matches_the_exact_values() -> None:
    system = make_lqr_vector(1, horizon=4, noise_scale=0.3).system
    optimal = system.riccati().gain
    worse = optimal + 0.2 * np.random.default_rng(0).standard_normal(optimal.shape)
    assert system.policy_value(optimal) == pytest.approx(system.optimal_value(), abs=1e-12)
    for gain in (optimal, worse):
        returns = simulate(1, gain)
        error = returns.std() / COPIES**0.5
        assert abs(returns.mean() - system.policy_value(gain)) < 5 * error


def test_without_noise_the_value_is_the_return_of_one_trajectory_from_each_axis() -> None:
    rng = np.random.default_rng(0)
    dynamics, control = rng.standard_normal((3, 3)), rng.standard_normal((3, 2))
    system = LinearQuadratic(dynamics, control, 2 * np.eye(3), 3 * np.eye(2), 4, noise_scale=0.0)
    gain, total = rng.standard_normal((4, 2, 3)), 0.0
    for x in np.eye(3):  # x_0 has the covariance I, and values are quadratic
        for h in range(4):
            u = -gain[h] @ x
            total -= 2 * x @ x + 3 * u @ u
            x = dynamics @ x + control @ u  # noqa: PLW2901
    assert system.policy_value(gain) == pytest.approx(total, rel=1e-12)


def test_no_linear_policy_found_by_search_beats_riccati() -> None:
    system = make_lqr_vector(1, horizon=2).system
    shape = (2, 2, 3)

    def cost(parameters: FloatArray) -> float:
        return -system.policy_value(parameters.reshape(shape))

    found = minimize(cost, np.full(12, 0.3), method="BFGS")
    assert -found.fun == pytest.approx(system.optimal_value(), abs=1e-6)
    np.testing.assert_allclose(found.x.reshape(shape), system.riccati().gain, atol=1e-3)


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
    with pytest.raises(HyqError, match="gain must have shape"):
        scalar().policy_value(np.zeros((1, 1, 1)))
