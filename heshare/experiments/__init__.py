"""Sweeps, claims, figures, notebooks and studies."""
