"""A learned policy to keep: a directory of weights and a description, or an ONNX file."""

import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from hyq.core.errors import HyqError
from hyq.core.files import DRAFT, read_json, write_bytes, write_json
from hyq.core.images import shrink
from hyq.core.types import Array, FloatArray
from hyq.models.networks import InputScaling, Network, NetworkSpec, TorchNetwork

FORMAT = "hyq-policy-2"
DESCRIPTION, WEIGHTS = "policy.json", "weights.safetensors"


def check_free_for_policy(directory: Path) -> None:
    """Refuse to write a policy where there is something else than one."""
    if directory.is_file():
        raise HyqError(f"{directory} is a file: a policy is written into a directory")
    others = [
        path.name
        for path in (directory.iterdir() if directory.exists() else ())
        if path.name != WEIGHTS and not path.name.endswith(DRAFT)  # a save that was killed
    ]
    if others and not (directory / DESCRIPTION).exists():
        raise HyqError(f"{directory} holds something else: choose another directory")


@dataclass(frozen=True)
class DeepPolicy:
    """The greedy policy of a trained network."""

    network: Network
    parameters: Mapping[str, Array] = field(repr=False)
    first_action: int = 0
    """The smallest action of the environment."""
    first_score: int = 0
    """The first of the outputs that the policy maximises, one an action."""
    shrink_by: int = 1
    """Factor by which frames are shrunk before the network sees them."""

    def act(self, observation: Array) -> Any:
        """Return the action for one observation, or an array of them for a batch.

        A network that was trained on stacked frames wants the same stack, oldest frame first: see
        `player`. Frames are given as the environment shows them, and shrunk here.
        """
        actions = self.first_action + self.scores(observation).argmax(-1)
        return actions if actions.ndim else int(actions)

    def player(self) -> "Player":
        """Return what plays episodes of one environment frame by frame."""
        return Player(self)

    def stack_of(self, frame: tuple[int, ...]) -> int:
        """Count the frames of a shape that make one observation."""
        if frame in self._shapes:
            return 1
        frames = [shape[1:] for shape in self._shapes]
        if frame in frames:
            return self._shapes[0][0]
        stacked = f", or frames {frames[0]} to be stacked" if frames[0] else ""
        raise HyqError(
            f"the policy was trained on observations {self._shapes[0]}{stacked}, this environment "
            f"shows {frame}: let it play where it was trained"
        )

    def scores(self, observation: Array) -> FloatArray:
        """Return the score of every action for one observation, or a row of them for each."""
        rows = np.asarray(observation)
        single = rows.shape in self._shapes
        if not single and rows.shape[1:] not in self._shapes:
            raise HyqError(
                f"expected observations of {self._shapes[0]}, or a batch of them, got "
                f"{rows.shape}: where frames are stacked, policy.player() does it"
            )
        if np.issubdtype(rows.dtype, np.floating) and not np.isfinite(rows).all():
            raise HyqError("the observation has NaN or infinite entries: no action is right for it")
        shrunk = shrink(rows[None] if single else rows, self.shrink_by)
        batch = shrunk.reshape(len(shrunk), *self.network.shape)
        module = self._module  # built first: what inference mode makes can never be exported
        with torch.inference_mode():
            outputs = module(torch.from_numpy(np.array(batch, order="C")))
        scores = outputs[:, self.first_score : self.first_score + self.network.actions].numpy()
        return scores[0] if single else scores

    @cached_property
    def _module(self) -> TorchNetwork:
        module = self.network.module()
        module.set_parameters(self.parameters)
        return module

    def save(self, path: Path | str) -> None:
        """Write the policy into a directory, replacing the one that was there."""
        directory = Path(path)
        check_free_for_policy(directory)
        directory.mkdir(parents=True, exist_ok=True)
        network = self.network
        description = {
            "format": FORMAT,
            "shape": list(network.shape),
            "actions": network.actions,
            "extra_outputs": network.extra_outputs,
            "spec": asdict(network.spec),
            "first_action": self.first_action,
            "first_score": self.first_score,
            "shrink_by": self.shrink_by,
        }
        arrays = {f"parameter.{name}": v.copy(order="C") for name, v in self.parameters.items()}
        arrays |= {"shift": network.scaling.shift.copy(), "scale": network.scaling.scale.copy()}
        write_bytes(directory / WEIGHTS, save(arrays))
        write_json(directory / DESCRIPTION, description)

    @classmethod
    def load(cls, path: Path | str) -> "DeepPolicy":
        """Read what `save` wrote."""
        directory = Path(path)
        if not (directory / DESCRIPTION).exists():
            kept = [
                directory / n for n in ("best", "last") if (directory / n / DESCRIPTION).exists()
            ]
            if kept:
                raise HyqError(
                    f"{directory} is a run, not a policy: load {' or '.join(map(str, kept))}"
                )
        about = read_json(directory / DESCRIPTION)
        if about.get("format") != FORMAT:
            raise HyqError(f"{directory} holds no policy that can be read here")
        try:
            arrays = load((directory / WEIGHTS).read_bytes())
        except (FileNotFoundError, SafetensorError):
            raise HyqError(f"the weights of {directory} are missing or damaged") from None
        spec = dict(about["spec"])
        spec["convolutions"] = tuple(tuple(layer) for layer in spec["convolutions"])
        spec["hidden"] = tuple(spec["hidden"])
        network = Network(
            tuple(about["shape"]),
            about["actions"],
            NetworkSpec(**spec),
            InputScaling(arrays["shift"], arrays["scale"]),
            about["extra_outputs"],
        )
        begin = "parameter."
        parameters = {n.removeprefix(begin): a for n, a in arrays.items() if n.startswith(begin)}
        rest = {name: about[name] for name in ("first_action", "first_score", "shrink_by")}
        return cls(network, parameters, **rest)

    def export_onnx(self, path: Path | str) -> None:
        """Write the policy as ONNX: from a batch of `observation` to its `scores` and `action`.

        The graph does what `act` does. It takes float32 observations of the environment, pixels
        from 0 to 255, and shrinks them itself; its actions count from `first_action`.
        """
        if importlib.util.find_spec("onnxscript") is None:
            raise HyqError("export_onnx needs ONNX: install it with pip install 'hyq[onnx]'")
        example = torch.zeros((2, *self._shapes[0]))
        with warnings.catch_warnings():
            # The exporter calls deprecated parts of PyTorch itself.
            warnings.simplefilter("ignore", FutureWarning)
            program = torch.onnx.export(
                _Graph(self, self._module).eval(),
                (example,),
                input_names=["observation"],
                output_names=["scores", "action"],
                dynamic_shapes={"observation": {0: torch.export.Dim("rows")}},
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        write_bytes(Path(path), program.model_proto.SerializeToString())

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes that an observation may have before it is shrunk."""
        sides = list(self.network.shape)
        if self.shrink_by > 1:
            for axis in self.network.sides:
                sides[axis] *= self.shrink_by
        shape = tuple(sides)
        # Lanes of pictures may show stacks of one, which are stacked again.
        return (shape, (shape[0], *shape[2:])) if len(shape) == 4 and shape[1] == 1 else (shape,)


class Player:
    """A policy in one environment: it keeps the newest frames and stacks them as in training."""

    def __init__(self, policy: DeepPolicy) -> None:
        """Wait for the first frame of an episode."""
        self._policy = policy
        self._frames: list[Array] = []

    def reset(self) -> None:
        """Begin an episode: forget the frames of the one before."""
        self._frames = []

    def act(self, frame: Array) -> int:
        """Take in the newest frame, and return the action."""
        action: int = self._policy.act(self.see(frame))
        return action

    def see(self, frame: Array) -> Array:
        """Take in the newest frame, and return the observation: an episode's first is repeated."""
        frame = np.array(frame)  # a copy: environments may show all frames in one array
        stack = self._policy.stack_of(frame.shape)
        if stack == 1:
            return frame
        self._frames = [*(self._frames or [frame] * stack)[1:], frame]
        return np.stack(self._frames)


class _Graph(torch.nn.Module):
    """A policy from observations of the environment to actions, for other programs."""

    def __init__(self, policy: DeepPolicy, module: TorchNetwork) -> None:
        """Take the policy and its network."""
        super().__init__()
        self.policy, self.module = policy, module

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of every action, and the best action."""
        policy = self.policy
        first, last = policy.first_score, policy.first_score + policy.network.actions
        scores = self.module(self._shrunk(observation))[:, first:last]
        return scores, policy.first_action + scores.argmax(-1)

    def _shrunk(self, images: torch.Tensor) -> torch.Tensor:
        """Do what `core.images.shrink` does; the sums are small enough to be exact."""
        factor = self.policy.shrink_by
        if factor == 1:
            return images
        height, width = self.policy.network.sides
        blocks = images.unflatten(width, (-1, factor))  # type: ignore[no-untyped-call]
        blocks = blocks.unflatten(height - 1, (-1, factor))
        total = blocks.sum((height - 1, width))
        area = factor * factor
        return ((total + area // 2) / area).floor()
