"""What every algorithm must do, whatever it learns: one suite that each algorithm's tests call."""

from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.online import OnlineStore
from hyq.fqi.base import Algorithm, State, Step
from hyq.fqi.classes import Regression, ValueFunction
from hyq.fqi.rollout import Policy, VectorEnv, lockstep


def check_conformance(
    make: Callable[[], Algorithm], env: VectorEnv, offline: Dataset, iterations: int = 3
) -> None:
    """Run `make()` for a few iterations and check the contract of `hyq.fqi.base`."""
    whole = list(make().run(env, offline, Streams(5)))
    assert len(whole) == iterations, "the configured number of iterations was not kept"
    assert [step.iteration for step in whole] == list(range(1, iterations + 1))
    samples = [step.online_steps for step in whole]
    assert samples == sorted(samples)
    assert all(np.isfinite(value) for step in whole for value in step.metrics.values())
    observation = offline.by_step().at(0).observation[:7]
    actions = whole[-1].policy(0, observation)
    assert all(action in env.single_action_space for action in actions)

    _assert_same(whole[-1], deque(make().run(env, offline, Streams(5)), maxlen=1)[0])
    other = deque(make().run(env, offline, Streams(6)), maxlen=1)[0]
    assert _bits(other) != _bits(whole[-1]), "the seed changes nothing"

    for stop in range(1, iterations):
        parts: list[Mapping[str, Array]] = []
        for step in make().run(env, offline, Streams(5)):
            kept = step.state
            if len(kept.online.batches) > len(parts):
                parts.append(kept.online.newest())
            if step.iteration == stop:
                break
        restored = State(kept.arrays, OnlineStore.rebuild(parts))
        tail = list(make().run(env, offline, Streams(5), restored))
        assert [step.iteration for step in tail] == list(range(stop + 1, iterations + 1))
        _assert_same(whole[-1], tail[-1])


def _bits(step: Step) -> dict[str, bytes]:
    return {k: v.tobytes() for k, v in step.state.arrays.items()}


def _assert_same(one: Step, other: Step) -> None:
    assert _bits(one) == _bits(other)
    assert one.online_steps == other.online_steps
    assert dict(one.metrics) == dict(other.metrics)


def returns(env: VectorEnv, policy: Policy, steps: int, seed: int) -> FloatArray:
    """Play one episode in every environment and return the sum of rewards of each."""
    total = np.zeros(env.num_envs)
    for rows, running in lockstep(env, policy, steps, seed):
        total[running] += rows.reward
    return total


def regression(
    observation: Array,
    action: Array,
    target: FloatArray,
    weight: FloatArray,
    start: ValueFunction | None = None,
    seed: int = 0,
) -> Regression:
    """Pose a problem of which only what a regression looks at is known."""
    nothing = np.zeros(len(target))
    rows = Transitions(observation, action, nothing, nothing, observation)
    return Regression(rows, target, weight, start=start, streams=Streams(seed))
