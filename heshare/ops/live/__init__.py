"""Comparison of policies on real GPUs with simulations of the same runs."""
