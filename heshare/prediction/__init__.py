"""Prediction: the features of Table II, the random forest, and the comparison of Table V (Section III-A)."""
