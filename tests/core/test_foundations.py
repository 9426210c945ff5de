"""Seeding, schedules and files: small pieces everything else trusts."""

import errno
import fcntl
import io
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from hyq.core.errors import HyqError
from hyq.core.files import (
    append_line,
    check_plain,
    check_writable,
    lock_directory,
    locked,
    new_directory,
    read_bytes,
    read_json,
    write_bytes,
    write_json,
)
from hyq.core.images import downsample
from hyq.core.schedules import PiecewiseLinear, schedule
from hyq.core.seeding import Streams, torch_seed
from hyq.core.settings import check_choices, check_positive, decode
from hyq.core.terminal import Terminal


def test_streams_depend_on_seed_and_path_and_nothing_else() -> None:
    first = Streams(3).generator("collect", 1).random(4)
    Streams(3).generator("something", "else").random(100)
    np.testing.assert_array_equal(first, Streams(3).generator("collect", 1).random(4))
    others = [Streams(4).generator("collect", 1), Streams(3).generator("collect", 2)]
    assert all(not np.array_equal(first, other.random(4)) for other in others)


def test_stream_paths_do_not_collide_by_concatenation() -> None:
    assert Streams(0).integer("a", "bc") != Streams(0).integer("ab", "c")
    assert Streams(0).integer("a", 1) != Streams(0).integer("a", "1")


def test_a_counted_stream_begins_anew_at_every_count() -> None:
    stream = Streams(3).counted("update")
    first, second = stream.at(7).random(4), stream.at(8).random(4)
    stream.at(8).integers(2**31)  # half of a word, whose other half must not be left behind
    np.testing.assert_array_equal(stream.at(7).random(4), first)
    np.testing.assert_array_equal(Streams(3).counted("update").at(8).random(4), second)
    others = [Streams(4).counted("update"), Streams(3).counted("act")]
    drawn = [first, second, *(other.at(7).random(4) for other in others)]
    assert len({tuple(numbers) for numbers in drawn}) == 4
    # A stream never runs into the next one, however much is drawn from it.
    assert not np.isin(second, stream.at(7).random(10_000)).any()


def test_stream_integers_fit_every_seed_argument() -> None:
    drawn = [Streams(s).integer("x") for s in range(2000)]
    assert 0 <= min(drawn) < 2**25  # spread over the range ...
    assert 2**30 < max(drawn) < 2**31  # ... and inside it


def test_a_seed_gives_the_numbers_that_it_gave_when_results_were_recorded() -> None:
    assert Streams(3).integer("episode", 1) == 1_623_532_360
    assert Streams(3).below("a").integer("b") == Streams(3).integer("a", "b")
    drawn = Streams(3).counted("update").at(7).integers(2**31, size=2)
    assert drawn.tolist() == [1_159_664_692, 380_185_221]


def test_pytorch_draws_from_a_seed_and_goes_on_as_before() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with torch_seed(1):
        first = torch.rand(2)
    assert torch.equal(torch.rand(2), expected)
    with torch_seed(1):
        assert torch.equal(torch.rand(2), first)
    with torch_seed(2):
        assert not torch.equal(torch.rand(2), first)


def test_schedule_is_linear_between_knots_and_flat_outside() -> None:
    through = PiecewiseLinear(((10.0, 1.0), (20.0, 3.0), (40.0, 2.0)))
    assert [through(t) for t in (0, 10, 15, 20, 30, 40, 99)] == [1, 1, 2, 3, 2.5, 2, 2]
    assert [schedule("0:1, 10:0")(t) for t in (0, 5, 10)] == [1, 0.5, 0]
    assert PiecewiseLinear(((0.0, 0.3),))(7) == 0.3
    assert schedule("0.3") == schedule(0.3) == PiecewiseLinear(((0.0, 0.3),))


@pytest.mark.parametrize("knots", [(), ((1.0, 0.0), (1.0, 1.0)), ((2.0, 0.0), (1.0, 1.0))])
def test_schedule_refuses_times_that_do_not_increase(
    knots: tuple[tuple[float, float], ...],
) -> None:
    with pytest.raises(HyqError, match="increasing times"):
        PiecewiseLinear(knots)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_schedule_refuses_what_is_not_finite(number: float) -> None:
    for knot in ((number, 0.0), (0.0, number)):
        with pytest.raises(HyqError, match="finite"):
            PiecewiseLinear((knot,))


