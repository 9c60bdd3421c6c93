"""Simulator of runs of command jobs: the real executor and its helpers on a machine in memory, under faults."""
