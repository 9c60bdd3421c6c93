"""What a device model answers: a set of residents on one GPU, and each of them while all run."""

from __future__ import annotations

from dataclasses import dataclass

from heshare.devices.constants import Utilisation
from heshare.devices.timing import Part
from heshare.world.workload import Resident


@dataclass(frozen=True, slots=True)
class TaskEstimate:
    """One resident, while all of them run.

    Attributes:
        workload: the model's name.
        batch_size: inference batch size.
        mps_pct: its MPS percentage.
        time_s: seconds per iteration.
        sm_util_pct: SMs that it keeps busy, % of the GPU.
        dram_util_pct: memory bandwidth that it uses, %.
        l2_util_pct: L2 bandwidth that it uses, %.
        anchored: whether measurements of this workload on this GPU went into the fit.
        uncertainty: relative standard uncertainty of `time_s`.
    """

    workload: str
    batch_size: int
    mps_pct: int
    time_s: float
    sm_util_pct: float
    dram_util_pct: float
    l2_util_pct: float
    anchored: bool
    uncertainty: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A set of residents on one GPU.

    Attributes:
        gpu: the GPU's name.
        sm_mhz: the SM clock reached, MHz.
        power_w: board power, W.
        tasks: the residents, in the order given.
    """

    gpu: str
    sm_mhz: float
    power_w: float
    tasks: tuple[TaskEstimate, ...]


def estimate_of(
    one: Part, resident: Resident, time_s: float, slow: float, stalled: float, reported: Utilisation
) -> TaskEstimate:
    """What a resident does that takes `time_s` per iteration; `slow` and `stalled` as in `Part.gpu_s`."""
    sms, memory = 100.0 * one.work_s * slow / time_s, 100.0 * one.memory_s * stalled / time_s
    return TaskEstimate(
        workload=resident.workload.model,
        batch_size=one.batch_size,
        mps_pct=resident.mps_pct,
        time_s=time_s,
        sm_util_pct=sms,
        dram_util_pct=min(100.0, reported.dram_per_sm * sms + reported.dram_per_memory * memory),
        l2_util_pct=min(100.0, reported.l2_per_sm * sms),
        anchored=one.anchored,
        uncertainty=one.uncertainty,
    )
