"""Deep reinforcement learning agents: one algorithm, one file."""
