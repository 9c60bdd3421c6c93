"""Plan files: a plan with its tasks and cluster as JSON; `heshare plan --out` writes and `heshare run --plan` runs it.

The file is one object: `format` (`heshare plan 1`); `cluster`, a list of GPU names (a GPU that is not the catalogue's
has all its attributes); `energy_j` and `jct_s`, as predicted; `tasks`, each with the fields of `Task` that are not the
defaults; `queues`, for each GPU the list of its batches in order, each with `tasks` (ids), `mps_pct` and `sm_mhz`
(null: the GPU's default clock).
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from heshare.lab.sweeps import resolve
from heshare.scheduling.plan import Batch, Plan
from heshare.shared import files
from heshare.shared.errors import InputError

FORMAT = "heshare plan 1"


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
    values = {
        "format": FORMAT,
        "cluster": resolve.cluster_to_json(plan.cluster),
        "energy_j": float(plan.energy_j),
        "jct_s": float(plan.jct_s),
        "tasks": [resolve.task_to_json(task) for task in plan.tasks],
        "queues": [[asdict(batch) for batch in queue] for queue in plan.queues],
    }
    return files.write_text(path, json.dumps(values, indent=1, default=_number) + "\n")


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
    try:
        values = json.loads(files.read_input(path))
        if values["format"] != FORMAT:
            raise ValueError(f"the format {values['format']!r}")
        queues = tuple([tuple([_batch(batch) for batch in queue]) for queue in values["queues"]])
        tasks = tuple([resolve.task_from_json(task) for task in values["tasks"]])
        cluster = resolve.cluster_from_json(values["cluster"])
        return Plan(cluster, tasks, queues, _finite(values["energy_j"]), _finite(values["jct_s"]))
    except InputError as error:
        raise InputError(error.found, error.expected, error.action, file=path, column=error.column) from None
    except OSError as error:
        raise InputError(str(error.strerror or error), "a plan file", action, file=path) from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        found = f"no plan ({type(error).__name__}: {error})"
        raise InputError(found, f"a plan file, of the format {FORMAT!r}", action, file=path) from None


def _batch(values: dict[str, Any]) -> Batch:
    return Batch(tuple(values["tasks"]), tuple(values["mps_pct"]), values["sm_mhz"])


def _finite(value: Any) -> float:
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{value} as predicted energy or JCT")
    return number


def _number(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a {type(value).__name__} in a plan")
