"""NVML: the binding, a device over it, clock locks, and what a machine can do."""
