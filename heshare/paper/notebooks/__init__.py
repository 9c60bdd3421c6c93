"""Notebooks: their parameters, their execution, and the saving of their outputs."""
