"""The tasks on a live device: a worker process each, started only where there is room, ended whatever happens."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from heshare.devices.device import Progress
from heshare.devices.launcher import Launcher, Worker
from heshare.errors import DeviceError
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
        """Seconds until it completes at its present pace; 0 where that is not known."""
        left_s = (self.iterations - self.worker.done) * self.worker.time_s
        return 0.0 if math.isnan(left_s) else max(0.0, left_s)


class Tasks:
    """Workers by task id.

    Args:
        launcher: what starts workers.
        gpu: the GPU that they share.
        uuid: its UUID.
        timeout_s: how long a worker may take until its first iteration, s.
    """

    def __init__(self, launcher: Launcher, gpu: Gpu, uuid: str, *, timeout_s: float) -> None:
        self._launcher, self._gpu, self._uuid, self._timeout_s = launcher, gpu, uuid, timeout_s
        self._running: dict[int, _Running] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(self, task_id: int, resident: Resident, iterations: float | None, *, free_mib: float) -> None:
        """Start a worker and wait for its first iteration.

        Args:
            task_id: its id.
            resident: its workload and share.
            iterations: how many it is to do; None runs until stopped.
            free_mib: memory that is free on the card now, MiB.

        Raises:
            DeviceError: the id runs already, there is no room, or the worker does not come up.
        """
        needed_mib = memory_mib(resident.workload)
        self._check_room(task_id, resident, needed_mib, free_mib)
        worker = self._launcher.start(task_id, resident.workload, resident.mps_pct, iterations, gpu_uuid=self._uuid)
        try:
            self._await(worker, task_id, resident)
        except BaseException:
            worker.stop()
            raise
        wanted = math.inf if iterations is None else float(iterations)
        self._running[task_id] = _Running(resident, wanted, worker, needed_mib)

    def stop(self, task_id: int) -> float:
        """Stop a worker, finished, failed or not; returns its completed iterations.

        Raises:
            DeviceError: no such task runs here.
        """
        if task_id not in self._running:
            raise self._refusal(f"no task {task_id} runs here", "Stop only what was started and has not completed.")
        one = self._running.pop(task_id)
        return min(one.iterations, one.worker.stop())

    def stop_all(self) -> None:
        """Stop every worker."""
        while self._running:
            self._running.popitem()[1].worker.stop()

    def poll(self) -> None:
        """Take in what the workers say.

        Raises:
            DeviceError: one has failed; it stays until it is stopped, and each poll says so again.
        """
        for task, one in self._running.items():
            one.worker.poll()
            if one.worker.failure is not None:
                found = f"task {task} ({one.resident}) failed: {one.worker.failure}"
                raise self._refusal(found, "Stop it; what was measured with it cannot be used.")

    def take_finished(self) -> list[int]:
        """Poll, and end the workers that are done; returns their ids.

        Raises:
            DeviceError: one has failed.
        """
        self.poll()
        finished = [task for task, one in self._running.items() if one.worker.finished]
        for task in finished:
            self.stop(task)
        return finished

    def progress(self) -> dict[int, Progress]:
        """How far each is, by id."""
        return {
            task: Progress(task, one.resident, min(one.iterations, one.worker.done), one.worker.time_s)
            for task, one in self._running.items()
        }

    def remaining_s(self) -> float:
        """Seconds until the next completion at the present pace; `inf` where none will come."""
        return min((one.remaining_s for one in self._running.values()), default=math.inf)

    def _check_room(self, task_id: int, resident: Resident, needed_mib: float, free_mib: float) -> None:
        if task_id in self._running:
            raise self._refusal(f"task {task_id} runs here already", "Stop it first.")
        if len(self._running) >= self._gpu.mps_clients:
            raise self._refusal(f"{self._gpu.mps_clients} tasks run already", "Wait for one to end.")
        room_mib = self._gpu.memory_mib - sum(one.memory_mib for one in self._running.values())
        free_mib = min(room_mib, free_mib)
        if needed_mib > free_mib:
            found = f"{resident.workload} needs {needed_mib:.0f} MiB, {free_mib:.0f} are free"
            raise self._refusal(found, "Wait, or split.")

    def _await(self, worker: Worker, task_id: int, resident: Resident) -> None:
        until = time.monotonic() + self._timeout_s
        while True:
            worker.poll()
            if worker.failure is not None:
                raise self._refusal(f"task {task_id} ({resident}) failed: {worker.failure}", "See its log.")
            if worker.finished or (worker.ready and worker.time_s > 0):
                return
            if time.monotonic() >= until:
                found = f"task {task_id} ({resident}) did nothing within {self._timeout_s:g} s"
                raise self._refusal(found, "See its log, or allow more time.")
            time.sleep(_POLL_S)

    def _refusal(self, found: str, action: str) -> DeviceError:
        return DeviceError(f"{self._gpu.name} ({self._uuid}): {found}. {action}")
