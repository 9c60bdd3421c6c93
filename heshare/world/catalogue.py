"""The GPUs of `data/gpus.csv` and the models of `data/workloads.csv`, by name.

Both files are long: one value a row, with its unit, its source and how sure it is.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from heshare import files
from heshare.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Model, Resident, Workload, parse_resident

_GPU_TEXT = ("title", "architecture")
_GPU_WHOLE = ("sm_count", "cuda_cores", "mps_clients")
_MODEL_TEXT = ("title", "description", "load")


def _facts(path: Path, key: str) -> dict[str, dict[str, str]]:
    """{name: {field: value}} of a long table; rows of one name need not be together."""
    table: dict[str, dict[str, str]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            table.setdefault(row[key], {})[row["field"]] = row["value"]
    return table


def _clocks(text: str) -> tuple[int, ...]:
    """Clocks from `300:1590:15` (first, last, step) or from a list with spaces, MHz."""
    if ":" in text:
        first, last, step = (int(part) for part in text.split(":"))
        return tuple(range(first, last + 1, step))
    return tuple(int(part) for part in text.split())


@cache
def gpus() -> dict[str, Gpu]:
    """Every GPU of `data/gpus.csv` by name, in the file's order."""
    known: dict[str, Gpu] = {}
    for name, fact in _facts(files.data("gpus.csv"), "gpu").items():
        kept = {field: fact[field] for field in Gpu.__dataclass_fields__ if field in fact}
        known[name] = Gpu(
            name=name,
            clocks_mhz=_clocks(kept.pop("clocks_mhz")),
            **{field: value for field, value in kept.items() if field in _GPU_TEXT},
            **{field: int(value) for field, value in kept.items() if field in _GPU_WHOLE},
            **{field: float(value) for field, value in kept.items() if field not in _GPU_TEXT + _GPU_WHOLE},
        )
    return known


@cache
def models() -> dict[str, Model]:
    """Every model of `data/workloads.csv` (Table IV) by name, in the file's order."""
    known: dict[str, Model] = {}
    for name, fact in _facts(files.data("workloads.csv"), "workload").items():
        kept = {field: fact[field] for field in Model.__dataclass_fields__ if field in fact}
        known[name] = Model(
            name=name,
            layers=int(kept.pop("layers")),
            **{field: value for field, value in kept.items() if field in _MODEL_TEXT},
            **{field: float(value) for field, value in kept.items() if field not in _MODEL_TEXT},
        )
    return known


def gpu(name: str) -> Gpu:
    """The GPU of that name, whatever its case.

    Raises:
        InputError: no such GPU; the message lists the known ones.
    """
    for known, card in gpus().items():
        if known.lower() == name.lower():
            return card
    raise InputError(
        column="gpu",
        found=repr(name),
        expected="one of " + ", ".join(gpus()),
        action="Choose one, or describe the GPU in data/gpus.csv.",
    )


def model(name: str) -> Model:
    """The model of that name.

    Raises:
        InputError: no such workload; the message lists the known ones.
    """
    try:
        return models()[name]
    except KeyError:
        raise InputError(
            column="workload",
            found=repr(name),
            expected="one of " + ", ".join(models()),
            action="Choose one, or describe the workload in data/workloads.csv.",
        ) from None


def resident(text: str, /, *, precision: str = "fp32", engine: str = "eager") -> Resident:
    """Read `resnet50:16@50` and check that the model is in the catalogue.

    Raises:
        InputError: another form, or an unknown model.
    """
    parsed = parse_resident(text, precision=precision, engine=engine)
    model(parsed.workload.model)
    return parsed


def memory_mib(workload: Workload) -> float:
    """Device memory that a process serving this workload needs, MiB."""
    known = model(workload.model)
    return known.memory_fixed_mib + known.memory_per_sample_mib * workload.batch_size
