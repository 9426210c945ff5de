"""Networks trained by gradient steps: one for every step of an episode, or one for all steps."""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from hyq.core.seeding import torch_seed
from hyq.core.trees import flatten, subtree
from hyq.core.types import Array
from hyq.ensembles import Ensemble
from hyq.fqi.mlp import MLPFunction, member_functions


class StepNetworks(nn.Module):
    """An ensemble with one member for each step (or for all), its target network and Adam."""

    def __init__(
        self,
        members: int,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        learning_rate: float,
        seed: int,
    ) -> None:
        """Draw the parameters from a seed; the target network starts equal."""
        super().__init__()
        with torch_seed(seed):
            self.online = Ensemble(members, inputs, hidden, outputs)
        self.target = deepcopy(self.online).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), learning_rate, fused=True)

    def descend(self, loss: Tensor, tau: float = 0.0) -> None:
        """Take one step down the gradient; then move the target network by the share `tau`."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if not tau:
            return
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.online.parameters(), strict=True):
                old.lerp_(new, tau)

    def functions(self, horizon: int) -> tuple[MLPFunction, ...]:
        """Return f_0, ..., f_{H-1} as they are now; a single member serves every step."""
        return member_functions(self.online) * (horizon // self.online.members)

    def arrays(self, **counts: int) -> dict[str, Array]:
        """Copy networks and optimiser, with the counts of a run, as named arrays."""
        moments = flatten(self.optimizer.state_dict()["state"], "optimizer.")
        arrays = {name: t.numpy().copy() for name, t in (self.state_dict() | moments).items()}
        return arrays | {name: np.array(count) for name, count in counts.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Load what `arrays` copied."""
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        self.load_state_dict({name: tensors[name] for name in self.state_dict()})
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in subtree("optimizer", tensors).items():
            index, _, part = name.partition(".")
            moments.setdefault(int(index), {})[part] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def at_next_step(network: Ensemble, next_observation: Tensor) -> Tensor:
    """Evaluate what step h led to by member h + 1; a single member evaluates its own.

    What comes after the last step wraps around to the first member: the caller masks it.
    """
    return network(next_observation.roll(1, 0)).roll(-1, 0)


def as_tensor(array: Array) -> Tensor:
    """Convert an array: floats to single precision, integers to indices."""
    kind = torch.float32 if np.issubdtype(array.dtype, np.floating) else torch.int64
    return torch.as_tensor(array).to(kind)
