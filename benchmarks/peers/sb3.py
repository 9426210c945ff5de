# mypy: ignore-errors
"""Time Stable-Baselines3's DQN.

python benchmarks/peers/sb3.py --problem montezuma|cartpole [--seconds 30] [--threads 1]
    [--precision float32|bfloat16] [--envs 8] [--vector dummy|subproc|native] [--dueling]

`--dueling` gives it the paper's network through a policy class of its own, as users of SB3 would.
`native` (Montezuma only) puts ale-py's C++ vector environment behind SB3's `VecEnv`, which SB3
does not do by itself.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import stable_baselines3
from common import (
    CLIP,
    EPSILON,
    GAMMA,
    LEARNING_STARTS,
    STEPS_PER_UPDATE,
    Dueling,
    Problem,
    Window,
    arguments,
    autocast,
    convolutions,
    lay_out,
    native_montezuma,
    one_environment,
    prepare,
    report,
    stopwatch,
)
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from stable_baselines3.dqn.policies import CnnPolicy, QNetwork


class NativeVecEnv(VecEnv):
    """ale-py's vector environment, resetting within the step, as SB3 wants it."""

    def __init__(self, envs: int, threads: int, seed: int) -> None:
        self._games = native_montezuma(envs, threads, "SameStep")
        self._first_seed = seed
        super().__init__(
            envs, self._games.single_observation_space, self._games.single_action_space
        )

    def reset(self) -> np.ndarray:
        observations, _ = self._games.reset(seed=self._first_seed)
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        self._games.send(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observations, rewards, terminated, truncated, info = self._games.recv()
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(done):
            infos[index] = {
                "terminal_observation": info["final_obs"][index],
                "TimeLimit.truncated": bool(truncated[index] and not terminated[index]),
            }
        return observations, rewards.astype(np.float32), done, infos

    def close(self) -> None:
        self._games.close()

    def has_attr(self, attr_name: str) -> bool:
        return False

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Convolutions(BaseFeaturesExtractor):
    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space, features_dim=3136)
        self.layers = convolutions()

    def forward(self, pixels: Any) -> Any:
        return self.layers(pixels)


class DuelingPolicy(CnnPolicy):
    def make_q_net(self) -> QNetwork:
        network = super().make_q_net()
        network.q_net = Dueling(network.features_dim, int(self.action_space.n))
        return network


class Watch(BaseCallback):
    def __init__(self, window: Window) -> None:
        super().__init__()
        self._window = window

    def _on_step(self) -> bool:
        return self._window.tick(self.num_timesteps)


def environments(problem: Problem, options: argparse.Namespace) -> VecEnv:
    if options.vector == "native":
        return NativeVecEnv(options.envs, options.threads, options.seed)
    makers = [lambda: one_environment(problem) for _ in range(options.envs)]
    return SubprocVecEnv(makers) if options.vector == "subproc" else DummyVecEnv(makers)


def in_precision(forward: Callable[..., Any], options: argparse.Namespace) -> Callable[..., Any]:
    """Return a forward pass in the precision asked for, to act and to learn, that ends in float32.

    `model.train` as a whole would not do: it takes several updates in one call.
    """
    cast = autocast(options)(forward)
    return lambda observations: cast(observations).float()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--vector", choices=("dummy", "subproc", "native"), default="dummy")
    options = parser.parse_args()
    problem = prepare(options)
    window = Window(options)
    vector_steps = max(1, STEPS_PER_UPDATE // options.envs)
    gradient_steps = max(1, options.envs // STEPS_PER_UPDATE)
    notes = ["no double DQN, so a forward pass less an update", "no offline data in the batches"]
    notes.append("Huber loss, fused Adam")
    if problem.pixels:
        memory = {
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        }
        notes.append("each stack of four frames is stored once (optimize_memory_usage)")
    else:
        memory = {}
    layers = {"features_extractor_class": Convolutions, "net_arch": []} if options.dueling else {}
    model = DQN(
        DuelingPolicy if options.dueling else "CnnPolicy" if problem.pixels else "MlpPolicy",
        environments(problem, options),
        learning_rate=problem.lr,
        buffer_size=problem.buffer,
        learning_starts=LEARNING_STARTS,
        batch_size=problem.batch,
        gamma=GAMMA,
        train_freq=vector_steps,
        gradient_steps=gradient_steps,
        target_update_interval=problem.target_steps,
        exploration_initial_eps=EPSILON,
        exploration_final_eps=EPSILON,
        max_grad_norm=CLIP,
        policy_kwargs={"optimizer_kwargs": {"fused": True}, **layers},
        seed=options.seed if options.vector != "native" else None,
        device="cpu",
        **memory,
    )
    lay_out(model.policy, options)
    for network in (model.q_net, model.q_net_target):
        network.forward = in_precision(network.forward, options)
    model.train = stopwatch(model.train, lambda took: window.updated(took, gradient_steps))
    model.learn(total_timesteps=10**9, callback=Watch(window), log_interval=10**9)
    report("stable-baselines3", stable_baselines3.__version__, options, window, notes)


if __name__ == "__main__":
    main()
