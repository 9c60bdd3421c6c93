"""Training workloads: the step of each from public records, and how training scales over several GPUs.

A training workload is written `eaco_resnet50-train:32`. The part before `_` names the record, because records
differ in data, hosts and data loaders. `data/training/` holds the records with their sources:
EaCO's, Gavel's and MISO's steps, EaCO's sets on one GPU, Gavel's pairs, and MISO's MIG instances.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.shared.inputs.csv_table import Row, read_table
from heshare.world.catalogue import Phase, register_phase
from heshare.world.task import Task
from heshare.world.workload import Workload

NODE_GPUS = 8
"""GPUs of one node; assumed."""
NODE_GB_S, NETWORK_GB_S = 10.0, 5.0
"""Bandwidth of an all-reduce within a node and between nodes, GB/s; assumed."""
HIDDEN = 0.5
"""Part of an all-reduce that overlaps with the backward pass; assumed."""


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One step of a training workload, alone on the GPU of its record.

    Attributes:
        gpu: the name of the GPU on which it was recorded.
        step_s: time of a step, s.
        busy: part of that time in which the GPU works, 0 to 1.
        dynamic_w: power above that of the idle GPU, W.
        like: the network of Table IV whose times give the ratio between GPUs; assumed.
        params_m: parameters, millions.
        epoch_samples: samples of one epoch.
        measured: whether `step_s` was measured and not derived.
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
    """Training workloads that were measured together, in time slices on the same GPUs of one node; one is alone.

    `runtime_h` is the time until all of them completed; power and energy are those of the node.
    """

    workloads: tuple[Workload, ...]
    node_w: float
    energy_kwh: float
    runtime_h: float


@cache
def steps() -> Mapping[tuple[str, int], TrainingStep]:
    """Return every recorded step by (model, samples per step on one GPU), in the file's order."""
    models = {row.text("model"): row for row in _rows("models.csv", ("model", "like", "params_m", "epoch_samples"))}
    columns = ("model", "batch_size", "gpu", "step_s", "busy", "dynamic_w", "memory_mib")
    recorded = [_step(row, models[row.text("model")]) for row in _rows("steps.csv", columns)]
    return {(step.workload.model, step.workload.batch_size): step for step in recorded}


def workloads(record: str = "", gpu: str | None = None) -> tuple[Workload, ...]:
    """Return the trainings of a record (`eaco`, `gavel`, `miso`; all by default), of one GPU if it is named."""
    return tuple(
        step.workload for step in steps().values() if step.workload.model.startswith(record) and gpu in (None, step.gpu)
    )


def step(workload: Workload) -> TrainingStep:
    try:
        return steps()[workload.model, workload.batch_size]
    except KeyError:
        sizes = [size for model, size in steps() if model == workload.model]
        models = dict.fromkeys(model for model, _ in steps())
        raise InputError(
            str(workload),
            f"one of its batch sizes {sizes}" if sizes else "one of " + ", ".join(models),
            "Choose a recorded training workload, or add it to data/training.",
            column="workload",
        ) from None


def epoch_count(workload: Workload, iterations: float, gpus: int = 1) -> int:
    return max(1, round(iterations * workload.batch_size * gpus / step(workload).epoch_samples))


def scaling_efficiency(workload: Workload, gpus: int) -> float:
    """Return the throughput per GPU of data-parallel training on `gpus` GPUs over that on one, in (0, 1].

    An assumed model: after each step a ring all-reduce adds up the FP32 gradients, which moves `2 (n - 1) / n` times
    their size over the slowest link. A part of it overlaps with the backward pass. Tasks other than training exchange
    nothing and have efficiency 1.
    """
    if gpus == 1 or workload.phase != "training":
        return 1.0
    recorded = step(workload)
    gigabytes = 4e-3 * recorded.params_m * 2 * (gpus - 1) / gpus
    exchange_s = gigabytes / (NODE_GB_S if gpus <= NODE_GPUS else NETWORK_GB_S)
    return recorded.step_s / (recorded.step_s + (1 - HIDDEN) * exchange_s)


def alone_s(task: Task) -> float:
    return task.iterations * step(task.workload).step_s


@cache
def mig_step_times_s() -> Mapping[tuple[Workload, int], float]:
    """Return the measured time of a step alone in a MIG instance, s, by workload and slices (of 7)."""
    return {
        (_workload(row), row.whole("slices", least=1)): row.number_of("step_s", above=True)
        for row in _rows("mig.csv", ("model", "batch_size", "slices", "step_s"))
    }


@cache
def measured_alone() -> Mapping[Workload, MeasuredSet]:
    return {entry.workloads[0]: entry for entry in _measurements() if len(entry.workloads) == 1}


@cache
def measured_sets() -> tuple[MeasuredSet, ...]:
    return tuple(entry for entry in _measurements() if len(entry.workloads) > 1)


def measured_slowdown(entry: MeasuredSet) -> float:
    return entry.runtime_h / float(np.mean([measured_alone()[workload].runtime_h for workload in entry.workloads]))


def _measurements() -> list[MeasuredSet]:
    sizes = dict(steps().keys())
    return [
        MeasuredSet(
            tuple(Workload(model, sizes[model], phase="training") for model in row.text("models").split()),
            row.number_of("node_w"),
            row.number_of("energy_kwh"),
            row.number_of("runtime_h"),
        )
        for row in _rows("sets.csv", ("models", "node_w", "energy_kwh", "runtime_h"))
    ]


@cache
def measured_pairs() -> tuple[tuple[tuple[Workload, Workload], tuple[float, float]], ...]:
    """Return Gavel's pairs of trainings on one V100: both workloads, and the slowdown of each over its time alone."""
    return tuple(
        (
            (_workload(row, "first", "first_batch_size"), _workload(row, "second", "second_batch_size")),
            (row.number_of("first_slowdown", above=True), row.number_of("second_slowdown", above=True)),
        )
        for row in _rows("pairs.csv", ("first", "first_batch_size", "second", "second_batch_size"))
    )


def _rows(name: str, columns: tuple[str, ...]) -> list[Row]:
    return list(read_table(files.data("training", name), columns))


def _workload(row: Row, model: str = "model", batch_size: str = "batch_size") -> Workload:
    return Workload(row.text(model), row.whole(batch_size, least=1), phase="training")


def _step(row: Row, model: Row) -> TrainingStep:
    return TrainingStep(
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


register_phase("training", Phase(memory_mib=lambda workload: step(workload).memory_mib, efficiency=scaling_efficiency))
