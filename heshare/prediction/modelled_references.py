"""Task features of GPUs and workloads that no profile holds: the device model's answers for each workload alone."""

import warnings

import numpy as np

from heshare.devices.device_model import co_run
from heshare.prediction.features import ReferenceFeatures
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import NotProfiledError
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.workload import Resident, Workload


class UnprofiledWarning(UserWarning):
    """Some predictions rest on the device model's answers for a workload alone, not on a profile."""


class ModelledReferences(ReferenceFeatures):
    """Reference rows of profiles, and of the device model for what these do not hold, with an `UnprofiledWarning`.

    Shared runs are not taken from the device model, so that a scheduler sees no more than of a recorded GPU.
    """

    def idle_of(self, gpu: str) -> float:
        """Return the power of a GPU with nothing running, W."""
        try:
            return super().idle_of(gpu)
        except NotProfiledError:
            self._tell(gpu, gpu)
            return co_run(find_gpu(gpu), ()).power_w

    def task(self, gpu: str, workload: Workload) -> FloatArray:
        """Return SM, memory bandwidth and L2 utilisation (%), time (s) and GPU power (W) of a workload alone, (5,)."""
        try:
            return super().task(gpu, workload)
        except NotProfiledError:
            if gpu in self.idle_w:
                plain = Workload("", 1)
                precision = f" in {workload.precision.upper()}" * (workload.precision != plain.precision)
                engine = f" by {workload.engine}" * (workload.engine != plain.engine)
                self._tell(f"{workload.model}{precision}{engine} on {gpu}", gpu)

            answer = co_run(find_gpu(gpu), (Resident(workload),))
            (task,) = answer.tasks
            utilisations = [task.sm_util_pct, task.dram_util_pct, task.l2_util_pct]
            return np.array([*utilisations, task.time_s, answer.power_w])

    def _tell(self, name: str, gpu: str) -> None:
        warnings.warn(
            f"no profile of {name}: predicted from the device model's answers for each workload alone. To plan with a "
            f"profile: heshare profile --device emulated:{gpu} --out FOLDER (nvml:0 for a GPU of this machine), then "
            "--profiles FOLDER.",
            UnprofiledWarning,
            stacklevel=2,
        )
