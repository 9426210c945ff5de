"""The front door: one call from logs and an environment to a policy."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import hyq
from hyq import api
from hyq.algos.hyq_dqn import Judged, Report, TemporalDifference, Training
from hyq.core.types import FloatArray
from hyq.data.hybrid import Batch


def chain_logs() -> hyq.Dataset:
    rng = np.random.default_rng(0)
    env = gym.make("CartPole-v1")
    episodes = []
    for number in range(20):
        observation, _ = env.reset(seed=number)
        seen, done, actions = [observation], False, []
        while not done:
            actions.append(int(rng.integers(2)))
            observation, _, terminated, truncated, _ = env.step(actions[-1])
            seen.append(observation)
            done = terminated or truncated
        rewards = np.ones(len(actions), np.float32)
        episodes.append(hyq.Episode(np.array(seen), np.array(actions), rewards, terminated))
    return hyq.Dataset.of(episodes, {})


def test_train_returns_the_best_policy_and_reports_on_the_way() -> None:
    seen: list[tuple[int, float]] = []

    def note(report: Report, mean_return: float) -> None:
        seen.append((report.online_steps, mean_return))

    policy = hyq.train(
        "CartPole-v1",
        chain_logs(),
        online_steps=600,
        pretraining=100,
        beta="0:0.5, 600:0.1",
        learning_rate=5e-4,
        report_every=200,
        evaluation_episodes=3,
        on_report=note,
    )
    assert [steps for steps, _ in seen] == [0, 200, 400, 600]
    assert policy.act(np.zeros(4, np.float32)) in (0, 1)


def test_a_function_that_makes_the_environment_will_do() -> None:
    policy = hyq.train(
        lambda: gym.make("CartPole-v1", max_episode_steps=50),
        algorithm="dqn",
        online_steps=200,
        report_every=100,
        evaluation_episodes=1,
    )
    assert policy.act(np.zeros((3, 4), np.float32)).shape == (3,)


def test_without_logs_and_beta_it_learns_online_only() -> None:
    seen: list[int] = []
    hyq.train(
        "CartPole-v1",
        None,
        online_steps=64,
        beta=0,
        evaluation_episodes=1,
        on_report=lambda report, _: seen.append(report.online_steps),
    )
    assert seen == [64], "no pretraining came first"
    with pytest.raises(hyq.HyqError, match="pretraining is on logs"):
        hyq.train("CartPole-v1", None, online_steps=64, beta=0, pretraining=10)


def test_logs_may_be_given_by_their_directory(tmp_path: Path) -> None:
    chain_logs().save(str(tmp_path / "logs"))
    brief: dict[str, Any] = {"online_steps": 64, "pretraining": 2, "evaluation_episodes": 1}
    for data in (tmp_path / "logs", f"{tmp_path}/logs/"):
        policy = hyq.train("CartPole-v1", data, **brief)
        assert policy.act(np.zeros(4, np.float32)) in (0, 1)
    with pytest.raises(hyq.HyqError, match="no dataset 'nowhere/'"):
        hyq.train("CartPole-v1", "nowhere/", **brief)


def test_without_evaluations_the_last_policy_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "play", lambda *_, **__: pytest.fail("nobody asked for a game"))
    made: list[hyq.DeepPolicy] = []
    policy_of = Training.policy

    def kept(training: Training) -> hyq.DeepPolicy:
        made.append(policy_of(training))
        return made[-1]

    monkeypatch.setattr(Training, "policy", kept)
    brief: dict[str, Any] = {"algorithm": "dqn", "online_steps": 96, "report_every": 32}
    told: list[float] = []
    policy = hyq.train(
        "CartPole-v1", evaluation_episodes=0, on_report=lambda _, mean: told.append(mean), **brief
    )
    assert policy is made[-1]
    assert np.isnan(told).all()
    with pytest.raises(hyq.HyqError, match="evaluation_episodes must not be negative, got -1"):
        hyq.train("CartPole-v1", evaluation_episodes=-1, **brief)


def test_the_environment_is_refused_before_the_logs_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "load", lambda *_: pytest.fail("time was spent on the logs"))
    with pytest.raises(hyq.HyqError, match="discrete actions"):
        hyq.train("Pendulum-v1", "montezuma/hard")


def test_the_environment_takes_parameters_wrappers_and_processes() -> None:
    told: list[int] = []
    policy = hyq.train(
        "CartPole-v1",
        algorithm="dqn",
        online_steps=64,
        lanes=2,
        evaluation_episodes=1,
        processes=True,
        wrappers=("gymnasium.wrappers:FlattenObservation",),
        env_parameters={"max_episode_steps": 4},
        on_report=lambda report, mean: told.extend(length for _, _, length in report.episodes),
    )
    assert max(told) == 4
    assert policy.network.shape == (4,)
    with pytest.raises(hyq.HyqError, match="no wrapper 'nowhere:Nothing'"):
        hyq.train("CartPole-v1", algorithm="dqn", wrappers=("nowhere:Nothing",))


def test_mistakes_are_named() -> None:
    with pytest.raises(hyq.HyqError, match="without logs"):
        hyq.train("CartPole-v1", online_steps=100)
    with pytest.raises(hyq.HyqError, match="unknown setting"):
        hyq.train("CartPole-v1", chain_logs(), batchsize=3)
    with pytest.raises(hyq.HyqError, match="no method"):
        hyq.train("CartPole-v1", chain_logs(), algorithm="sarsa")
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = hyq.trian


def test_logs_may_be_loaded_by_name() -> None:
    logs = hyq.load("mountaincar/half")
    assert logs.provenance["env"] == "MountainCar-v0"
    with pytest.raises(hyq.HyqError, match="no dataset 'mountaincar/most'"):
        hyq.load("mountaincar/most")


def test_wrappers_of_the_logs_are_named_where_the_environment_lacks_them() -> None:
    logs = chain_logs()
    wrapped = hyq.Dataset.of(logs, {"wrappers": ["some:Wrapper"]})
    brief: dict[str, Any] = {"online_steps": 64, "evaluation_episodes": 0}
    with pytest.raises(hyq.HyqError, match=r"shape \(4,\).*data was made with wrappers some:Wra"):
        hyq.train("MountainCar-v0", wrapped, **brief)
    with pytest.raises(hyq.HyqError, match=r"shape \(4,\).*give data of this environment"):
        hyq.train("MountainCar-v0", logs, **brief)


def test_the_package_shows_its_names() -> None:
    assert {*hyq.__all__, "__version__"} <= set(dir(hyq))
    assert hyq.__version__ == version("hyq")
    assert hyq.__doc__ is not None
    told = {line.partition(":")[0] for line in hyq.__doc__.splitlines()[2:]}
    assert told - {""} == set(hyq.__all__)
    for name in hyq.__all__:
        assert getattr(hyq, name).__name__ == name


def test_importing_the_package_is_cheap() -> None:
    code = "import hyq, sys; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_interruption_leaves_the_best_policy_so_far(tmp_path: Path) -> None:
    def stop_at(report: Report, mean_return: float) -> None:
        if report.online_steps >= 200:
            raise KeyboardInterrupt

    brief: dict[str, Any] = {"online_steps": 400, "pretraining": 0, "report_every": 100}
    with pytest.raises(KeyboardInterrupt):
        hyq.train(
            "CartPole-v1", chain_logs(), save_to=tmp_path / "policy", on_report=stop_at, **brief
        )
    assert hyq.DeepPolicy.load(tmp_path / "policy").act(np.zeros(4, np.float32)) in (0, 1)
    with pytest.raises(hyq.HyqError, match="holds something else"):
        hyq.train("CartPole-v1", chain_logs(), save_to=tmp_path, **brief)


def test_another_objective_can_be_minimised() -> None:
    class Still(TemporalDifference):
        def judge(self, outputs: FloatArray, answers: list[FloatArray], batch: Batch) -> Judged:
            judged = super().judge(outputs, answers, batch)
            return replace(judged, gradient=np.zeros_like(judged.gradient))

    norms: list[float] = []
    hyq.train(
        "CartPole-v1",
        chain_logs(),
        online_steps=0,
        pretraining=20,
        report_every=10,
        evaluation_episodes=0,
        objective=Still(),
        on_report=lambda report, _: norms.append(report.metrics["gradient_norm"]),
    )
    assert norms == [0.0, 0.0]
