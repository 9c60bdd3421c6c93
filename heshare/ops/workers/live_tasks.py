"""The tasks on a live device: a worker process each, started only if the memory is free, ended whatever happens."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from heshare.devices.device import Progress
from heshare.ops.workers.launcher import Launcher, Worker
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

_POLL_S = 0.005


@dataclass(slots=True)
class _Running:
    resident: Resident
    iterations: float
    worker: Worker
    memory_mib: float

    @property
    def remaining_s(self) -> float:
        left_s = (self.iterations - self.worker.done) * self.worker.time_s
        return 0.0 if math.isnan(left_s) else max(0.0, left_s)


class LiveTasks:
    """Worker processes of the tasks on a live device, by task id."""

    def __init__(self, launcher: Launcher, gpu: Gpu, uuid: str, *, timeout_s: float) -> None:
        self._launcher, self._gpu, self._uuid, self._timeout_s = launcher, gpu, uuid, timeout_s
        self._running: dict[int, _Running] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(
        self, requested: Mapping[int, Resident], iterations: float | None, *, free_mib: Callable[[], float]
    ) -> None:
        """Start workers at once, wait until each is ready, let them begin together; all of them or none.

        Loading and warming up take seconds: at once they take as long as the slowest, not as long as their sum.
        """
        self._check_room(requested, free_mib)
        workers: dict[int, Worker] = {}
        try:
            for task, one in requested.items():
                worker = self._launcher.start(task, one.workload, one.mps_pct, iterations, gpu_uuid=self._uuid)
                workers[task] = worker
                if len(requested) == 1:
                    worker.go()  # without waiting for others
            self._await(workers, requested, lambda worker: worker.ready)
            for worker in workers.values():
                worker.go()
            self._await(workers, requested, lambda worker: worker.finished or worker.time_s > 0)
        except BaseException:
            for started in workers.values():
                started.stop()
            raise
        limit = math.inf if iterations is None else iterations
        for task, one in requested.items():
            self._running[task] = _Running(one, limit, workers[task], memory_mib(one.workload))

    def stop(self, task_id: int) -> float:
        if task_id not in self._running:
            raise self._refusal(f"no task {task_id} runs here", "Stop only what was started and has not completed.")
        one = self._running.pop(task_id)
        return min(one.iterations, one.worker.stop())

    def stop_all(self) -> None:
        while self._running:
            self._running.popitem()[1].worker.stop()

    def poll(self) -> None:
        for task, one in self._running.items():
            one.worker.poll()
            if one.worker.failure is not None:
                found = f"task {task} ({one.resident}) failed: {one.worker.failure}"
                raise self._refusal(found, "Stop it; what was measured with it cannot be used.")

    def take_finished(self) -> list[int]:
        """Poll, and end the workers that are done; return their ids."""
        self.poll()
        finished = [task for task, one in self._running.items() if one.worker.finished]
        for task in finished:
            self.stop(task)
        return finished

    def progress(self) -> dict[int, Progress]:
        return {
            task: Progress(task, one.resident, min(one.iterations, one.worker.done), one.worker.time_s)
            for task, one in self._running.items()
        }

    def remaining_s(self) -> float:
        """Return the seconds until the next completion at the present pace; `inf` if nothing runs."""
        return min((one.remaining_s for one in self._running.values()), default=math.inf)

    def _check_room(self, requested: Mapping[int, Resident], free_mib: Callable[[], float]) -> None:
        for task in requested:
            if task in self._running:
                raise self._refusal(f"task {task} runs here already", "Stop it first.")
        if len(self._running) + len(requested) > self._gpu.mps_clients:
            found = f"{len(self._running)} tasks run already, of {self._gpu.mps_clients} that may"
            raise self._refusal(found, "Wait for one to end.")
        needed_mib = sum(memory_mib(one.workload) for one in requested.values())
        room_mib = self._gpu.memory_mib - sum(one.memory_mib for one in self._running.values())
        left_mib = min(room_mib, free_mib())
        if left_mib < needed_mib <= room_mib:
            # Processes that are kept warm hold memory which the tasks need more.
            self._launcher.shed()
            left_mib = min(room_mib, free_mib())
        if needed_mib > left_mib:
            what = ", ".join(str(one.workload) for one in requested.values())
            raise self._refusal(f"{what} needs {needed_mib:.0f} MiB, {left_mib:.0f} are free", "Wait, or split.")

    def _await(
        self, workers: Mapping[int, Worker], requested: Mapping[int, Resident], reached: Callable[[Worker], bool]
    ) -> None:
        until, waiting = time.monotonic() + self._timeout_s, dict(workers)
        while True:
            for task, worker in list(waiting.items()):
                worker.poll()
                if worker.failure is not None:
                    raise self._refusal(f"task {task} ({requested[task]}) failed: {worker.failure}", "See its log.")
                if reached(worker):
                    del waiting[task]
            if not waiting:
                return
            if time.monotonic() >= until:
                late = ", ".join(f"task {task} ({requested[task]})" for task in waiting)
                raise self._refusal(
                    f"{late} did nothing within {self._timeout_s:g} s", "See its log, or allow more time."
                )
            time.sleep(_POLL_S)

    def _refusal(self, found: str, action: str) -> DeviceError:
        return DeviceError(f"{self._gpu.name} ({self._uuid}): {found}. {action}")
