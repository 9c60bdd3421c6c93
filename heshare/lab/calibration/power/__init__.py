"""Fits of board power to clock sweeps, saturated GPUs, power limits and matrix products."""
