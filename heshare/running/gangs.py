"""Gangs: tasks on several GPUs in step, how fast they go, and how a GPU that is too fast waits for the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from heshare.devices.device import Shares
from heshare.errors import DeviceError
from heshare.world.workload import Resident

if TYPE_CHECKING:
    from heshare.running.state import Job, Slot


def shares(slot: Slot, what: str) -> Shares:
    """A slot's device, for what only some devices can do.

    Raises:
        DeviceError: it shares by MPS alone and runs each task by itself.
    """
    if slot.shares is None:
        raise DeviceError(
            f"GPU {slot.index} ({slot.device.gpu.name}, {slot.device.provenance}): asked for {what}; it shares by MPS "
            "alone and runs each task on itself alone. Use a policy and tasks that need no more, or emulated GPUs."
        )
    return slot.shares


def alike(slots: Sequence[Slot], jobs: int, /) -> bool:
    """Whether a gang's GPUs are idle and equal, so that only the first needs to be told what it does.

    Args:
        slots: the GPUs.
        jobs: how many jobs are on their books and do not run yet.
    """
    first = slots[0].device
    for slot in slots:
        if slot.follows is None or len(slot.jobs) != jobs or not slot.follows.same_as(first):
            return False
    return True


def begin(job: Job, slot: Slot, iterations: float | None) -> None:
    """Let a GPU run a job.

    Raises:
        DeviceError: it cannot.
    """
    if job.sharing == "mps":
        slot.device.start(job.task.id, job.workload, job.mps_pct, iterations)
    else:
        resident = Resident(job.workload, job.mps_pct, job.sharing)
        shares(slot, f"sharing by {job.sharing}").start_as(job.task.id, resident, iterations)
    slot.changed()


def part(job: Job, now_s: float) -> None:
    """Tell the GPUs of a gang that did as the first did what they do, since they may differ from now on."""
    job.led = False
    for slot in job.slots[1:]:
        slot.device.advance(job.went_s)
        begin(job, slot, None)
        slot.device.advance(now_s)


def part_all(slot: Slot, now_s: float) -> None:
    """Do so for the gangs on a GPU."""
    for job in slot.gangs.values():
        if job.led:
            part(job, now_s)


def rejoin(job: Job, now_s: float) -> None:
    """The first GPU of a gang has completed: account for those that did as it did."""
    went_s, power_w = job.went_s, job.power_w
    for slot in job.slots[1:]:
        if slot.follows is not None:
            slot.follows.follow(went_s, now_s, power_w)
        slot.reading = None
    job.led = False


def keep_step(touched: list[Slot], touch: Callable[[Slot], None]) -> None:
    """Let every gang that a change may have slowed or sped up go at the pace of its slowest member.

    Args:
        touched: GPUs that changed and are at the present; grows by those of their gangs.
        touch: brings a GPU to the present and adds it to `touched`.
    """
    gangs: dict[int, Job] = {}
    at = 0
    while at < len(touched):
        for job in [job for job in touched[at].gangs.values() if job.runs and not job.led]:
            gangs[job.task.id] = job
            for slot in job.slots:
                if not slot.listed:
                    touch(slot)
        at += 1
    running = [job for job in gangs.values() if job.slots]
    for job in running:
        if job.held:
            _hold(job, job.slots, 0.0)
            job.held = False
    paces = [_times_s(job) for job in running]
    for job, times_s in zip(running, paces, strict=True):
        pace_s = max(times_s)
        fast = [slot for slot, time_s in zip(job.slots, times_s, strict=True) if time_s < pace_s]
        if fast:
            _hold(job, fast, pace_s)
            job.held = True


def _times_s(job: Job) -> list[float]:
    """Seconds per iteration of each member, unheld."""
    return [slot.look().residents[job.task.id].time_s for slot in job.slots]


def _hold(job: Job, slots: Sequence[Slot], time_s: float) -> None:
    for slot in slots:
        shares(slot, "a gang").hold(job.task.id, time_s)
        slot.changed()
