"""Experiments as data: frozen specs, append-only records, runs that can be killed and resumed."""
