"""What a person reads after an inspection or an evaluation: a verdict, tables, one HTML page."""

import base64
import html
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TimeRemainingColumn
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_bytes
from hyq.coverage.cells import FEWEST_BEST
from hyq.coverage.estimate import Interval
from hyq.coverage.features import FeatureKind
from hyq.coverage.inspect import inspect_dataset
from hyq.coverage.inspection import Inspection, easier, ranked, too_close
from hyq.coverage.policy import holds_deep_policy
from hyq.data.columns import Observation, only_column
from hyq.data.dataset import Dataset
from hyq.report.episodes import EpisodesInspection, print_episodes, write_episodes_page
from hyq.report.runs import make_room
from hyq.runs.deep_data import dataset_names, load
from hyq.runs.film import Actor, play_episodes

SIGNS = {"good": "green", "note": "cyan", "warning": "yellow", "error": "red"}
BLUE, RED, GREY = "#1f6f8b", "#d1495b", "#888888"
STEPS_SHOWN = 12
BY_STEP, WHOLE = 500, 30
"""Episodes that a policy plays: by step they are played together, whole ones may be long."""


def data_inspect(
    *names: Annotated[str, tyro.conf.Positional],
    env: str | None = None,
    policy: Path | None = None,
    features: FeatureKind = "raw",
    episodes: int | None = None,
    page: Path = Path("inspect.html"),
) -> None:
    """Say what is in a dataset, what is wrong with it, and what Hy-Q can compete with given it.

    Several datasets are ranked, the easiest for Hy-Q first. Transitions by step are held against a
    policy; whole episodes, such as montezuma/hard, against a deep policy, or the best of them.

    Args:
        names: Directories of datasets, which may be larger than memory, or names of 'hyq data
            list'.
        env: Environment to play the policy in; by default the one the dataset was made in.
        policy: Directory of a run or a saved policy to measure the data against: for whole
            episodes a deep one, for transitions by step one with a function for each step.
        features: By step, measure coverage in raw observations, random Fourier features, or the
            last layer of the policy's own network.
        episodes: Episodes of the policy to play: 500 by step, 30 whole ones, if not given.
        page: Where to write the report; of several datasets by step, each has one beside it.
    """
    if not names:
        raise HyqError("name at least one dataset")
    if len(set(names)) != len(names):
        raise HyqError("name each dataset once")
    console = Console()
    kinds = {_is_by_step(name) for name in names}
    if len(kinds) > 1:
        raise HyqError("transitions by step and whole episodes cannot be compared")
    if kinds == {False}:
        if features != "raw":
            raise HyqError("whole episodes are compared by cells, not by features: leave them out")
        if policy is None and (env is not None or episodes is not None):
            raise HyqError("an environment and episodes are for a policy to play: give --policy")
        _inspect_episodes(
            names, page, console, policy, env, WHOLE if episodes is None else episodes
        )
        return
    if len(names) > 1 and policy is None:
        raise HyqError("to rank datasets, name the policy to hold them against (--policy)")
    make_room(page)
    found = []
    for name in names:
        with _reading(console) as (bar, task):
            found.append(
                inspect_dataset(
                    Path(name),
                    env=env,
                    policy=policy,
                    features=features,
                    episodes=BY_STEP if episodes is None else episodes,
                    progress=lambda done, total: bar.update(task, completed=done, total=total),
                )
            )
        print_inspection(found[-1], console)
        place = page if len(names) == 1 else page.with_stem(f"{page.stem}-{Path(name).name}")
        write_page(found[-1], place)
        console.print(f"report: {place}")
    if len(found) > 1:
        console.print(f"[bold]>[/] Easiest first: {_ranking(found)}.", highlight=False)


def _is_by_step(name: str) -> bool:
    """Tell a directory of transitions by step from whole episodes."""
    known = dataset_names()
    if name in known:
        return False
    if not Path(name).exists():
        raise HyqError(f"no dataset {name!r}: give a directory, or one of {', '.join(known)}")
    manifest = Path(name) / "manifest.json"
    if not manifest.exists():
        return True  # what is wrong with it is said when it is opened
    found = read_json(manifest)
    return bool(found.get("episodes") == found.get("transitions"))


