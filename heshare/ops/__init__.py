"""Real GPUs and clusters: NVML, MPS, recording, workers, the executor, Slurm, metrics, live comparisons."""
