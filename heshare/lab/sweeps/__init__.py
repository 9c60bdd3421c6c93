"""Grids of runs: cells, engines, and the store of finished cells."""
