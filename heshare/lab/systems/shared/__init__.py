"""Modules that several published systems share: trainings, time slices, traces, nodes, placements, queues, metrics."""
