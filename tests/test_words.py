"""The field's words: private ones that a reader would have to learn do not come back."""

import re
from pathlib import Path

import pytest

from hyq.cli import SUBCOMMANDS, main, summary

ROOT = Path(__file__).parents[1]
PLACES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/**/*.md",
    "examples/*.md",
    "examples/*.py",
    "results/**/*.md",
    "src/**/*.py",
    "src/hyq/report/templates/*",
    "recordings/**/*.md",
    "recordings/**/*.py",
    "tools/[!t]*.py",  # tables.py has the names that settings had in old records
)
"""Files that are read."""
PRIVATE = {
    r"lanes?": "environments, num_envs",
    r"errands?|order_only": "nothing: it went with the engine",
    r"jobs?": "run, task",
    r"asks?|asked|asking": "needs, calls, requests",
    r"questions?": "observation, request; or say what is checked",
    r"answers?|answered|answering": "output, reply, solution",
    r"(draw|drawn|drew|draws|learn|not) ahead": "in advance",
    r"promise[sd]?|promising": "predicted value, guarantee",
    r"earn(s|ed|ing)?": "return",
    r"told": "reported",
    r"shadows?": "invalid indices",
    r"\w+_slopes?|slopes? of the (network|layers?|weights)": "gradient",
    r"(hold|holds|holding|held) (an?|the|its|random|last) actions?|held actions?|action hold": (
        "temporally extended epsilon-greedy, random_action_repeat"
    ),
    r"online_samples": "online_steps",
    r"(`|--|\.)(continues|age|following|deviation|trace)\b(?=`|=| |\))|(age|deviation|trace)=": (
        "continuation, timestep, next, std, gae_lambda"
    ),
    r"(?-i:Scene|Take)(?=[(`:\]])|an? (scene|take)": "episode, environment",
    r"judg(e|es|ed|ing)": "evaluate, estimate",
    r"pessimis(m|tic)": "CQL weight, CQL penalty",
    r"way back|walk[ _]back": "backward, gradient",
    r"examin(e|es|ed|ation|ations)": "evaluate, evaluation",
    r"settle[sd]?|settling": "target network, converged, decided",
    r"steady[ _]lanes?": "environments with a fixed epsilon",
    r"hands|models[./]hands": "threads",
    r"novelty": "prediction error",
    r"shrink(s|ing|_by)?|shrunk|shrank": "downsample; or become smaller",
    r"n_value": "update_every",
    r"n_target": "target_update_every",
    r"log_end_terminates": "truncation_terminates",
    r"coin": "Bernoulli",
    r"(go|goes|went|gone|going) on": "continue, resume, bootstrap",
    r"nobody|whoever|whom": "the name of the component",
    r"films?|filmed": "video",
    r"pictures?": "images, frames, figures",
    r"verbs?": "subcommands",
    r"refuse[sd]?": "raise, validate",
    r"learners?": "agent, algorithm",
    r"hyq run (deep|rnd)|hyq methods|--method": "hyq train, hyq algorithms, --algorithm",
    r"hyq[./](algos|models|rollout|experiments)": "agents, networks, collector, fqi, runs",
    r"DeepPolicy|DeepConfig|TemporalDifference|save_to|on_report": "the names of today",
}
"""Patterns that no line may have, each with what to write in its place: the left-hand words of the
glossary. Where a word is also plain English, the pattern is the phrase that was private."""
ALLOWED = (
    r"the paper's n_(value|target)|\(n_(value|target)\)",  # the paper's symbol beside our name
    r"coin[ -]flips?",  # a random reward
    r'stream: str = "examine"',  # the name of a random stream, which recorded runs depend on
)
"""Uses that are not private."""


def private_words(text: str) -> list[str]:
    """Return a complaint for every private word."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        rest = re.sub("|".join(ALLOWED), "", line)
        for pattern, better in PRIVATE.items():
            for match in re.finditer(rf"(?<![\w-])(?:{pattern})(?!\w)", rest, re.IGNORECASE):
                found.append(f"line {number}: {match[0]!r}, write {better}")
    return found


def files() -> list[Path]:
    found = sorted({path for place in PLACES for path in ROOT.glob(place)})
    return [path.relative_to(ROOT) for path in found]


@pytest.mark.parametrize("path", files(), ids=str)
def test_no_private_words(path: Path) -> None:
    assert not private_words((ROOT / path).read_text())


def test_no_private_words_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    for subcommand in SUBCOMMANDS:
        assert not private_words(summary(subcommand)), subcommand
    variants = ["train --actions continuous", "train --algorithm rnd", "run lock --algorithm briee"]
    for words in [*SUBCOMMANDS, *variants]:
        with pytest.raises(SystemExit):
            main([*words.split(), "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert not private_words(shown)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("eight lanes, each judged by hands", 3),
        ("set n_value to 4", 1),
        ("`update_every`, the paper's n_value", 0),
        ("planes, a landing on hand, islanders, without-judgement", 0),
        ("rewards are coin flips; a coin decides", 1),
        ("import hyq.models.hands", 2),
    ],
)
def test_private_words_are_found_and_others_are_not(text: str, count: int) -> None:
    assert len(private_words(text)) == count
