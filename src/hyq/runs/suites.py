"""Suites as data: each a named tuple of frozen specs with stable ids."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from hyq.algorithms import find_algorithm, setting_groups
from hyq.core.errors import HyqError
from hyq.experts.lock import LockData
from hyq.experts.scripted import PROBLEMS
from hyq.runs.lock_spec import USED_BY, LockRun
from hyq.runs.spec import RunSpec

Run = LockRun | RunSpec
Preset = Literal["full", "quick"]
OFFLINE_ALGORITHMS = (
    "bc",
    "cql",
    "cql-block",
    "iql",
    "offline",
    "offline-dqn",
    "offline-fqi",
    "td3bc",
)
"""Algorithms that never act: the paper draws them as dashed lines. Records made earlier name
offline-dqn "offline"."""

FRESH_SEEDS = range(100, 105)
"""Seeds that no setting was ever tuned on."""


@dataclass(frozen=True)
class Suite:
    """Runs that are compared with one another."""

    name: str
    title: str
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        # Runs of one id would share a directory.
        ids = [run.id for run in self.runs]
        if len(set(ids)) != len(ids):
            raise HyqError(f"suite {self.name!r} has runs of equal id")


def lock_suite(preset: Preset) -> Suite:
    """Compare every algorithm on both datasets: the paper's figure for the combination lock.

    CQL and DQfD run with networks of their own and with Hy-Q's functions; Hy-Q runs with its exact
    least squares and with the paper's minibatch Adam. What takes long has the first three seeds.
    """
    if preset == "full":
        base, seeds = LockRun(), FRESH_SEEDS
    else:
        base, seeds = LockRun(horizon=20, offline_samples=100_000, online_budget=400_000), range(2)
    runs: list[LockRun] = []
    for seed in seeds:
        at, slow = replace(base, seed=seed), seed in seeds[:3]
        if slow:  # without offline data the two datasets make no difference
            runs += [lock_baseline(at, "briee", m_on=20), lock_baseline(at, "online-only", m_on=50)]
        for data in get_args(LockData):
            on = replace(at, data=data)
            runs += [on, replace(on, anti_reward_probability=1.0)]
            some, more = (min(budget, on.online_budget) for budget in (1_000_000, 5_000_000))
            if slow:
                runs.append(lock_baseline(on, "hyq-adam", m_on=50, online_budget=more))
            for offline, iterations in {"bc": 10, "cql": 40, "cql-block": 40}.items():
                runs.append(lock_baseline(on, offline, iterations=iterations))
            runs.append(lock_baseline(on, "offline-fqi", iterations=10))
            for acts in ("warm-start", "dqfd", "dqfd-block"):
                runs.append(lock_baseline(on, acts, online_budget=some))
    # What takes longest comes last: a suite that is interrupted has all the rest.
    slowest = ("hyq-adam", "online-only", "briee")
    runs.sort(key=lambda run: slowest.index(run.algorithm) if run.algorithm in slowest else -1)
    return Suite("lock", f"The combination lock, H = {base.horizon}", tuple(runs))


def lock_baseline(run: LockRun, algorithm: str, **changes: Any) -> LockRun:
    """Return the run of another algorithm on the same lock, without what it does not use."""
    idle = {name: getattr(LockRun, name) for name, by in USED_BY.items() if algorithm not in by}
    return replace(run, algorithm=algorithm, **{**idle, **changes})


def briee_suite(preset: Preset) -> Suite:
    """Compare Hy-Q with BRIEE, which learns without offline data, as the lock grows."""
    horizons, seeds = ((10, 25, 50), FRESH_SEEDS) if preset == "full" else ((6,), range(2))
    runs = []
    for horizon in horizons:
        for seed in seeds:
            at = LockRun(horizon=horizon, seed=seed, offline_samples=5000 * horizon)
            runs.append(lock_baseline(at, "briee"))
            runs += [replace(at, data=data) for data in get_args(LockData)]
    return Suite("briee", "Hy-Q and BRIEE as the lock grows", tuple(runs))


def _hybrid(problem: str, settings: Mapping[str, Any], **changes: Any) -> RunSpec:
    """Return Hy-Q's run on a scripted problem, with data half of which is random play."""
    env, wrappers = PROBLEMS[problem].env, PROBLEMS[problem].wrappers
    return RunSpec(env, f"{problem}/half", wrappers=wrappers, settings=settings, **changes)


