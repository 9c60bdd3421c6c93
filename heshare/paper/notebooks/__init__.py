"""Notebooks: their parameters, their execution, and what they use to save outputs."""
