"""A loss of your own: Hy-Q with soft targets, and offline rows that count half.

python examples/own_loss.py [live steps]
"""

import sys

import torch

import hyq
from hyq import losses

STEPS = int(sys.argv[1]) if sys.argv[1:] else 8000
TEMPERATURE = 0.05


def soft_loss(agent, batch):
    """Return the loss and the TD error of each row.

    The loss is averaged over the minibatch; the size of the TD error is the row's priority.
    """
    q_tm1 = losses.chosen(agent.network(batch.observation), batch.action)
    with torch.no_grad():  # a soft maximum in place of the maximum of Q-learning
        q_t = agent.target(batch.next_observation)
        v_t = TEMPERATURE * (q_t / TEMPERATURE).logsumexp(-1)
    # discount is gamma^n, and 0 where the episode terminated
    td_error = batch.reward + batch.discount * v_t - q_tm1
    weight = torch.where(batch.offline, 0.5, 1.0)  # which rows are from the logs
    return weight * agent.robust(td_error), td_error


policy = hyq.train(
    "MountainCar-v0",
    "mountaincar/half",  # a dataset that ships
    STEPS,
    loss=soft_loss,
    pretraining=min(4000, STEPS),
)
for steps, mean_return in policy.training.scores:
    print(f"{steps:6,} live steps: return {mean_return:.1f}")