def fail_half_way(draft: Path) -> None:
    (draft / "half").write_text("x")
    (draft / "half").rename(draft / "nowhere" / "half")


def test_a_new_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "result"
    with pytest.raises(FileNotFoundError), new_directory(path) as draft:
        fail_half_way(draft)
    assert list(path.parent.iterdir()) == []
    with new_directory(path) as draft:
        (draft / "whole").write_text("x")
    assert [p.name for p in path.iterdir()] == ["whole"]
    with pytest.raises(HyqError, match="exists already"), new_directory(path):
        pass


def make_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "theirs").write_text("x")


def test_a_path_that_no_file_system_takes_raises() -> None:
    with pytest.raises(HyqError, match="no path can be"), new_directory(Path("a\0b")):
        pass


def test_a_directory_that_somebody_else_made_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "result"
    with pytest.raises(HyqError, match="exists already"), new_directory(path):
        make_with_a_file(path)
    assert [p.name for p in tmp_path.rglob("*")] == ["result", "theirs"]


def test_two_who_write_one_file_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def write_another_first(file: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        write_bytes(tmp_path / "file", b"theirs")
        sync(file)

    monkeypatch.setattr(os, "fsync", write_another_first)
    write_bytes(tmp_path / "file", b"mine")
    assert (tmp_path / "file").read_bytes() == b"mine"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_written_file_may_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_bytes(tmp_path / "file", b"")
    append_line(tmp_path / "log", "row")
    for name in ("file", "log"):
        assert (tmp_path / name).stat().st_mode == (tmp_path / "plain").stat().st_mode
    with new_directory(tmp_path / "new"):
        pass
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with locked(tmp_path / "new" / "deep" / "lock"):
            entered.set()

    with locked(tmp_path / "new" / "deep" / "lock"):
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.1)
    other.join(10)
    assert entered.is_set()


def test_a_locked_directory_is_told_from_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lock_directory(tmp_path, wait=True)
    with pytest.raises(BlockingIOError):
        lock_directory(tmp_path, wait=False)
    os.close(first)
    os.close(lock_directory(tmp_path, wait=False))
    (tmp_path / "draft").mkdir()
    flock = fcntl.flock

    def removed_first(*given: int) -> None:
        (tmp_path / "draft").rmdir()
        flock(*given)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with pytest.raises(FileNotFoundError):
        lock_directory(tmp_path / "draft", wait=True)


def test_a_path_is_checked_before_time_is_spent_on_what_goes_there(tmp_path: Path) -> None:
    for _ in range(2):
        check_writable(tmp_path / "deep" / "down" / "file")
    assert (tmp_path / "deep" / "down").is_dir()
    with pytest.raises(HyqError, match="it is a directory"):
        check_writable(tmp_path / "deep")
    (tmp_path / "file").write_text("kept")
    with pytest.raises(HyqError, match="cannot write"):
        check_writable(tmp_path / "file" / "below")


def test_only_files_and_directories_are_plain(tmp_path: Path) -> None:
    inside = tmp_path / "run" / "best"
    inside.mkdir(parents=True)
    (inside / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    check_plain(tmp_path / "link")  # which the user gave
    for make in (lambda path: path.symlink_to(tmp_path / "elsewhere"), os.mkfifo):
        make(inside / "odd")
        with pytest.raises(HyqError, match="odd is a link or a device"):
            check_plain(tmp_path / "run")
        (inside / "odd").unlink()


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes(tmp_path / "kept", b"before")

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(HyqError, match="no space left"):
        write_bytes(tmp_path / "kept", b"after")
    with pytest.raises(HyqError, match="no space left"):
        append_line(tmp_path / "log", "row")
    with pytest.raises(HyqError, match="no space left"), new_directory(tmp_path / "new") as draft:
        write_json(draft / "x.json", {})
    assert (tmp_path / "kept").read_bytes() == b"before"
    assert (tmp_path / "log").read_bytes() == b""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "log"]


