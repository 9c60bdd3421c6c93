"""HeShare: energy-aware sharing of heterogeneous GPUs, from task sets to Pareto fronts."""

from importlib import import_module as _import_module
from typing import Any as _Any

from heshare.shared.numba_cache import set_numba_cache as _set_numba_cache
from heshare.shared.version import __version__

_set_numba_cache()

# Imported when first used, so that `import heshare` is quick. This is the one place where imports wait.
_MODULES = {
    "Cluster": "heshare.world.cluster",
    "Task": "heshare.world.task",
    "read_tasks": "heshare.world.task_file",
    "Workload": "heshare.world.workload",
    "Front": "heshare.scheduling.front",
    "Plan": "heshare.scheduling.plan",
    "Run": "heshare.running.result",
    "HeShareError": "heshare.shared.errors",
    "InputError": "heshare.shared.errors",
    "task_set": "heshare.api",
    "advise": "heshare.lab.advice.advice",
    "Measured": "heshare.lab.advice.measured",
    "estimate": "heshare.device_query",
    "import_jobs": "heshare.devices.job_import",
    "iterations": "heshare.devices.task_sizes",
    "load_predictor": "heshare.prediction.load",
    "plan": "heshare.api",
    "evaluate": "heshare.api",
    "problem": "heshare.api",
    "optimise": "heshare.api",
    "run": "heshare.api",
    "compare": "heshare.api",
    "changes": "heshare.lab.sweeps.paired_changes",
    "policy_names": "heshare.api",
    "provenance": "heshare.paper.provenance.results_folder",
    "explore": "heshare.paper.explore.front_page",
    "gpus": "heshare.lab.listings",
    "models": "heshare.lab.listings",
    "read_plan": "heshare.lab.sweeps.plan_file",
    "write_plan": "heshare.lab.sweeps.plan_file",
}

__all__ = ["__version__", *sorted(_MODULES)]


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'heshare' has no attribute {name!r}; it offers {', '.join(sorted(_MODULES))}")
    return getattr(_import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
