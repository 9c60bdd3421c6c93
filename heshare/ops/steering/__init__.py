"""Seeing and steering a run on real GPUs: events, status, drain and stop, systemd, strays of jobs, foreign use."""
