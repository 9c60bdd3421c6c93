"""NVML: the binding, a GPU behind a deadline in a process of its own, its health and its readings."""
