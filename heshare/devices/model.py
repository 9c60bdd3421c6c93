"""The emulated GPU's physics: times, power and clock of any set of residents, in closed form."""

from __future__ import annotations

from collections.abc import Sequence

from heshare.devices.answer import Estimate, TaskEstimate, estimate_of
from heshare.devices.constants import Constants, Power, default
from heshare.devices.contention import pushes
from heshare.devices.power import board_w, clock_under, load, stall
from heshare.devices.sharing.apart import co_run_apart
from heshare.devices.sharing.training import training_part
from heshare.devices.timing import Part, part
from heshare.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

__all__ = ["Estimate", "TaskEstimate", "co_run"]


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
        residents: workloads with their MPS percentages, or all of them in another way of sharing; none is an idle GPU.
        sm_mhz: the clock asked for, MHz; None leaves the card to itself: the top clock, unless the cap holds it down.
        power_cap_w: the power limit, W; None is the card's own.
        constants: other constants than the calibrated ones.

    Raises:
        InputError: a clock that is not on the card's grid, a cap at or below idle power, no constants, or ways of
            sharing that do not go together on this GPU.
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
    parts = [_part(known, gpu.name, resident) for resident in residents]
    if any(resident.sharing != "mps" for resident in residents):
        return co_run_apart(gpu, residents, parts, float(request), cap_w, known)
    reached = clock_under(power, parts, cap_w, float(request), float(top))
    slow, stalled = top / reached, stall(power, reached)
    active, _ = load(power, parts, slow, stalled)
    full, reported = max(1.0, active), known.utilisation
    tasks = []
    for one, resident, (factor, wait_s) in zip(
        parts, residents, pushes(known.contention[gpu.name], parts), strict=True
    ):
        time_s = one.time_s(slow, stalled, full * factor, wait_s)
        tasks.append(estimate_of(one, resident, time_s, slow, stalled, reported))
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


def _part(constants: Constants, gpu: str, resident: Resident) -> Part:
    if resident.workload.phase == "training":
        return training_part(constants, gpu, resident)
    return part(constants, gpu, resident)
