"""Any Gymnasium environment as a vector environment: checked, and without automatic resets."""

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from hyq.core.actions import ActionKind, Actions, action_kind
from hyq.core.errors import HyqError, MisfitError, in_one_line
from hyq.core.trees import leaves, space_tree, without_tuples
from hyq.core.types import Array
from hyq.envs.pixels import is_raw

VectorEnv = gym.vector.VectorEnv[Array, Array, Array]
EnvFactory = Callable[[], gym.Env[Any, Any]]

NATIVE = ("hyq/Montezuma-v0",)
"""Environments with a vector version of their own that is reset by mask, never by itself."""
ARRAYS = (gym.spaces.Box, gym.spaces.MultiBinary, gym.spaces.MultiDiscrete)
"""Spaces whose members are arrays."""


def make_vector_env(
    env: str | EnvFactory,
    num_envs: int,
    *,
    wrappers: Sequence[str] = (),
    processes: bool = False,
    **parameters: Any,
) -> VectorEnv:
    """Make `num_envs` copies of an environment with array observations.

    Args:
        env: A Gymnasium id, `module:id` to import a module first, or a function that makes one.
        num_envs: Number of copies.
        wrappers: `module:Class` of wrappers to put around each copy, innermost first.
        processes: Step the copies in processes of their own, for environments that are slow.
        parameters: Passed on to the environment.
    """
    if env in NATIVE and not wrappers:
        # Frames are stacked by the collector, and stored once each.
        settings = {"stack": 1, "vectorization_mode": "vector_entry_point", **parameters}
        with _making(env):
            made = gym.make_vec(env, num_envs, **settings)
    else:
        one = env_factory(env, wrappers, **parameters)
        vector = AsyncVectorEnv if processes else SyncVectorEnv
        with _making(env):
            made = vector([one] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
        if not wrappers and is_raw(made.single_observation_space):
            warnings.warn(
                f"{_name(env)} shows raw screens of {made.single_observation_space.shape}, which "
                "takes very long: give wrappers hyq.envs.pixels:StandardPixels and frame_stack 4",
                stacklevel=2,
            )
    check_spaces(made)
    return made


def make_rendered(
    env: str, *, wrappers: Sequence[str] = (), **parameters: Any
) -> gym.Env[Any, Any]:
    """Make one copy of what `make_vector_env` makes, which can also render itself as images."""
    _known(env)
    if env in NATIVE:
        parameters.setdefault("stack", 1)
        parameters.pop("num_threads", None)  # says how copies are shared out; one has none
    entry = gym.spec(env.rpartition(":")[2]).entry_point
    made = load_env_creator(entry) if isinstance(entry, str) else entry
    if "rgb_array" not in getattr(made, "metadata", {}).get("render_modes", ()):
        raise HyqError(f"{env!r} cannot be recorded: it does not render images (rgb_array)")
    return env_factory(env, wrappers, render_mode="rgb_array", **parameters)()


def kind_of_actions(
    env: str | EnvFactory | VectorEnv, wrappers: Sequence[str], parameters: Mapping[str, Any]
) -> ActionKind:
    """Tell the kind of an environment's actions, making one copy of it where that has to be."""
    if isinstance(env, gym.vector.VectorEnv):
        return action_kind(env.single_action_space)
    if env in NATIVE:
        return "discrete"
    one = env_factory(env, wrappers, **parameters)()
    try:
        return action_kind(one.action_space)
    finally:
        one.close()


def check_spaces(env: VectorEnv) -> None:
    """Raise for an environment that no agent can act in or look at."""
    Actions(env.single_action_space)
    for leaf in leaves(space_tree(without_tuples(env.single_observation_space))):
        if not isinstance(leaf, ARRAYS):
            raise MisfitError(
                "observations must be arrays or dictionaries of arrays, this environment has "
                f"{type(leaf).__name__}",
                "wrap it, for instance in gymnasium.wrappers:FlattenObservation",
            )


def env_factory(
    env: str | EnvFactory, wrappers: Sequence[str] = (), **parameters: Any
) -> EnvFactory:
    """Return a function that makes one copy of an environment, wrapped."""
    around = [_named(wrapper) for wrapper in wrappers]
    if isinstance(env, str):
        _known(env)
    else:
        _check_maker(env)

    def one() -> gym.Env[Any, Any]:
        with _making(env):
            made = gym.make(env, **parameters) if isinstance(env, str) else env(**parameters)
            for wrapper in around:
                made = wrapper(made)
        if not isinstance(made, gym.Env):
            raise HyqError(
                f"cannot make environment {_name(env)}: it must be a gymnasium.Env, "
                f"not of type {type(made).__name__}"
            )
        return made

    return one


def _check_maker(env: object) -> None:
    """Raise for an environment, or anything else, in place of a function that makes one."""
    if isinstance(env, gym.Env | gym.vector.VectorEnv):
        kind = type(env).__name__
        maker = f"{kind}(), or its class" if env.spec is None else f'gym.make("{env.spec.id}")'
        raise HyqError(
            f"give a function that makes the environment, such as lambda: {maker}, "
            f"not a {kind} that is made already: every copy needs its own"
        )
    if not callable(env):
        raise HyqError(
            "give a Gymnasium id or a function that makes the environment, "
            f"not of type {type(env).__name__}"
        )


@contextmanager
def _making(env: str | EnvFactory) -> Iterator[None]:
    """Say in one line what an environment lacks, or which of its parameters it does not know.

    It is the user's code that fails here, in any way; Python shows the cause above the line.
    """
    try:
        yield
    except HyqError:
        raise
    except Exception as error:
        raise HyqError(f"cannot make environment {_name(env)}: {in_one_line(error)}") from error


def _name(env: str | EnvFactory) -> str:
    return repr(env) if isinstance(env, str) else getattr(env, "__qualname__", type(env).__name__)


def _known(env_id: str) -> None:
    """Raise for an unknown id before anything is made."""
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        elif name.startswith("MiniGrid-"):
            importlib.import_module("minigrid")
        gym.spec(name)
    except gym.error.Error as error:
        versions = [known for known in gym.registry if known.rpartition("-v")[0] == name]
        hint = f"choose a version, {' or '.join(versions)}" if versions else error
        raise HyqError(f"no environment {env_id!r}: {hint}") from None
    except Exception as error:  # a module of the user's may fail in any way
        extra = " (pip install 'hyq[minigrid]')" if name.startswith("MiniGrid-") else ""
        raise HyqError(
            f"cannot import what {env_id!r} needs: {in_one_line(error)}{extra}"
        ) from error


def _named(path: str) -> Callable[[Any], Any]:
    module, _, name = path.partition(":")
    if not (module and name):
        raise HyqError(f"no wrapper {path!r}: write it as module:Class")
    try:
        found: Callable[[Any], Any] | None = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # a module of the user's may fail in any way
        raise HyqError(f"no wrapper {path!r}: cannot import it: {in_one_line(error)}") from error
    if found is None:
        raise HyqError(f"no wrapper {path!r}: the module {module!r} has no class {name!r}")
    return found
