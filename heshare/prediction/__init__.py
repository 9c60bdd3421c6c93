"""Prediction: Table II's features, the random forest, and Table V's comparison with other techniques (Section III-A)."""
