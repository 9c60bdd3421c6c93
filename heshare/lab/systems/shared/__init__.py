"""Parts of several published systems: trainings, time slices, traces, nodes, placements, queues, metrics."""
