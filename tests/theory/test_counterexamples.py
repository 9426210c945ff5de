"""What does not hold as the paper writes it, each with its smallest counterexample."""

import math

import numpy as np
import pytest

from hyq.core.mdp import FiniteMDP
from hyq.theory.assumptions import (
    finite_completeness,
    finite_realizability,
    largest_returns,
    linear_completeness,
    linear_realizability,
    range_completeness,
)
from hyq.theory.bounded import bounded_transfer
from hyq.theory.bounds import condition_numbers, finite_bounds, low_rank_bounds, tabular_bounds
from hyq.theory.structure import distributional_eluder
from hyq.theory.transfer import (
    bellman_residuals,
    density_ratio,
    linear_transfer,
    tabular_transfer,
)
from tests.theory.instances import joint_transfer


def chain_of(horizon: int, actions: int = 1) -> FiniteMDP:
    """One state, no rewards."""
    return FiniteMDP(np.ones((horizon, 1, actions, 1)), np.zeros((horizon, 1, actions)), np.ones(1))


@pytest.mark.parametrize("bound", [1.0, 10.0, 1e4])
def test_no_ball_and_no_range_is_complete_at_every_step(bound: float) -> None:
    """One state, one action, phi = 1, H = 2 and r = 1/2: T maps w to w + 1/2."""
    mdp = FiniteMDP(np.ones((2, 1, 1, 1)), np.full((2, 1, 1), 0.5), np.ones(1))
    rng = np.random.default_rng(0)
    witness = linear_completeness(mdp, np.ones((1, 1, 1)), rng, radius=bound)
    assert witness is not None
    assert witness.step == 0
    assert witness.gap == pytest.approx(0.5)
    assert "longer than B_W" in witness.reason
    witness = range_completeness(mdp, np.full((2, 1, 1), bound))
    assert witness is not None
    assert witness.step == 0
    assert witness.gap == pytest.approx(0.5)
    assert witness.of == np.array([[bound]])
    # A range for each step is closed: what can still be earned.
    top = largest_returns(mdp, mdp.reward)
    assert top.ravel().tolist() == [1.0, 0.5]
    assert range_completeness(mdp, top) is None


def test_a_ball_is_complete_only_where_rewards_end_and_features_shrink() -> None:
    """Why the proof asks for a reward in every state: phi = e_1, then e_2 / 2, then 0 for ever."""
    transition = np.zeros((2, 3, 1, 3))
    transition[:, [0, 1, 2], 0, [1, 2, 2]] = 1.0
    mdp = FiniteMDP(transition, np.array([[[0.5], [0.5], [0.0]]] * 2), np.eye(3)[0])
    features = np.array([[[1.0, 0.0]], [[0.0, 0.5]], [[0.0, 0.0]]])
    rng = np.random.default_rng(0)
    assert linear_completeness(mdp, features, rng, radius=2.0) is None
    assert linear_completeness(mdp, features, rng, radius=1.0) is not None


@pytest.mark.parametrize("horizon", [2, 5])
def test_the_first_step_of_the_chain_loses_a_factor_sqrt_h(horizon: int) -> None:
    """nu = d^pi and the same residual at every step: C_pi = sqrt(H), the printed bound is 1."""
    mdp, d = chain_of(horizon), np.ones((horizon, 1, 1))
    assert tabular_transfer(d, d) == pytest.approx(math.sqrt(horizon))
    assert tabular_bounds(d, d).printed()[1:] == (1.0,) * 4
    # Two functions a step are enough: residual 1 everywhere, and Q* = 0.
    tables = np.stack(
        [np.zeros((horizon, 1, 1)), -np.arange(horizon, 0, -1.0).reshape(-1, 1, 1)], 1
    )
    bounds = finite_bounds(mdp, tables, d, d)
    assert bounds.transfer == pytest.approx(math.sqrt(horizon))
    assert bounds.printed()[1:] == (1.0,) * 4


