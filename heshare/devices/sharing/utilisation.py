"""GPU utilisation as the driver reports it: the part of time in which some kernel runs."""

from __future__ import annotations

from functools import lru_cache

from heshare.devices.constants import default
from heshare.devices.sharing.training import training_part
from heshare.devices.timing import part
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


@lru_cache(maxsize=4096)
def busy_alone(gpu: Gpu, workload: Workload) -> float:
    """The part of its time in which a workload's kernels run, alone on an emulated GPU at the top clock, 0 to 1.

    Raises:
        InputError: the workload or the GPU is not known to the calibrated model.
    """
    known, resident = default(), Resident(workload)
    one = (training_part if workload.phase == "training" else part)(known, gpu.name, resident)
    return min(1.0, one.gpu_s(1.0, 1.0) / one.time_s(1.0, 1.0))
