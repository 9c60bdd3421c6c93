"""Limits on the power of a cluster, and prices of energy: terms of a run, kept by wrapping its policy."""
