"""Plots, panels and their style."""
