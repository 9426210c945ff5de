"""The loss of PPO has the gradient that was derived by hand before; goes with `hyq.algos.rnd`."""

import numpy as np
import torch

from hyq.agents.ppo_rnd import ppo_loss
from hyq.algos.rnd import Experience, log_softmax, ppo_improvement


def test_automatic_differentiation_gives_the_gradient_derived_by_hand() -> None:
    rng = np.random.default_rng(0)
    count, actions, clip, entropy_weight = 200, 4, 0.1, 0.3
    outputs = rng.normal(size=(count, actions + 2))
    action = rng.integers(actions, size=count)
    now = log_softmax(outputs[:, :actions])[np.arange(count), action]
    old = now + rng.uniform(-0.3, 0.3, size=count)  # on both sides of either bound
    advantage, returns = rng.normal(size=count), rng.normal(size=(count, 2))
    expected = ppo_improvement(
        outputs, Experience(np.empty(0), action, old, advantage, returns), clip, entropy_weight
    )

    leaf = torch.tensor(outputs, requires_grad=True)
    parts = {"action": action, "log_prob": old, "advantage": advantage, "returns": returns}
    batch = {name: torch.as_tensor(part) for name, part in parts.items()}
    loss, watched = ppo_loss(leaf[:, :actions], leaf[:, actions:], batch, clip, entropy_weight)
    loss.backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), expected.gradient, atol=1e-8)
    np.testing.assert_allclose(watched["entropy"].item(), expected.entropy)
    np.testing.assert_allclose(watched["clip_fraction"].item(), expected.clipped, rtol=1e-6)
    assert 0.3 < expected.clipped < 0.9, "both branches are met"
