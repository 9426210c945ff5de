"""The algorithms that can be run on the lock: one line each, built from the spec they run under."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear
from hyq.envs.combination_lock import LATENTS
from hyq.fqi.base import Algorithm
from hyq.fqi.bc import BC, BCConfig
from hyq.fqi.block import BlockClass
from hyq.fqi.briee import BRIEE, BRIEEConfig
from hyq.fqi.classes import FunctionClass, ValueFunction
from hyq.fqi.cql import CQL, CQLConfig
from hyq.fqi.dqfd import DQfD, DQfDConfig
from hyq.fqi.hyq_fqi import HyQ, HyQConfig
from hyq.fqi.mlp import MLPClass
from hyq.runs.lock_spec import LockRun


def build(spec: LockRun) -> Algorithm:
    """Make the algorithm a spec names."""
    if spec.algorithm not in LOCK_ALGORITHMS:
        raise HyqError(f"no algorithm {spec.algorithm!r}: choose from {', '.join(LOCK_ALGORITHMS)}")
    make, _ = LOCK_ALGORITHMS[spec.algorithm]
    return make(spec)


def hyq(spec: LockRun, **changes: Any) -> HyQ:
    """V-type Hy-Q, the paper's algorithm: offline and online data in every regression."""
    width, v_max = spec.lock.observation_dim, spec.lock.max_return
    family: FunctionClass[ValueFunction] = BlockClass(width, spec.actions, v_max=v_max)
    if spec.emission == "nonlinear":  # which no linear encoder undoes
        family = MLPClass(width, spec.actions, value_range=(0.0, v_max))
    settings = {
        "iterations": spec.iterations,
        "offline_share": spec.offline_share,
        "value_range": (0.0, v_max),
    }
    return HyQ(family, HyQConfig(**{**settings, **changes}))


def hyq_adam(spec: LockRun) -> HyQ:
    """Hy-Q with the paper's own optimiser, minibatch Adam, for the same functions."""
    exact = hyq(spec)
    family = MLPClass(
        spec.lock.observation_dim,
        spec.actions,
        hidden=(LATENTS,),
        activation="softmax",
        learning_rate=2e-2,
        batch_size=512,
        updates=500,
        value_range=exact.config.value_range,
    )
    return replace(exact, family=family)


def bc(spec: LockRun) -> BC:
    """Behaviour cloning of the offline data."""
    return BC(BCConfig(iterations=spec.iterations))


def cql(spec: LockRun, **changes: Any) -> CQL:
    """Conservative Q-learning on the offline data; the paper reports the peak of its curve."""
    settings = {"networks": "per-step", "hidden": (32,), "batch_size": 32 * spec.horizon}
    return CQL(CQLConfig(spec.iterations, tau=0.1, **{**settings, **changes}))


def dqfd(spec: LockRun, **changes: Any) -> DQfD:
    """Deep Q-learning from demonstrations: Hy-Q's two sources, with a margin on the offline one."""
    config = DQfDConfig(
        iterations=spec.iterations,
        offline_share=spec.offline_share,
        batch_size=32 * spec.horizon,
        value_range=(0.0, spec.lock.max_return),
        **changes,
    )
    return DQfD(config)


def briee(spec: LockRun) -> BRIEE:
    """BRIEE, an online algorithm that learns features and explores with them; no offline data."""
    alpha = 0.5 / spec.horizon  # the bonuses of an episode add up
    return BRIEE(BRIEEConfig(spec.iterations, alpha=alpha, v_max=spec.lock.max_return))


Maker = Callable[[LockRun], Algorithm]
BLOCK: dict[str, Any] = {"hidden": (LATENTS,), "activation": "softmax", "learning_rate": 1e-2}
"""The functions that Hy-Q has, and a step size that moves a softmax."""
WARM_START = PiecewiseLinear(((0.0, 1.0), (1.0, 0.0)))

LOCK_ALGORITHMS: dict[str, tuple[Maker, str]] = {
    "hyq": (hyq, "V-type Hy-Q, the paper's: offline and online data in every regression."),
    "offline-fqi": (
        partial(hyq, collection="none", offline_share=1.0),
        "Fitted Q-iteration on the offline data alone.",
    ),
    "online-only": (
        partial(hyq, offline_share=0.0),
        "Hy-Q without its offline data: what greedy exploration finds by itself.",
    ),
    "warm-start": (
        partial(hyq, offline_share=WARM_START),
        "Learn offline once, then online only: the forgetting the paper warns of.",
    ),
    "bc": (bc, "Behaviour cloning of the offline data."),
    "cql": (cql, "Conservative Q-learning on the offline data, as the paper has it."),
    "dqfd": (dqfd, "Deep Q-learning from demonstrations, with a margin on offline data."),
    "hyq-adam": (hyq_adam, "Hy-Q with the paper's own optimiser, minibatch Adam."),
    "cql-block": (partial(cql, **BLOCK), "CQL with Hy-Q's functions: an encoder into 3 latents."),
    "dqfd-block": (partial(dqfd, **BLOCK), "DQfD with Hy-Q's functions, likewise."),
    "briee": (briee, "BRIEE, which learns features online and explores with them; no data."),
}
"""Every algorithm by name: what makes it, and what it is."""
