"""Grids of runs: cells, engines, and the cache of finished cells."""
