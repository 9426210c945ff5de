"""Finite-horizon fitted Q-iteration: Algorithms 1 and 2, their relatives, and function classes."""
