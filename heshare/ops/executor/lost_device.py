"""A GPU of a run that is missing when the run is resumed."""

import math
from collections.abc import Callable

from heshare.devices.device import Progress, Reading, TaskFailure
from heshare.ops.executor.executor_device import Attempt, ExecutorDevice
from heshare.ops.mps import TIME_SLICE
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload


class LostDevice(ExecutorDevice):
    """A GPU that is lost from the beginning, for `reason`: what is started there fails at once, free of charge."""

    sharing = TIME_SLICE

    def __init__(self, name: str, uuid: str, reason: str, now_s: Callable[[], float]) -> None:
        super().__init__(gpu(name), uuid, now_s, Reading(now_s(), None, 0.0, 0.0, 0.0))
        self.lost = reason
        self.note(f"lost: {reason}", "gpu-lost")

    def update(self, *, force: bool = False) -> None:
        """There is nothing to read."""

    def set_clock(self, sm_mhz: int | None) -> None:
        """There is nothing to set."""

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        self._residents[task_id] = Progress(task_id, Resident(workload, mps_pct), 0.0, math.inf)
        self._failed.append(TaskFailure(task_id, "lost", self.lost, charged=False))

    def stop(self, task_id: int) -> float:
        self._require_running(task_id)
        self._failed = [failure for failure in self._failed if failure.task_id != task_id]
        self._remove(task_id)
        return 0.0

    def read(self) -> Reading:
        return self._reading(dict(self._residents))

    def next_event_s(self) -> float:
        return self._now_s() if self._failed else math.inf

    def advance(self, to_s: float) -> list[int]:
        return []

    def take_failures(self) -> list[TaskFailure]:
        for failure in self._failed:
            self._remove(failure.task_id)
        return super().take_failures()

    def descriptors(self) -> list[int]:
        return []

    def attempts(self) -> dict[int, Attempt]:
        return {}

    def _remove(self, task_id: int) -> None:
        del self._residents[task_id]
        self.ended[task_id] = Attempt(0, math.nan, math.nan, 0.0, 0.0, None, "", 0.0, (), 0.0)
