"""Theorem 1, measured: what Algorithm 1 loses while it learns, beside what the theorem allows.

Every problem is a finite MDP, so C_pi, the bilinear rank and the value of every policy on the way
are exact; only the algorithm's data is random. Offline pairs are drawn i.i.d. from nu_h, as the
paper assumes, with nu a mixture of the comparator's occupancy (share p) and the worst policy's:
C_pi is about sqrt(H / p), which is how it is controlled. Rewards are Bernoulli but for the lock's.

The theorem needs a complete class, and one range or one ball for all steps is none. The tables here
have values between 0 and the most that can still be gained: cell means of the targets never leave
that. The linear functions have weights in [0, H - h]^d, written as w in [0, 1]^d for the features
(H - h) phi, so that one class serves every step.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from scipy.optimize import lsq_linear

from hyq.core.mdp import FiniteMDP
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, IntArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.online import OnlineStore
from hyq.envs.combination_lock import LockSpec
from hyq.envs.linear import LinearMDP
from hyq.envs.tabular import TabularEnv, draw_index
from hyq.fqi.base import State
from hyq.fqi.classes import FunctionClass, Regression, ValueFunction
from hyq.fqi.hyq_fqi import HyQ, HyQConfig, fitted_q_iteration
from hyq.fqi.linear import LinearClass, LinearFunction
from hyq.fqi.tabular import TabularClass
from hyq.runs.records import RunDirectory
from hyq.theory.assumptions import largest_returns
from hyq.theory.theorem import Setting
from hyq.theory.transfer import linear_transfer, tabular_transfer

ProblemKind = Literal["tabular", "linear", "lock"]
Use = Literal["pooled", "balanced", "warm start"]
USES: tuple[Use, ...] = get_args(Use)
"""How regressions weigh data: all rows equally, both sources equally, or offline only at first."""


@dataclass(frozen=True)
class Problem:
    """An MDP with a complete function class, for which the corrected Theorem 1 holds."""

    mdp: FiniteMDP
    family: FunctionClass[ValueFunction]
    observe: Callable[[int, IntArray], Array]
    """What the agent sees of states at a step."""
    transfer: Callable[[FloatArray, FloatArray], float]
    """C_pi of the class without its bounds, from the comparator's occupancy and nu."""
    rank: int
    """d: cells of a table, or features."""
    bernoulli: bool
    """Whether rewards are 0 or 1 with the MDP's means, or the means themselves."""

    @cached_property
    def v_max(self) -> float:
        """The largest total reward of a trajectory."""
        payoff = (self.mdp.reward > 0).astype(np.float64) if self.bernoulli else self.mdp.reward
        return float(largest_returns(self.mdp, payoff).max())


def setting(transfer: float, rank: int, horizon: int, v_max: float) -> Setting:
    """Return what Theorem 1 needs to know of tables, or of simplex features with box weights.

    Residuals have `rank` weights in [-V_max, V_max], and occupancies (or mean features) are at most
    one long.
    """
    length = v_max * math.sqrt(rank)
    return Setting(transfer, rank, horizon, v_max, length, parameters=rank * horizon)


@dataclass(frozen=True)
class Case:
    """One measurement: a problem, data of some coverage, and T iterations."""

    problem: ProblemKind = "tabular"
    iterations: int = 128
    """T."""
    share: float = 0.25
    """p, the comparator's share of the offline distribution."""
    seed: int = 0
    size: int = 4
    """States of a tabular MDP, or features of a linear one."""
    horizon: int = 4
    m_off: int | None = None
    """Offline samples a step; None is T, as in the theorem."""
    use: Use = "pooled"
    comparator: float = 0.0
    """Share of (step, state) at which the comparator departs from the optimal policy."""


class BoxClass(LinearClass):
    """Linear functions with all weights in [0, 1]."""

    def fit(self, problem: Regression) -> LinearFunction:
        """Solve the least squares over the box exactly, on the triangle that QR leaves of it."""
        features = problem.rows.observation[np.arange(len(problem.target)), problem.rows.action]
        rows = np.column_stack([features, problem.target]) * np.sqrt(problem.weight)[:, None]
        triangle = np.asarray(np.linalg.qr(rows, mode="r"))
        found = lsq_linear(
            triangle[:, :-1], triangle[:, -1], (0.0, 1.0), "bvls", max_iter=100 * self.dimension
        )
        return LinearFunction(np.clip(found.x, 0.0, 1.0))


