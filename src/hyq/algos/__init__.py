"""One algorithm, one file: configuration on top, the loop at the bottom."""
