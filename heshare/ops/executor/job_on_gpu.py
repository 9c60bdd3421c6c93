"""State of a job on a GPU: waiting for memory, loading, running, and ending."""

import math
import os
import re
from dataclasses import dataclass, field
from threading import Thread

from heshare.devices.device import Progress, TaskFailure
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.workers.launcher import Worker
from heshare.world.workload import Resident

_OUT_OF_MEMORY = re.compile(r"out of (GPU )?memory|OutOfMemory|OUT_OF_MEMORY|MemoryError|ALLOC_FAILED", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Record of a finished attempt at a job.

    Attributes:
        number: of the attempt at the job.
        began_s: time at which its process had been started, s; NaN if it was not.
        released_s: time at which it had loaded and was allowed to begin, s; NaN if it was not.
        energy_j: its share of the GPU's energy, J.
        exit_code: of its process, or None.
        log: the file of its output.
        sm_mhz: the clock at its end, MHz.
        limits: clock limits that NVML reported while it ran.
    """

    number: int
    began_s: float
    released_s: float
    energy_j: float
    exit_code: int | None
    log: str
    sm_mhz: float
    limits: tuple[str, ...]


@dataclass(slots=True)
class JobOnGpu:
    """A job on a GPU; times as in `Attempt`.

    Attributes:
        requested_s: time at which the policy started it, s.
        worker: its process; None while its start waits.
        failure: its failure, which counts once its process has ended.
        stopping: the thread that ends its process, or None.
        descriptor: readable as soon as its process has ended, or None.
        limits: clock limits that NVML reported while it ran.
    """

    task_id: int
    job: AssignedJob
    resident: Resident
    iterations: float
    requested_s: float
    worker: Worker | None = None
    number: int = 0
    began_s: float = math.nan
    released_s: float = math.nan
    energy_j: float = 0.0
    failure: TaskFailure | None = None
    stopping: Thread | None = None
    descriptor: int | None = None
    limits: set[str] = field(default_factory=set)

    @property
    def loading(self) -> bool:
        """Whether its process has not been allowed to begin yet."""
        return self.worker is not None and math.isnan(self.released_s) and self.stopping is None

    @property
    def finished(self) -> bool:
        return self.worker is not None and self.worker.finished and self.stopping is None

    @property
    def deadline_s(self) -> float:
        """The time at which it exceeds its time limit, s."""
        limit_s = self.job.spec.timeout_s
        return math.inf if limit_s is None or math.isnan(self.began_s) else self.began_s + limit_s

    def begin_stop(self, kind: str, reason: str, *, charged: bool = False, alone: bool = False) -> None:
        """Begin to end its process in another thread; the attempt then fails with this `TaskFailure`."""
        if self.stopping is None and self.worker is not None:
            self.failure = TaskFailure(self.task_id, kind, reason, charged, alone)
            self.close_descriptor()
            self.stopping = Thread(target=self.worker.stop, daemon=True)
            self.stopping.start()

    def ended_failure(self) -> TaskFailure | None:
        """Return its failure, if it has failed and its process has ended."""
        if self.worker is None:
            return self.failure
        if self.stopping is not None:
            return None if self.stopping.is_alive() else self.failure
        if self.worker.failure is None:
            return None

        reason = self.worker.failure
        tail = getattr(self.worker, "tail", None)
        memory = bool(_OUT_OF_MEMORY.search(reason + (tail() if tail is not None else "")))
        return TaskFailure(self.task_id, "memory" if memory else "crash", reason, alone=memory)

    def progress(self) -> Progress:
        """Return its progress for a reading of the device."""
        time_s = math.nan if self.worker is None else self.worker.time_s
        done = 0.0 if self.worker is None else min(self.iterations, self.worker.done)
        return Progress(self.task_id, self.resident, done, time_s if time_s > 0 else math.inf)

    def attempt(self, sm_mhz: float) -> Attempt:
        """Return its record; `sm_mhz` is the clock now, MHz."""
        return Attempt(
            number=self.number,
            began_s=self.began_s,
            released_s=self.released_s,
            energy_j=self.energy_j,
            exit_code=getattr(self.worker, "exit_code", None),
            log=str(getattr(self.worker, "log", "")),
            sm_mhz=sm_mhz,
            limits=tuple(sorted(self.limits)),
        )

    def close_descriptor(self) -> None:
        """Close the descriptor of its process."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
