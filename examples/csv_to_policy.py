"""From a log in a CSV file to a policy that does better than the log.

python examples/csv_to_policy.py [live steps]
"""

import csv
import sys

import gymnasium as gym

import hyq

STEPS = int(sys.argv[1]) if sys.argv[1:] else 8000
COLUMNS = ["episode", "t", "obs_position", "obs_velocity", "action", "reward"]


def write_log(path: str, episodes: int) -> None:
    """Log MountainCar: a controller that swings up in every second episode, else random play."""
    env = gym.make("MountainCar-v0")
    env.action_space.seed(0)
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*COLUMNS, "terminated", "truncated"])
        for episode in range(episodes):
            observation, _ = env.reset(seed=episode)
            over, t = False, 0
            while not over:
                swing = 2 if observation[1] > 0 else 0
                action = env.action_space.sample() if episode % 2 else swing
                after, reward, terminated, truncated, _ = env.step(action)
                rows.writerow([episode, t, *observation, action, reward, terminated, truncated])
                observation, over, t = after, terminated or truncated, t + 1


write_log("log.csv", episodes=120)  # yours is there already

data = hyq.load("log.csv")
print(data)
policy = hyq.train("MountainCar-v0", data, online_steps=STEPS, pretraining=min(4000, STEPS))
for steps, mean_return in policy.training.scores:
    print(f"{steps:6,} live steps: return {mean_return:.1f}")

policy.save("car-policy")
policy = hyq.Policy.load("car-policy")
env = gym.make("MountainCar-v0")
observation, _ = env.reset(seed=1000)
total, over = 0.0, False
while not over:
    observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
    total, over = total + float(reward), terminated or truncated
print(f"an episode of the saved policy: {total:.0f}")
