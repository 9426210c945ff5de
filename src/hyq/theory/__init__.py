"""The theory of the paper as numbers: coefficients, bounds and assumptions, computed exactly."""
