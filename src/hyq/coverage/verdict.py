"""From numbers to sentences: what is wrong with a dataset, and what Hy-Q can do with it."""

import math

import numpy as np

from hyq.coverage.estimate import Interval
from hyq.coverage.inspection import UNSUPPORTED_LIMIT, Comparator, Finding, Inspection

BEST_SHARE = 0.1
NEARLY_DETERMINISTIC = 0.1
"""Share of the largest possible entropy below which a step's actions say little about others."""
WELL, THIN = 3.0, 10.0
"""C_pi over that of the policy's own data, sqrt(H): well covered up to, thinly up to."""


def findings(found: Inspection) -> tuple[Finding, ...]:
    """List what is wrong or worth knowing, the worst first."""
    notes = [*_ends(found), *_content(found)]
    order = ("error", "warning", "note", "good")
    notes.sort(key=lambda note: order.index(note.severity))
    return tuple(notes or [Finding("good", "Nothing is wrong with the numbers themselves.")])


def _ends(found: Inspection) -> list[Finding]:
    notes = []
    episodes = found.episodes
    if episodes.continued_after_end:
        text = (
            f"{episodes.continued_after_end:,} transitions are marked as terminated (discount 0) "
            "but their episode continues: a time limit or a reset was logged as an end."
        )
        notes.append(Finding("error", text))
    if episodes.linked > 0.9 and episodes.cut:
        text = (
            f"{episodes.cut:,} transitions before the last step neither end nor go on: episodes "
            "were cut off, or rows are missing. Cut-off episodes must keep discount 1 (they do)."
        )
        notes.append(Finding("note", text))
    ended = [step.terminated for step in found.steps if step.rows]
    if not any(ended):
        text = (
            "No transition is terminated. If episodes end by themselves, their last transition "
            "needs discount 0; otherwise values are bootstrapped past the end."
        )
        notes.append(Finding("warning", text))
    if min(ended) == 1.0 and len(found.steps) > 1:
        notes.append(Finding("error", "Every transition is terminated: discounts are wrong."))
    return notes


def _content(found: Inspection) -> list[Finding]:
    notes = []
    if found.reward_sparsity == 1.0:
        notes.append(Finding("error", "No transition has a reward: there is nothing to learn."))
    elif found.reward_sparsity > 0.99:
        text = f"Rewards are sparse: {1 - found.reward_sparsity:.2%} of the transitions have one."
        notes.append(Finding("note", text))
    if found.duplicates > 0.01:
        text = f"{found.duplicates:.1%} of the transitions repeat an earlier one exactly."
        small = found.observation.startswith("()")
        tail = " With few states that is expected." if small else " Was data merged twice?"
        notes.append(Finding("note" if small else "warning", text + tail))
    if found.escaping > 0.1:
        text = (
            f"{found.escaping:.0%} of the next observations are unlike any that the next step "
            "logged: values there are guesses until online data corrects them."
        )
        notes.append(Finding("warning", text))
    few = [h for h, step in enumerate(found.steps) if step.rows < 50]
    if few:
        text = f"{len(few)} of {len(found.steps)} steps have fewer than 50 transitions."
        notes.append(Finding("warning", text))
    if found.actions:
        largest = math.log(max(found.actions, 2))
        flat = np.array([step.action_entropy for step in found.steps]) / largest
        fixed = int((flat < NEARLY_DETERMINISTIC).sum())
        if fixed:
            text = (
                f"At {fixed} of {len(found.steps)} steps nearly all logged actions are the same: "
                "only policies that take them are covered there."
            )
            notes.append(Finding("note", text))
    return notes


def verdict(found: Inspection) -> tuple[str, ...]:
    """Say what Hy-Q can compete with, and which assumption is at risk."""
    usable = not found.episodes.continued_after_end
    lines = [] if usable else ["First mend the errors below: they would be learned as facts."]
    if found.comparator is not None:
        lines += _about_policy(found, found.comparator)
    else:
        lines += _about_episodes(found)
    lines.append(
        "Data alone cannot show realizability and Bellman completeness (Assumption 1): the class "
        "you train must be able to express what the next step's values imply."
    )
    return tuple(lines)


