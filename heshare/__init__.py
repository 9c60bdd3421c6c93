"""HeShare: energy-aware sharing of heterogeneous GPUs, from task sets to Pareto fronts."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Imported when first used, so that `import heshare` and `heshare --help` are quick.
_MODULES = {
    "Cluster": "heshare.world.cluster",
    "Task": "heshare.world.task",
    "Workload": "heshare.world.workload",
    "HeShareError": "heshare.errors",
    "InputError": "heshare.errors",
    "task_set": "heshare.api",
    "estimate": "heshare.device_query",
    "load_predictor": "heshare.plus.physics.physics_predictor",
    "plan": "heshare.api",
    "optimise": "heshare.api",
    "run": "heshare.api",
    "compare": "heshare.api",
    "policy_names": "heshare.api",
    "read_plan": "heshare.experiments.plan_file",
    "write_plan": "heshare.experiments.plan_file",
}

__all__ = ["__version__", *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'heshare' has no attribute {name!r}; it offers {', '.join(sorted(_MODULES))}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
