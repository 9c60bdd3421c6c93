"""The GPUs of `data/gpus.csv` and the models of `data/workloads.csv`, by name.

Both files are long: one value a row, with its unit, its source and how sure it is.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from heshare import files
from heshare.errors import InputError
from heshare.world import training
from heshare.world.gpu import Gpu
from heshare.world.table import Header, Row, RowError, read_rows
from heshare.world.workload import Model, Resident, Workload, parse_resident

# What a field is: text, a whole number, or else a number in this unit.
_TEXT, _WHOLE = "text", "whole"
_GPU_FIELDS = {
    "title": _TEXT,
    "architecture": _TEXT,
    "sm_count": _WHOLE,
    "cuda_cores": _WHOLE,
    "memory_mib": "MiB",
    "mem_bw_gbs": "GB/s",
    "l2_mib": "MiB",
    "fp32_tflops": "TFLOP/s",
    "tdp_w": "W",
    "idle_w": "W",
    "clocks_mhz": "MHz",
    "mps_clients": _WHOLE,
}
_MODEL_FIELDS = {
    "title": _TEXT,
    "description": _TEXT,
    "load": _TEXT,
    "layers": _WHOLE,
    "gflops": "GFLOP/sample",
    "params_m": "1e6",
    "activations_m": "1e6/sample",
    "memory_fixed_mib": "MiB",
    "memory_per_sample_mib": "MiB/sample",
}
_CLOCKS = re.compile(r"^(\d+:\d+:[1-9]\d*|\d+( \d+)*)$")


def read_facts(path: str | Path, key: str, fields: dict[str, str]) -> dict[str, dict[str, Any]]:
    """{name: {field: value}} of a long table; rows of one name need not be together.

    Args:
        path: a CSV file with the columns `key`, `field`, `value`, `unit` (and others, which are not read).
        key: the column of names.
        fields: what each field is: `text`, `whole`, or the unit of a number. Rows of other fields are passed over.

    Raises:
        InputError: a missing column, an empty or doubled value, a wrong unit, something that is not a number, or a
            name without one of the fields.
    """
    table: dict[str, dict[str, Any]] = {}
    for row in read_rows(path):
        if isinstance(row, RowError):
            raise row
        if isinstance(row, Header):
            row.need((key, "field", "value", "unit"))
            continue
        facts = table.setdefault(row.text(key), {})
        field = row.text("field")
        if field in facts:
            raise row.bad("field", "doubled", f"each field once for {row.cells[key]}", "Remove one of the rows.")
        if field in fields:
            facts[field] = _value(row, field, fields[field])
    for name, facts in table.items():
        missing = [field for field in fields if field not in facts]
        if missing:
            raise InputError(
                file=path,
                column="field",
                found=f"{name} without {', '.join(missing)}",
                expected="a row for each of " + ", ".join(fields),
                action="Add the rows, with unit and source.",
            )
    return table


def _value(row: Row, field: str, kind: str) -> Any:
    if kind == _TEXT:
        return row.text("value")
    if kind == _WHOLE:
        return row.whole("value", least=1)
    if row.cells["unit"] != kind:
        raise row.bad("unit", "wrong unit", kind, f"Convert the value to {kind}.")
    if field == "clocks_mhz":
        return _clocks(row)
    return row.number_of("value")


def _clocks(row: Row) -> tuple[int, ...]:
    """Clocks from `300:1590:15` (first, last, step) or from a list with spaces, MHz."""
    text = row.text("value")
    if not _CLOCKS.match(text):
        raise row.bad("value", "no clocks", "clocks such as 300:1590:15 or 300 315 330", "Correct the grid.")
    if ":" in text:
        first, last, step = (int(part) for part in text.split(":"))
        return tuple(range(first, last + 1, step))
    return tuple(int(part) for part in text.split())


@cache
def gpus() -> dict[str, Gpu]:
    """Every GPU of `data/gpus.csv` by name, in the file's order."""
    facts = read_facts(files.data("gpus.csv"), "gpu", _GPU_FIELDS)
    return {name: Gpu(name=name, **fact) for name, fact in facts.items()}


@cache
def models() -> dict[str, Model]:
    """Every model of `data/workloads.csv` (Table IV) by name, in the file's order."""
    facts = read_facts(files.data("workloads.csv"), "workload", _MODEL_FIELDS)
    return {name: Model(name=name, **fact) for name, fact in facts.items()}


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
    memory_mib(parsed.workload)
    return parsed


@cache
def memory_mib(workload: Workload) -> float:
    """Device memory that a process running this workload needs, MiB.

    Raises:
        InputError: no such workload.
    """
    if workload.phase == "training":
        return training.step(workload).memory_mib
    known = model(workload.model)
    return known.memory_fixed_mib + known.memory_per_sample_mib * workload.batch_size
