"""Comparing and improving: HeShare+, published systems, calibration, a power limit, energy of tenants, sweeps."""
