"""Training workloads: what public records say of one step of each, and how training scales over several GPUs.

A training workload is written `eaco_resnet50-train:32`: the part before `_` names the record, since one network is
trained with other data, hosts and loaders in each of them. `data/training/` holds the figures with their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heshare import files
from heshare.errors import InputError
from heshare.world.table import Header, Row, RowError, read_rows
from heshare.world.task import Task
from heshare.world.workload import Workload

NODE_GPUS = 8
"""GPUs of one node in `efficiency`; assumed."""
NODE_GB_S, NETWORK_GB_S = 10.0, 5.0
"""Bandwidth of an all-reduce within a node and between nodes, GB/s; assumed."""
HIDDEN = 0.5
"""Part of an all-reduce that runs behind the backward pass; assumed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a training workload, alone on the GPU of its record.

    Attributes:
        workload: the workload.
        gpu: the name of the GPU on which it was recorded.
        step_s: time of a step, s.
        busy: part of that time in which the GPU works, 0 to 1.
        dynamic_w: power above the idle GPU's, W.
        memory_mib: device memory, MiB.
        like: the network of Table IV whose times say how it differs on other GPUs; assumed.
        params_m: parameters, millions.
        epoch_samples: samples of one epoch.
        measured: whether `step_s` was measured, not derived.
    """

    workload: Workload
    gpu: str
    step_s: float
    busy: float
    dynamic_w: float
    memory_mib: float
    like: str
    params_m: float
    epoch_samples: int
    measured: bool


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """Training workloads that were measured together, time-sliced on the same GPUs of one node.

    Attributes:
        workloads: what ran; one is a measurement alone.
        gpus: GPUs of the node.
        node_w: mean power of the node, W.
        energy_kwh: energy of the node, kWh.
        runtime_h: until all of them completed, h.
    """

    workloads: tuple[Workload, ...]
    gpus: int
    node_w: float
    energy_kwh: float
    runtime_h: float


@dataclass(frozen=True, slots=True)
class Limited:
    """A training that was measured under a power limit.

    Attributes:
        model: its name in the record.
        like: the network of Table IV that it is like.
        limit_w: the limit, W.
        slowdown: its time over the mean of those at the two highest limits.
        free_w: its power at those, the higher one, W.
    """

    model: str
    like: str
    limit_w: float
    slowdown: float
    free_w: float


@cache
def steps() -> Mapping[tuple[str, int], Step]:
    """Every recorded step by (model, samples per step on one GPU), in the file's order."""
    known = {row.text("model"): row for row in _rows("models.csv", ("model", "like", "params_m", "epoch_samples"))}
    found = {}
    for row in _rows("steps.csv", ("model", "batch_size", "gpu", "step_s", "busy", "dynamic_w", "memory_mib")):
        one = _step(row, known[row.text("model")])
        found[one.workload.model, one.workload.batch_size] = one
    return found


def workloads(record: str = "", gpu: str | None = None) -> tuple[Workload, ...]:
    """The training workloads of a record (`eaco`, `gavel` or `miso`; all of them by default).

    Args:
        record: whose measurements.
        gpu: only those recorded on the GPU of that name.
    """
    return tuple(
        one.workload for one in steps().values() if one.workload.model.startswith(record) and gpu in (None, one.gpu)
    )


def step(workload: Workload) -> Step:
    """The recorded step of a training workload.

    Raises:
        InputError: no record of this model, or none with this batch size.
    """
    try:
        return steps()[workload.model, workload.batch_size]
    except KeyError:
        sizes = [size for model, size in steps() if model == workload.model]
        models = dict.fromkeys(model for model, _ in steps())
        raise InputError(
            column="workload",
            found=str(workload),
            expected=f"one of its batch sizes {sizes}" if sizes else "one of " + ", ".join(models),
            action="Choose a recorded training workload, or add it to data/training.",
        ) from None


def epochs(workload: Workload, iterations: float, gpus: int = 1) -> int:
    """How many epochs so many steps on `gpus` GPUs are, rounded, at least one.

    Raises:
        InputError: an unknown training workload.
    """
    return max(1, round(iterations * workload.batch_size * gpus / step(workload).epoch_samples))


