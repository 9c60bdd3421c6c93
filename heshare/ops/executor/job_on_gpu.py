"""A job on a GPU: it waits for memory until it has a process, loads, runs, and ends or is ended."""

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
    """The record of an attempt at a job that is over.

    Attributes:
        number: which attempt at the job it was.
        began_s: when its process had been started, s; NaN if it never was.
        released_s: when it had loaded and was allowed to begin, s; NaN if it never was.
        energy_j: its share of the GPU's energy, J.
        exit_code: of its process, None where that does not apply.
        log: its output.
        sm_mhz: the clock at its end, MHz.
        limits: what held the clock down while it ran.
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
        requested_s: when the policy started it, s.
        worker: its process; None as long as its start waits.
        failure: how it will have failed once its process has ended.
        stopping: the thread that ends its process; None as long as it may run.
        descriptor: readable as soon as its process has ended, or None.
        limits: what was seen to hold the clock down while it ran.
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
        """Whether it has a process that was not allowed to begin yet."""
        return self.worker is not None and math.isnan(self.released_s) and self.stopping is None

    @property
    def finished(self) -> bool:
        return self.worker is not None and self.worker.finished and self.stopping is None

    @property
    def deadline_s(self) -> float:
        """When it has taken too long, s."""
        limit_s = self.job.spec.timeout_s
        return math.inf if limit_s is None or math.isnan(self.began_s) else self.began_s + limit_s

    def begin_stop(self, kind: str, reason: str, *, charged: bool = False, alone: bool = False) -> None:
        """Have its process ended, without waiting for that; then the attempt has failed as `TaskFailure` describes."""
        if self.stopping is None and self.worker is not None:
            self.failure = TaskFailure(self.task_id, kind, reason, charged, alone)
            self.close_descriptor()
            self.stopping = Thread(target=self.worker.stop, daemon=True)
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
        """Return its progress as a device reports it."""
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
        """Stop watching its process."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
