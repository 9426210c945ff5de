"""The suite of ablations: each undoes what it says and nothing else."""

from typing import Any

from hyq.algorithms import configure
from hyq.runs.spec import RunSpec
from hyq.runs.suites import ABLATIONS, MONTEZUMA_PARAMETERS, ablation_suite

SUITE = ablation_suite(20_000)


def settings(run: object) -> dict[str, Any]:
    assert isinstance(run, RunSpec)
    return run.configs.encoded()


def test_each_undoes_what_it_says_and_nothing_else() -> None:
    whole = settings(SUITE.runs[0])
    for (name, changes), run in zip(ABLATIONS.items(), SUITE.runs, strict=True):
        assert isinstance(run, RunSpec)
        changed = {key for key, value in settings(run).items() if value != whole[key]}
        if run.env_parameters != MONTEZUMA_PARAMETERS:
            changed.add("env_parameters")
        if "preset" in changes:
            assert len(changed) > 10, name
        else:
            assert changed == set(changes), name


def test_every_departure_from_the_paper_is_undone_by_itself() -> None:
    paper, small = (configure("hyq", f"paper-{size}montezuma").encoded() for size in ("", "small-"))
    whole, *others = (
        settings(run)
        for changes, run in zip(ABLATIONS.values(), SUITE.runs, strict=True)
        if "preset" not in changes
    )
    left = {
        name
        for name, value in whole.items()
        if value != paper[name]
        and not any(
            other[name] in (paper[name], small[name]) for other in others if other[name] != value
        )
    }
    assert left == {"online_steps", "update_every", "num_envs"}, "as in the paper at this size"