@contextmanager
def _reading(console: Console) -> Iterator[tuple[Progress, TaskID]]:
    columns = ("reading", BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        yield bar, bar.add_task("reading", total=None)


def _inspect_episodes(
    names: Sequence[str],
    page: Path,
    console: Console,
    policy: Path | None,
    env: str | None,
    episodes: int,
) -> None:
    make_room(page)
    if policy is not None and not holds_deep_policy(policy):
        raise HyqError(
            f"{policy} holds no deep policy, and others go by step: whole episodes are held "
            "against what 'hyq run deep' or hyq.train has learned"
        )
    if episodes < FEWEST_BEST:
        raise HyqError(f"visits are compared between episodes: play at least {FEWEST_BEST}")
    actor = None if policy is None else Actor.load(policy, env=env)
    whole = {name: load(name) for name in names}
    played = None if actor is None else (str(policy), _played(actor, episodes, whole, console))
    with _reading(console) as (bar, task):
        bar.update(task, total=sum(len(one) for one in whole.values()))
        found = EpisodesInspection.of(whole, lambda rows: bar.advance(task, rows), played)
    print_episodes(found, console)
    write_episodes_page(found, page, STYLE)
    console.print(f"report: {page}")


def _played(actor: Actor, episodes: int, logs: Mapping[str, Dataset], console: Console) -> Dataset:
    """Let the policy play, where the datasets are from."""
    with Progress("playing", BarColumn(), TaskProgressColumn(), console=console) as bar:
        task = bar.add_task("playing", total=episodes)
        parts = []
        for episode in play_episodes(actor, episodes, seed=0):
            for name, one in logs.items():
                _check_alike(name, one.observation, episode.observation)
            parts.append(episode)
            bar.advance(task)
    return Dataset.of(parts, {})


def _check_alike(name: str, data: Observation, played: Observation) -> None:
    logged, seen = (only_column(one).shape[1:] for one in (data, played))
    if seen not in (logged, (1, *logged)):  # pictures may come as stacks of one
        raise HyqError(f"{name} has observations of shape {logged}, the policy plays with {seen}")


def _ranking(found: Sequence[Inspection]) -> str:
    """Name datasets, the easiest first, with a sign of equality between neighbours that tie.

    Where it was not C_pi that put one before another, whose C_pi may be smaller, that is said.
    """
    order = ranked(found)
    text = str(order[0].path)
    for left, right in pairwise(order):
        if easier(left, right) is None:
            text += f" = {right.path}"
            continue
        text += f", then {right.path}"
        if too_close(left, right):
            text += f" (C_pi too close to tell; fewer next states of {left.path} are unlogged)"
    return text


def print_inspection(found: Inspection, console: Console) -> None:
    """Print the verdict first, then what it rests on."""
    for line in found.verdict:
        console.print(f"[bold]>[/] {line}", highlight=False)
    console.print()
    for finding in found.findings:
        colour = SIGNS[finding.severity]
        console.print(f"[{colour}]{finding.severity:>8}[/] {finding.text}", highlight=False)
    table = Table(title=str(found.path), title_justify="left", show_header=False, box=SIMPLE)
    for name, text in facts(found).items():
        table.add_row(name, text)
    console.print(table)
    console.print(_step_table(found))


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


COLUMNS = {
    "rows": "rows",
    "mean_reward": "reward",
    "terminated": "ended",
    "action_entropy": "entropy",
    "distinct": "distinct",
    "dimension": "dim.",
    "escaping": "escaping",
    "unsupported": "no supp.",
    "condition": "cond.",
}


def _cells(found: Inspection, h: int) -> list[str]:
    values = [getattr(found.steps[h], name) for name in COLUMNS]
    return [
        "-"
        if isinstance(v, float) and math.isnan(v)
        else f"{v:,}"
        if isinstance(v, int)
        else f"{v:.3g}"
        for v in values
    ]


def _step_table(found: Inspection) -> Table:
    table = Table(box=SIMPLE, padding=(0, 0, 0, 1))
    for name in ("step", *COLUMNS.values()):
        table.add_column(name, justify="right")
    picked = np.unique(np.linspace(0, len(found.steps) - 1, STEPS_SHOWN).astype(int))
    for h in picked:
        table.add_row(str(h), *_cells(found, int(h)))
    return table


def write_page(found: Inspection, path: Path) -> None:
    """Write the report as one file that needs no network."""
    verdict = "".join(f"<p>{html.escape(line)}</p>" for line in found.verdict)
    notes = "".join(
        f'<li class="{f.severity}"><b>{f.severity}</b> {html.escape(f.text)}</li>'
        for f in found.findings
    )
    table = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in {**facts(found), **_provenance(found)}.items()
    )
    head = "".join(f"<th>{name}</th>" for name in ("step", *COLUMNS.values()))
    steps = "".join(
        f"<tr><td>{h}</td>" + "".join(f"<td>{cell}</td>" for cell in _cells(found, h)) + "</tr>"
        for h in range(len(found.steps))
    )
    picture = base64.b64encode(draw(found)).decode()
    title = html.escape(f"Inspection of {found.path.name}")
    write_bytes(
        path,
        f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><style>{STYLE}</style></head><body>
<h1>{title}</h1>
<section class="verdict">{verdict}</section>
<ul>{notes}</ul>
<img alt="Rows, rewards, actions and coverage at every step" src="data:image/png;base64,{picture}">
<h2>The dataset</h2><table class="facts">{table}</table>
<h2>Step by step</h2><table><thead><tr>{head}</tr></thead><tbody>{steps}</tbody></table>
<p class="small">Ended: share of terminated transitions. Entropy: of the actions, in nats. Distinct:
share of different observations in a sample of the step. Dim.: directions over which that sample
spreads (exponential of its spectral entropy). Escaping: share of next observations unlike any that
the next step logged. No supp.: share of the policy's visits whose nearest
logged observation with the same action is further than 99% of logged ones are from each other.
Cond.: E||phi||<sup>2</sup> of the policy's features in the norm of the inverse covariance of the
data's, the relative condition number of the step; episodes that have ended count as zero.</p>
</body></html>
""".encode(),
    )


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 1000px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } img { width: 100%; }
.verdict { border-left: 4px solid #1f6f8b; background: #f3f8fa; padding: .3rem 1rem; }
ul { list-style: none; padding: 0; } li b { display: inline-block; width: 5.5rem; }
.good b { color: #2a7f3f; } .note b { color: #1f6f8b; } .warning b { color: #b26a00; }
.error b { color: #b3261e; }
table { border-collapse: collapse; font-size: .88rem; width: 100%; }
th, td { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid #e6e6e6;
  font-variant-numeric: tabular-nums; }
.facts th, .facts td { text-align: left; overflow-wrap: anywhere; } .facts th { width: 14rem; }
.small { font-size: .85rem; color: #555; }
"""


def _provenance(found: Inspection) -> dict[str, str]:
    return {f"provenance: {name}": str(value) for name, value in found.provenance.items()}


def draw(found: Inspection) -> bytes:
    """Draw rewards, actions and coverage against the step, and the returns; return a PNG."""
    steps = np.arange(len(found.steps))

    def series(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([float(getattr(step, name)) for step in found.steps])

    figure = Figure(figsize=(11, 5.6), layout="constrained")
    axes = figure.subplots(2, 3)
    plots = [
        (axes[0, 0], "rows", "transitions"),
        (axes[0, 1], "mean_reward", "mean reward"),
        (axes[0, 2], "action_entropy", "action entropy (nats)"),
        (axes[1, 0], "dimension", "effective dimension of observations"),
    ]
    for axis, name, title in plots:
        axis.plot(steps, series(name), color=BLUE, linewidth=1.6, marker="o", markersize=2.5)
        axis.set_title(title, loc="left", fontsize=10)
        low, high = np.nanmin([*series(name), 0.0]), np.nanmax([*series(name), 0.0])
        axis.set_ylim(1.08 * low, 1.08 * high if high > low else 1.0)
    support = axes[1, 1]
    support.set_title("policy's visits without support", loc="left", fontsize=10)
    if found.comparator is None:
        support.text(0.5, 0.5, "no policy given", ha="center", color=GREY)
        support.set_axis_off()
    else:
        support.fill_between(steps, series("unsupported"), color=RED, alpha=0.35, step="mid")
        support.set_ylim(0, 1)
    returns = axes[1, 2]
    returns.set_title("episode returns", loc="left", fontsize=10)
    if found.episodes.linked > 0.9 and len(found.episodes.returns):
        returns.hist(found.episodes.returns, bins=30, color=BLUE)
    else:
        returns.text(0.5, 0.5, "transitions are not linked", ha="center", color=GREY)
        returns.set_axis_off()
    for axis in (*axes[0], axes[1, 0], support):
        axis.set_xlabel("step", fontsize=9)
    for axis in axes.ravel():
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
