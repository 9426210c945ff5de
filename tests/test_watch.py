"""What is shown of a run while it trains: lines in the terminal, scalars in TensorBoard."""

from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hyq.commands.watch import HYBRID, header, line, watch
from hyq.core.terminal import progress_bar
from hyq.runs.records import Progress
from hyq.trackers import TensorBoard


def test_tensorboard_gets_every_number_and_the_speed(tmp_path: Path) -> None:
    rows = [
        {"iteration": n, "online_steps": 100 * n, "updates": 7, "eval_return": 1.5, "seconds": s}
        for n, s in ((3, {"act": 1.0, "learn": 1.0}), (4, {"act": 1.0, "learn": 3.0}))
    ]
    given = [Progress({**row, "episodes": [[1, 2, 3]]}, None) for row in rows]
    watch(iter(given), Console(file=StringIO()), HYBRID, tracker=TensorBoard(tmp_path))
    events = EventAccumulator(str(tmp_path)).Reload()
    found = {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }
    assert found == {
        "iteration": [(300, 3), (400, 4)],
        "online_steps": [(300, 300), (400, 400)],
        "updates": [(300, 7), (400, 7)],
        "eval_return": [(300, 1.5), (400, 1.5)],
        "seconds/act": [(300, 1.0), (400, 1.0)],
        "seconds/learn": [(300, 1.0), (400, 3.0)],
        # The first record is of a resumed run: what it began with is not known.
        "steps_per_second": [(400, 25.0)],
    }


def test_a_line_shows_what_is_known_and_leaves_out_the_rest() -> None:
    row: dict[str, Any] = {
        "online_steps": 3000,
        "seconds": {"act": 1.0, "learn": 1.0},
        "eval_return": -110.0,
        "td_offline": 0.25,
        "start_q": -64.8,
        "start_return": -67.6,
    }
    text = line(row, 1000.0, HYBRID)
    assert "3,000" in text
    assert "1,000" in text, "steps per second"
    assert "0.25/-" in text
    assert "-64.8/-67.6" in text
    assert len(text) == len(header(HYBRID)), "values stand below their titles"


def test_watching_prints_a_line_a_record_and_the_progress() -> None:
    rows = [
        {"iteration": n, "online_steps": 0, "updates": 50 * n, "seconds": {"learn": 1.0}}
        for n in (1, 2)
    ]
    console = Console(file=StringIO(), width=120, record=True)
    watch((Progress(row, None) for row in rows), console, HYBRID, 100, "updates")
    text = console.export_text()
    assert "100 of 100" in text
    assert [part.split()[0] for part in text.splitlines()[1:3]] == ["50", "100"]


def test_a_bar_of_unknown_length_shows_what_is_done() -> None:
    console = Console(file=StringIO(), width=120, record=True)
    with progress_bar("reading", console=console) as update:
        update(1500)
    text = console.export_text()
    assert "1,500" in text
    assert " of " not in text
