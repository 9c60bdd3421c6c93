"""Residents not under MPS: in turns (time slices), each in an instance of its own (MIG), or by priority (FIKIT).

Either way a resident takes its time alone, longer by a factor. Power is the idle power and that of the work which is
done in that time.

Time slices: `slowdown = max(1, sum of busy shares) (1 + o_k)` for k residents. EaCO measured sets of two, three and
four trainings on V100, whose busy shares add up to at most 1.005, so that `o_k` is the pure cost of sharing: 3.5, 8.3
and 24.5 %. What priorities do is in `heshare.devices.sharing.filled`.
"""

from __future__ import annotations

from collections.abc import Sequence

from heshare.devices.answer import Estimate, estimate_of
from heshare.devices.constants import Constants
from heshare.devices.power import clock_within, stall, voltage
from heshare.devices.sharing import filled, mig
from heshare.devices.timing import Part
from heshare.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

SWITCHING = (0.0, 0.035, 0.083, 0.245)
"""Cost of time slices for 1 to 4 residents, over the time alone (EaCO's measurements)."""
FURTHER = 0.162
"""What each resident beyond the fourth adds to it: as the fourth did; assumed."""


def switching(residents: int) -> float:
    """The cost `o_k` of time slices for so many residents, over the time alone."""
    if residents <= len(SWITCHING):
        return SWITCHING[max(residents, 1) - 1]
    return SWITCHING[-1] + FURTHER * (residents - len(SWITCHING))


def sliced(busy: Sequence[float]) -> float:
    """Factor by which time slices stretch every iteration, from the part of its time that each resident is busy."""
    return max(1.0, sum(busy)) * (1.0 + switching(len(busy)))


def ways(gpu: Gpu, residents: Sequence[Resident]) -> str:
    """How residents share a GPU: `mps`, `time-slice`, `mig` or `priority`.

    Raises:
        InputError: not all in one way, or MIG instances that this GPU cannot hold together.
    """
    found = {
        next((kind for kind in ("mig", "priority") if one.sharing.startswith(kind)), one.sharing) for one in residents
    }
    if len(found) > 1:
        raise _bad(" beside ".join(sorted(found)), "one way of sharing for all residents of a GPU", gpu)
    way = found.pop() if found else "mps"
    if way == "mig":
        wanted = mig.instances(residents)
        if not (mig.has_mig(gpu) and mig.fits(wanted)):
            names = ", ".join(f"{slices}g" for slices in wanted)
            expected = "instances that fit together" if mig.has_mig(gpu) else "a GPU with MIG"
            raise _bad(f"MIG instances {names}", expected, gpu)
    return way


def co_run_apart(
    gpu: Gpu,
    residents: Sequence[Resident],
    parts: Sequence[Part],
    request_mhz: float,
    cap_w: float,
    constants: Constants,
) -> Estimate:
    """What a GPU does while residents share it by time slices, MIG or priority.

    Args:
        gpu: the GPU.
        residents: who shares it, all in the same way.
        parts: of each resident's iteration on the whole GPU.
        request_mhz: the clock asked for, MHz.
        cap_w: the power limit, W.
        constants: of the device model.

    Raises:
        InputError: see `ways`.
    """
    way = ways(gpu, residents)
    power, top = constants.power[gpu.name], float(gpu.max_mhz)
    fixed = [_instance(one, part) for one, part in zip(residents, parts, strict=True)] if way == "mig" else []

    def times_s(slow: float, stalled: float) -> list[float]:
        if way == "priority":
            return filled.times_s(parts, [filled.priority_of(one.sharing) for one in residents], slow, stalled)
        alone_s = [part.time_s(slow, stalled) for part in parts]
        if way == "time-slice":
            busy = [part.gpu_s(slow, stalled) / time for part, time in zip(parts, alone_s, strict=True)]
            return [sliced(busy) * time for time in alone_s]
        return [factor * time for factor, time in zip(fixed, alone_s, strict=True)]

    def draw_w(mhz: float) -> float:
        slow, stalled = top / mhz, stall(power, mhz)
        work = sum(
            (part.work_s + power.memory * part.memory_s) / time
            for part, time in zip(parts, times_s(slow, stalled), strict=True)
        )
        return power.idle_w + power.dynamic_w * min(mhz / top, work) * voltage(power, mhz, top) ** 2

    reached = clock_within(draw_w, cap_w, request_mhz, top)
    slow, stalled = top / reached, stall(power, reached)
    tasks = tuple(
        estimate_of(part, one, time, slow, stalled, constants.utilisation)
        for part, one, time in zip(parts, residents, times_s(slow, stalled), strict=True)
    )
    return Estimate(gpu.name, reached, min(cap_w, draw_w(reached)), tasks)


def _instance(resident: Resident, part: Part) -> float:
    slices = mig.slices_of(resident.sharing)
    return 1.0 if slices is None else mig.slowdown(resident.workload, slices, part)


def _bad(found: str, expected: str, gpu: Gpu) -> InputError:
    return InputError(
        column="sharing", found=f"{found} on {gpu.name}", expected=expected, action="Share in another way."
    )
