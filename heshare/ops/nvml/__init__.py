"""NVML: the binding, calls with a deadline in a separate process, and readings, energy and health of GPUs."""