EXAMPLES: dict[str, tuple[dict[str, Any], int, float]] = {
    # The threshold its makers gave it.
    "mountaincar": ({"online_steps": 20_000}, 60_000, -110.0),
    # Near the best one can do, as in the next.
    "acrobot": ({"online_steps": 15_000}, 40_000, -85.0),
    # Nine steps long: with a distant horizon, standing still would cost next to nothing.
    "doorkey": (
        {
            "online_steps": 10_000,
            "gamma": 0.9,
            "value_range": (0.0, 1.0),
            "target_update_every": 100,
            "batch_size": 128,
            "learning_rate": 3e-4,
        },
        25_000,
        0.95,
    ),
}
"""Of the problems of the deep comparison: settings, steps of online-only DQN, and threshold."""


def start_runs(data: str, online_steps: int, seed: int = 0) -> tuple[RunSpec, RunSpec, RunSpec]:
    """Learn MountainCar from logs and live steps, from live steps alone, and from logs alone."""
    hybrid = _hybrid("mountaincar", {"online_steps": online_steps}, threshold=-110.0, seed=seed)
    hybrid = replace(hybrid, data=data)
    return hybrid, replace(baseline(hybrid, "dqn"), data=None), baseline(hybrid, "cql")


def start_suite(preset: Preset) -> Suite:
    """Compare both sources with either alone on one small problem: the figure of the first page."""
    steps, seeds = (10_000, FRESH_SEEDS) if preset == "full" else (1000, range(1))
    runs = [run for seed in seeds for run in start_runs("mountaincar/half", steps, seed)]
    return Suite("start", "MountainCar with logs, without, and from logs alone", tuple(runs))


DEEP_ORDER = ("hyq", "dqn", "offline-dqn", "bc", "dqfd", "cql", "iql")
"""What matters most first, so that a suite that is interrupted says something already."""


def baseline(hybrid: RunSpec, algorithm: str, **settings: Any) -> RunSpec:
    """Return the run of another algorithm under the settings of a hybrid run.

    What the other does not use is left out. One that never acts makes as many updates as Hy-Q.
    """
    groups, whole = setting_groups(algorithm, hybrid.actions), hybrid.configs.encoded()
    kept = {name: v for name, v in hybrid.settings.items() if name in groups}
    if "updates" in groups:
        online = whole["online_steps"] * whole["updates_per_step"] // whole["update_every"]
        kept["updates"] = whole["pretraining"] + online
    about = find_algorithm(algorithm, hybrid.actions)
    data = hybrid.data if about.takes_data else None
    return replace(hybrid, algorithm=algorithm, data=data, settings={**kept, **settings})


def deep_suite(preset: Preset) -> Suite:
    """Compare deep Hy-Q with online-only, offline-only and the baselines on three problems."""
    runs: list[RunSpec] = []
    for name in EXAMPLES if preset == "full" else ("mountaincar",):
        settings, alone, threshold = EXAMPLES[name]
        solved = {"threshold": threshold, "stop_when_solved": True}
        for seed in FRESH_SEEDS if preset == "full" else range(1):
            hybrid = _hybrid(name, settings, seed=seed, **solved)
            runs += [hybrid, baseline(hybrid, "dqn", online_steps=alone)]
            runs += [baseline(hybrid, other) for other in ("offline-dqn", "bc")]
            if name != "acrobot":  # whose script acts at random half of the time as it is
                runs += [replace(hybrid, data=f"{name}/{q}") for q in ("expert", "random80")]
            if name == "mountaincar":
                runs += [baseline(hybrid, other) for other in ("dqfd", "cql", "iql")]
    runs.sort(key=lambda run: DEEP_ORDER.index(run.algorithm))
    return Suite("deep", "Deep Hy-Q on three small problems", tuple(runs))


TASKS = {
    "metaworld-drawer-open": 3000,
    "metaworld-button-press": 3000,
    "pointmaze-medium": 5000,
    "ogbench-cube": 6000,
    "fetch-push": 8000,
    "fetch-pick-and-place": 8000,
}
"""Sparse tasks of robots and mazes, and the online steps that what acts takes in each."""
CONTINUOUS_ORDER = ("hyq", "sac", "iql", "bc", "awac", "calql", "ddpgfd")
"""What matters most first, so that a suite that is interrupted says something already."""