def test_so_does_the_bound_for_linear_bellman_complete_models() -> None:
    one, d = np.ones((1, 1, 1)), np.ones((2, 1, 1))
    assert linear_transfer(one, d, d) == pytest.approx(math.sqrt(2))
    assert condition_numbers(one, d, d).printed() == 1.0


def test_the_printed_low_rank_bound_holds_but_is_never_attained() -> None:
    """Since <m, phi*> = 1 for m = sum_s mu*(s), E||phi*|| >= 1: at H = 1 it is twice too large."""
    mdp, d = chain_of(1), np.ones((1, 1, 1))
    bounds = low_rank_bounds(mdp, np.ones((1, 1, 1)), d, d)
    assert (tabular_transfer(d, d), bounds.tight, bounds.summed, bounds.printed) == (1, 1, 1, 2)


def test_the_sign_in_the_proof_of_theorem_1_matters() -> None:
    """Equation 2 has T f - f, its restatement f - T f: they differ when a class is bounded."""
    mdp, d = chain_of(1), np.ones((1, 1, 1))
    assert bounded_transfer(mdp, d, d) == 0.0
    flipped = -bellman_residuals(mdp, np.linspace(0, 1, 5).reshape(5, 1, 1, 1))
    assert joint_transfer(flipped, d, d) == 1.0


def test_corollary_1_needs_the_maximum_of_c_and_one() -> None:
    """C_pi* = 0 would promise an optimal policy from no samples at all."""
    mdp = FiniteMDP(np.ones((1, 1, 2, 1)), np.array([[[1.0, 0.0]]]), np.ones(1))
    joint = np.array([[[[1.0, 0.0]]], [[[1.0, 1.0]]]])
    best = mdp.occupancy(mdp.greedy_policy(mdp.optimal_q()))
    assert finite_realizability(mdp, joint.swapaxes(0, 1)) is None
    assert joint_transfer(bellman_residuals(mdp, joint), best, best) == 0.0
    # Offline data of the optimal policy cannot tell the two functions apart, and the second one
    # is greedy in the wrong action once ties fall that way: an online sample is needed.
    wrong = np.array([[[0.0, 1.0]]])
    assert joint[1, 0, 0, 1] == joint[1, 0, 0].max()
    assert mdp.optimal_value() - mdp.value(wrong) == 1.0


def test_a_low_rank_mdp_needs_linear_rewards_to_be_realizable() -> None:
    """The definition is silent on rewards: rank one, two actions, rewards 0 and 1."""
    mdp = FiniteMDP(np.ones((1, 1, 2, 1)), np.array([[[0.0, 1.0]]]), np.ones(1))
    witness = linear_realizability(mdp, np.ones((1, 2, 1)))
    assert witness is not None
    assert witness.gap == pytest.approx(0.5)
    assert "step 0" in str(witness)


def test_the_second_term_of_the_eluder_lemma_is_min_k_d_times_c() -> None:
    """One measure and one function of size C: the sum is C, the printed bound min{1, C} + gamma."""
    for size in (10.0, 1e6):
        values = np.array([[size]])
        assert distributional_eluder(values, 0.1) == 1
        k, d, beta, gamma = 1, 1, 0.0, 0.1
        printed = math.sqrt(d * beta * k) + min(k, d * size) + k * gamma
        corrected = math.sqrt(d * beta * k) + min(k, d) * size + k * gamma
        assert size / printed > size / 2  # no constant saves it
        assert size <= corrected


def test_the_term_t_gamma_of_the_eluder_theorem_is_not_of_lower_order() -> None:
    """With V_max = 1, gamma = 1/sqrt(T) leaves H sqrt(T) beside sqrt(d T): H^2 > d breaks it."""
    horizon, dimension = 100, 10
    for iterations in (10**4, 10**8):
        kept = math.sqrt(dimension * iterations)
        dropped = horizon * iterations / math.sqrt(iterations)
        assert dropped > 10 * kept
        assert horizon * iterations / (horizon * math.sqrt(iterations)) <= kept


