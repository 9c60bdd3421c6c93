"""Slurm: held jobs are planned, given a GPU, an MPS share and an order, and released (docs/slurm.md)."""
