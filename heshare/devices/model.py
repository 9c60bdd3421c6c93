"""The emulated GPU's physics: times, power and clock of any set of residents, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heshare.devices.constants import Constants, Power, default
from heshare.devices.contention import pushes
from heshare.devices.power import board_w, clock_under, load, stall
from heshare.devices.timing import part
from heshare.errors import InputError
from heshare.world.gpu import Gpu
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


def co_run(
    gpu: Gpu,
    residents: Sequence[Resident],
    sm_mhz: int | None = None,
    *,
    power_cap_w: float | None = None,
    constants: Constants | None = None,
) -> Estimate:
    """What `gpu` does while `residents` run on it together.

    Args:
        gpu: the GPU.
        residents: workloads with their MPS percentages; none is an idle GPU.
        sm_mhz: the clock asked for, MHz; None leaves the card to itself: the top clock, unless the cap holds it down.
        power_cap_w: the power limit, W; None is the card's own.
        constants: other constants than the calibrated ones.

    Raises:
        InputError: a clock that is not on the card's grid, a cap at or below idle power, no constants.
    """
    known = constants or default()
    power = _power(known, gpu)
    cap_w = gpu.tdp_w if power_cap_w is None else power_cap_w
    if not cap_w > power.idle_w:
        raise InputError(
            column="power_cap_w",
            found=f"{cap_w} W on {gpu.name}",
            expected=f"more than its idle power of {power.idle_w} W",
            action="Raise the cap.",
        )
    top = gpu.max_mhz
    request = top if sm_mhz is None else gpu.check_clock(sm_mhz)
    if not residents:
        return Estimate(gpu.name, float(request), power.idle_w, ())
    parts = [part(known, gpu.name, resident) for resident in residents]
    reached = clock_under(power, parts, cap_w, float(request), float(top))
    slow, stalled = top / reached, stall(power, reached)
    active, _ = load(power, parts, slow, stalled)
    full, reported = max(1.0, active), known.utilisation
    tasks = []
    for one, resident, (factor, wait_s) in zip(
        parts, residents, pushes(known.contention[gpu.name], parts), strict=True
    ):
        time_s = one.time_s(slow, stalled, full * factor, wait_s)
        sms, memory = 100.0 * one.work_s * slow / time_s, 100.0 * one.memory_s * stalled / time_s
        tasks.append(
            TaskEstimate(
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
        )
    return Estimate(gpu.name, reached, min(cap_w, board_w(power, parts, reached, float(top))), tuple(tasks))


def _power(constants: Constants, gpu: Gpu) -> Power:
    try:
        return constants.power[gpu.name]
    except KeyError:
        raise InputError(
            column="gpu",
            found=repr(gpu.name),
            expected="one of " + ", ".join(constants.power),
            action="Add the GPU to data/gpus.csv and run `make calibrate`.",
        ) from None
