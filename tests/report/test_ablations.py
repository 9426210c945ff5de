"""The ablations: each undoes what it says and nothing else, and the table shows what came of it."""

import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from hyq.algos.deep_baselines import ADAM_SETTINGS
from hyq.algos.deep_config import PRESETS, DeepConfig
from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_json
from hyq.report.ablations import ablation_table, noise, read_ablations
from hyq.runs.deep import DeepRun
from hyq.runs.launch import SuiteDirectory
from hyq.runs.suites import ABLATIONS, MONTEZUMA_PARAMETERS, ablation_suite
from tests.report.test_montezuma_report import rows, write_run

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


def test_the_report_names_what_was_undone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    with pytest.raises(HyqError, match="no records"):
        read_ablations(directory.path)
    for level, run in enumerate(SUITE.runs[:3], start=1):
        write_run(directory, run, rows(run, 900.0 * level))
    found = read_ablations(directory.path)
    assert [one.name for one in found] == list(ABLATIONS)[:3]
    assert found[1].at(15_000) == 900.0
    main(["report", "suite", str(directory.path)])
    shown = capsys.readouterr().out
    assert "one-step returns" in shown and "1,800" in shown  # noqa: PT018
    assert "+900" in shown and "(+900)" not in shown  # noqa: PT018
    assert "One seed a row" in shown
    assert (directory.path / "figure.png").stat().st_size > 1000


def test_ablations_of_another_version_are_not_guessed_at(tmp_path: Path) -> None:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    write_run(directory, SUITE.runs[0], rows(SUITE.runs[0], 900.0))
    listed = read_json(directory.path / "suite.json")
    shutil.copytree(directory.run_path(SUITE.runs[0]), directory.path / "runs" / "other")
    write_json(directory.path / "suite.json", {**listed, "runs": [*listed["runs"], "other"]})
    with pytest.raises(HyqError, match="of another version"):
        read_ablations(directory.path)


def test_differences_that_another_seed_could_make_are_in_brackets(tmp_path: Path) -> None:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    for level, run in zip((900.0, 1400.0, 200.0), SUITE.runs, strict=False):
        write_run(directory, run, rows(run, level))
    table = ablation_table(read_ablations(directory.path), 20_000)
    assert list(table.columns[-1].cells) == ["", "(+500)", "-700"]
    assert noise(300_000) < noise(300_001) < noise(5_000_000)
