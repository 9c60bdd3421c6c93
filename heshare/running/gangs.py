"""Gangs: tasks on several GPUs, whose iterations run in lockstep at the pace of the slowest GPU."""

from collections.abc import Callable, Sequence

from heshare.running.state import GpuState, TaskRun


def keep_lockstep(changed: list[GpuState], advance: Callable[[GpuState], object]) -> None:
    """Set the pace of every gang that a change may have slowed down or sped up to that of its slowest GPU.

    `changed` are at the present; the GPUs of their gangs are appended by `advance`, which brings them to the present.
    """
    gangs: dict[int, TaskRun] = {}
    at = 0
    while at < len(changed):
        for gang in [task for task in changed[at].tasks.values() if len(task.gpus) > 1 and task.running]:
            gangs[gang.id] = gang
            for gpu in gang.gpus:
                if not gpu.changed:
                    advance(gpu)
        at += 1

    # A gang may have completed while its GPUs were advanced.
    running = [gang for gang in gangs.values() if gang.gpus]
    for gang in running:
        if gang.slowed:
            _hold(gang, gang.gpus, 0.0)
            gang.slowed = False

    # All paces are read before any gang is held: holding one does not change the pace of another.
    paces_s = [[gpu.read().residents[gang.id].time_s for gpu in gang.gpus] for gang in running]
    for gang, times_s in zip(running, paces_s, strict=True):
        slowest_s = max(times_s)
        faster = [gpu for gpu, time_s in zip(gang.gpus, times_s, strict=True) if time_s < slowest_s]
        if faster:
            _hold(gang, faster, slowest_s)
            gang.slowed = True


def _hold(gang: TaskRun, gpus: Sequence[GpuState], time_s: float) -> None:
    for gpu in gpus:
        gpu.device.hold(gang.id, time_s)
        gpu.forget()
