"""What compares and improves: advice, calibration, power limits, HeShare+ and bounds, published systems, sweeps."""
