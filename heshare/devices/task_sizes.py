"""Task sets whose durations become iterations by the emulated time alone on an A100 (Section IV, System Setup)."""

from functools import cache, partial

from heshare.devices.device_model import co_run
from heshare.world.catalogue import gpu
from heshare.world.task_set import task_set
from heshare.world.workload import Resident, Workload

SIZED_ON = "A100"


@cache
def time_alone_s(workload: Workload) -> float:
    """Return the seconds per iteration of a workload alone on an A100 at its top clock, by the device model."""
    return co_run(gpu(SIZED_ON), (Resident(workload),)).tasks[0].time_s


draw = partial(task_set, time_alone_s=time_alone_s)
"""Returns a task set by MISO's recipe, sized by `time_alone_s`; arguments as `heshare.world.task_set.task_set`."""
