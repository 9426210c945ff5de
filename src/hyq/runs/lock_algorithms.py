"""The algorithms that can be run on the lock: one line each, built from the spec they run under."""

from collections.abc import Callable
from dataclasses import replace
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
    return LOCK_ALGORITHMS[spec.algorithm](spec)


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


def offline_fqi(spec: LockRun) -> HyQ:
    """Fitted Q-iteration on the offline data alone."""
    return hyq(spec, collection="none", offline_share=1.0)


def online_only(spec: LockRun) -> HyQ:
    """Hy-Q without its offline data: what greedy exploration finds by itself."""
    return hyq(spec, offline_share=0.0)


def warm_start(spec: LockRun) -> HyQ:
    """Learn offline once, then from online data only: the forgetting the paper warns of."""
    return hyq(spec, offline_share=PiecewiseLinear(((0.0, 1.0), (1.0, 0.0))))


def bc(spec: LockRun) -> BC:
    """Behaviour cloning of the offline data."""
    return BC(BCConfig(iterations=spec.iterations))


def cql(spec: LockRun) -> CQL:
    """Conservative Q-learning on the offline data; the paper reports the peak of its curve."""
    rows = 32 * spec.horizon
    return CQL(
        CQLConfig(spec.iterations, networks="per-step", hidden=(32,), batch_size=rows, tau=0.1)
    )


def dqfd(spec: LockRun) -> DQfD:
    """Deep Q-learning from demonstrations: Hy-Q's two sources, with a margin on the offline one."""
    return DQfD(
        DQfDConfig(
            iterations=spec.iterations,
            offline_share=spec.offline_share,
            batch_size=32 * spec.horizon,
            value_range=(0.0, spec.lock.max_return),
        )
    )


def with_block_functions(make: Callable[[LockRun], Any], spec: LockRun) -> Any:
    """Give CQL or DQfD the functions that Hy-Q has, and a step size that moves a softmax."""
    method = make(spec)
    changes = {"hidden": (LATENTS,), "activation": "softmax", "learning_rate": 1e-2}
    return replace(method, config=replace(method.config, **changes))


def cql_block(spec: LockRun) -> CQL:
    """CQL with Hy-Q's functions: an encoder into three latents."""
    return with_block_functions(cql, spec)


def dqfd_block(spec: LockRun) -> DQfD:
    """DQfD with Hy-Q's functions: an encoder into three latents."""
    return with_block_functions(dqfd, spec)


def briee(spec: LockRun) -> BRIEE:
    """BRIEE, an online algorithm that learns features and explores with them; no offline data."""
    alpha = 0.5 / spec.horizon  # the bonuses of an episode add up
    return BRIEE(BRIEEConfig(spec.iterations, alpha=alpha, v_max=spec.lock.max_return))


LOCK_ALGORITHMS: dict[str, Callable[[LockRun], Algorithm]] = {
    "hyq": hyq,
    "offline-fqi": offline_fqi,
    "online-only": online_only,
    "warm-start": warm_start,
    "bc": bc,
    "cql": cql,
    "dqfd": dqfd,
    "hyq-adam": hyq_adam,
    "cql-block": cql_block,
    "dqfd-block": dqfd_block,
    "briee": briee,
}
"""Every algorithm by name."""
