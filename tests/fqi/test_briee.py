"""BRIEE: its least squares, bonus and planning against exact values, its features, its learning."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy.optimize import approx_fprime

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, IntArray, Transitions
from hyq.data.online import OnlineStore
from hyq.envs.combination_lock import CombinationLockVector, LockSpec
from hyq.envs.tabular import TabularEnv
from hyq.experts.lock import lock_dataset
from hyq.fqi import briee
from hyq.fqi.briee import (
    BRIEE,
    BRIEEConfig,
    OptimisticQ,
    Rows,
    collect,
    fit_encoder,
    held_out_gap,
    learn_representation,
    least_squares,
    plan,
    spectral,
    standardise,
    worst_discriminator,
)
from hyq.fqi.classes import GreedyPolicy
from tests.fqi.conformance import check_conformance, returns

LOCK = LockSpec(horizon=6, actions=4, instance_seed=1)


def copies(count: int, lock: LockSpec = LOCK) -> CombinationLockVector:
    return CombinationLockVector(count, **vars(lock))


def lock_rows(lock: LockSpec, count: int, h: int = 2) -> tuple[Transitions, IntArray]:
    """Draw tuples of step h with every latent state and every action equally likely."""
    env, rng = copies(count, lock), np.random.default_rng(0)
    env.reset(seed=0)
    latent = rng.integers(3, size=count)
    observation, action = env.place(latent, h), rng.integers(lock.actions, size=count)
    next_state, reward, *_ = env.step(action)
    return Transitions(observation, action, reward, np.ones(count), next_state), latent


DEFAULT = BRIEEConfig()


def ignorant(dimension: int, actions: int, config: BRIEEConfig = DEFAULT) -> OptimisticQ:
    latents = config.latents
    weights = np.zeros((actions, latents))
    inverse = np.tile(np.eye(latents), (actions, 1, 1))
    encoder = np.zeros((dimension + 1, latents))
    return OptimisticQ(encoder, encoder[:, :0], weights, inverse, config)


def tabular(states: int, actions: int, config: BRIEEConfig) -> OptimisticQ:
    """Return known features: the encoder picks the coordinate of a one-hot observation."""
    encoder = np.vstack([50.0 * np.eye(states), np.zeros(states)])
    return replace(ignorant(states, actions, config), encoder=encoder)


# --- Collection


def test_collects_two_tuples_a_step_and_counts_every_transition() -> None:
    policy = GreedyPolicy((ignorant(LOCK.observation_dim, 4),) * 6)
    batch, samples = collect(copies(5), policy, 6, Streams(0))
    assert [len(rows) for rows in batch] == [10] * 6
    # Roll-ins to -1, 0, ..., 4 take depth + 2 transitions; the last takes 6.
    assert samples == 5 * (1 + 2 + 3 + 4 + 5 + 6 + 6)


def test_acts_by_the_policy_before_and_uniformly_at_and_after_the_depth() -> None:
    asked = []

    def policy(h: int, observation: Array) -> Array:
        asked.append(h)
        return np.zeros(len(observation), int)

    batch, _ = collect(copies(2000), policy, 6, Streams(0))
    assert asked == [h for depth in range(6) for h in range(depth)]
    for rows in batch:
        np.testing.assert_allclose(np.bincount(rows.action) / 4000, 0.25, atol=0.03)


# --- Representation learning


def test_the_inner_least_squares_is_ridge_regression_on_the_kronecker_features() -> None:
    rng = np.random.default_rng(0)
    code, action = rng.dirichlet(np.ones(3), size=40), rng.integers(4, size=40)
    targets = rng.normal(size=(40, 2))
    rows = Rows.of(code, targets, action, 5)  # the fifth action was never taken
    weights, residual, minimum = least_squares(rows.x, rows.y, rows.blocks, 0.1)
    phi = np.einsum("na,nk->nak", np.eye(5)[np.sort(action)], rows.x).reshape(40, 15)
    exact = np.linalg.solve(phi.T @ phi + 0.1 * np.eye(15), phi.T @ rows.y)
    np.testing.assert_allclose(weights.reshape(15, 2), exact, atol=1e-12)
    np.testing.assert_allclose(residual, rows.y - phi @ exact, atol=1e-12)
    assert minimum == pytest.approx((residual**2).sum() + 0.1 * (exact**2).sum())


def test_standardising_changes_no_function() -> None:
    rng = np.random.default_rng(0)
    x, matrix = rng.normal(3.0, 2.0, size=(50, 4)), rng.normal(size=(5, 2))
    z, inward, outward = standardise(x)
    np.testing.assert_allclose(z @ inward @ matrix, x @ matrix[:-1] + matrix[-1], rtol=1e-4)
    np.testing.assert_allclose(outward @ inward, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(z[:, :-1].mean(axis=0), 0.0, atol=1e-6)
    assert np.square(z[:, :-1]).sum(axis=1).mean() == pytest.approx(1.0)


def small_rows() -> Rows:
    rng = np.random.default_rng(3)
    x, y = (np.hstack([rng.normal(size=(60, 4)), np.ones((60, 1))]) for _ in range(2))
    return Rows.of(x, y, rng.integers(2, size=60), 2)


@pytest.mark.parametrize("what", ["encoder", "gap"])
def test_gradients_match_finite_differences(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the solver is handed, in double precision, has the gradient it claims."""
    rng, rows, config = np.random.default_rng(0), small_rows(), BRIEEConfig()
    checked = []

    def check(objective: Any, begin: FloatArray, **_: object) -> Any:
        numeric = approx_fprime(begin, lambda p: objective(p)[0], 1e-6)
        np.testing.assert_allclose(objective(begin)[1], numeric, atol=2e-3)
        checked.append(what)
        return type("Result", (), {"x": begin, "fun": 0.0})

    monkeypatch.setattr(briee, "minimize", check)
    monkeypatch.setattr(np, "float32", np.float64)
    encoder = rng.normal(size=(5, 3))
    if what == "encoder":
        fit_encoder(rows, rng.normal(size=(5, 2)), 0 * encoder, (encoder,), config)
    else:
        worst_discriminator(rows, encoder, (rng.normal(size=(5, 4)),), config)
    assert checked


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_features_learned_from_scratch_separate_the_latent_states(noise: float) -> None:
    lock = LockSpec(horizon=5, noise=noise, instance_seed=2)
    assert len(set(lock.good_actions()[2])) == 2  # else two latent states behave alike
    data, latent = lock_rows(lock, 1500)
    start = ignorant(lock.observation_dim, 10)
    learned = learn_representation(data, start, start, BRIEEConfig(), np.random.default_rng(0))
    assert learned.discriminators.shape[1] >= 1
    code = learned.code(data.observation).argmax(axis=1)
    table = np.array([np.bincount(code[latent == z], minlength=3) for z in range(3)])
    assert sorted(table.argmax(axis=1)) == [0, 1, 2]
    assert table.max(axis=1).sum() >= 0.999 * len(data)


