"""The front door: one call from data and an environment to a policy, with parts of a user's own."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn

import hyq
from hyq.agents.hyq_dqn import hyq_loss
from hyq.core.trees import Tree
from hyq.data.sampler import Batch
from hyq.networks import QNetwork
from hyq.runs import runner
from hyq.runs.records import RunDirectory
from hyq.runs.runner import Progress
from tests.fqi.chain import Chain, chain_logs

BRIEF: dict[str, Any] = {
    "online_steps": 48,
    "pretraining": 4,
    "num_envs": 2,
    "learning_starts": 8,
    "update_every": 4,
    "batch_size": 8,
    "hidden": (8,),
    "report_every": 24,
    "evaluation_episodes": 2,
}
ONLINE = {name: value for name, value in BRIEF.items() if name != "pretraining"}
DATA = chain_logs(20, 0.5)
STATES = np.eye(5, dtype=np.float32)


def trained(
    env: Any = Chain, data: Any = DATA, **changes: Any
) -> tuple[hyq.Policy, list[Progress]]:
    seen: list[Progress] = []
    policy = hyq.train(env, data, **{**BRIEF, "callbacks": (seen.append,), **changes})
    return policy, seen


def test_callbacks_see_every_record_and_the_best_policy_is_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = iter([1.0, 7.0, 3.0])
    monkeypatch.setattr(runner, "evaluate", lambda *_: np.full(2, next(scores)))
    policy, seen = trained()
    assert [update.row["online_steps"] for update in seen] == [0, 24, 48]
    assert [update.row["eval_return"] for update in seen] == [1.0, 7.0, 3.0]
    assert [update.summary is None for update in seen] == [True, True, False]
    assert policy.network is seen[-1].policy.network
    assert policy.about["return"] == 7.0
    assert policy.about["algorithm"] == "hyq"
    assert policy.act(STATES).shape == (5,)


def test_a_run_computes_on_its_threads_and_leaves_pytorchs_as_they_were() -> None:
    before, seen = torch.get_num_threads(), []
    for threads in (2, 1):
        trained(threads=threads, callbacks=(lambda _: seen.append(torch.get_num_threads()),))
    assert seen == [2, 2, 2, 1, 1, 1]
    assert torch.get_num_threads() == before


def test_settings_reach_the_run(tmp_path: Path) -> None:
    policy, _ = trained(
        out=tmp_path / "run",
        beta="0:0.5, 600:0.1",
        loss="squared",
        network="small",
        hidden=None,
        preset="paper-montezuma",
        frame_stack=1,
        seed=5,
    )
    manifest = RunDirectory.open(tmp_path / "run").manifest
    assert manifest["settings"]["beta"] == "0:0.5, 600:0.1"
    assert manifest["settings"]["loss"] == "squared"
    assert manifest["settings"]["mix"] == "bernoulli"
    assert manifest["objects"].keys() == {"env", "data"}
    assert manifest["seed"] == 5
    assert isinstance(policy.network, QNetwork)
    assert policy.network.layers.hidden == (256,)


def test_without_evaluations_the_last_policy_is_returned(tmp_path: Path) -> None:
    policy, seen = trained(evaluation_episodes=0, out=tmp_path / "run")
    assert not any("eval_return" in update.row for update in seen)
    last = hyq.Policy.load(tmp_path / "run" / "last")
    np.testing.assert_array_equal(policy.scores(STATES), last.scores(STATES))
    assert not (tmp_path / "run" / "best").exists()


def test_nothing_is_left_on_disk_without_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained()
    assert list(tmp_path.iterdir()) == []


def test_data_may_be_given_by_its_directory(tmp_path: Path) -> None:
    DATA.save(str(tmp_path / "data"))
    by_path, _ = trained(data=tmp_path / "data")
    by_name, _ = trained(data=f"{tmp_path}/data/")
    given, _ = trained(data=DATA)
    np.testing.assert_array_equal(by_path.scores(STATES), given.scores(STATES))
    np.testing.assert_array_equal(by_name.scores(STATES), given.scores(STATES))
    with pytest.raises(hyq.HyqError, match="no dataset 'nowhere/'"):
        trained(data="nowhere/")
    with pytest.raises(hyq.HyqError, match=r"data must be a hyq.Dataset or where one is, not a l"):
        trained(data=[1, 2])


def test_interrupted_and_resumed_with_parts_of_its_own(tmp_path: Path) -> None:
    def stop(update: Progress) -> None:
        if update.row["online_steps"] == 24:
            raise KeyboardInterrupt

    own: dict[str, Any] = {"network": WithDropout, "loss": doubled}
    trained(out=tmp_path / "whole", **own)
    with pytest.raises(KeyboardInterrupt):
        trained(out=tmp_path / "run", callbacks=(stop,), **own)
    with pytest.raises(hyq.HyqError, match=r"hyq.resume\(path, data=..., env=..., loss=..., net"):
        hyq.resume(tmp_path / "run")
    seen: list[Progress] = []
    policy = hyq.resume(
        tmp_path / "run", env=Chain, data=DATA, callbacks=(seen.append,), progress=False, **own
    )
    assert seen[-1].summary is not None
    whole, again = (
        (tmp_path / name / "last" / "weights.safetensors").read_bytes() for name in ("whole", "run")
    )
    assert whole == again
    with pytest.raises(hyq.HyqError, match="network of your own"):
        hyq.Policy.load(tmp_path / "run" / "best")
    best = hyq.Policy.load(tmp_path / "run" / "best", network=WithDropout)
    np.testing.assert_array_equal(best.scores(STATES), policy.scores(STATES))


class WithDropout(nn.Module):
    """A network of a user's."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, action_space.n)
        )

    def forward(self, observation: Tensor) -> Tensor:
        values: Tensor = self.layers(observation)
        return values


