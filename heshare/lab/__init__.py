"""Comparing and improving: HeShare+, published systems, calibration, limits and prices, sweeps."""