def test_the_gap_of_a_good_discriminator_holds_on_unseen_rows_and_closes() -> None:
    data, _ = lock_rows(LockSpec(horizon=5, instance_seed=2), 3000)
    (x, _, _), (y, _, _) = standardise(data.observation), standardise(data.next_observation)
    train, test = (Rows.of(x[p::2], y[p::2], data.action[p::2], 10) for p in (0, 1))
    blind, config = np.zeros((x.shape[1], 3)), BRIEEConfig()
    rng = np.random.default_rng(0)
    begin = np.hstack([spectral(x, 3, rng), spectral(y, 1, rng)])
    f, rival = worst_discriminator(train, blind, (begin,), config)
    gap, error = held_out_gap(train, test, (blind, rival), f, config)
    assert gap > 5 * error
    fitted = fit_encoder(train, f, blind, (rival,), config)
    closed, _ = held_out_gap(train, test, (fitted, rival), f, config)
    assert abs(closed) < 0.05 * gap


def test_where_nothing_can_be_predicted_no_discriminator_is_accepted() -> None:
    """All rows in the bad state: whatever gap is found in them is chance."""
    lock = LockSpec(horizon=20, instance_seed=2)
    data, latent = lock_rows(lock, 3000)
    start = ignorant(lock.observation_dim, 10)
    bad = data[latent == 2]
    learned = learn_representation(bad, start, start, BRIEEConfig(), np.random.default_rng(0))
    assert learned.discriminators.shape[1] == 0


