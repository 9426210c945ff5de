"""Offline first, then online: train from logs, estimate, go live with the weights, keep going.

python examples/offline_then_online.py [live steps]
"""

import sys

import hyq

STEPS = int(sys.argv[1]) if sys.argv[1:] else 8000
DATA = "mountaincar/half"  # or your files: "logs/*.csv"

# 1. Without an environment: learn from 80 % of the episodes, estimate from the other 20 %.
offline = hyq.train(
    None,
    DATA,
    algorithm="offline-dqn",
    updates=min(10_000, STEPS),
    out="runs/offline",
)
print(offline.training.summary["estimate"])

# 2. Live, beginning with those weights. What is collected is kept as a dataset.
live = hyq.train(
    "MountainCar-v0",
    DATA,
    STEPS,
    start_from="runs/offline",
    pretraining=0,
    save_experience=True,
    keep_checkpoint=True,
    out="runs/live",
)
for steps, mean_return in live.training.scores:
    print(f"{steps:6,} live steps: return {mean_return:.1f}")

# 3. Next week: logs and last week's experience are data for another run.
experience = hyq.load("runs/live/experience")
print(experience)
