"""hyq: hybrid reinforcement learning, one policy from logged data and live interaction together."""
