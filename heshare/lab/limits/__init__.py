"""Limits on the power of a cluster, kept by plans, by online policies and by the live executor."""
