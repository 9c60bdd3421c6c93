"""HeShare: energy-aware sharing of heterogeneous GPUs, from task sets to Pareto fronts."""

__version__ = "0.1.0"
