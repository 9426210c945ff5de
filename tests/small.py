"""Documentation at a small size: what its code does, with few steps and little data."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from hyq import cli
from hyq.algorithms import setting_groups
from hyq.commands import evaluate
from hyq.coverage.deep_fqe import deep_evaluation
from hyq.data.dataset import Dataset
from hyq.experts import montezuma_data, scripted
from hyq.runs import kept, named_data, runner
from hyq.runs.spec import RunSpec

ROOT = Path(__file__).parents[1]
FEW = {
    "online_steps": 48,
    "updates": 24,
    "pretraining": 8,
    "learning_starts": 8,
    "random_steps": 8,
    "report_every": 24,
    "batch_size": 16,
}
"""The most of each setting."""
TRANSITIONS = 1800
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def small(spec: RunSpec) -> RunSpec:
    """Return the run with few steps and one evaluation episode."""
    known = spec.configs.encoded()
    groups = setting_groups(spec.algorithm, spec.actions)
    few = {name: min(most, known[name]) for name, most in FEW.items() if name in groups}
    episodes = min(1, spec.evaluation_episodes)
    return replace(spec, settings={**spec.settings, **few}, evaluation_episodes=episodes)


@cache
def little_data(problem: str, random_share: float, seed: int = 0, **_: Any) -> Dataset:
    """Return scripted data of few transitions."""
    return scripted_dataset(problem, random_share, seed, transitions=TRANSITIONS)


scripted_dataset = scripted.scripted_dataset


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run, dataset and estimate be small, and let commands that fail raise."""
    monkeypatch.setitem(gym.registry, "Tank-v0", gym.spec("CartPole-v1"))
    del gym.registry["Tank-v0"]  # which several pages register; it is taken away at the end
    start: Callable[..., Any] = runner.start
    monkeypatch.setattr(runner, "start", lambda spec, *a, **k: start(small(spec), *a, **k))
    for module in (named_data, scripted):
        monkeypatch.setattr(module, "scripted_dataset", little_data)
    monkeypatch.setattr(montezuma_data, "load", lambda name: little_data("mountaincar", 0.5))
    monkeypatch.setattr(kept, "deep_evaluation", partial(deep_evaluation, updates=20))
    monkeypatch.setattr(evaluate, "UPDATES", 20)
    run = cli.main

    def main(words: list[str]) -> int:
        assert run(words) == 0, words
        return 0

    monkeypatch.setattr(cli, "main", main)


def python_blocks(page: Path) -> list[str]:
    """Return the Python of a page."""
    return PYTHON.findall(page.read_text())