# --- Bonus and planning


def test_bonus_values_worked_out_by_hand() -> None:
    observation = np.eye(2)
    steps = Transitions(
        observation[[0, 0, 0, 1]], np.array([0, 0, 0, 1]), np.array([0.2, 0.4, 0.6, 0.1]),
        np.zeros(4), observation[[0, 0, 0, 0]],
    )  # fmt: skip
    config = BRIEEConfig(latents=2, alpha=0.5, bonus_cap=0.4, lambda_=1.0, v_max=1.0)
    [q] = plan(OnlineStore(((steps,),)), [tabular(2, 2, config)])
    # State 0, action 0 was seen three times: alpha / sqrt(3 + lambda). Never seen: 0.5, capped.
    expected = [[0.25, 0.4], [0.4, 0.5 / np.sqrt(2)]]
    np.testing.assert_allclose(q.bonus(observation), expected)
    means = [[1.2 / 4, 0.0], [0.0, 0.1 / 2]]  # the ridge pulls sums over n + lambda
    np.testing.assert_allclose(q.values(observation), np.add(means, expected))
    doubled = replace(q, config=replace(config, v_max=2.0))  # the bonus is in units of v_max
    np.testing.assert_allclose(doubled.bonus(observation), np.multiply(2, expected))


def test_a_soft_code_shares_its_bonus_and_a_hard_one_does_not() -> None:
    q = tabular(2, 1, BRIEEConfig(latents=2, alpha=0.1))
    q = replace(q, encoder=q.encoder / 50, inverse=np.array([np.diag([1.0, 4.0])]))
    smooth = replace(q, config=replace(q.config, encoding="soft"))
    p = np.exp(1) / (1 + np.exp(1))
    hard, soft = (f.bonus(f.code(np.eye(2)[:1])) for f in (q, smooth))
    np.testing.assert_allclose(hard, [[0.1]])
    np.testing.assert_allclose(soft, [[0.1 * np.sqrt(p**2 + 4 * (1 - p) ** 2)]])


def test_no_value_above_v_max_is_handed_back() -> None:
    one = Transitions(np.eye(2)[:1], np.zeros(1, int), np.ones(1), np.ones(1), np.eye(2)[:1])
    config = BRIEEConfig(latents=2, alpha=0.0, v_max=0.5)
    first, second = plan(OnlineStore(((one, one),)), [tabular(2, 1, config)] * 2)
    assert second.values(np.eye(2))[0] == pytest.approx(1.0, abs=1e-5)
    assert first.values(np.eye(2))[0] == pytest.approx(1.0 + 0.5, abs=1e-5)


def test_planning_with_known_features_is_exact_lsvi_ucb() -> None:
    """A naive tabular twin: counts, empirical means, bonuses, backward induction."""
    mdp = FiniteMDP.random(np.random.default_rng(1), states=4, actions=3, horizon=5)
    env, rng, config = TabularEnv(60, mdp), np.random.default_rng(2), BRIEEConfig(latents=4)
    one_hot, parts = np.eye(4), []
    state, _ = env.reset(seed=0)
    for h in range(5):
        action = rng.integers(3, size=60)
        next_state, reward, *_ = env.step(action)
        continuation = np.full(60, float(h < 4))
        parts.append(Transitions(one_hot[state], action, reward, continuation, one_hot[next_state]))
        state = next_state
    functions = plan(OnlineStore((tuple(parts),)), [tabular(4, 3, config)] * 5)
    value = np.zeros(4)
    for h in reversed(range(5)):
        q = np.zeros((4, 3))
        for s in range(4):
            for a in range(3):
                seen = (parts[h].observation[:, s] == 1) & (parts[h].action == a)
                next_state = parts[h].next_observation[seen].argmax(axis=1)
                total = (parts[h].reward[seen] + value[next_state]).sum()
                n = seen.sum() + config.lambda_
                q[s, a] = total / n + min(config.alpha / np.sqrt(n), 1.0)
        np.testing.assert_allclose(functions[h].values(one_hot), q, atol=1e-10)
        value = np.minimum(q.max(axis=1), config.v_max)