def test_absolute_values_make_the_bilinear_rank_smaller_than_the_matrix_rank() -> None:
    signs = np.array([[1.0, 1.0], [1.0, -1.0]])
    assert np.linalg.matrix_rank(signs) == 2
    assert np.linalg.matrix_rank(np.abs(signs)) == 1


def test_the_v_type_regression_as_printed_forgets() -> None:
    """Equation 11 adds up *means*: the offline share is 1 / (t + 1), whatever m_off is.

    The proof of its guarantee adds up *samples*, where the share stays m_off / (m_off + t m_on).
    """
    m_off, m_on, t = 1000, 1, 1000

    def offline_share(offline_weight: float, online_weight: float) -> float:
        return offline_weight / (offline_weight + t * online_weight)

    assert offline_share(1.0, 1.0) < 0.001
    assert offline_share(m_off, m_on) == 0.5


def test_the_weighted_norm_is_misprinted() -> None:
    """||f||^2 := sqrt(E f^2) would make the FQI guarantee claim a rate of 1/m for an error of
    1/sqrt(m): with one cell, the squared error of a mean of m coin flips is 1 / (4 m)."""
    samples = 10_000
    squared = 0.25 / samples
    bound_without_constants = 1.0 / samples
    assert squared <= bound_without_constants
    assert math.sqrt(squared) > bound_without_constants


def test_the_relaxation_to_the_density_ratio_never_needs_its_condition() -> None:
    """ "Whenever the ratio is >= 1": it always is, because d and nu have the same mass."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        d, nu = (rng.dirichlet(np.ones(4), size=2).reshape(2, 2, 2) for _ in range(2))
        assert tabular_bounds(d, nu).density >= 1.0


def test_regression_targets_exceed_v_max_although_the_class_is_complete() -> None:
    """The FQI guarantee takes |y| <= V_max; y = r + max f may be V_max + 1/2 when r is random.

    A fair coin pays 0 or 1 on the first step and nothing on the second, so V_max = 1.
    """
    mdp = FiniteMDP(np.ones((2, 1, 1, 1)), np.array([[[0.5]], [[0.0]]]), np.ones(1))
    tables = np.array([[[[0.5]], [[1.0]]], [[[0.0]], [[0.5]]]])
    assert finite_realizability(mdp, tables) is None
    assert finite_completeness(mdp, tables) is None
    largest_reward, v_max = 1.0, 1.0
    assert largest_reward + tables[1].max() == 1.5 > v_max
    # Clipping the target to [0, V_max] instead would bias it: 3/4 where T f = 1.
    clipped = np.clip(np.array([0.0, 1.0]) + 0.5, 0.0, v_max).mean()
    assert clipped == 0.75
    assert mdp.bellman(0, tables[1, 1])[0, 0] == 1.0


def test_acting_like_the_best_tenth_may_leave_the_data() -> None:
    """The best tenth of the episodes are lucky ones: 9% get to G, 1% try what pays in B."""
    start, good, bad = range(3)
    lead = np.zeros((2, 3, 2, 3))
    lead[0, :, :, good], lead[0, :, :, bad] = 0.09, 0.91
    lead[1, :, :, good] = 1.0
    reward = np.zeros((2, 3, 2))
    reward[1, good] = reward[1, bad, 1] = 1.0
    mdp = FiniteMDP(lead, reward, np.eye(3)[start])
    logging = np.zeros((2, 3, 2))
    logging[..., 0] = 1.0
    imitating = logging.copy()
    logging[1, bad] = [0.90 / 0.91, 0.01 / 0.91]
    imitating[1, bad] = [0.0, 1.0]
    nu, d = mdp.occupancy(logging), mdp.occupancy(imitating)
    assert (nu * reward).sum() == pytest.approx(0.1)  # episodes that earn 1, all others earn 0
    assert density_ratio(d, nu).max() == pytest.approx(91)
    assert tabular_transfer(d, nu) == pytest.approx(math.sqrt(1 + 0.09 + 0.91 * 91))
    assert tabular_transfer(d, nu) > 2 * math.sqrt(10 * 2)