def efficiency(
    workload: Workload,
    gpus: int,
    *,
    node_gpus: int = NODE_GPUS,
    node_gb_s: float = NODE_GB_S,
    network_gb_s: float = NETWORK_GB_S,
    hidden: float = HIDDEN,
) -> float:
    """Throughput per GPU of data-parallel training on `gpus` GPUs over that on one, in (0, 1]; an assumed model.

    After each step FP32 gradients are added up over a ring, `2 (n - 1) / n` times their size over the slowest link; a
    part of it hides behind the backward pass. Other tasks than training exchange nothing: 1.

    Args:
        workload: what runs.
        gpus: on how many GPUs, at least 1.
        node_gpus: GPUs that exchange at `node_gb_s`; assumed.
        node_gb_s: bandwidth within a node, GB/s; assumed.
        network_gb_s: bandwidth between nodes, GB/s; assumed.
        hidden: part of the exchange that takes no time; assumed.

    Raises:
        InputError: an unknown training workload.
    """
    if gpus == 1 or workload.phase != "training":
        return 1.0
    one = step(workload)
    gigabytes = 4e-3 * one.params_m * 2 * (gpus - 1) / gpus
    exchange_s = gigabytes / (node_gb_s if gpus <= node_gpus else network_gb_s)
    return one.step_s / (one.step_s + (1 - hidden) * exchange_s)


def speed(task: Task, gpus: int, /) -> float:
    """Iterations of a task, as it is on `task.gpus` GPUs, for one iteration on `gpus` GPUs (data parallel)."""
    here, own = efficiency(task.workload, gpus), efficiency(task.workload, task.gpus)
    return gpus * here / (task.gpus * own)


def alone_s(task: Task) -> float:
    """How long a training takes alone on the GPUs that it asks for, s, on the type of GPU of its record.

    Raises:
        InputError: an unknown training workload.
    """
    return task.iterations * step(task.workload).step_s


@cache
def mig_step_s() -> Mapping[tuple[Workload, int], float]:
    """Measured seconds per step of a training workload alone in a MIG instance, by workload and slices (of 7)."""
    return {
        (_workload(row), row.whole("slices", least=1)): row.number_of("step_s", above=True)
        for row in _rows("mig.csv", ("model", "batch_size", "slices", "step_s"))
    }


@cache
def measured_sets() -> tuple[MeasuredSet, ...]:
    """EaCO's measurements of its four workloads, alone and together."""
    sizes = dict(steps().keys())
    return tuple(
        MeasuredSet(
            tuple(Workload(model, sizes[model], phase="training") for model in row.text("models").split()),
            row.whole("gpus", least=1),
            row.number_of("node_w"),
            row.number_of("energy_kwh"),
            row.number_of("runtime_h"),
        )
        for row in _rows("sets.csv", ("models", "gpus", "node_w", "energy_kwh", "runtime_h"))
    )


@cache
def measured_pairs() -> tuple[tuple[tuple[Workload, Workload], tuple[float, float]], ...]:
    """Gavel's pairs of trainings on one V100: both workloads, and how much slower than alone each was."""
    return tuple(
        (
            (_workload(row, "first", "first_batch_size"), _workload(row, "second", "second_batch_size")),
            (row.number_of("first_slowdown", above=True), row.number_of("second_slowdown", above=True)),
        )
        for row in _rows("pairs.csv", ("first", "first_batch_size", "second", "second_batch_size"))
    )


@cache
def limited() -> tuple[Limited, ...]:
    """Zeus' trainings on an A40 under power limits, from the highest limit of each network down."""
    rows = _rows("limits.csv", ("model", "like", "limit_w", "epoch_s", "power_w"))
    found: list[Limited] = []
    for model in dict.fromkeys(row.text("model") for row in rows):
        own = [row for row in rows if row.text("model") == model]
        free_s = (own[0].number_of("epoch_s") + own[1].number_of("epoch_s")) / 2
        free_w = max(row.number_of("power_w") for row in own[:2])
        found += [
            Limited(model, row.text("like"), row.number_of("limit_w"), row.number_of("epoch_s") / free_s, free_w)
            for row in own
        ]
    return tuple(found)


def _rows(name: str, columns: tuple[str, ...]) -> list[Row]:
    path: Path = files.data("training", name)
    rows = []
    for row in read_rows(path):
        if isinstance(row, RowError):
            raise row
        if isinstance(row, Header):
            row.need(columns)
        else:
            rows.append(row)
    return rows


def _workload(row: Row, model: str = "model", batch_size: str = "batch_size") -> Workload:
    return Workload(row.text(model), row.whole(batch_size, least=1), phase="training")


def _step(row: Row, model: Row) -> Step:
    return Step(
        workload=_workload(row),
        gpu=row.text("gpu"),
        step_s=row.number_of("step_s", above=True),
        busy=row.number_of("busy"),
        dynamic_w=row.number_of("dynamic_w"),
        memory_mib=row.number_of("memory_mib"),
        like=model.text("like"),
        params_m=model.number_of("params_m"),
        epoch_samples=model.whole("epoch_samples", least=1),
        measured=row.text("step_confidence") == "measured",
    )