@pytest.mark.parametrize("left", ["", "t", "tw"])
def test_appending_cuts_off_what_a_kill_left_of_a_line(tmp_path: Path, left: str) -> None:
    log = tmp_path / "log"
    append_line(log, "one")
    with log.open("a") as file:
        file.write(left)
    append_line(log, "two")
    assert log.read_text() == "one\ntwo\n"


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_damaged_json_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(HyqError, match=r"m\.json is damaged"):
        read_json(tmp_path / "m.json")


def test_json_that_was_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_json(path, {"a": [1.5, None], "b": {"c": "d"}})
    assert read_json(path, signed=True) == {"a": [1.5, None], "b": {"c": "d"}}
    path.write_text(path.read_text().replace("1.5", "1.25"))
    with pytest.raises(HyqError, match="not what was written"):
        read_json(path)
    content = json.loads(path.read_text().replace("1.25", "1.5"))
    path.write_text(json.dumps(dict(reversed(content.items()))))  # laid out in another way
    assert read_json(path, signed=True)["a"] == [1.5, None]
    path.write_text('{"a": 1}')  # as people write it
    assert read_json(path) == {"a": 1}
    with pytest.raises(HyqError, match="not what was written"):
        read_json(path, signed=True)


def test_a_checksum_whose_name_was_changed_is_noticed(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1, "b": "c"})
    text = (tmp_path / "x.json").read_text()
    (tmp_path / "x.json").write_text(text.replace("checksum", "checjsum"))
    with pytest.raises(HyqError, match="not what was written"):
        read_json(tmp_path / "x.json")


def test_what_is_read_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    for text in ("[" * 100_000, '{"a":' * 40 + "1" + "}" * 40, '{"a":' * 5000 + "1" + "}" * 5000):
        path.write_text(text)
        with pytest.raises(HyqError, match=r"nested too deeply|not valid JSON"):
            read_json(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(HyqError, match="too large"):
        read_json(path)
    path.write_bytes(b"abc")
    assert read_bytes(path, 3) == b"abc"
    with pytest.raises(HyqError, match="3 bytes, where 2 may be"):
        read_bytes(path, 2)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(HyqError, match="is not a file"):
        read_json(path)
    with pytest.raises(HyqError, match="is not a file"):
        read_json(Path("/dev/zero"))


def test_control_characters_are_shown_and_not_obeyed() -> None:
    file = io.StringIO()
    Terminal(file=file, width=80, force_terminal=True).print("a[/x]\x1b[2Jb\x9bc\u202e")
    shown = file.getvalue()
    assert "a[/x]\\x1b[2Jb\\x9bc\\u202e" in shown


def test_white_pictures_stay_white_however_much_they_are_shrunk() -> None:
    white = np.full((64, 64), 255, np.uint8)
    for factor in (2, 16, 32):
        np.testing.assert_array_equal(downsample(white, factor), 255)


def test_a_negative_seed_raises() -> None:
    with pytest.raises(HyqError, match="must not be negative"):
        Streams(-1)


def test_a_directory_below_a_file_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(HyqError, match="cannot write"), new_directory(tmp_path / "file" / "new"):
        pass
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(HyqError, match="cannot write"):
        write_bytes(tmp_path / "nowhere" / "file", b"")
    with pytest.raises(HyqError, match="cannot write"), locked(tmp_path / "file" / "lock"):
        pass


@dataclass(frozen=True)
class Counted:
    steps: int = 1
    kind: Literal["one", "two"] = "one"


@pytest.mark.parametrize("given", [1e3, np.float32(1000), np.int64(1000), 1000])
def test_whole_numbers_may_be_written_in_any_way(given: Any) -> None:
    steps = decode(Counted, {"steps": given}).steps
    assert (steps, type(steps)) == (1000, int)


@pytest.mark.parametrize("given", [0.5, "1000", float("inf"), float("nan"), None])
def test_what_is_no_whole_number_raises(given: Any) -> None:
    with pytest.raises(HyqError, match="steps must be a whole number"):
        decode(Counted, {"steps": given})


def test_fields_are_checked_by_choice_and_sign() -> None:
    check_choices(Counted(kind="two"))
    check_positive(Counted(), "steps")
    with pytest.raises(HyqError, match="kind must be one of one, two, got 'three'"):
        check_choices(Counted(kind="three"))  # type: ignore[arg-type]
    with pytest.raises(HyqError, match="steps must be positive, got 0"):
        check_positive(Counted(steps=0), "steps")
