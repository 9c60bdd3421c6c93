"""Morak (Liu et al., MASS 2023)."""