class _ProblemEnv(TabularEnv):
    """One copy of a problem's MDP, which shows what the problem shows of a state."""

    def __init__(self, problem: Problem) -> None:
        self._show = problem.observe
        super().__init__(1, problem.mdp, "bernoulli" if problem.bernoulli else "none")

    def _observe(self, state: Array, h: IntArray) -> Array:
        return self._show(int(h[0]), state.copy())


def build(case: Case) -> Problem:
    """Make the problem that a case names; its seed chooses the instance."""
    rng = Streams(case.seed).generator("theory", case.problem, case.size, case.horizon)
    if case.problem == "linear":
        made = LinearMDP.random(
            rng, states=4 * case.size, actions=4, dimension=case.size, horizon=case.horizon
        )
        return Problem(
            made.mdp,
            BoxClass(made.dimension),
            observe=lambda h, state: (case.horizon - h) * made.features[state],
            transfer=lambda d, nu: linear_transfer(made.features, d, nu),
            rank=made.dimension,
            bernoulli=True,
        )
    if case.problem == "lock":
        mdp = LockSpec(horizon=case.horizon, instance_seed=case.seed).latent_mdp()
    else:
        mdp = FiniteMDP.random(
            rng, states=case.size, actions=4, horizon=case.horizon, concentration=0.3
        )
    return Problem(
        mdp,
        TabularClass(mdp.states, mdp.actions),
        observe=lambda h, state: state,
        transfer=tabular_transfer,
        rank=mdp.states * mdp.actions,
        bernoulli=case.problem == "tabular",
    )


def comparator_policy(mdp: FiniteMDP, departs: float, rng: np.random.Generator) -> FloatArray:
    """Return the optimal policy with another action in a share `departs` of (step, state)."""
    action = mdp.optimal_q().argmax(axis=-1)
    other = (action + rng.integers(1, mdp.actions, size=action.shape)) % mdp.actions
    chosen = np.where(rng.random(action.shape) < departs, other, action)
    policy: FloatArray = np.eye(mdp.actions)[chosen]
    return policy


def offline_data(
    problem: Problem, nu: FloatArray, samples: int, rng: np.random.Generator
) -> Dataset:
    """Draw `samples` i.i.d. transitions of every step from nu_h."""
    mdp, parts = problem.mdp, []
    for h in range(mdp.horizon):
        cell = rng.choice(nu[h].size, size=samples, p=nu[h].ravel() / nu[h].sum())
        state, action = np.divmod(cell, mdp.actions)
        next_state = draw_index(mdp.transition[h, state, action], rng)
        reward = mdp.reward[h, state, action]
        if problem.bernoulli:
            reward = (rng.random(samples) < reward).astype(np.float64)
        parts.append(
            Transitions(
                problem.observe(h, state),
                action,
                reward,
                np.full(samples, float(h + 1 < mdp.horizon)),
                problem.observe(h + 1, next_state),
            )
        )
    step = np.repeat(np.arange(mdp.horizon), samples)
    return Dataset.from_transitions(Transitions.concatenate(parts), step)


def measure(case: Case) -> tuple[dict[str, Any], FloatArray]:
    """Run Algorithm 1; return what it loses to the comparator, and V^{pi^t} for t = 1, ..., T.

    `transfer` is C_pi of the comparator, and `cumulative` is sum_t V^{pi^e} - V^{pi^t}. The optimal
    policy is covered where its C_pi is finite too.
    """
    problem = build(case)
    mdp, streams = problem.mdp, Streams(case.seed)
    policy = comparator_policy(mdp, case.comparator, streams.generator("comparator"))
    occupancy = mdp.occupancy(policy)
    q = mdp.optimal_q()
    worst = mdp.occupancy(mdp.greedy_policy(-q))
    nu = case.share * occupancy + (1 - case.share) * worst
    samples = case.m_off or case.iterations
    offline = offline_data(problem, nu, samples, streams.generator("offline", samples))
    values = np.array(list(_values(problem, case, offline, streams)))
    comparator = mdp.value(policy)
    optimal_transfer = problem.transfer(mdp.occupancy(mdp.greedy_policy(q)), nu)
    found = {
        "transfer": problem.transfer(occupancy, nu),
        "optimal_covered": math.isfinite(optimal_transfer),
        "rank": problem.rank,
        "v_max": problem.v_max,
        "comparator_value": comparator,
        "optimal_value": mdp.optimal_value(),
        "cumulative": float((comparator - values).sum()),
        "first_loss": comparator - float(values[0]),
        "final_value": float(values[-1]),
    }
    return found, values


