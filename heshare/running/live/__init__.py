"""Policies run for real beside the same runs simulated: record the GPUs, measure, simulate, compare."""