def doubled(agent: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    loss, error = hyq_loss(agent, batch)
    return 2 * loss, error


def test_dropout_is_off_where_the_policy_acts() -> None:
    policy, _ = trained(network=WithDropout)
    once, twice = policy.scores(STATES), policy.scores(STATES)
    np.testing.assert_array_equal(once, twice)


def test_a_loss_of_ones_own() -> None:
    _, usual = trained(evaluation_episodes=0)
    _, own = trained(evaluation_episodes=0, loss=doubled)
    first = [updates[0].row for updates in (usual, own)]
    assert first[1]["gradient_norm"] > 1.3 * first[0]["gradient_norm"]


class Sum(nn.Module):
    """A network that reads a dictionary."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        assert set(observation_space.spaces) == {"place", "parity"}
        self.place = nn.Linear(5, int(action_space.n))
        self.parity = nn.Linear(2, int(action_space.n))

    def forward(self, observation: Tree) -> Tensor:
        values: Tensor = self.place(observation["place"]) + self.parity(observation["parity"])
        return values


class Rooms(Chain):
    """The chain, shown as a dictionary in double precision."""

    observation_space = gym.spaces.Dict(  # type: ignore[assignment]
        {
            "place": gym.spaces.Box(0.0, 1.0, (5,), np.float64),
            "parity": gym.spaces.Box(0.0, 1.0, (2,), np.float32),
        }
    )

    def _observe(self) -> Any:
        parity = np.eye(2, dtype=np.float32)[self._state % 2]
        return {"place": np.eye(5)[self._state], "parity": parity}


@pytest.mark.parametrize("network", [None, Sum])
def test_dictionaries_reach_the_network(network: Any, tmp_path: Path) -> None:
    policy = hyq.train(Rooms, algorithm="dqn", network=network, out=tmp_path / "run", **ONLINE)
    seen: dict[str, Any] = {
        "place": np.eye(5),
        "parity": np.eye(2, dtype=np.float32)[np.arange(5) % 2],
    }
    assert policy.act(seen).shape == (5,)
    one = {name: part[0] for name, part in seen.items()}
    assert policy.act(one) == policy.act(seen)[0]
    again = hyq.Policy.load(tmp_path / "run" / "last", network=network)
    assert again.act(seen).shape == (5,)


def test_a_vector_environment_of_ones_own() -> None:
    def vector(count: int) -> Any:
        return SyncVectorEnv([Chain] * count, autoreset_mode=AutoresetMode.DISABLED)

    given = {name: value for name, value in BRIEF.items() if name != "num_envs"}
    seen: list[Progress] = []
    own = vector(3)
    del given["evaluation_episodes"]
    hyq.train(own, DATA, callbacks=(seen.append,), **given)
    assert "eval_return" not in seen[-1].row
    assert seen[-1].row["online_steps"] == 48
    hyq.train(vector(3), DATA, evaluation_env=vector(2), callbacks=(seen.append,), **given)
    assert "eval_return" in seen[-1].row
    with pytest.raises(hyq.HyqError, match="set num_envs=3"):
        hyq.train(vector(3), DATA, num_envs=2, evaluation_episodes=0, **given)
    with pytest.raises(hyq.HyqError, match="evaluations need environments of their own"):
        hyq.train(vector(3), DATA, evaluation_episodes=2, **given)
    with pytest.raises(hyq.HyqError, match="DISABLED"):
        hyq.train(SyncVectorEnv([Chain] * 3), DATA, **given)
    hyq.train(vector(3), DATA, algorithm="bc", updates=3, batch_size=8)


def test_actions_may_start_anywhere() -> None:
    policy, seen = trained(lambda: Chain(5), chain_logs(20, 0.5, 5))
    assert set(policy.act(STATES)) <= {5, 6}
    assert sum(len(update.row["episodes"]) for update in seen) > 3


class Old(Chain):
    """An environment that steps as environments did long ago."""

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, info = super().step(action)
        return seen, reward, terminated or truncated, info


def test_environments_that_cannot_work_say_so() -> None:
    with pytest.raises(hyq.HyqError, match="step returned 4 values"):
        trained(Old)
    with pytest.raises(hyq.HyqError, match="'dqn' is not for continuous actions"):
        hyq.train("Pendulum-v1", algorithm="dqn", **ONLINE)
    with pytest.raises(hyq.HyqError, match="function that makes the environment"):
        trained(Chain())
    with pytest.raises(hyq.HyqError, match="observations are one array"):
        trained(Rooms)


def test_the_environment_takes_parameters_wrappers_and_processes() -> None:
    seen: list[Progress] = []
    policy = hyq.train(
        "CartPole-v1",
        algorithm="dqn",
        processes=True,
        wrappers=("gymnasium.wrappers:FlattenObservation",),
        env_parameters={"max_episode_steps": 4},
        callbacks=(seen.append,),
        **ONLINE,
    )
    assert max(length for update in seen for _, _, length in update.row["episodes"]) == 4
    assert policy.observation_space.shape == (4,)
    with pytest.raises(hyq.HyqError, match="no wrapper 'nowhere:Nothing'"):
        hyq.train("CartPole-v1", algorithm="dqn", wrappers=("nowhere:Nothing",))


def test_offline_algorithms_count_updates() -> None:
    seen: list[Progress] = []
    policy = hyq.train(
        Chain,
        DATA,
        algorithm="bc",
        updates=30,
        report_every=10,
        evaluation_episodes=0,
        callbacks=(seen.append,),
        progress=True,
    )
    assert [update.row["updates"] for update in seen] == [10, 20, 30]
    assert policy.act(STATES).shape == (5,)


def test_mistakes_are_named() -> None:
    with pytest.raises(hyq.HyqError, match="learns from offline data"):
        hyq.train("CartPole-v1", online_steps=100)
    with pytest.raises(hyq.HyqError, match="rnd does not use offline data"):
        hyq.train(Chain, DATA, algorithm="rnd", online_steps=64)
    with pytest.raises(hyq.HyqError, match="unknown setting 'batchsize'"):
        trained(batchsize=3)
    with pytest.raises(hyq.HyqError, match="no algorithm 'sarsa'"):
        trained(algorithm="sarsa")
    with pytest.raises(hyq.HyqError, match="nothing to learn"):
        trained(online_steps=0, pretraining=0)
    with pytest.raises(hyq.HyqError, match="no network 'huge'"):
        trained(network="huge")
    with pytest.raises(hyq.HyqError, match="loss must be one of huber, squared"):
        trained(loss="cubic")
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = hyq.trian


def test_the_environment_raises_before_the_data_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "load", lambda *_: pytest.fail("time was spent on the data"))
    with pytest.raises(hyq.HyqError, match="not for continuous actions"):
        hyq.train("Pendulum-v1", "montezuma/hard", algorithm="dqfd")


def test_wrappers_of_the_data_are_named_where_the_environment_lacks_them() -> None:
    wrapped = replace(DATA, provenance={"wrappers": ["some:Wrapper"]})
    with pytest.raises(hyq.HyqError, match=r"shape \(5,\).*data was made with wrappers some:Wra"):
        hyq.train("MountainCar-v0", wrapped, **BRIEF)
    with pytest.raises(hyq.HyqError, match=r"shape \(5,\).*give data of this environment"):
        hyq.train("MountainCar-v0", DATA, **BRIEF)


def test_the_package_shows_its_names() -> None:
    assert {*hyq.__all__, "__version__"} <= set(dir(hyq))
    assert hyq.__version__ == version("hyq")
    assert hyq.__doc__ is not None
    described = {line.partition(":")[0] for line in hyq.__doc__.splitlines()[2:]}
    assert described - {""} == set(hyq.__all__)
    for name in hyq.__all__:
        assert getattr(hyq, name).__name__ == name


def test_importing_the_package_is_cheap() -> None:
    code = "import hyq, sys; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_global_random_numbers_are_left_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    numpy_before: dict[str, Any] = np.random.get_state(legacy=False)  # noqa: NPY002
    trained(network=WithDropout)
    assert torch.equal(before, torch.get_rng_state())
    after: dict[str, Any] = np.random.get_state(legacy=False)  # noqa: NPY002
    np.testing.assert_array_equal(numpy_before["state"]["key"], after["state"]["key"])