def continuous_suite(preset: Preset) -> Suite:
    """Compare Hy-SAC with what learns from one source or from both, on sparse tasks."""
    runs: list[RunSpec] = []
    for task, steps in TASKS.items() if preset == "full" else [("pointmaze-medium", 1000)]:
        how: dict[str, Any] = {"preset": "cpu", "actions": "continuous"}
        for seed in FRESH_SEEDS if preset == "full" else range(1):
            hybrid = _hybrid(task, {"online_steps": steps}, seed=seed, **how)
            runs += [hybrid, *(baseline(hybrid, name) for name in CONTINUOUS_ORDER[1:])]
            if seed in FRESH_SEEDS[:3]:
                runs += [replace(hybrid, data=f"{task}/{q}") for q in ("expert", "random80")]
    order = CONTINUOUS_ORDER.index
    sweep = ("expert", "random80")
    runs.sort(key=lambda run: (str(run.data).endswith(sweep), order(run.algorithm)))
    return Suite("continuous", "Hy-SAC on sparse tasks of robots and mazes", tuple(runs))


CONTINUOUS_UNDONE: tuple[Mapping[str, Any], ...] = (
    {},
    {"layer_norm": False},
    {"critics": 2},
    {"updates_per_step": 1},
    {"mix": "bernoulli"},
    {"beta": 0.25},
    {"pretraining": 0},
    {"learning_starts": 500},
)
"""Choices of Hy-SAC's preset `cpu` that are made otherwise, one at a time."""


def continuous_ablation_suite(preset: Preset) -> Suite:
    """Make each choice of Hy-SAC otherwise, on a robot's task and in a maze."""
    tasks = ("metaworld-drawer-open", "pointmaze-medium") if preset == "full" else list(TASKS)[:1]
    runs = [
        _hybrid(
            task,
            {"online_steps": TASKS[task] if preset == "full" else 500, **changes},
            seed=seed,
            preset="cpu",
            actions="continuous",
        )
        for seed in (FRESH_SEEDS[:3] if preset == "full" else range(1))
        for task in tasks
        for changes in CONTINUOUS_UNDONE
    ]
    return Suite("continuous-ablations", "Hy-SAC, one choice at a time", tuple(runs))


MONTEZUMA_PARAMETERS = {"step_limit": 2000, "num_threads": 1}
"""One thread a run, because runs share the cores."""
MONTEZUMA_SEEDS = range(200, 205)
"""Seeds that neither the preset nor the settings below were chosen on."""
MONTEZUMA_TRIALS: dict[str, tuple[Mapping[str, Any], ...]] = {
    "hyq": tuple({"n_step_offline": n, "beta": b} for n in (60, 10) for b in (0.5, 0.25)),
    "dqfd": tuple({"n_step_offline": n, "margin_weight": w} for n in (60, 10) for w in (1.0, 0.3)),
    "cql": tuple({"n_step_offline": n, "cql_weight": w} for n in (60, 10) for w in (1.0, 0.25)),
    "bc": tuple({"learning_rate": r, "weight_decay": d} for r in (5e-4, 1e-4) for d in (0.0, 1e-4)),
}
"""Equal effort: each algorithm is tried with four settings of its own, all of one length."""
MONTEZUMA_TUNED: dict[str, Mapping[str, Any]] = {
    "hyq": {"n_step_offline": 60, "beta": 0.25},
    "dqfd": {"n_step_offline": 60, "margin_weight": 0.3},
    "cql": {"n_step_offline": 10, "cql_weight": 0.25},
    "bc": {"learning_rate": 5e-4, "weight_decay": 1e-4},
}
"""The best of them, by the returns of results/montezuma/tuning."""


def _montezuma(online_steps: int, data: str = "montezuma/hard", **changes: Any) -> RunSpec:
    if online_steps < 1:
        raise HyqError(f"online_steps must be at least 1, got {online_steps}")
    return RunSpec(
        env="hyq/Montezuma-v0",
        env_parameters=MONTEZUMA_PARAMETERS,
        preset="cpu-montezuma",
        data=data,
        settings={"online_steps": online_steps},
        **changes,
    )