def _about_policy(found: Inspection, policy: Comparator) -> list[str]:
    root = math.sqrt(policy.mean_length)
    earns = f"which earns {policy.mean_return:.3g}"
    if not policy.covered:
        since = (
            f", most of them from step {policy.first_unsupported} on"
            if policy.first_unsupported is not None
            else ""
        )
        why = f"{policy.unsupported:.0%} of its visits have no logged pair nearby{since}"
        if policy.unsupported <= UNSUPPORTED_LIMIT:
            why = f"{policy.outside:.0%} of its visits lie outside the span of the logged features"
        return [
            f"NOT COVERED. Hy-Q is not promised to match this policy, {earns}: {why}.",
            "At risk: a finite transfer coefficient C_pi. Log more like this policy, or expect the "
            "online steps to do the exploring.",
        ]
    ratio = policy.transfer.value / root
    estimate = (
        f"C_pi is about {policy.transfer.value:.3g} ({policy.transfer.low:.3g} to "
        f"{policy.transfer.high:.3g}); the policy's own data would have {root:.3g}"
    )
    if policy.transfer.high > 2 * policy.transfer.value:
        return [
            f"UNSURE. {estimate}. The interval is wide because some actions have too few rows a "
            "step for so many features: log more, or for vectors ask for fewer (--features network "
            "or fourier).",
        ]
    factor = f"about {max(ratio, 1.0) ** 2:.2g} times the samples of such data"
    if ratio <= WELL:
        return [f"WELL COVERED. Hy-Q can compete with this policy, {earns}. {estimate}."]
    if ratio <= THIN:
        return [
            f"COVERED, THINLY. Hy-Q can compete with this policy, {earns}, for {factor}. "
            f"{estimate}."
        ]
    return [
        f"HARDLY COVERED. {estimate}: the guarantee for this policy, {earns}, needs {factor}.",
        "At risk: a transfer coefficient C_pi small enough to matter.",
    ]


def _about_episodes(found: Inspection) -> list[str]:
    returns = np.sort(found.episodes.returns)
    best = returns[-max(1, int(BEST_SHARE * len(returns))) :] if len(returns) else returns
    if len(found.steps) == 1 and found.episodes.linked < 0.9:
        return [
            "The rows carry no order: all are of step 0, yet their episodes go on. So the returns "
            "of episodes are unknown. Give the timestep of each row, or whole episodes (truncated)."
        ]
    if found.episodes.linked < 0.9 or len(returns) < 10:
        return [
            "The transitions are not linked into episodes, so their returns are unknown. Name a "
            "policy (--policy) to learn whether this data covers it."
        ]
    if math.isclose(best.mean(), returns.mean()):
        return [
            f"The {len(returns):,} logged episodes all earn {returns.mean():.3g}, so none says "
            "whom to compete with. Name a policy (--policy) to learn whether this data covers it."
        ]
    bound = math.sqrt(len(found.steps) / BEST_SHARE)
    return [
        f"The best tenth of the {len(returns):,} logged episodes earns {best.mean():.3g} on "
        f"average (all: {returns.mean():.3g}). If one policy played them, a tenth of the data is "
        f"its own: its density ratio is <= 10, C_pi <= {bound:.3g}, and Hy-Q can compete with it. "
        "The same holds for acting like them where start and transitions are deterministic.",
        "Elsewhere the best episodes may owe their return to luck, and acting like them may lead "
        "where little was logged; name a policy (--policy) to measure.",
    ]


def facts(found: Inspection) -> dict[str, str]:
    """Return what holds for the whole dataset, as text."""
    returns = found.episodes.returns
    shown = {
        "transitions": f"{found.rows:,} in {len(found.steps)} steps, {_bytes(found.bytes)}",
        "observations": found.observation,
        "actions": found.action,
        "reward": f"{found.reward[0]:.3g} to {found.reward[2]:.3g}, mean {found.reward[1]:.3g}",
        "without reward": f"{found.reward_sparsity:.2%}",
        "duplicates": f"{found.duplicates:.2%}",
        "linked into episodes": f"{found.episodes.linked:.1%}",
        "lead to unlogged states": f"{found.escaping:.1%}",
    }
    if found.episodes.linked > 0.9 and len(returns):
        quantiles = np.quantile(returns, [0, 0.5, 0.9, 1])
        shown["episode returns"] = (
            "{:,} episodes: min {:.3g}, median {:.3g}, best tenth above {:.3g}, max {:.3g}".format(
                len(returns), *quantiles
            )
        )
    policy = found.comparator
    if policy is not None:
        shown |= {
            "policy earns": f"{policy.mean_return:.4g} on {policy.episodes} episodes",
            "relative condition number": f"{_interval(policy.condition)} ({policy.features})",
            "transfer coefficient": _interval(policy.transfer),
            "visits without support": f"{policy.unsupported:.1%} (of vectors, 1% is chance)",
            "visits outside the span": f"{policy.outside:.1%}",
        }
    return shown


def _interval(value: Interval) -> str:
    if math.isinf(value.value):
        return "infinite: not covered"
    return f"{value.value:.4g}, 95% {value.low:.4g} to {value.high:.4g}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
