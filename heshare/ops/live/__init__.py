"""Policies run on real GPUs beside the same runs simulated."""
