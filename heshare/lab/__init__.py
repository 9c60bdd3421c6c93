"""Comparing and improving: HeShare+, published systems, calibration, limits and prices, energy of tenants, sweeps."""