# --- The whole


def test_opens_a_lock_without_offline_data() -> None:
    lock = LockSpec(horizon=5, actions=5, instance_seed=3)
    test_env, best = copies(200, lock), 0.0
    data = lock_dataset(lock, "trajectory", 5, seed=0)  # gives the horizon, nothing else
    for step in BRIEE(BRIEEConfig(iterations=60)).run(copies(10, lock), data, Streams(0)):
        best = float(returns(test_env, step.policy, 5, seed=99).mean())
        if best >= 0.99:
            break
    assert best >= 0.99
    assert step.online_steps < 15_000


def test_the_offline_data_changes_nothing() -> None:
    states = []
    for kind, seed in (("trajectory", 0), ("occupancy", 1)):
        data = lock_dataset(LOCK, kind, 600, seed=seed)  # type: ignore[arg-type]
        *_, last = BRIEE(BRIEEConfig(iterations=2)).run(copies(10), data, Streams(0))
        states.append(last.state.arrays)
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name])


def test_features_are_relearned_only_when_the_data_has_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def count(data: Transitions, old: OptimisticQ, *_: object) -> OptimisticQ:
        calls.append(len(data))
        return old

    monkeypatch.setattr(briee, "learn_representation", count)
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    list(BRIEE(BRIEEConfig(iterations=8, refresh=1.0)).run(copies(1), data, Streams(0)))
    assert calls == [2] * 6 + [4] * 6 + [8] * 6 + [16] * 6  # at powers of two
    calls.clear()
    list(BRIEE(BRIEEConfig(iterations=3, refresh=0.0)).run(copies(1), data, Streams(0)))
    assert calls == [2] * 6 + [4] * 6 + [6] * 6


@pytest.mark.parametrize("share", [True, False])
def test_sharing_hands_encoders_and_discriminators_from_step_to_step(
    share: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def mark(data: Transitions, old: OptimisticQ, shared: OptimisticQ, *_: object) -> OptimisticQ:
        seen.append((shared.encoder[0, 0], shared.discriminators.shape[1]))
        return replace(old, encoder=old.encoder + len(seen), discriminators=old.encoder[:, :1])

    monkeypatch.setattr(briee, "learn_representation", mark)
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    config = BRIEEConfig(iterations=1, share=share, discriminators=3)
    list(BRIEE(config).run(copies(1), data, Streams(0)))
    handed = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 3)]
    assert seen == (handed if share else [(0, 0)] * 6)


@pytest.mark.parametrize("settings", [{}, {"encoding": "soft", "share": False, "refresh": 0.0}])
def test_conformance(settings: dict[str, Any]) -> None:
    config = BRIEEConfig(iterations=3, **settings)
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    check_conformance(lambda: BRIEE(config), copies(20), data)


@pytest.mark.parametrize(
    "settings",
    [
        {"iterations": 0},
        {"latents": 0},
        {"lambda_": 0.0},
        {"alpha": -1.0},
        {"confidence": float("nan")},
        {"encoding": "fuzzy"},
    ],
)
def test_impossible_settings_raise(settings: dict[str, Any]) -> None:
    with pytest.raises(HyqError, match=next(iter(settings))):
        BRIEEConfig(**settings)


def test_an_environment_without_vectors_or_finite_actions_raises() -> None:
    mdp = FiniteMDP.random(np.random.default_rng(0), states=3, actions=2, horizon=6)
    data = lock_dataset(LOCK, "trajectory", 600, seed=0)
    with pytest.raises(HyqError, match="vectors"):
        next(BRIEE().run(TabularEnv(2, mdp), data, Streams(0)))
    env = copies(2)
    env.single_action_space = gym.spaces.Box(-1.0, 1.0, (1,))
    with pytest.raises(HyqError, match="actions must be Discrete"):
        next(BRIEE().run(env, data, Streams(0)))
