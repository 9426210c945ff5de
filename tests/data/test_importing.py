"""Import: every file of the corpus is loaded exactly, mended by a named rule, or raises."""

import re
from pathlib import Path

import pytest

from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.runs.named_data import load
from tests.data.awkward_files import CASES, expected


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_the_corpus_is_loaded_as_expected(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    source = case.write(tmp_path)
    if case.raises:
        with pytest.raises(HyqError, match=case.raises) as caught:
            load(source, **case.options)
        assert "\n" not in str(caught.value)
        return
    dataset = load(source, **case.options)
    found = [
        "{count:,} {what}, first in {where}: {done}".format(**one)
        for one in dataset.provenance["imported"]["mended"]
    ]
    if case.mended:
        assert re.search(case.mended, found[0])
        assert (len(dataset), dataset.num_episodes) == case.shape
    else:
        assert not found
    if case.loaded.startswith("exact"):
        assert dataset.digest() == expected("next" in case.loaded).digest()
    else:
        assert case.loaded in repr(dataset)


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) >= 40


def test_the_command_writes_what_load_reads_and_training_takes_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(CASES["gap"].write(tmp_path))
    assert main(["data", "import", source, "--out", str(tmp_path / "logs")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for part in ("obs_0, obs_1", "! 1 gaps in time", "158", "episodes split there"):
        assert part in said
    assert load(tmp_path / "logs").digest() == load(source).digest()
    assert load(tmp_path / "logs").provenance == load(source).provenance
    assert (
        main(["data", "import", source, "--out", str(tmp_path / "other"), "--gaps", "raise"]) == 2
    )
    assert not (tmp_path / "other").exists()
    with pytest.raises(HyqError, match="load has no option 'gapz'"):
        load(source, gapz="split")
    with pytest.raises(HyqError, match=r"gaps must be one of split, .* got 'mend'"):
        load(source, gaps="mend")


def test_a_folder_that_may_not_be_read_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", closed)
    with pytest.raises(HyqError, match=r"cannot read .*Permission denied"):
        load(tmp_path)
