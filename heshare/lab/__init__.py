"""Advice, calibration, power limits, HeShare+ and bounds, published systems, sweeps."""
