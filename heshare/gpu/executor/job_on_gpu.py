"""One attempt at a job on a GPU of the executor: its process, its time limit, how it ended and its share of energy."""

import contextlib
import math
import os
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from heshare.devices.device import Progress, TaskFailure
from heshare.gpu.workers.job_process import AssignedJob
from heshare.gpu.workers.launcher import Worker
from heshare.world.workload import Resident

_OUT_OF_MEMORY = re.compile(r"out of (GPU )?memory|OutOfMemory|OUT_OF_MEMORY|MemoryError|ALLOC_FAILED", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The record of one attempt at a job.

    Attributes:
        number: from 1.
        began_s: when its process had been started, s; NaN if it never was.
        released_s: when it had loaded and was allowed to begin, s; NaN if it never was.
        energy_j: its share of the GPU's energy, which its residents of each moment share equally, J. NVML does not
            report the energy of one client, so this is an attribution, not a measurement.
        exit_code: of its process, None where that does not apply.
        log: its output.
        sm_mhz: the clock at its end, MHz.
        limits: what held the clock down while it ran.
        gpu_j: the energy of the GPU by its end, J, on the account of its device.
    """

    number: int
    began_s: float
    released_s: float
    energy_j: float
    exit_code: int | None
    log: str
    sm_mhz: float
    limits: tuple[str, ...]
    gpu_j: float


@dataclass(slots=True)
class JobOnGpu:
    """A job on a GPU, waiting for memory or running.

    Attributes:
        job: the job.
        resident: the workload that it was planned as, and its share.
        iterations: how many it is to do.
        requested_s: when its start was requested, s.
        began_s: when its process was started, s; NaN before.
        worker: its process, None as long as it waits for memory.
        energy_j: its share of energy so far, J.
        number: of the attempt.
        released_s: when it was allowed to begin, s; NaN before.
        failure: how it will have failed once its process has ended.
        stopping: the thread that ends its process, None as long as it may run.
        descriptor: readable as soon as its process has ended, or -1.
        limits: what was seen to hold the clock down while it ran.
    """

    task_id: int
    job: AssignedJob
    resident: Resident
    iterations: float
    requested_s: float
    began_s: float = math.nan
    worker: Worker | None = None
    energy_j: float = 0.0
    number: int = 0
    released_s: float = math.nan
    failure: TaskFailure | None = None
    stopping: threading.Thread | None = None
    descriptor: int = -1
    limits: set[str] = field(default_factory=set)

    def set_worker(self, worker: Worker, now_s: float, number: int) -> None:
        """Take over its process, which has just been started."""
        self.worker, self.began_s, self.number = worker, now_s, number
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.descriptor = os.pidfd_open(worker.pid)

    @property
    def loading(self) -> bool:
        """Whether its process has started and not yet been allowed to begin."""
        return self.worker is not None and math.isnan(self.released_s) and self.stopping is None

    def deadline_s(self) -> float:
        """Return when its time limit ends, s; `inf` for never."""
        limit_s = self.job.spec.timeout_s
        return math.inf if limit_s is None or math.isnan(self.began_s) else self.began_s + limit_s

    def begin_stop(self, failure: TaskFailure) -> None:
        """Have its process ended, without waiting for that."""
        if self.stopping is None and self.worker is not None:
            self.failure = failure
            self.close_descriptor()
            self.stopping = threading.Thread(target=self.worker.stop, daemon=True)
            self.stopping.start()

    def ended_failure(self) -> TaskFailure | None:
        """Return how it has failed, if it has and its process has ended."""
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
        """Return how far it is; the time of an iteration is `inf` where it is unknown."""
        time_s = math.nan if self.worker is None else self.worker.time_s
        done = 0.0 if self.worker is None else min(self.iterations, self.worker.done)
        return Progress(self.task_id, self.resident, done, time_s if time_s > 0 else math.inf)

    def attempt(self, sm_mhz: float, gpu_j: float) -> Attempt:
        """Return its record so far, with the GPU's clock and energy."""
        log: Path | None = getattr(self.worker, "log", None)
        code: int | None = getattr(self.worker, "exit_code", None)
        limits = tuple(sorted(self.limits))
        return Attempt(
            self.number, self.began_s, self.released_s, self.energy_j, code, str(log or ""), sm_mhz, limits, gpu_j
        )

    def close_descriptor(self) -> None:
        """Close the descriptor of its process. May be repeated."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def release_together(residents: Iterable[JobOnGpu], now_s: float) -> None:
    """Allow the jobs that load to begin once every one of them is ready, so that a batch begins together."""
    loading = [resident for resident in residents if resident.loading]
    if all(resident.worker is not None and resident.worker.ready for resident in loading):
        for resident in loading:
            go = getattr(resident.worker, "go", None)
            if go is not None:
                go()
            resident.released_s = now_s
