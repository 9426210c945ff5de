"""How fast the tasks of robot arms and mazes are, and how often their scripted controllers succeed.

    python benchmarks/control.py [--episodes 100] [--problems fetch-push ...]

Prints a Markdown table. The controllers act with the noise that they have in the datasets. Steps a
second of processor time are those of random play, resets included.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

import tyro

from hyq.core.seeding import Streams
from hyq.data.dataset import Episode
from hyq.envs.make import env_factory
from hyq.experts.scripted import PROBLEMS, noisy, play, uniform

CONTROL = tuple(name for name, problem in PROBLEMS.items() if problem.noise)


def main(episodes: int = 100, problems: tuple[str, ...] = CONTROL) -> None:
    print("| problem | environment | time limit | steps/s | controller succeeds | in steps, mean |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in problems:
        problem, streams = PROBLEMS[name], Streams(0).below("control", name)
        env = env_factory(problem.env)()
        played: dict[str, list[Episode]] = {}
        for kind, behaviour in (
            ("expert", noisy(problem.expert, problem.noise)),
            ("random", uniform),
        ):
            rng, started = streams.generator(kind), time.process_time()
            seeds = (streams.integer(kind, number) for number in range(episodes))
            played[kind] = [play(env, behaviour, seed, rng) for seed in seeds]
            seconds = time.process_time() - started
        rate = sum(len(one.action) for one in played["random"]) / seconds
        solved = [len(one.action) for one in played["expert"] if one.terminated]
        lucky = sum(one.terminated for one in played["random"]) / episodes
        assert env.spec is not None
        print(
            f"| `{name}` | `{problem.env}` | {env.spec.max_episode_steps} | {rate:,.0f} "
            f"| {len(solved) / episodes:.0%} (random play {lucky:.0%}) "
            f"| {sum(solved) / max(1, len(solved)):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    tyro.cli(main)
