"""GPUs, clusters, workloads, tasks, task sets and job traces: validated data, most of it immutable."""