def _tuned(hybrid: RunSpec, algorithm: str, settings: Mapping[str, Any]) -> RunSpec:
    """Return the run of an algorithm for Montezuma's Revenge, evaluated at its end."""
    run = baseline(hybrid, algorithm, **settings)
    if algorithm == "rnd":  # whose policy samples its actions, in training as in evaluation
        return replace(run, evaluation_episodes=0)
    every = run.configs.encoded()
    # Algorithms that never act report by updates, which are few.
    reports = every.get("updates", every.get("online_steps", 0)) // every["report_every"]
    return replace(run, evaluate_every=max(1, reports), evaluation_epsilon=0.01)


def montezuma_suite(online_steps: int) -> Suite:
    """Compare plain Hy-Q with DQfD, CQL, BC and RND, each with the best settings of its trials.

    DQfD runs with its published settings too, which the paper kept for all baselines.
    What the paper's claim rests on comes first: a suite that is interrupted says something already.
    """
    runs: list[RunSpec] = []

    def add(algorithms: tuple[str, ...], data: str, seeds: range) -> None:
        for seed in seeds:
            hybrid = _montezuma(online_steps, data=f"montezuma/{data}", seed=seed)
            for name in algorithms:
                published = name == "dqfd, published"
                settings = {} if published else MONTEZUMA_TUNED.get(name.removesuffix("+cql"), {})
                runs.append(_tuned(hybrid, "dqfd" if published else name, settings))

    add(("hyq", "dqfd", "dqfd, published"), "hard", MONTEZUMA_SEEDS[:3])
    add(("hyq", "dqfd"), "hard", MONTEZUMA_SEEDS[3:])
    add(("bc", "cql"), "hard", MONTEZUMA_SEEDS[:3])
    add(("hyq+cql",), "hard", MONTEZUMA_SEEDS)
    add(("rnd",), "hard", MONTEZUMA_SEEDS[:3])
    for data in ("easy", "medium"):
        add(("hyq", "dqfd", "bc", "cql"), data, MONTEZUMA_SEEDS[:3])
    return Suite("montezuma", "Montezuma's Revenge", tuple(runs))


def montezuma_tuning_suite(preset: Preset) -> Suite:
    """Try the settings of each algorithm for Montezuma's Revenge on one seed of its own."""
    hybrid = _montezuma(100_000 if preset == "full" else 2000, seed=0)
    runs = [
        _tuned(hybrid, name, settings)
        for name, trials in MONTEZUMA_TRIALS.items()
        for settings in (trials if preset == "full" else trials[:1])
    ]
    return Suite("montezuma-tuning", "Trials of settings for Montezuma's Revenge", tuple(runs))


UNDONE: tuple[Mapping[str, Any], ...] = (
    {},
    {"n_step": 1, "n_step_offline": 1},
    {"pretraining": 0},
    {"mix": "bernoulli", "beta": 0.2},
    {"epsilon": "0:0.25, 250e3:0.1, 5e6:0.01, 15e6:0.001"},
    {"network": "unnormalised"},
    {"life_loss_discount": 1.0},
)
"""Departures from the paper's settings for Montezuma's Revenge that are set back, one at a time."""


def ablation_suite(preset: Preset) -> Suite:
    """Set settings for Montezuma's Revenge back to the paper's, one at a time."""
    steps, seeds = (300_000, MONTEZUMA_SEEDS[:3]) if preset == "full" else (2000, range(1))
    runs = []
    for seed in seeds:
        whole = baseline(_montezuma(steps, seed=seed), "hyq", **MONTEZUMA_TUNED["hyq"])
        whole = replace(whole, evaluation_episodes=0)
        runs += [replace(whole, settings={**whole.settings, **changes}) for changes in UNDONE]
    return Suite("ablations", "Montezuma's Revenge, one setting undone at a time", tuple(runs))


SUITES: dict[str, Callable[[Preset], Suite]] = {
    "start": start_suite,
    "lock": lock_suite,
    "briee": briee_suite,
    "deep": deep_suite,
    "continuous": continuous_suite,
    "continuous-ablations": continuous_ablation_suite,
    "montezuma-tuning": montezuma_tuning_suite,
    "ablations": ablation_suite,
}
"""Suites by name."""
SUITES_BY_STEPS: dict[str, tuple[Callable[[int], Suite], int]] = {
    "montezuma": (montezuma_suite, 3_000_000),
}
"""Suites whose runs take as many steps as are requested, and how many those usually are."""
