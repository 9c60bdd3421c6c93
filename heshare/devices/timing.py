"""Time of one iteration of one workload alone: GPU part, host part, and how both overlap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from heshare.devices.constants import Constants
from heshare.errors import InputError
from heshare.world.workload import Resident

OVERLAP = 4.0
"""Exponent q of `(host^q + gpu^q)^(1/q)`: how sharply the longer of both parts wins."""


@dataclass(frozen=True, slots=True)
class Part:
    """One resident's iteration at the top clock, with its inference batch size and share folded in (seconds).

    Attributes:
        fixed_s: time that neither share nor clock changes.
        memory_s: time that waits for memory.
        work_s: time of the whole GPU's SMs at the top clock.
        share: its share of the SMs, 0 to 1.
        host_s: time of the host.
        batch_size: inference batch size.
        anchored: whether measurements of this workload on this GPU went into the fit.
        uncertainty: relative standard uncertainty of its time.
    """

    fixed_s: float
    memory_s: float
    work_s: float
    share: float
    host_s: float
    batch_size: int
    anchored: bool
    uncertainty: float

    def gpu_s(self, slow: float, stall: float) -> float:
        """GPU part, s; `slow` = top clock / clock, `stall` = the factor on memory time."""
        return self.fixed_s + self.memory_s * stall + self.work_s * slow / self.share

    def time_s(self, slow: float, stall: float, stretch: float = 1.0) -> float:
        """Time of an iteration, s, with the GPU part stretched by contention."""
        return overlap(self.host_s, self.gpu_s(slow, stall) * stretch)


def overlap(host_s: float, gpu_s: float) -> float:
    """Time of an iteration whose host part and GPU part run at once, s."""
    if host_s <= 0.0:
        return gpu_s
    longer, shorter = (gpu_s, host_s) if gpu_s > host_s else (host_s, gpu_s)
    return longer * float((1.0 + (shorter / longer) ** OVERLAP) ** (1.0 / OVERLAP))


@lru_cache(maxsize=65536)
def part(constants: Constants, gpu: str, resident: Resident) -> Part:
    """The parts of a resident's iteration on `gpu`.

    Raises:
        InputError: the GPU or the workload has no constants.
    """
    workload = resident.workload
    try:
        known = constants.timing[gpu, workload.engine, workload.model]
    except KeyError:
        raise InputError(
            column="workload",
            found=f"{workload.model} ({workload.engine}) on {gpu}",
            expected="a workload and a GPU of the calibrated model",
            action="Add measurements to data/calibration and run `make calibrate`.",
        ) from None
    size = workload.batch_size
    return Part(
        fixed_s=known.latency_s,
        memory_s=known.memory_s * size,
        work_s=known.work_s + known.work_per_sample_s * size,
        share=resident.mps_pct / 100.0,
        host_s=known.host_s + known.host_per_sample_s * size,
        batch_size=size,
        anchored=known.anchored,
        uncertainty=known.uncertainty,
    )
