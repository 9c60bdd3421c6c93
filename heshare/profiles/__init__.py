"""What was measured: one schema for a row, one store, one recorder over any device."""
