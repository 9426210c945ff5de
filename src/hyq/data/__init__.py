"""Offline datasets, the online store, and the mix of the two."""
