"""Time of one iteration of one workload alone: GPU part, host part, and how both overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from heshare.devices.constants import Constants, HalfPrecision, Timing
from heshare.errors import InputError
from heshare.world.workload import Resident

OVERLAP = 8.0
"""Exponent q of `(host^q + gpu^q)^(1/q)`: how sharply the longer of both parts wins."""


@dataclass(frozen=True, slots=True)
class Part:
    """One resident's iteration at the top clock, with its inference batch size and share folded in (seconds).

    Attributes:
        fixed_s: time that neither share nor clock changes.
        memory_s: time that waits for memory.
        base_s: time of the whole GPU's SMs whatever the inference batch size.
        batch_s: time of the whole GPU's SMs for the samples.
        fill_s: time of a batch too small to fill the SMs.
        share: its share of the SMs, 0 to 1.
        host_s: time of the host.
        kernels: kernels that an iteration launches.
        batch_size: inference batch size.
        anchored: whether measurements of this workload on this GPU went into the fit.
        uncertainty: relative standard uncertainty of its time.
    """

    fixed_s: float
    memory_s: float
    base_s: float
    batch_s: float
    fill_s: float
    share: float
    host_s: float
    kernels: float
    batch_size: int
    anchored: bool
    uncertainty: float

    @property
    def work_s(self) -> float:
        """Time of the whole GPU's SMs at the top clock, s: what it keeps busy, however long it takes."""
        return self.base_s + self.batch_s

    def gpu_s(self, slow: float, stall: float) -> float:
        """GPU part, s; `slow` = top clock / clock, `stall` = the factor on memory time."""
        sms_s = self.base_s / self.share + math.hypot(self.batch_s / self.share, self.fill_s)
        return self.fixed_s + self.memory_s * stall + slow * sms_s

    def time_s(self, slow: float, stall: float, stretch: float = 1.0, wait_s: float = 0.0) -> float:
        """Time of an iteration, s, with the GPU part stretched by contention and its kernels waiting."""
        return overlap(self.host_s, self.gpu_s(slow, stall) * stretch + wait_s)


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
    half = constants.half.get(gpu) if workload.precision == "fp16" else None
    return fold(known, workload.batch_size, resident.mps_pct / 100.0, half)


def fold(known: Timing, size: int, share: float, half: HalfPrecision | None = None) -> Part:
    """The parts of an iteration with inference batch size `size` under `share` (0 to 1)."""
    work, memory, doubt = (1.0, 1.0, 0.0) if half is None else (half.work, half.memory, half.uncertainty)
    return Part(
        fixed_s=known.latency_s,
        memory_s=known.memory_s * size * memory,
        base_s=known.work_s * work,
        batch_s=known.work_per_sample_s * size * work,
        fill_s=known.fill_s * work,
        share=share,
        host_s=known.host_s,
        kernels=known.kernels,
        batch_size=size,
        anchored=known.anchored and half is None,
        uncertainty=math.hypot(known.uncertainty, doubt),
    )
