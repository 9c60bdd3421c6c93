"""Gangs: tasks on several GPUs whose iterations run in lockstep, at the pace of the slowest GPU."""

from collections.abc import Callable, Sequence

from heshare.running.state import GpuState, TaskRun


def can_mirror(gpus: Sequence[GpuState], loading: int, /) -> bool:
    """Return whether all GPUs of a gang are idle and equal, so that only the device of the first has to run it.

    Args:
        gpus: the GPUs.
        loading: how many tasks are on each of them and do not run yet.
    """
    first = gpus[0].device
    for gpu in gpus:
        device = gpu.mirrors_device
        if device is None or len(gpu.tasks) != loading or not device.can_mirror(first):
            return False
    return True


def split_gangs(gpu: GpuState, now_s: float) -> None:
    """Split the mirrored gangs of a GPU that is about to change."""
    for gang in gpu.gangs.values():
        if gang.mirrored:
            gang.split(now_s)


def keep_lockstep(changed: list[GpuState], advance: Callable[[GpuState], None]) -> None:
    """Set the pace of every gang that a change may have slowed down or sped up to that of its slowest GPU.

    Args:
        changed: GPUs that changed and are at the present; the GPUs of their gangs are appended.
        advance: brings a GPU to the present and appends it to `changed`.
    """
    gangs: dict[int, TaskRun] = {}
    at = 0
    while at < len(changed):
        for gang in [gang for gang in changed[at].gangs.values() if gang.running and not gang.mirrored]:
            gangs[gang.id] = gang
            for gpu in gang.gpus:
                if not gpu.listed:
                    advance(gpu)
        at += 1
    # A gang may have completed while its GPUs were advanced.
    running = [gang for gang in gangs.values() if gang.gpus]
    for gang in running:
        if gang.slowed:
            _hold(gang, gang.gpus, 0.0)
            gang.slowed = False
    paces_s = [[gpu.read().residents[gang.id].time_s for gpu in gang.gpus] for gang in running]
    for gang, times_s in zip(running, paces_s, strict=True):
        slowest_s = max(times_s)
        faster = [gpu for gpu, time_s in zip(gang.gpus, times_s, strict=True) if time_s < slowest_s]
        if faster:
            _hold(gang, faster, slowest_s)
            gang.slowed = True


def _hold(gang: TaskRun, gpus: Sequence[GpuState], time_s: float) -> None:
    for gpu in gpus:
        gpu.require_sharing("a gang").hold(gang.id, time_s)
        gpu.invalidate()
