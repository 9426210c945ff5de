"""The package as it is published: an archive of sources, a wheel made of it, tried elsewhere."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])('out'))"
TRIED = """
import sys
from pathlib import Path
import numpy as np
import hyq
from hyq.cli import main
assert Path(hyq.__file__).is_relative_to(sys.argv[1]), hyq.__file__
here = Path(hyq.__file__).parent
assert (here / "py.typed").exists()
assert list(here.glob("report/templates/*.html"))
assert list(here.glob("experts/montezuma_recordings/*/manifest.json"))
seen = np.random.default_rng(0).uniform(-0.1, 0.1, size=(41, 4)).astype("f4")
ends = np.arange(1, 41) % 20 == 0
data = hyq.Dataset.from_arrays(seen[:-1], np.arange(40) % 2, np.ones(40), seen[1:], ends)
policy = hyq.train("CartPole-v1", data, 32, pretraining=4, learning_starts=8, evaluation_episodes=1,
                   out="run")
policy.save("policy")
assert hyq.Policy.load("policy").act(np.zeros(4)) in (0, 1)
assert main(["report", "run"]) == 0
"""


def call(words: list[str], where: Path, **environment: str) -> str:
    whole = {**os.environ, **environment}
    ended = subprocess.run(words, check=False, cwd=where, capture_output=True, text=True, env=whole)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the archive of sources, a wheel from it, and unpack the wheel as installing does."""
    place = tmp_path_factory.mktemp("package")
    sources = place / "sources"
    shutil.copytree(
        ROOT / "src/hyq", sources / "src/hyq", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    name = call([sys.executable, "-c", BUILD, "build_sdist"], sources).splitlines()[-1]
    with tarfile.open(sources / "out" / name) as archive:
        archive.extractall(place / "unpacked", filter="data")
    [unpacked] = (place / "unpacked").iterdir()
    name = call([sys.executable, "-c", BUILD, "build_wheel"], unpacked).splitlines()[-1]
    with zipfile.ZipFile(unpacked / "out" / name) as wheel:
        wheel.extractall(place / "site")
    return place / "site"


def test_the_wheel_works_outside_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = str(installed)
    call([sys.executable, "-c", TRIED, where], tmp_path, PYTHONPATH=where)
    said = call([sys.executable, "-m", "hyq", "--version"], tmp_path, PYTHONPATH=where)
    assert said.startswith("hyq 0.1.0\nPython 3.")
    assert "torch " in said
    assert "gymnasium " in said


def test_the_metadata_says_what_it_is(installed: Path) -> None:
    [metadata] = installed.glob("hyq-*.dist-info/METADATA")
    text = metadata.read_text()
    for line in ("Requires-Python: >=3.11", "Typing :: Typed", "Project-URL: Paper", "License-"):
        assert line in text
    [entry] = installed.glob("hyq-*.dist-info/entry_points.txt")
    assert "hyq = hyq.cli:main" in entry.read_text()


def test_what_an_extra_needs_is_pinned() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pinned = {line.split("==")[0] for line in lines}
    for extra in ("tensorboard", "mlflow", "wandb", "onnx", "minari", "ray", "docs"):
        for needed in extras[extra]:
            name = needed.split("[")[0].split(">")[0].split("=")[0].lower().replace("_", "-")
            assert name in pinned, f"{extra}: {name}"
