"""Operations on real GPUs: NVML, MPS, clocks, recording, worker processes, the executor, live comparisons."""
