"""A learned policy: act with it, save it, load it, export it."""

import copy
import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from hyq.actor_critic import Actor, Mode
from hyq.collector import Preprocessing, PreprocessingConfig
from hyq.core.actions import Actions
from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.errors import HyqError
from hyq.core.files import DRAFT, raising_damage, read_json, write_bytes, write_json
from hyq.core.images import colours_last, downsample
from hyq.core.settings import decode
from hyq.core.trees import Tree, first_leaf, leaves, space_tree, tree_map, without_tuples
from hyq.core.types import Array, FloatArray
from hyq.envs.spaces import space_from_json, space_to_json
from hyq.networks import (
    Autocast,
    Encoder,
    InputScaling,
    Layers,
    NetworkFactory,
    QNetwork,
    check_network,
    leaf_paths,
    num_actions,
)

FORMAT = "hyq-policy-3"
DESCRIPTION, WEIGHTS, NEXT = "policy.json", "weights.safetensors", "next.safetensors"
"""A policy's files; the weights are named as the next ones until their description is there."""


@dataclass(frozen=True)
class Policy:
    """The greedy policy of a network, with the spaces and the preprocessing it was trained on."""

    network: nn.Module = field(repr=False)
    """From observations to a score of each discrete action, or to actions within [-1, 1]."""
    observation_space: gym.Space[Any]
    """As the environment shows observations."""
    action_space: gym.Space[Any]
    preprocessing: PreprocessingConfig = field(default_factory=PreprocessingConfig)
    about: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from: algorithm, environment, data, score; JSON only."""
    training: Any = field(default=None, repr=False, compare=False)
    """What happened while `hyq.train` made it: records, scores, summary, directory. Not saved."""

    def __str__(self) -> str:
        """Say in a line what it is."""
        about = self.about
        text = f"policy of {about.get('algorithm') or 'an unknown algorithm'}"
        text += f" for {about['env']}" if about.get("env") else ""
        score = about.get("return")
        text += "" if score is None else f", mean return {score:.4g} when it was evaluated"
        return f"{text}: {self.observation_space} to {self.action_space}"

    def act(self, observation: Any) -> Any:
        """Return the action for one observation, or an array of them for a batch.

        A network that was trained on stacked frames wants the same stack, oldest frame first: see
        `player`. Frames are given as the environment shows them.
        """
        actions = self.actions.to_env(self.choose(observation))
        return int(actions) if actions.ndim == 0 and self.is_discrete else actions

    @property
    def actions(self) -> Actions:
        """How the network's actions are those of the environment."""
        return Actions(self.action_space)

    @property
    def is_discrete(self) -> bool:
        """Whether actions are choices, each with a score."""
        return isinstance(self.action_space, gym.spaces.Discrete)

    def choose(self, observation: Any) -> Array:
        """Return what `act` does as agents have it: counted from 0, or within [-1, 1]."""
        found = self._outputs(observation)
        return np.asarray(found.argmax(-1)) if self.is_discrete else found

    def player(self) -> "Player":
        """Return what plays episodes of one environment frame by frame."""
        return Player(self)

    def scores(self, observation: Any) -> FloatArray:
        """Return the score of every action for one observation, or a row of them for each."""
        if not self.is_discrete:
            raise HyqError("a policy of continuous actions has no scores of them: call act")
        return self._outputs(observation)

    def _outputs(self, observation: Any) -> FloatArray:
        """Return what the network makes of one observation, or of each of a batch."""
        tree = tree_map(np.asarray, without_tuples(observation))
        single = self._fits(tree, batched=False)
        if not single and not self._fits(tree, batched=True):
            shapes = tree_map(lambda leaf: leaf.shape, tree)
            wanted = tree_map(lambda space: space.shape, space_tree(self._stacked_space))
            raise HyqError(
                f"expected observations of shape {wanted}, or a batch of them, got {shapes}: "
                "where frames are stacked, policy.player() does it"
            )
        rows = tree_map(lambda leaf: leaf[None], tree) if single else tree
        for leaf in leaves(rows):
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                raise HyqError("the observation has NaN or infinite entries")
        factor = self.preprocessing.downsample
        prepared = tree_map(
            lambda leaf, space: np.ascontiguousarray(
                downsample(leaf, factor), space.dtype if space.dtype.kind == "f" else None
            ),
            rows,
            space_tree(self._stacked_space),
        )
        with torch.inference_mode():
            found = self.network.eval()(tree_map(torch.from_numpy, prepared))
        outputs: FloatArray = found.float().cpu().numpy()
        return outputs[0] if single else outputs

    def save(self, path: Path | str) -> None:
        """Write the policy into a directory, replacing the one that was there."""
        directory = Path(path)
        check_free_for_policy(directory)
        directory.mkdir(parents=True, exist_ok=True)
        state = {n: t.detach().cpu().numpy() for n, t in self.network.state_dict().items()}
        description = {
            "format": FORMAT,
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "preprocessing": asdict(self.preprocessing),
            "network": describe_network(self.network),
            "about": dict(self.about),
            # A kill between the two files leaves the old pair whole, or the new one.
            "weights": save_arrays(directory / NEXT, state),
        }
        write_json(directory / DESCRIPTION, description)
        (directory / NEXT).replace(directory / WEIGHTS)

    @classmethod
    def load(cls, path: Path | str, network: NetworkFactory | None = None) -> "Policy":
        """Read what `save` wrote; give the network again where it was one of your own."""
        directory = Path(path)
        kept = [directory / n for n in ("best", "last") if (directory / n / DESCRIPTION).exists()]
        if kept and not (directory / DESCRIPTION).exists():
            raise HyqError(f"{directory} is a run: load {' or '.join(map(str, kept))}")
        about = read_json(directory / DESCRIPTION, signed=True)
        if about.get("format") != FORMAT:
            raise HyqError(f"{directory} holds no policy that can be read here")
        with raising_damage(directory / DESCRIPTION):
            observation_space = space_from_json(about["observation_space"])
            action_space = space_from_json(about["action_space"])
            config = decode(PreprocessingConfig, about["preprocessing"])
            described, digest = dict(about["network"]), about["weights"]
            history = dict(about["about"])
        try:
            arrays = load_arrays(directory / WEIGHTS, digest)
        except HyqError:
            if not (directory / NEXT).exists():
                raise
            arrays = load_arrays(directory / NEXT, digest)
        state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        seen = Preprocessing(config, observation_space).space
        actions = Actions(action_space).space
        if network is None:
            module = rebuild_network(described, seen, actions, state)
        else:
            module = network(seen, actions)
            module = Mode(module) if isinstance(actions, gym.spaces.Box) else module
        kinds = {name: tensor.dtype for name, tensor in module.state_dict().items()}
        if any(kinds.get(name, tensor.dtype) != tensor.dtype for name, tensor in state.items()):
            raise HyqError(f"the weights of {directory} have other types than its network")
        for name, tensor in state.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise HyqError(f"the weights {name} of {directory} are not finite")
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise HyqError(f"the weights of {directory} do not fit its network: {reason}") from None
        check_network(module, seen, num_outputs(actions), "cpu")
        return cls(module, observation_space, action_space, config, history)

    def export_onnx(self, path: Path | str) -> None:
        """Write the policy as ONNX: from a batch of observations to its `action`.

        The graph does what `act` does, the scaling of continuous actions included; it also returns
        the `scores` of discrete ones. It takes float32 observations of the environment, pixels
        from 0 to 255, each part of a dictionary by its name, and downsamples images itself.
        """
        if importlib.util.find_spec("onnxscript") is None:
            raise HyqError("export_onnx needs ONNX: install it with pip install 'hyq[onnx]'")
        example = tree_map(lambda s: torch.zeros((2, *s.shape)), space_tree(self._stacked_space))
        rows = torch.export.Dim("rows")
        names = list(example) if isinstance(example, Mapping) else ["observation"]
        with warnings.catch_warnings():
            # The exporter calls deprecated parts of PyTorch itself, and warns that the parts of a
            # dictionary have one number of rows.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", UserWarning)
            program = torch.onnx.export(
                _Graph(self).eval(),
                kwargs={"observation": example},  # a dictionary in args would be taken for kwargs
                input_names=names,
                output_names=["action", "scores"][: 1 + self.is_discrete],
                dynamic_shapes={"observation": tree_map(lambda _: {0: rows}, example)},
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        write_bytes(Path(path), program.model_proto.SerializeToString())

    @property
    def _stacked_space(self) -> gym.Space[Any]:
        """Observations as the environment shows them, but stacked."""
        config = PreprocessingConfig(self.preprocessing.frame_stack)
        return Preprocessing(config, self.observation_space).space

    def frame_stack_of(self, frame: Any) -> int:
        """Count the frames like this one that make one observation."""
        tree = tree_map(np.asarray, without_tuples(frame))
        stack = self.preprocessing.frame_stack
        if self._fits(tree, batched=False):
            return 1
        stacked = tree_map(lambda leaf: np.stack([_unstacked(leaf)] * stack), tree)
        if stack > 1 and self._fits(stacked, batched=False):
            return stack
        raise HyqError(
            f"the policy was trained on observations of {self.observation_space}, this environment "
            f"shows {tree_map(lambda leaf: leaf.shape, tree)}: evaluate it where it was trained"
        )

    def _fits(self, tree: Tree, *, batched: bool) -> bool:
        found = tree_map(lambda leaf: leaf.shape[int(batched) :], tree)
        wanted = tree_map(lambda space: space.shape, space_tree(self._stacked_space))
        return bool(found == wanted) and (not batched or first_leaf(tree).ndim > 0)


class Player:
    """A policy in one environment: it keeps the newest frames and stacks them as in training."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._frames: list[Tree] = []

    def reset(self) -> None:
        """Begin an episode: forget the frames of the one before."""
        self._frames = []

    def act(self, frame: Any) -> Any:
        """Take in the newest frame, and return the action."""
        return self._policy.act(self.see(frame))

    def see(self, frame: Any) -> Tree:
        """Take in the newest frame, and return the observation: an episode's first is repeated."""
        # Copies, because environments may show all frames in one array.
        frame = tree_map(np.array, without_tuples(frame))
        stack = self._policy.frame_stack_of(frame)
        if stack == 1:
            return frame
        frame = tree_map(_unstacked, frame)
        self._frames = [*(self._frames or [frame] * stack)[1:], frame]
        return tree_map(lambda *frames: np.stack(frames), *self._frames)


class _Graph(nn.Module):
    """A policy from observations of the environment to actions, for other programs."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.network = policy.network
        self._factor = policy.preprocessing.downsample
        self._space = policy.action_space

    def forward(self, observation: Tree) -> tuple[Tensor, ...]:
        """Return the action, and the scores that it is the best by where there are some."""
        outputs = self.network(tree_map(self._downsampled, observation))
        if isinstance(self._space, gym.spaces.Discrete):
            return int(self._space.start) + outputs.argmax(-1), outputs
        assert isinstance(self._space, gym.spaces.Box)
        bounds = self._space.low, self._space.high
        low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in bounds)
        shaped = outputs.reshape(-1, *low.shape)
        return (((low + high) / 2 + (high - low) / 2 * shaped).clamp(low, high),)

    def _downsampled(self, images: Tensor) -> Tensor:
        """Do what `core.images.downsample` does; the sums are small enough to be exact."""
        factor = self._factor
        if factor == 1:
            return images
        height, width = (-3, -2) if colours_last(tuple(images.shape)) else (-2, -1)
        blocks = images.unflatten(width, (-1, factor))  # type: ignore[no-untyped-call]
        blocks = blocks.unflatten(height - 1, (-1, factor))
        total = blocks.sum((height - 1, width))
        area = factor * factor
        return ((total + area // 2) / area).floor()


def describe_network(network: nn.Module) -> dict[str, Any]:
    """Say how a network is built again: by its layers, or by the user."""
    if isinstance(network, QNetwork):
        return {"layers": asdict(network.layers)}
    if isinstance(network, Mode):
        actor = network.actor
        if isinstance(actor, Actor):
            return {"layers": asdict(actor.encoder.layers), "squashed": actor.squashed}
        network = actor
    return {"class": f"{type(network).__module__}:{type(network).__qualname__}"}


def rebuild_network(
    about: Mapping[str, Any],
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    state: Mapping[str, Tensor],
) -> nn.Module:
    """Build a network that `describe_network` described, for weights yet to be loaded."""
    if "layers" not in about:
        raise HyqError(
            f"the policy has a network of your own ({about.get('class')}): load it with "
            "Policy.load(path, network=...) and the function that built it"
        )

    def build() -> nn.Module:
        paths = leaf_paths(observation_space)
        place = "" if isinstance(action_space, gym.spaces.Discrete) else "actor."
        place += "encoder.scalings"
        scalings = {
            path: InputScaling(*(state[f"{place}.{i}.{n}"] for n in ("shift", "scale")))
            for i, path in enumerate(paths)
        }
        encoder, outputs = Encoder(observation_space, layers, scalings), num_outputs(action_space)
        if isinstance(action_space, gym.spaces.Discrete):
            return QNetwork(encoder, layers, outputs)
        return Mode(Actor(encoder, outputs, squashed=bool(about.get("squashed"))))

    try:
        spec = dict(about["layers"])
        spec["convolutions"] = tuple(tuple(layer) for layer in spec["convolutions"])
        layers = decode(Layers, spec)
        if len(layers.hidden) + len(layers.convolutions) > len(state):
            raise ValueError("more layers than weights")
        with torch.device("meta"):  # which takes no memory, whatever sizes are described
            sizes = {name: tensor.shape for name, tensor in build().state_dict().items()}
    except Exception as error:  # what is described may break PyTorch in any way
        raise HyqError(f"the description of the network is damaged: {error!r}") from None
    for name in (*sizes, *state):
        if name not in state or state[name].shape != sizes.get(name):
            raise HyqError(f"the weights do not fit its network: {name} is of another shape")
    return build()


def num_outputs(action_space: gym.Space[Any]) -> int:
    """Return how many numbers a policy's network gives: scores, or the entries of an action."""
    if isinstance(action_space, gym.spaces.Discrete):
        return num_actions(action_space)
    [length] = action_space.shape or ()
    return length


def plain_network(network: nn.Module) -> nn.Module:
    """Return a copy of a network on the CPU, none of it in bfloat16, to keep while it learns on."""
    if isinstance(network, Autocast):
        return copy.deepcopy(network.module).to("cpu", torch.float32).eval()
    return copy.deepcopy(network).to("cpu").eval()


def check_free_for_policy(directory: Path) -> None:
    """Raise where a policy would be written over something else."""
    if directory.is_file():
        raise HyqError(f"{directory} is a file: a policy is written into a directory")
    others = [
        path.name
        for path in (directory.iterdir() if directory.exists() else ())
        # A save that was killed may have left these.
        if path.name not in (WEIGHTS, NEXT) and not path.name.endswith(DRAFT)
    ]
    if others and not (directory / DESCRIPTION).exists():
        raise HyqError(f"{directory} holds something else: choose another directory")


def _unstacked(frame: Array) -> Array:
    """Drop the first axis of a stack of one image, which vectors of games may show."""
    return frame[0] if frame.ndim == 3 and len(frame) == 1 else frame
