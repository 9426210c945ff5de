"""A robot arm with continuous actions: from a log to a policy, and to a graph that runs elsewhere.

pip install 'hyq[metaworld,onnx]'
python examples/robot_arm.py [live steps]
"""

import sys

import gymnasium as gym
import numpy as np

import hyq
from hyq.experts.scripted import scripted_dataset

STEPS = int(sys.argv[1]) if sys.argv[1:] else 3000
ENV = "hyq/MetaWorldDrawerOpen-v0"  # -1 a step until the drawer is open

# A log of yours would be hyq.load("logs/*.parquet"). This one is made on the spot: half of it by a
# controller with noise, half by random motion.
log = scripted_dataset("metaworld-drawer-open", 0.5, seed=0, transitions=min(20_000, 20 * STEPS))
print(log)

# Actions are a Box, so that this is Hy-SAC. The preset is for sparse tasks on two cores.
quick = {"pretraining": 20, "evaluation_episodes": 1, "hidden": (32, 32)} if STEPS < 500 else {}
policy = hyq.train(ENV, log, STEPS, preset="cpu", **quick)
for steps, mean_return in policy.training.scores:
    print(f"{steps:6,} live steps: return {mean_return:.1f}")

arm = gym.make(ENV)
observation, _ = arm.reset(seed=0)
steps, over = 0, False
while not over:
    observation, _, terminated, truncated, info = arm.step(policy.act(observation))
    steps, over = steps + 1, terminated or truncated
print(f"opened after {steps} steps" if info["success"] else f"not open after {steps} steps")

policy.export_onnx("arm.onnx")  # needs neither hyq nor PyTorch where it runs

import onnxruntime

session = onnxruntime.InferenceSession("arm.onnx")
(action,) = session.run(None, {"observation": observation[None]})
assert np.allclose(action[0], policy.act(observation), atol=1e-4)
