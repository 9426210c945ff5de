"""Each deep objective against automatic differentiation of its loss as the paper writes it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch.nn.functional import huber_loss, log_softmax

from hyq.algos.deep_baselines import (
    DEEP_METHODS,
    BehaviourCloning,
    FromDemonstrations,
    ImplicitQ,
    configured,
    refuse_unused,
)
from hyq.algos.deep_config import DeepConfig
from hyq.algos.hyq_dqn import (
    Judged,
    Objective,
    TemporalDifference,
    Training,
    pessimistic_slope,
)
from hyq.core.errors import HyqError
from hyq.core.schedules import schedule
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, Transitions
from hyq.data.hybrid import Batch
from hyq.envs.make import make_lanes
from hyq.losses import chosen, conservative_penalty, large_margin_loss
from hyq.models.learners import AdamSettings
from hyq.models.networks import NORMALISED_CONVOLUTIONS, NetworkSpec
from tests.fqi.chain import GAMMA, Chain, chain_logs, optimal_q

ROWS, OFFLINE, ACTIONS, FEATURES = 40, 15, 3, 6
Loss = Literal["huber", "squared"]
LOSSES: tuple[Loss, Loss] = ("huber", "squared")
Literally = Callable[[torch.Tensor, Batch, "Linear"], torch.Tensor]


@dataclass(frozen=True)
class Linear:
    """Stands in for a learner: two linear networks."""

    online: FloatArray
    target: FloatArray

    def outputs(self, observation: Array) -> FloatArray:
        return observation @ self.online

    def target_outputs(self, observation: Array) -> FloatArray:
        return observation @ self.target

    def judged(self, objective: Objective, outputs: FloatArray, batch: Batch) -> Judged:
        """Answer what the objective asks, and let it judge."""
        answers = [
            (self.target_outputs if q.target else self.outputs)(q.observation)
            for q in objective.questions(batch)
        ]
        return objective.judge(outputs, answers, batch)


def problem(columns: int, dtype: Any = np.float64) -> tuple[Batch, Linear]:
    rng = np.random.default_rng(columns)
    observation = rng.normal(size=(ROWS, FEATURES))
    action = rng.integers(ACTIONS, size=ROWS)

    def rows(discount: float) -> Transitions:
        return Transitions(
            observation.astype(dtype),
            action,
            (2 * rng.normal(size=ROWS)).astype(dtype),
            (discount * (rng.random(ROWS) < 0.8)).astype(dtype),
            rng.normal(size=(ROWS, FEATURES)).astype(dtype),
        )

    weight = rng.uniform(0.1, 1.0, ROWS).astype(dtype)
    networks = rng.normal(size=(2, FEATURES, columns)).astype(dtype)
    return Batch(rows(0.9**10), rows(0.9), weight, OFFLINE, ()), Linear(*networks)


def tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(array)


def elementwise(error: torch.Tensor, loss: Loss) -> torch.Tensor:
    if loss == "squared":
        return error**2
    return huber_loss(error, torch.zeros_like(error), reduction="none", delta=1.0)


def bellman(double: bool, loss: Loss, one_step: bool = False) -> Literally:
    def literally(outputs: torch.Tensor, batch: Batch, learner: Linear) -> torch.Tensor:
        rows = batch.one_step if one_step else batch.rows
        values = tensor(learner.target_outputs(rows.next_observation))
        selector = tensor(learner.outputs(rows.next_observation)) if double else values
        best = chosen(values, selector.argmax(-1))
        target = tensor(rows.reward) + tensor(rows.discount) * best
        error = target - chosen(outputs, tensor(rows.action))
        return (tensor(batch.weight) * elementwise(error, loss)).mean()

    return literally


def cloning(outputs: torch.Tensor, batch: Batch, learner: Linear) -> torch.Tensor:
    likelihood = chosen(log_softmax(outputs, -1), tensor(batch.rows.action))
    return -(tensor(batch.weight) * likelihood).mean()


def demonstrations(double: bool, loss: Loss, l1: float, l2: float) -> Literally:
    def literally(outputs: torch.Tensor, batch: Batch, learner: Linear) -> torch.Tensor:
        margin = large_margin_loss(outputs, tensor(batch.rows.action), 0.8)
        demonstrated = torch.arange(ROWS) < OFFLINE
        return (
            bellman(double, loss, one_step=True)(outputs, batch, learner)
            + l1 * bellman(double, loss)(outputs, batch, learner)
            + l2 * (tensor(batch.weight) * margin * demonstrated).mean()
        )

    return literally


def implicit(loss: Loss, expectile: float, temperature: float) -> Literally:
    def literally(outputs: torch.Tensor, batch: Batch, learner: Linear) -> torch.Tensor:
        rows, action = batch.rows, tensor(batch.rows.action)
        q, v, logits = torch.tensor_split(outputs, (ACTIONS, ACTIONS + 1), -1)
        target_q = tensor(learner.target_outputs(rows.observation))[:, :ACTIONS]
        next_v = tensor(learner.outputs(rows.next_observation))[:, ACTIONS]
        u = chosen(target_q, action) - v[:, 0]
        expectile_loss = (expectile - (u < 0).double()).abs() * u**2 / 2
        target = tensor(rows.reward) + tensor(rows.discount) * next_v
        favour = (temperature * u.detach()).exp().clamp(max=100.0)
        policy = -favour * chosen(log_softmax(logits, -1), action)
        total = elementwise(target - chosen(q, action), loss) + expectile_loss + policy
        return (tensor(batch.weight) * total).mean()

    return literally


CASES: list[tuple[Objective, Literally]] = [
    *((TemporalDifference(d, loss), bellman(d, loss)) for d in (True, False) for loss in LOSSES),
    (BehaviourCloning(), cloning),
    *(
        (FromDemonstrations(TemporalDifference(d, loss), l1, l2), demonstrations(d, loss, l1, l2))
        for d in (True, False)
        for loss in LOSSES
        for l1, l2 in ((1.0, 1.0), (0.5, 0.0), (0.0, 2.0))
    ),
    *(
        (ImplicitQ(loss, expectile, temperature), implicit(loss, expectile, temperature))
        for loss in LOSSES
        for expectile, temperature in ((0.7, 3.0), (0.9, 10.0), (0.5, 0.0))
    ),
]


@pytest.mark.parametrize(("objective", "literally"), CASES, ids=[repr(o) for o, _ in CASES])
def test_the_gradient_is_that_of_the_loss_as_written(
    objective: Objective, literally: Literally
) -> None:
    batch, learner = problem(ACTIONS + objective.extra_outputs(ACTIONS))
    outputs = learner.outputs(batch.rows.observation)
    leaf = torch.tensor(outputs, requires_grad=True)
    (expected,) = torch.autograd.grad(literally(leaf, batch, learner), leaf)
    judged = learner.judged(objective, outputs, batch)
    np.testing.assert_allclose(judged.gradient, expected.numpy(), rtol=1e-6, atol=1e-9)
    assert np.abs(judged.gradient).max() > 1e-3


def test_pessimism_is_the_penalty_of_conservative_q_learning_on_logged_rows() -> None:
    batch, learner = problem(ACTIONS)
    outputs = learner.outputs(batch.rows.observation)
    leaf = torch.tensor(outputs, requires_grad=True)
    logged = torch.arange(ROWS) < OFFLINE
    penalty = conservative_penalty(leaf, tensor(batch.rows.action))
    (expected,) = torch.autograd.grad((tensor(batch.weight) * penalty * logged).mean(), leaf)
    np.testing.assert_allclose(pessimistic_slope(outputs, batch), expected.numpy(), atol=1e-9)
    assert (expected[:OFFLINE] != 0).all()


@pytest.mark.parametrize("objective", [o for o, _ in CASES], ids=repr)
def test_single_precision_stays_single(objective: Objective) -> None:
    batch, learner = problem(ACTIONS + objective.extra_outputs(ACTIONS), np.float32)
    outputs = learner.outputs(batch.rows.observation)
    kept = outputs.copy()
    judged = learner.judged(objective, outputs, batch)
    assert judged.gradient.dtype == np.float32  # PyTorch refuses to go back with another type
    assert judged.td_error.shape == judged.value.shape == (ROWS,)
    np.testing.assert_array_equal(outputs, kept)


def test_errors_are_those_that_priorities_should_follow() -> None:
    batch, learner = problem(ACTIONS)
    outputs, every = learner.outputs(batch.rows.observation), np.arange(ROWS)
    q = outputs[every, batch.rows.action]
    for rows, objective in (
        (batch.rows, TemporalDifference(double=False)),
        (batch.one_step, FromDemonstrations(TemporalDifference(double=False))),
    ):
        best = learner.target_outputs(rows.next_observation).max(axis=1)
        judged = learner.judged(objective, outputs, batch)
        np.testing.assert_allclose(judged.td_error, q - (rows.reward + rows.discount * best))
        np.testing.assert_allclose(judged.value, q)
    likelihood = log_softmax(tensor(outputs), -1).numpy()[every, batch.rows.action]
    cloned = learner.judged(BehaviourCloning(), outputs, batch)
    np.testing.assert_allclose(cloned.value, likelihood)
    np.testing.assert_allclose(cloned.td_error, -likelihood)


def test_a_policy_that_is_wildly_off_gives_finite_gradients() -> None:
    batch, learner = problem(1 + 2 * ACTIONS, np.float32)
    extreme = replace(learner, online=1e4 * learner.online, target=-1e4 * learner.target)
    for objective, columns in ((ImplicitQ(), 1 + 2 * ACTIONS), (BehaviourCloning(), ACTIONS)):
        outputs = extreme.outputs(batch.rows.observation)[:, :columns]
        judged = extreme.judged(objective, outputs, batch)
        for part in (judged.gradient, judged.td_error, judged.value):
            assert np.isfinite(part).all()


def test_implicit_q_acts_by_its_policy_and_not_by_its_values() -> None:
    outputs = np.array([[9.0, 0.0, 0.0, 5.0, 0.0, 1.0, 2.0]])  # Q, V, logits
    assert ImplicitQ().scores(outputs, 3).argmax() == 2
    assert BehaviourCloning().scores(outputs[:, :3], 3).argmax() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: ImplicitQ(expectile=1.0),
        lambda: ImplicitQ(expectile=0.0),
        lambda: ImplicitQ(temperature=-1.0),
        lambda: DEEP_METHODS["dqfd"].objective(DeepConfig(margin=-1.0)),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Callable[[], Objective]) -> None:
    with pytest.raises(HyqError):
        make()


SMALL = DeepConfig(
    online_steps=400,
    pretraining=30,
    n_value=4,
    n_target=40,
    batch_size=16,
    gamma=schedule(GAMMA),
    learning_starts=20,
    lanes=2,
    network=NetworkSpec(hidden=(16,)),
    report_every=100,
)


def test_what_each_method_changes() -> None:
    hybrid = replace(SMALL, pessimism=schedule(0.3))
    adjusted = {name: method.adjust(hybrid) for name, method in DEEP_METHODS.items()}
    assert adjusted["hyq"] == hybrid
    assert adjusted["dqn"] == replace(hybrid, beta=schedule(0.0), pretraining=0)
    alone = replace(SMALL, online_steps=0, pretraining=130, beta=schedule(1.0))
    assert adjusted["offline"] == alone
    drawn_uniformly = replace(alone, priority_offline=(0.0, 1e-3))
    assert adjusted["bc"] == adjusted["iql"] == drawn_uniformly
    assert adjusted["cql"] == replace(drawn_uniformly, pessimism=schedule(1.0))
    assert adjusted["dqfd"] == replace(
        SMALL, n_step=10, n_step_offline=10, adam=replace(SMALL.adam, weight_decay=1e-5)
    )


def trained(
    name: str,
    config: DeepConfig,
    quality: float,
    objective: Objective | None = None,
    **changes: Any,
) -> Training:
    method = DEEP_METHODS[name]
    config = replace(method.adjust(config), **changes)
    logs = chain_logs(episodes=100, rightward=quality) if name != "dqn" else None
    env = make_lanes(Chain, config.lanes)
    training = Training(config, env, logs, Streams(1), objective or method.objective(config))
    for report in training.run():
        assert all(np.isfinite(value) for value in report.metrics.values())
    assert training.online_steps == config.online_steps
    return training


def test_settings_that_are_given_come_after_those_of_the_method() -> None:
    assert configured("cql", "default", pessimism=5).pessimism == schedule(5.0)
    assert configured("dqfd", "default", n_step=3).n_step == 3
    assert configured("dqfd", "default").n_step == 10
    assert configured("bc", "default", online_steps=50, n_value=5, pretraining=2).pretraining == 12


@pytest.mark.parametrize(
    ("algorithm", "setting"),
    [("dqn", "beta"), ("offline", "beta"), ("cql", "beta"), ("bc", "pessimism"), ("iql", "beta")],
)
def test_settings_that_make_the_method_are_refused(algorithm: str, setting: str) -> None:
    given: dict[str, Any] = {setting: 0.5}
    with pytest.raises(HyqError, match=f"{algorithm} sets {setting} itself"):
        configured(algorithm, "default", **given)


@pytest.mark.parametrize(
    ("algorithm", "settings", "idle"),
    [
        ("dqn", {"pretraining": 1000, "gamma": 0.9}, "pretraining"),
        ("iql", {"value_range": (0, 1), "double": False}, "double, value_range"),
        ("bc", {"gamma": 0.9, "loss": "squared", "batch_size": 3}, "gamma, loss"),
        ("offline", {"epsilon": 0.1}, "epsilon"),
        ("cql", {"n_step": 3}, "n_step"),
        ("hyq", {"margin": 0.5, "expectile": 0.9}, "expectile, margin"),
        ("dqfd", {"margin": 0.5, "temperature": 1.0}, "temperature"),
    ],
)
def test_settings_that_do_nothing_are_refused(
    algorithm: str, settings: dict[str, Any], idle: str
) -> None:
    with pytest.raises(HyqError, match=f"{algorithm} makes no use of {idle}:"):
        refuse_unused(algorithm, settings)
    refuse_unused(algorithm, {n: v for n, v in settings.items() if n not in idle.split(", ")})


def test_what_a_method_does_not_have_may_be_turned_off() -> None:
    """Transitions without order ask for it, whatever learns from them."""
    refuse_unused("bc", {"n_step_offline": 1, "log_end_terminates": False})
    refuse_unused("dqn", {"pessimism": 0.0, "pretraining": 0})
    refuse_unused("dqn", {"pessimism": "0"})
    refuse_unused("offline", {"epsilon": 0.0})


def unequal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return any(not np.array_equal(one[name], other[name]) for name in one)


UNUSED: dict[str, Any] = {
    "mix": "coin",
    "epsilon": schedule(0.9),
    "hold": 3,
    "steady_lanes": 1,
    "steady_epsilon": 0.5,
    "n_step": 2,
    "n_step_offline": 2,
    "priority_online": (0.1, 1e-2),
    "priority_offline": (0.1, 1e-2),
    "buffer_size": 50,
    "learning_starts": 90,
    "gamma": schedule(0.5),
    "n_target": 5,
    "loss": "squared",
    "double": False,
    "value_range": (-0.1, 0.1),
    "reward": "signed-log",
    "life_loss_discount": 0.3,
    "log_end_terminates": True,
    "pessimism": schedule(0.5),
    "expectile": 0.9,
    "temperature": 1.0,
    "margin": 0.1,
    "margin_weight": 0.5,
    "n_step_weight": 0.5,
}
"""Another value of every setting that some method makes no use of."""


@pytest.mark.parametrize("name", DEEP_METHODS)
def test_what_is_called_unused_changes_nothing(name: str) -> None:
    idle = {*DEEP_METHODS[name].unused}.union(
        *(about.own for other, about in DEEP_METHODS.items() if other != name)
    )
    changes = {setting: UNUSED[setting] for setting in idle - {"pretraining"}}
    config = replace(SMALL, online_steps=40, report_every=20)
    plain, changed = (
        trained(name, config, 0.7, **given).learner.parameters() for given in ({}, changes)
    )
    assert not unequal(plain, changed)
    for setting in DEEP_METHODS[name].own:
        own = {setting: UNUSED[setting]}
        assert unequal(plain, trained(name, config, 0.7, **own).learner.parameters()), setting


def test_settings_of_adam_and_of_the_layers_can_be_given_one_by_one() -> None:
    config = configured("hyq", "cpu-montezuma", weight_decay=0.1, max_gradient_norm=2.0)
    assert config.adam == AdamSettings(epsilon=1e-6, weight_decay=0.1, max_gradient_norm=2.0)
    assert configured("dqfd", "default", weight_decay=0.0).adam == AdamSettings()
    assert configured("dqfd", "default", adam_epsilon=0.1).adam == AdamSettings(0.1, 1e-5)
    frame = (42, 42), np.dtype(np.uint8)
    layers = configured("hyq", "default", hidden=(8,), dueling=False).layers(*frame)
    assert layers == NetworkSpec(((32, 6, 3), (32, 3, 2)), hidden=(8,), dueling=False)
    assert configured("hyq", "cpu-montezuma").layers(*frame) == NORMALISED_CONVOLUTIONS
    for wrong in ({"weight_decay": -1.0}, {"max_gradient_norm": 0.0}, {"hidden": (8, 0)}):
        with pytest.raises(HyqError):
            configured("hyq", "default", **wrong)


def test_targets_are_kept_within_the_range_of_values() -> None:
    batch, learner = problem(ACTIONS)
    outputs = learner.outputs(batch.rows.observation)
    free = learner.judged(TemporalDifference(), outputs, batch)
    bounded = learner.judged(TemporalDifference(value_range=(-0.1, 0.1)), outputs, batch)
    target = free.value - free.td_error
    assert np.abs(target).max() > 0.1
    np.testing.assert_allclose(bounded.value - bounded.td_error, target.clip(-0.1, 0.1), atol=1e-6)


@pytest.mark.parametrize("name", ["hyq", "cql"])
def test_learning_that_diverges_is_stopped(name: str) -> None:
    config = replace(SMALL, learning_rate=schedule(1e20))
    with pytest.raises(HyqError, match="diverged"), np.errstate(all="ignore"):
        trained(name, config, 0.5)


@pytest.mark.parametrize("name", DEEP_METHODS)
@pytest.mark.parametrize("double", [True, False])
def test_every_method_trains(name: str, double: bool) -> None:
    trained(name, replace(SMALL, double=double), 0.5)


EVERY_STATE = np.eye(5, dtype=np.float32)[:4]
LONGER = replace(SMALL, pretraining=0, online_steps=6000, learning_rate=schedule(3e-3))


def test_cloning_copies_the_behaviour_be_it_good_or_bad() -> None:
    for quality, usual in ((0.8, 1), (0.2, 0)):
        training = trained("bc", LONGER, quality)
        assert training.greedy(EVERY_STATE).tolist() == [usual] * 4
        logits = torch.from_numpy(training.learner.outputs(EVERY_STATE))
        frequency = torch.softmax(logits, -1)[:, 1].numpy()
        np.testing.assert_allclose(frequency, quality, atol=0.15)


@pytest.mark.parametrize(
    ("name", "quality", "objective", "changes"),
    [
        ("offline", 0.3, None, {}),
        ("iql", 0.4, ImplicitQ(expectile=0.9, temperature=10.0), {}),
        ("cql", 0.45, None, {"pessimism": schedule(0.05)}),
    ],
)
def test_methods_that_look_at_rewards_improve_on_what_was_usual(
    name: str, quality: float, objective: Objective | None, changes: dict[str, Any]
) -> None:
    training = trained(name, LONGER, quality, objective, **changes)
    assert training.greedy(EVERY_STATE).tolist() == [1, 1, 1, 1]


def test_the_margin_puts_demonstrated_actions_ahead_by_itself() -> None:
    unpaid = FromDemonstrations(n_step_weight=0.0)
    config = replace(SMALL, pretraining=500, online_steps=100, learning_rate=schedule(3e-3))
    q = trained("dqfd", config, 0.0, unpaid).learner.outputs(EVERY_STATE)  # always left: no reward
    assert (q[:, 0] > q[:, 1] + 0.5).all()


def test_offline_q_learning_finds_the_exact_values_of_covered_states() -> None:
    config = replace(LONGER, online_steps=20_000, learning_rate=schedule(1e-3))  # steadier
    training = trained("offline", config, 0.5)
    q = training.learner.outputs(EVERY_STATE)
    np.testing.assert_allclose(q, optimal_q(), atol=0.05)


def test_conservative_values_lie_below_those_of_q_learning_for_rare_actions() -> None:
    rare = trained("cql", LONGER, 0.9).learner.outputs(EVERY_STATE)[:, 0]
    assert (rare < optimal_q()[:, 0] - 0.3).all()