def _values(problem: Problem, case: Case, offline: Dataset, streams: Streams) -> Iterator[float]:
    """Yield V^{pi^t} for t = 1, ..., T, the first being that of f^1."""
    shares = {"pooled": None, "balanced": 0.5, "warm start": 0.0}
    config = HyQConfig(
        iterations=max(case.iterations - 1, 1),
        collection="q-type",
        offline_share=shares[case.use],
        value_range=(0.0, problem.v_max),
    )
    horizon = problem.mdp.horizon
    functions: Sequence[ValueFunction] = (problem.family.zero(),) * horizon
    if case.use == "warm start":
        functions, *_ = fitted_q_iteration(
            offline.by_step(), OnlineStore(), problem.family, config, functions, streams, 1.0
        )
    known: dict[bytes, float] = {}
    states = np.arange(problem.mdp.states)

    def value(of: Sequence[ValueFunction]) -> float:
        actions = np.array([f.greedy(problem.observe(h, states)) for h, f in enumerate(of)])
        key = actions.tobytes()
        if key not in known:
            known[key] = problem.mdp.value(np.eye(problem.mdp.actions)[actions])
        return known[key]

    yield value(functions)
    algorithm, env = HyQ(problem.family, config), _ProblemEnv(problem)
    state = State.of(functions)
    while state.counts[0] + 1 < case.iterations:
        for step in algorithm.run(env, offline, streams, state):
            yield value(step.policy.functions)
            state = step.state
            if step.iteration % _SEGMENT == 0:
                break
        batch = tuple(Transitions.concatenate(state.online.at(h)) for h in range(horizon))
        state = replace(state, online=OnlineStore((batch,)))


_SEGMENT = 64
"""Iterations after which collected batches are laid end to end, which changes only the speed."""


PROBLEMS: tuple[ProblemKind, ...] = ("tabular", "linear", "lock")
SHARES = (1.0, 1 / 4, 1 / 16, 1 / 64)
HORIZONS: dict[ProblemKind, int] = {"tabular": 4, "linear": 4, "lock": 8}


def plan(quick: bool) -> dict[str, list[Case]]:
    """Lay the experiment out, a panel of the figure each: minutes on one core, seconds if `quick`.

    Rates, sizes and horizons are the cumulative suboptimality against T, for several C_pi, against
    the rank d and against H. Forgetting is against m_off, for the three uses of the data.
    Comparators are covered while the optimum is not.
    """
    rounds = (8, 16, 32) if quick else (32, 64, 128, 256, 512, 1024)
    middle = 16 if quick else 256
    base = [
        Case(problem=problem, horizon=HORIZONS[problem], seed=seed, size=8, iterations=middle)
        for problem in PROBLEMS
        for seed in range(1 if quick else 3)
    ]
    sized = [case for case in base if case.problem != "lock"]
    counted = [case for case in base if case.problem != "linear"]
    few = [max(1, middle // divisor) for divisor in (1, 4, 16, 64)]
    return {
        "rates": [replace(c, iterations=t, share=p) for c in base for p in SHARES for t in rounds],
        "sizes": [replace(case, size=size) for case in sized for size in (2, 4, 8, 16)],
        "horizons": [replace(case, horizon=h) for case in base for h in (2, 4, 8)],
        "forgetting": [replace(c, m_off=m, use=use) for c in counted for m in few for use in USES],
        "comparators": [
            replace(case, comparator=badness, share=1.0) for case in base for badness in (0.1, 0.3)
        ],
    }


def start(out: Path, quick: bool = False) -> Iterator[tuple[int, int]]:
    """Run the whole plan into the new directory `out`, yielding (done, all) after each case."""
    everything = [(panel, case) for panel, cases in plan(quick).items() for case in cases]
    run = RunDirectory.create(out, {"experiment": "theory", "quick": quick})
    for done, (panel, case) in enumerate(everything, start=1):
        found, _ = measure(case)
        about = {"iteration": done, "panel": panel, **vars(case)}
        run.append({**about, "m_off": case.m_off or case.iterations, **found})
        yield done, len(everything)
