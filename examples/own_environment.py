"""An environment of your own: a tank that should stay half full, logs of an operator, a policy.

python examples/own_environment.py [live steps]
"""

import sys

import gymnasium as gym
import numpy as np

import hyq

STEPS = int(sys.argv[1]) if sys.argv[1:] else 4000


class Tank(gym.Env):
    """Water flows in by chance; opening the drain lets some of it out."""

    observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)  # level, and the last inflow
    action_space = gym.spaces.Discrete(3)  # drain shut, half open, open

    def reset(self, *, seed=None, options=None):
        """Start anywhere."""
        super().reset(seed=seed)  # every random number comes from self.np_random
        self.level, self.inflow = self.np_random.uniform(0.2, 0.8), 0.05
        return self.seen(), {}

    def step(self, action):
        """End where the tank runs dry or over; otherwise pay for being near the middle."""
        self.inflow = float(np.clip(self.inflow + self.np_random.normal(0, 0.02), 0, 0.1))
        self.level += self.inflow - 0.05 * action
        over = not 0.0 <= self.level <= 1.0  # terminated; the time limit below truncates
        return self.seen(), 1.0 - 2 * abs(self.level - 0.5), over, False, {}

    def seen(self):
        """Return what the agent sees."""
        return np.array([self.level, self.inflow], np.float32).clip(0.0, 1.0)


gym.register("Tank-v0", Tank, max_episode_steps=100)
env, rng = gym.make("Tank-v0"), np.random.default_rng(0)
episodes = []
for number in range(50):  # the operator looks at the level alone, and now and then elsewhere
    observations, actions, rewards = [env.reset(seed=number)[0]], [], []
    over = False
    while not over:
        by_level = 2 * int(observations[-1][0] > 0.5)
        actions.append(by_level if rng.random() < 0.7 else int(rng.integers(3)))
        after, reward, terminated, truncated, _ = env.step(actions[-1])
        observations.append(after)
        rewards.append(reward)
        over = terminated or truncated
    columns = np.stack(observations), np.array(actions), np.array(rewards)
    episodes.append(hyq.Episode(*columns, terminated=terminated))

data = hyq.Dataset.of(episodes, {"behaviour": "operator"})
print(f"the operator's mean return: {np.mean([e.reward.sum() for e in episodes]):.1f}")
policy = hyq.train("Tank-v0", data, online_steps=STEPS, pretraining=min(2000, STEPS))
print(f"the policy's: {policy.about['return']:.1f}")
