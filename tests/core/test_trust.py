"""Code that files name: nobody's runs unasked, one's own runs without a word."""

import json
import os
import sys
from itertools import islice
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_json
from hyq.core.trust import check_trusted, sign
from hyq.coverage.policy import save_policy
from hyq.data.dataset import Dataset, Episode
from hyq.data.minari import export_minari
from hyq.fqi.tabular import TabularFunction
from hyq.runs import runner
from hyq.runs.named_data import load
from hyq.runs.spec import RunSpec
from hyq.runs.video import Video
from tests.runs.test_video import expert_video

EVIL = "evil_module:CartPole-v1"


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module that says so when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    ran = tmp_path / "ran"
    (tmp_path / "evil_module.py").write_text(
        f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"
    )
    monkeypatch.delitem(sys.modules, "evil_module", raising=False)
    return ran


@pytest.fixture
def stopped(evil: Path, tmp_path: Path) -> Path:
    """A run that was begun by this user in an environment of this user's, and not ended."""
    settings = {"online_steps": 40, "report_every": 20, "learning_starts": 100}
    spec = RunSpec(env=EVIL, algorithm="dqn", settings=settings, evaluation_episodes=1)
    list(islice(runner.start(spec, tmp_path / "run"), 1))
    evil.unlink()
    del sys.modules["evil_module"]
    return tmp_path / "run"


def stranger(run: Path) -> None:
    """Sign a run as another user would."""
    for path in (run / "manifest.json", run / "best" / "policy.json"):
        content = read_json(path)
        where = content if "signature" in content else content["about"]
        where["signature"] = "0" * 64
        write_json(path, content)


def test_one_s_own_run_resumes_and_evaluates_without_a_word(stopped: Path, evil: Path) -> None:
    assert main(["evaluate", str(stopped), "--episodes", "2"]) == 0
    assert main(["resume", str(stopped)]) == 0
    assert evil.exists()
    key = Path(os.environ["XDG_CONFIG_HOME"]) / "hyq" / "key"
    assert key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("words", [["resume"], ["evaluate", "--episodes", "2"], ["video"]])
def test_a_stranger_s_run_imports_nothing_unasked(
    stopped: Path, evil: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stranger(stopped)
    command = [words[0], str(stopped), *words[1:]]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert EVIL in said
    assert "--trust" in said
    assert not evil.exists()
    if words[0] != "video":
        assert main([*command, "--trust"]) == 0
        assert evil.exists()


def test_a_name_that_is_given_again_is_trusted(stopped: Path, evil: Path) -> None:
    stranger(stopped)
    assert main(["evaluate", str(stopped), "--episodes", "2", "--env", EVIL]) == 0
    assert evil.exists()


def test_a_key_that_others_can_read_signs_nothing(evil: Path, tmp_path: Path) -> None:
    signature = sign([EVIL])
    check_trusted([EVIL], "run", signature, trust=False)
    (tmp_path / "config" / "hyq" / "key").chmod(0o644)
    assert sign([EVIL]) is None
    with pytest.raises(HyqError, match="--trust"):
        check_trusted([EVIL], "run", signature, trust=False)


def test_a_signature_is_of_the_code_where_it_lay(
    evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = sign([EVIL])
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "evil_module.py").rename(other / "evil_module.py")
    monkeypatch.syspath_prepend(str(other))
    with pytest.raises(HyqError, match="--trust"):
        check_trusted([EVIL], "run", signature, trust=False)


def test_installed_libraries_need_no_word_but_their_names_elsewhere_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["CartPole-v1", "hyq/Montezuma-v0", "gymnasium.wrappers:FlattenObservation"]
    check_trusted(names, "run", None, trust=False)
    (tmp_path / "ogbench.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(HyqError, match="would import ogbench:Env"):
        check_trusted(["ogbench:Env"], "run", None, trust=False)
    for name in ("os:system", "subprocess:Popen", "builtins:eval"):
        with pytest.raises(HyqError, match=f"would import {name}"):
            check_trusted([name], "run", None, trust=["another:Name"])


def test_a_library_that_is_not_installed_is_not_taken_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gymnasium registers environments of libraries that a run's directory may be named after."""
    entry = "absent_library.envs:Env"
    spec = gym.envs.registration.EnvSpec("Absent-v0", entry_point=entry)
    monkeypatch.setitem(gym.registry, "Absent-v0", spec)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    check_trusted(["Absent-v0"], "run", None, trust=False)  # it cannot be imported
    (tmp_path / "absent_library").mkdir()
    with pytest.raises(HyqError, match="would import Absent-v0"):
        check_trusted(["Absent-v0"], "run", None, trust=False)


def test_a_dataset_s_environment_is_imported_only_where_it_is_named(
    tmp_path: Path, evil: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = TabularFunction(np.zeros((4, 2)))
    save_policy(tmp_path / "policy", [table] * 2)
    states = np.array([0, 1, 0, 1])
    dataset = Dataset.from_arrays(
        states,
        states,
        np.ones(4),
        states,
        states,
        timestep=states,
        provenance={"environment": EVIL},
    )
    dataset.save(tmp_path / "data")
    page = ["--page", str(tmp_path / "check.html")]
    command = ["data", "check", str(tmp_path / "data"), "--policy", str(tmp_path / "policy"), *page]
    assert main(command) == 2
    assert f"give --env {EVIL}" in capsys.readouterr().err
    assert not evil.exists()
    main([*command, "--env", EVIL])
    assert evil.exists()


def test_a_minari_dataset_imports_no_environment_to_know_its_spaces(
    tmp_path: Path, evil: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    space = gym.spaces.Box(-1, 1, (2,))
    episode = Episode(np.zeros((2, 2), np.float32), np.zeros(1, int), np.zeros(1), True)
    export_minari(Dataset.of([episode], {}), "hyq/test-v0", space, gym.spaces.Discrete(2))
    path = tmp_path / "minari" / "hyq" / "test-v0"
    about = path / "data" / "metadata.json"
    content = json.loads(about.read_text())
    content["env_spec"] = gym.envs.registration.EnvSpec("X-v0", "evil_module:Env").to_json()
    about.write_text(json.dumps(content))
    assert len(load(path)) == 1  # nothing is made
    del content["observation_space"]
    about.write_text(json.dumps(content))
    for name in (path, "hyq/test-v0"):
        with pytest.raises(HyqError, match="would import evil_module:Env"):
            load(name)
    assert not evil.exists()


def test_a_video_is_drawn_again_only_in_a_trusted_environment(tmp_path: Path) -> None:
    expert_video().save(tmp_path)
    content = read_json(tmp_path / "video.json")
    content["environment"]["env"] = EVIL
    write_json(tmp_path / "video.json", content)
    with pytest.raises(HyqError, match="--trust"):
        Video.load(tmp_path)
