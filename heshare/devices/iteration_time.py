"""Time of one iteration of a workload alone: the GPU part, the host part, and their overlap.

For the inference batch size b, the share s of the SMs (0 to 1), v = top clock / clock, and mu, the factor on memory
time at the clock:

    gpu  = latency + copy b + memory mu b + v ((work b / s)^r + fill^r)^(1/r)       r = 1.5
    time = serial + (host^q + gpu^q)^(1/q)                                           q = 8
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from heshare.devices.constants import Constants
from heshare.devices.timing_effects import Timing
from heshare.devices.uncertainty import ALONE, SHARED, Uncertainty
from heshare.shared.arrays import FloatArray
from heshare.shared.compiled import njit, vectorize
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

OVERLAP = 8.0
"""Exponent q of `(host^q + gpu^q)^(1/q)`: how sharply the longer of host and GPU part hides the shorter."""
BATCH_EXPONENT = 1.5
"""Exponent r of `(work^r + fill^r)^(1/r)`: how a batch outgrows the time of one too small to fill the SMs."""

FIXED, MEMORY, BATCH, FILL, SHARE, HOST, SERIAL, WAIT, INTENSITY, EXTRA = range(10)
"""Columns of `resident_rows`, which the compiled functions read."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of a resident at the top clock: its parts, s, with the inference batch size folded in.

    Attributes:
        fixed_s: time that neither share nor clock changes.
        memory_s: time that waits for memory.
        batch_s: time of the whole GPU's SMs for the samples.
        fill_s: time of a batch too small to fill the SMs.
        share: its share of the SMs, 0 to 1.
        host_s: time of the host that overlaps with the GPU part.
        batch_size: inference batch size.
        serial_s: time of the host that no GPU work hides (training, servers of language models).
        bandwidth_s: part of `memory_s` in which it uses the whole memory bandwidth (language models).
        intensity: dynamic power of SMs that all work on it, over the GPU's `Power.dynamic_w`.
        extra_s: energy beside that of the SMs' time, as a time at full dynamic power (language models).
        kernels: kernels that an iteration launches.
        arithmetic: in what it computes, `fp32`, `tf32` or `fp16`; empty where this is not recorded.
        anchored: whether measurements of this workload on this GPU went into the fit.
        time: uncertainty of its time, alone and beside co-runners under MPS.
        power: uncertainty of the board power while it runs, the same.
    """

    fixed_s: float
    memory_s: float
    batch_s: float
    fill_s: float
    share: float
    host_s: float
    batch_size: int
    serial_s: float = 0.0
    bandwidth_s: float = 0.0
    intensity: float = 1.0
    extra_s: float = 0.0
    kernels: float = 0.0
    arithmetic: str = ""
    anchored: bool = False
    time: tuple[Uncertainty, Uncertainty] = field(default=(Uncertainty(), Uncertainty()))
    power: tuple[Uncertainty, Uncertainty] = field(default=(Uncertainty(), Uncertainty()))

    def gpu_s(self, sm_slowdown: float, memory_slowdown: float) -> float:
        """Return the GPU part, s; `sm_slowdown` is v = top clock / clock, `memory_slowdown` the factor mu."""
        return float(gpu_part_s(resident_rows([self])[0], sm_slowdown, memory_slowdown))

    def time_s(self, sm_slowdown: float, memory_slowdown: float) -> float:
        """Return the time of the iteration alone, s; arguments as for `gpu_s`."""
        return float(time_alone_s(resident_rows([self])[0], sm_slowdown, memory_slowdown))

    @property
    def sms_s(self) -> float:
        """Return the time of the SMs of its share at the top clock, s."""
        return float(filled(self.batch_s / self.share, self.fill_s))


@lru_cache(maxsize=65536)
def iteration_of(constants: Constants, gpu: str, resident: Resident) -> Iteration:
    """Return the iteration of an inference resident on the GPU of that name.

    That of a language model follows from its shape (`heshare.devices.language_models`).

    Raises:
        InputError: a GPU or network without constants.
    """
    workload = resident.workload
    shape = catalogue.shape(workload.model)
    if shape is not None:
        from heshare.devices.language_models import language_iteration  # few runs need it

        return language_iteration(constants, gpu, resident, shape)

    own = arithmetic(gpu, workload)
    timing = constants.timing.get((gpu, workload.engine, workload.model, own))
    if timing is None:
        raise InputError(
            f"{workload.model} ({workload.engine}) on {gpu}",
            "a workload and a GPU of the calibrated model",
            "Add measurements to data/calibration and run `make calibrate`.",
            column="workload",
        )

    return iteration_at(timing, workload.batch_size, resident.mps_pct / 100.0, own, constants)


def iteration_at(
    timing: Timing, batch_size: int, share: float, precision: str = "", constants: Constants | None = None
) -> Iteration:
    """Return the iteration at an inference batch size and a share of the SMs (0 to 1).

    The uncertainties of its time and power are those of `constants`, 0 without these.
    """
    known = Uncertainty(), Uncertainty()
    time, power = known, known
    if constants is not None:
        of = constants.spreads.of
        time = of("time", timing.support, ALONE), of("time", timing.support, SHARED)
        power = of("power", timing.support, ALONE), of("power", timing.support, SHARED)
    return Iteration(
        fixed_s=timing.latency_s + timing.copy_s * batch_size,
        memory_s=timing.memory_s * batch_size,
        batch_s=timing.work_s * batch_size,
        fill_s=timing.fill_s,
        share=share,
        host_s=timing.host_s,
        batch_size=batch_size,
        intensity=timing.intensity,
        kernels=timing.kernels,
        arithmetic=precision,
        anchored=timing.support == "cell",
        time=time,
        power=power,
    )


def arithmetic(gpu: str, workload: Workload) -> str:
    """Return the arithmetic in which a GPU runs a workload, `fp32`, `tf32` or `fp16` (`Gpu.arithmetic`).

    A GPU outside the catalogue runs what the workload is set to.
    """
    if gpu not in catalogue.gpus():
        return workload.precision
    return catalogue.gpu(gpu).arithmetic(workload.precision, catalogue.kind(workload.model))


def resident_rows(iterations: Sequence[Iteration], waits_s: Sequence[float] | None = None) -> FloatArray:
    """Return what the compiled functions need of each resident, shape (n, 10): times in s, share, energy.

    `waits_s` is how long each waits for memory bandwidth that co-runners use, (n,); None: not at all.
    """
    waits = [0.0] * len(iterations) if waits_s is None else waits_s
    rows = [
        (each.fixed_s, each.memory_s, each.batch_s, each.fill_s, each.share, each.host_s, each.serial_s, wait_s,
         each.intensity, each.extra_s)
        for each, wait_s in zip(iterations, waits, strict=True)
    ]  # fmt: skip
    return np.array(rows, dtype=np.float64).reshape(len(rows), EXTRA + 1)


@njit(cache=True)
def gpu_part_s(row: Any, sm_slowdown: float, memory_slowdown: float) -> Any:
    """Return the GPU part of one row of `resident_rows`, s."""
    sms_s = filled(row[BATCH] / row[SHARE], row[FILL])
    return row[FIXED] + row[MEMORY] * memory_slowdown + sm_slowdown * sms_s


@njit(cache=True)
def time_alone_s(row: Any, sm_slowdown: float, memory_slowdown: float) -> Any:
    """Return the time of the iteration of one row of `resident_rows` alone, s."""
    return row[SERIAL] + overlap(row[HOST], gpu_part_s(row, sm_slowdown, memory_slowdown))


@vectorize(["float64(float64, float64)"], cache=True)
def overlap(host_s: Any, gpu_s: Any) -> Any:
    """Return the time of an iteration whose host part and GPU part run at once, `(host^q + gpu^q)^(1/q)`, s.

    Of numbers or arrays.
    """
    if host_s <= 0.0:
        return gpu_s
    # Relative to the longer part, so that no power overflows.
    longer, shorter = max(host_s, gpu_s), min(host_s, gpu_s)
    return longer * (1.0 + (shorter / longer) ** OVERLAP) ** (1.0 / OVERLAP)


@vectorize(["float64(float64, float64)"], cache=True)
def filled(batch_s: Any, fill_s: Any) -> Any:
    """Return the time of samples that may be too few to fill the SMs, `(batch^r + fill^r)^(1/r)`, s.

    Of numbers or arrays.
    """
    longer, shorter = max(batch_s, fill_s), min(batch_s, fill_s)
    if shorter <= 0.0:
        return longer
    return longer * (1.0 + (shorter / longer) ** BATCH_EXPONENT) ** (1.0 / BATCH_EXPONENT)
