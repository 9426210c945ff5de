"""Videos: the moments that are chosen, the clip, the map of rooms, and the subcommand."""

from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hyq.cli import main
from hyq.core.images import encode_gif
from hyq.core.types import Array
from hyq.envs.montezuma import FLOORS, room_place
from hyq.report.plot import write_figure
from hyq.report.video import (
    STEPS_TO_SETTLE,
    chosen_moments,
    draw_rooms,
    video_title,
)
from hyq.runs.video import EpisodeFacts, Moment, Video, replay
from tests.policies import pixel_policy
from tests.runs.test_video import expert_video


def story(rooms: dict[int, int], scores: dict[int, float], last: int = 100) -> list[Moment]:
    """Return moments at which rooms are entered and scores reached, given as {step: value}."""
    moments, room, score = [], 1, 0.0
    for step in range(last + 1):
        room, score = rooms.get(step, room), scores.get(step, score)
        moments.append(Moment(step, score, room, None))
    return moments


def test_moments_are_new_rooms_and_rewards() -> None:
    moments = story({30: 2, 50: 1, 70: 6}, {20: 100.0, 60: 400.0})
    # A new room is shown once the screen has caught up; coming back is no event.
    expected = [0, 20, 30 + STEPS_TO_SETTLE, 60, 70 + STEPS_TO_SETTLE, 100]
    assert chosen_moments(moments, 6) == expected
    filled = chosen_moments(moments, 9)
    assert set(expected) < set(filled)
    assert len(filled) == 9
    assert np.diff(filled).max() <= 22, "what is added falls into the widest gaps"


def test_too_many_moments_are_thinned_and_few_are_filled_up() -> None:
    busy = story({}, {step: float(step) for step in range(1, 100)})
    assert len(chosen_moments(busy, 7)) == 7
    quiet = story({}, {}, last=40)
    assert chosen_moments(quiet, 5) == [0, 10, 20, 30, 40]
    assert chosen_moments(quiet[:3], 8) == [0, 1, 2]


def test_a_room_that_is_left_at_once_is_still_shown() -> None:
    moments = story({30: 2, 33: 1}, {})
    step = next(step for step in chosen_moments(moments, 3) if 0 < step < 100)
    assert moments[step].room == 2


def test_a_clip_keeps_every_image_and_its_colours() -> None:
    colours = [(228, 111, 111), (66, 158, 130), (24, 26, 167)]
    images: list[Array] = [np.full((20, 16, 3), colour, np.uint8) for colour in colours]
    with Image.open(BytesIO(encode_gif(images, [0.05, 0.05, 2.0]))) as clip:
        assert clip.n_frames == 3  # type: ignore[attr-defined]
        for number, colour in enumerate(colours):
            clip.seek(number)
            assert clip.convert("RGB").getpixel((3, 3)) == colour
        assert clip.info["duration"] == 2000


def test_the_pyramid_is_laid_out_as_in_the_game() -> None:
    assert sorted(room for rooms in FLOORS for room in rooms) == list(range(24))
    # The expert's way: right of the first room, down, right, down, right, down, right.
    way = [room_place(room) for room in (1, 2, 6, 7, 13, 14, 22, 23)]
    moves = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(way)]
    assert moves == [(0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1)]


def test_a_map_is_darker_where_more_episodes_went(tmp_path: Path) -> None:
    for name, share in (("rarely", 0.1), ("often", 0.9)):
        figure = draw_rooms({"a map": EpisodeFacts(20, 400, 100.0, {1: share})})
        write_figure(figure, tmp_path / f"{name}.png")
    rarely, often = (
        np.asarray(Image.open(tmp_path / f"{name}.png").convert("L"), dtype=float)
        for name in ("rarely", "often")
    )
    assert often.shape == rarely.shape
    assert often.mean() < rarely.mean()


def test_a_run_gets_a_video_which_is_drawn_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    assert main(["video", str(run)]) == 2
    assert "no policy" in capsys.readouterr().err
    about = {
        "env": "hyq/Montezuma-v0",
        "data": "montezuma/hard",
        "algorithm": "hyq",
        "env_parameters": {"step_limit": 30, "num_threads": 1},
        "seed": 3,
    }
    pixel_policy(about).save(run / "last")
    assert main(["video", str(run), "--episodes", "2", "--images", "4"]) == 0
    assert "Hy-Q on montezuma/hard" in capsys.readouterr().out
    made = Video.load(run / "video")
    assert (made.about["policy"], made.about["seed"]) == ("last", 3), "none was evaluated"
    assert [episode.length for episode in made.episodes] == [30, 30]
    assert {p.name for p in (run / "video").iterdir()} == {
        "video.json",
        "strip.png",
        "clip.gif",
        "rooms.png",
    }
    assert main(["video", str(run)]) == 2, "a video is not overwritten"
    assert "already" in capsys.readouterr().err
    again = tmp_path / "again"
    assert main(["video", str(run / "video"), "--out", str(again), "--images", "4"]) == 0
    for name in ("video.json", "strip.png", "clip.gif"):
        assert (again / name).read_bytes() == (run / "video" / name).read_bytes()
    wrong = ["video", str(run), "--out", str(tmp_path / "other"), "--env", "CartPole-v1"]
    assert main([*wrong, "--env-parameters", "3"]) == 2
    assert "parameters are given as a JSON object" in capsys.readouterr().err


def test_videos_are_named_after_what_was_learned() -> None:
    assert video_title(expert_video()) == "Hy-Q on montezuma/hard"
    unknown = replace(expert_video(), about={"policy": "best"})
    assert video_title(unknown) == "a policy on hyq/Montezuma-v0"


def test_committed_videos_are_read_and_rendered() -> None:
    """The record of results/ came out of the game; its replay raises if it does not again."""
    results = Path(__file__).parents[2] / "results" / "montezuma" / "planner"
    records = sorted(results.glob("**/video.json"))
    assert len(records) == 14
    assert all(Video.load(record.parent).facts.room_shares[1] == 1.0 for record in records)
    *_, last = replay(Video.load(results / "videos" / "rnd"))
    assert (last.step, last.room) == (191, 1)
