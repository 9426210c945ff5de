"""The subcommand that shows what a saved policy does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from hyq.core.errors import HyqError
from hyq.core.settings import check_idle
from hyq.core.terminal import Terminal, progress_bar
from hyq.policy import Policy
from hyq.report.video import draw_video, video_table
from hyq.runs.video import FILE, Environment, Kept, Video, load_policy, play_video


@dataclass(frozen=True)
class PlayIn:
    """Where a policy plays that is not of a run, or not in its run's environment."""

    env: str | None = None
    """Environment, for a policy outside of its run."""
    wrappers: tuple[str, ...] = ()
    """module:Class of wrappers around that environment, innermost first."""
    env_parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of that environment."""
    trust: bool = False
    """Import the environment that the file of another user or machine names."""

    def given(self) -> dict[str, Any]:
        """Return the options by name, where they are given."""
        return {name: value for name, value in vars(self).items() if value not in ((), {})}

    def environment(self, policy: Policy) -> Environment:
        """Return the environment to play in: the one that is named, or else the policy's own."""
        return Environment.of(policy, self.env, self.wrappers, self.env_parameters, self.trust)


def video(
    path: Annotated[Path, tyro.conf.Positional],
    where: tyro.conf.OmitArgPrefixes[PlayIn],
    *,
    out: Path | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    epsilon: float | None = None,
    policy: Kept | None = None,
    images: int = 12,
) -> None:
    """Let a saved policy play, and make a strip of images, a clip and a map of the rooms reached.

    Args:
        path: A run's directory or a saved policy; or the directory of an earlier video, to draw it
            again from its record.
        where: Where to play.
        out: Directory for the video; by default PATH/video, or PATH itself where that is a video.
        episodes: Episodes to play, 20 if not given.
        seed: Chooses the episodes and their random actions, 7 if not given; none is an episode of
            the training.
        epsilon: Chance of a random action, 0.01 if not given.
        policy: Which of a run's policies: the best that was evaluated, if not given, or the one it
            ended with.
        images: Images in the strip.
    """
    if images < 2:
        raise HyqError(f"a strip needs two images, got {images}")
    console = Terminal()
    chosen: dict[str, Any] = {"episodes": episodes, "seed": seed, "epsilon": epsilon}
    if (path / FILE).exists():
        elsewhere = {name: value for name, value in where.given().items() if name != "trust"}
        check_idle("drawing a video again", **elsewhere, **chosen, policy=policy)
        made, place = Video.load(path, where.trust), out or path
    else:
        place = out or path / "video"
        if (place / FILE).exists():
            raise HyqError(f"{place} holds a video already: choose another directory")
        loaded = load_policy(path, policy or "best")
        given = {name: value for name, value in chosen.items() if value is not None}
        with progress_bar("playing", episodes, console) as update:
            made = play_video(loaded, where.environment(loaded), progress=update, **given)
    made.save(place)
    draw_video(made, place, images)
    console.print(video_table(made))
    console.print(f"video: {place}")
