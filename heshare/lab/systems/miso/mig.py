"""MIG: instances of a GPU with separate SMs and memory: the valid sets, and the speed of tasks in them.

Slices, memory slices and start positions of instances are those of the A100 and its successors: a `1g` instance has 1
of 7 compute slices and 1 of 8 memory slices, and so on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np

from heshare.devices.constants import default, fitted
from heshare.devices.device_model import IterationTimes, register_sharing_model, sharing_error
from heshare.devices.iteration_time import Iteration, arithmetic, iteration_of
from heshare.devices.uncertainty import Spreads
from heshare.lab.systems.shared.training import mig_step_times_s
from heshare.shared import files
from heshare.shared.inputs.csv_table import read_table
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

COMPUTE, MEMORY = 7, 8
"""Compute slices and memory slices of a GPU."""
MEMORY_SLICES = MappingProxyType({1: 1, 2: 2, 3: 4, 4: 4, 7: 8})
"""Memory slices of an instance, by its compute slices."""
SLICES: tuple[int, ...] = tuple(MEMORY_SLICES)
"""Compute slices of the kinds of instance, ascending."""
_STARTS = MappingProxyType({1: tuple(range(7)), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)})

MEASURED_GPU = "A100"
"""The GPU on which instances were measured; its ratios stand for those of its successors."""

Partition = tuple[int, ...]
"""Compute slices of each instance, descending."""


def has_mig(gpu: Gpu) -> bool:
    return gpu.mig_slices == COMPUTE


def slices_of(resident: Resident) -> int:
    return int(resident.sharing.removeprefix("mig-").removesuffix("g"))


def sharing_of(gpu: Gpu, slices: int) -> str:
    """Return the sharing of a task in an instance of `slices` compute slices; `mps` on a GPU without MIG."""
    return f"mig-{slices}g" if has_mig(gpu) else "mps"


def memory_mib(gpu: Gpu, slices: int) -> float:
    return gpu.memory_mib * MEMORY_SLICES[slices] / MEMORY


@cache
def placeable() -> frozenset[Partition]:
    found: set[Partition] = set()

    def extend(held: Partition, taken: int) -> None:
        found.add(held)
        for slices in SLICES:
            for start in _STARTS[slices]:
                mask = ((1 << MEMORY_SLICES[slices]) - 1) << start
                larger = tuple(sorted((*held, slices), reverse=True))
                if not taken & mask and sum(larger) <= COMPUTE:
                    extend(larger, taken | mask)

    extend((), 0)
    return frozenset(found)


def fits(instances: Sequence[int]) -> bool:
    return tuple(sorted(instances, reverse=True)) in placeable()


@lru_cache(maxsize=4096)
def slowdown(workload: Workload, slices: int, whole: Iteration) -> float:
    """Return the time of an iteration alone in an instance over that on the whole GPU, at least 1.

    Measured on an A100 for the training workloads of MISO and for inference of the workloads in `data/calibration/
    mig.csv`; others by the form of `inside`. Between measured inference batch sizes, and beyond them, the ratio
    of measured to modelled slowdown is interpolated over the logarithm of the size. A smaller instance is never faster.
    """
    known = mig_step_times_s()
    if (workload, slices) in known:
        return max(1.0, known[workload, slices] / known[workload, COMPUTE])
    larger = (size for size in SLICES if slices <= size < COMPUTE)
    return max([1.0, *(_formed(whole, size) * _correction(workload, size) for size in larger)])


def _formed(whole: Iteration, slices: int) -> float:
    return inside(whole, slices).time_s(1.0, 1.0) / whole.time_s(1.0, 1.0)


def inside(whole: Iteration, slices: int) -> Iteration:
    """Return an iteration with the SMs and the memory bandwidth of an instance of `slices` compute slices.

    Work and memory time grow as powers, fitted to the measured instances, of the whole GPU's slices over the
    instance's. The powers are below 1, since the whole GPU is used less well, and its L2 cache is larger.
    """
    powers = fitted("mig")["", "", ""]
    return in_instance(whole, slices, powers["work"], powers["memory"])


def in_instance(whole: Iteration, slices: int, work: float, memory: float) -> Iteration:
    bandwidth = (MEMORY / MEMORY_SLICES[slices]) ** memory
    return replace(whole, share=whole.share * (slices / COMPUTE) ** work, memory_s=whole.memory_s * bandwidth)


@cache
def measured_instance_times_s() -> Mapping[tuple[str, int, int], float]:
    columns = ("workload", "batch_size", "slices", "time_s")
    return {
        (row.text("workload"), row.whole("batch_size", least=1), row.whole("slices", least=1)): row.number_of(
            "time_s", above=True
        )
        for row in read_table(files.data("calibration", "mig.csv"), columns)
    }


def _as_recorded(workload: Workload) -> bool:
    """Return whether a workload runs as those of `mig.csv`: eager execution in TF32."""
    return workload.engine == "eager" and arithmetic(MEASURED_GPU, workload) == "tf32"


def _correction(workload: Workload, slices: int) -> float:
    """Return the measured slowdown over that of the form, interpolated over batch sizes; 1 without measurements."""
    if workload.phase != "inference" or not _as_recorded(workload):
        return 1.0
    known = _corrections(workload.model, slices)
    if not known:
        return 1.0
    sizes, logs = zip(*known, strict=True)
    return float(np.exp(np.interp(math.log(workload.batch_size), sizes, logs)))


@cache
def _corrections(model: str, slices: int) -> tuple[tuple[float, float], ...]:
    """Return (log of the batch size, log of measured over modelled slowdown on the A100) at each measured size."""
    times_s = measured_instance_times_s()
    found = []
    for own, size, own_slices in times_s:
        if (own, own_slices) == (model, slices) and (own, size, COMPUTE) in times_s:
            measured = max(1.0, times_s[own, size, slices] / times_s[own, size, COMPUTE])
            formed = _formed(iteration_of(default(), MEASURED_GPU, Resident(Workload(model, size))), slices)
            found.append((math.log(size), math.log(measured / formed)))
    return tuple(sorted(found))


def least(gpu: Gpu, needed_mib: float) -> int | None:
    return next((slices for slices in SLICES if needed_mib <= memory_mib(gpu, slices)), None)


class MigSharing:
    """The sharing model of MIG instances, `mig-1g` to `mig-7g`: each resident has one instance."""

    def check(self, gpu: Gpu, residents: Sequence[Resident]) -> None:
        slices = [slices_of(resident) for resident in residents]
        if not (has_mig(gpu) and fits(slices)):
            names = ", ".join(f"{size}g" for size in slices)
            other = f"a GPU with MIG of {COMPUTE} slices; this one has {gpu.mig_slices or 'none'}"
            expected = "instances that fit together" if has_mig(gpu) else other
            raise sharing_error(f"MIG instances {names}", expected, gpu)

    def memory_mib(self, gpu: Gpu, resident: Resident) -> float:
        return memory_mib(gpu, slices_of(resident))

    def iteration_times(self, gpu: Gpu, residents: Sequence[Resident], parts: Sequence[Iteration]) -> IterationTimes:
        factors = [
            slowdown(resident.workload, slices_of(resident), part)
            for resident, part in zip(residents, parts, strict=True)
        ]

        def times_s(slow: float, stalled: float) -> list[float]:
            return [factor * part.time_s(slow, stalled) for factor, part in zip(factors, parts, strict=True)]

        return times_s

    def contention(self, gpu: Gpu, residents: Sequence[Resident], spreads: Spreads) -> list[float]:
        """Return the uncertainty of the form, for a resident whose slowdown in its instance was not measured."""
        return [0.0 if _measured(gpu, resident) else spreads.beside(resident.sharing, 0) for resident in residents]


def _measured(gpu: Gpu, resident: Resident) -> bool:
    """Return whether the slowdown of a resident in its instance is measured or interpolated."""
    workload, slices = resident.workload, slices_of(resident)
    if slices == COMPUTE:
        return True
    if gpu.name != MEASURED_GPU:
        return False
    if workload.phase == "training":
        return (workload, slices) in mig_step_times_s()
    sizes = [math.exp(log) for log, _ in _corrections(workload.model, slices)]
    return _as_recorded(workload) and bool(sizes) and min(sizes) * 0.99 <= workload.batch_size <= max(sizes) * 1.01


register_sharing_model("mig", MigSharing())
