"""Plan files: a plan with its tasks and cluster as JSON; `heshare plan --out` writes and `heshare run --plan` runs it.

The file is one object: `format` (`heshare plan 1`); `cluster`, a list of GPU names (or all attributes of a GPU that
is not in the catalogue); `energy_j` and `jct_s`, as predicted; `tasks`, each with the fields of `Task` that are not the
defaults; `queues`, for each GPU the list of its batches in order, each with `tasks` (ids), `mps_pct` and `sm_mhz`
(null: the GPU's default clock).
"""

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from heshare.scheduling.plan import Batch, Plan
from heshare.shared import display, files
from heshare.shared.errors import InputError, require
from heshare.world import catalogue
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

FORMAT: Literal["heshare plan 1"] = "heshare plan 1"


class _PlanFile(msgspec.Struct):
    format: Literal["heshare plan 1"]
    cluster: list[str | Gpu]
    energy_j: Annotated[float, msgspec.Meta(ge=0.0)]
    jct_s: Annotated[float, msgspec.Meta(ge=0.0)]
    tasks: tuple[Task, ...]
    queues: tuple[tuple[Batch, ...], ...]


def write_plan(path: str | Path, plan: Plan) -> Path:
    """Write a plan, from which `read_plan` reads an equal one.

    Example:
        >>> import tempfile
        >>> import heshare as hs
        >>> plan = hs.plan(4, "1xT4,1xA100").trade_off
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hs.read_plan(hs.write_plan(f"{folder}/plan.json", plan)) == plan
        True
    """
    require("plan", display.found(plan), isinstance(plan, Plan), "a Plan", "Pass one, such as front.trade_off.")
    values = {
        "format": FORMAT,
        "cluster": _cluster_to_json(plan.cluster),
        "energy_j": float(plan.energy_j),
        "jct_s": float(plan.jct_s),
        "tasks": [_task_to_json(task) for task in plan.tasks],
        "queues": plan.queues,
    }
    content = msgspec.json.encode(values, enc_hook=_plain_number)
    return files.write_text(path, msgspec.json.format(content, indent=1).decode() + "\n")


def read_plan(path: str | Path) -> Plan:
    """Return the plan of a file.

    Raises:
        InputError: no such file, no plan file of this format, or a plan that no GPU could run.

    Example:
        >>> import tempfile
        >>> import heshare as hs
        >>> plan = hs.plan(4, "1xT4,1xA100").jct_opt
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hs.read_plan(hs.write_plan(f"{folder}/plan.json", plan)).jct_s == plan.jct_s
        True
    """
    action = "Write it with `heshare plan --out DIR` or hs.write_plan."
    path = files.as_path(path)
    try:
        read = msgspec.json.decode(files.read_input(path), type=_PlanFile)
        return Plan(_cluster_from_json(read.cluster), read.tasks, read.queues, read.energy_j, read.jct_s)
    except InputError as error:
        raise InputError(error.found, error.expected, error.action, file=path, column=error.column) from None
    except OSError as error:
        raise InputError(str(error.strerror or error), "a plan file", action, file=path) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        found = f"no plan ({error})"
        raise InputError(found, f"a plan file, of the format {FORMAT!r}", action, file=path) from None


def _cluster_to_json(cluster: Cluster) -> list[Any]:
    """Return a cluster's GPUs: by name, or with all attributes where they differ from the catalogue's."""
    known = catalogue.gpus()
    return [gpu.name if known.get(gpu.name) == gpu else asdict(gpu) for gpu in cluster.gpus]


def _cluster_from_json(values: Sequence[str | Gpu]) -> Cluster:
    return Cluster(tuple([catalogue.gpu(each) if isinstance(each, str) else each for each in values]))


def _task_to_json(task: Task) -> dict[str, Any]:
    """Return a task's attributes that are not the defaults: JSON has no infinite deadline."""
    sizes = {"iterations": float(task.iterations), "arrival_s": float(task.arrival_s)}
    return {**_not_default(task), **sizes, "workload": _not_default(task.workload)}


def _not_default(value: Task | Workload) -> dict[str, Any]:
    values = {each.name: getattr(value, each.name) for each in fields(value)}
    return {each.name: values[each.name] for each in fields(value) if values[each.name] != each.default}


def _plain_number(value: Any) -> Any:
    # JSON does not support NumPy numbers.
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__}, which is neither a number nor text")
