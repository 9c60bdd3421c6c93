"""What is expected: Table II's features, the random forest, and Table V's rivals of it (Section III-A)."""
