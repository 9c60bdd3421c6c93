"""The nouns: GPUs, clusters, workloads, tasks and traces. Frozen, validated, no behaviour."""
