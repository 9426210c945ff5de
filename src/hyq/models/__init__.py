"""Function classes, each with its least-squares oracle. `base` says what a class must offer."""
