"""Real GPUs: NVML, MPS, worker processes, recording, the executor, remote hosts, live comparisons."""
