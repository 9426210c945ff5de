"""Behaviour policies that make offline data."""
