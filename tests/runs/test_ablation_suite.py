"""The suite of ablations: each undoes what it says and nothing else."""

from dataclasses import fields

from hyq.algos.deep_baselines import ADAM_SETTINGS
from hyq.algos.deep_config import PRESETS, DeepConfig
from hyq.runs.deep import DeepRun
from hyq.runs.suites import ABLATIONS, MONTEZUMA_PARAMETERS, ablation_suite

SUITE = ablation_suite(20_000)


def config(run: object) -> DeepConfig:
    assert isinstance(run, DeepRun)
    return run.config


def test_each_undoes_what_it_says_and_nothing_else() -> None:
    whole = config(SUITE.runs[0])
    for (name, settings), run in zip(ABLATIONS.items(), SUITE.runs, strict=True):
        changed = {
            field.name
            for field in fields(DeepConfig)
            if getattr(config(run), field.name) != getattr(whole, field.name)
        }
        assert isinstance(run, DeepRun)
        if run.env_parameters != MONTEZUMA_PARAMETERS:
            changed.add("env_parameters")
        if "preset" in settings:
            assert len(changed) > 10, name
        else:
            assert changed == {"adam" if n in ADAM_SETTINGS else n for n in settings}, name


def test_every_departure_from_the_paper_is_undone_by_itself() -> None:
    paper, small = PRESETS["paper-montezuma"], PRESETS["paper-small-montezuma"]
    whole, *others = (
        config(run)
        for settings, run in zip(ABLATIONS.values(), SUITE.runs, strict=True)
        if "preset" not in settings
    )
    left = {
        field.name
        for field in fields(DeepConfig)
        if getattr(whole, field.name) != getattr(paper, field.name)
        and not any(
            getattr(other, field.name) in (getattr(paper, field.name), getattr(small, field.name))
            for other in others
            if getattr(other, field.name) != getattr(whole, field.name)
        )
    }
    assert left == {"online_steps", "n_value", "lanes"}, "these are as in the paper at this size"
