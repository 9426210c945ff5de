"""The ablations: each undoes what it says and nothing else, and the table shows what came of it."""

from dataclasses import fields
from pathlib import Path

import pytest

from hyq.algos.deep_config import DeepConfig
from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.experiments.deep import DeepRun
from hyq.experiments.launch import SuiteDirectory
from hyq.experiments.suites import ABLATIONS, ablation_suite
from hyq.report.ablations import read_ablations
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
        if "preset" in settings:
            assert len(changed) > 10, name
        else:
            assert changed == set(settings), name


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
    assert (directory.path / "figure.png").stat().st_size > 1000
