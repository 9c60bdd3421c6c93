"""The jobs on one GPU of the executor: how long each may take, how it ended, what energy was its share."""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from heshare.devices.command import Assigned
from heshare.devices.device import Progress
from heshare.devices.failing import Failed
from heshare.devices.launcher import Worker
from heshare.world.workload import Resident

_OUT_OF_MEMORY = re.compile(r"out of (GPU )?memory|OutOfMemory|OUT_OF_MEMORY|MemoryError|ALLOC_FAILED", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is known of one attempt that is over.

    Attributes:
        number: from 1.
        began_s: when its process had been started, s; NaN if it never was.
        released_s: when it had loaded and was given the word to begin, s; NaN if it never was.
        energy_j: its share of the GPU's energy, which its residents of each moment share equally, J. NVML cannot tell
            the energy of one client, so this is an attribution, not a measurement.
        exit_code: of its process, None where that does not apply.
        log: its output.
        sm_mhz: the clock at its end, MHz.
        limits: what held the clock down while it ran.
        gpu_j: what the GPU had spent by its end, J, on the account of its device.
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
class Occupant:
    """A job on the GPU.

    Attributes:
        job: what it is.
        resident: what it was planned as, and its share.
        iterations: that it is to do.
        asked_s: when it was asked for, s.
        began_s: when its process was started, s; NaN before.
        worker: its process, None as long as it waits for memory.
        energy_j: its share of energy so far, J.
        number: of the attempt.
        released_s: when it was given the word to begin, s; NaN before.
        fate: how it will have failed once its process has been ended.
        ending: the thread that ends it.
        descriptor: what tells at once that its process has ended, or -1.
        limits: what was seen to hold the clock down while it ran.
    """

    task_id: int
    job: Assigned
    resident: Resident
    iterations: float
    asked_s: float
    began_s: float = math.nan
    worker: Worker | None = None
    energy_j: float = 0.0
    number: int = 0
    released_s: float = math.nan
    fate: Failed | None = None
    ending: threading.Thread | None = None
    descriptor: int = -1
    limits: set[str] = field(default_factory=set)

    def started(self, worker: Worker, now_s: float, number: int) -> None:
        """Its process is there."""
        self.worker, self.began_s, self.number = worker, now_s, number
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.descriptor = os.pidfd_open(worker.pid)

    @property
    def loading(self) -> bool:
        """Whether it is on its way to its first iteration."""
        return self.worker is not None and math.isnan(self.released_s) and self.ending is None

    def deadline_s(self) -> float:
        """When its time is up, s; `inf` for never."""
        limit_s = self.job.spec.timeout_s
        return math.inf if limit_s is None or math.isnan(self.began_s) else self.began_s + limit_s

    def overdue(self, now_s: float) -> bool:
        """Whether its time is up and nothing has been done about it."""
        return self.ending is None and now_s >= self.deadline_s()

    def end(self, fate: Failed) -> None:
        """Have its process ended, without waiting for that."""
        if self.ending is None and self.worker is not None:
            self.fate = fate
            self.forget_descriptor()
            self.ending = threading.Thread(target=self.worker.stop, daemon=True)
            self.ending.start()

    def failure(self) -> Failed | None:
        """How it has failed, if it has and its process is gone."""
        if self.ending is not None:
            return None if self.ending.is_alive() else self.fate
        if self.worker is None or self.worker.failure is None:
            return None
        reason = self.worker.failure
        tail = getattr(self.worker, "tail", None)
        memory = bool(_OUT_OF_MEMORY.search(reason + (tail() if tail is not None else "")))
        return Failed(self.task_id, "memory" if memory else "crash", reason, alone=memory)

    def progress(self) -> Progress:
        """How far it is; what does not tell its pace has none (`inf`)."""
        time_s = math.nan if self.worker is None else self.worker.time_s
        done = 0.0 if self.worker is None else min(self.iterations, self.worker.done)
        return Progress(self.task_id, self.resident, done, time_s if time_s > 0 else math.inf)

    def attempt(self, sm_mhz: float, gpu_j: float) -> Attempt:
        """What is known of it, now that it is over, with the GPU's clock and what the GPU has spent."""
        log: Path | None = getattr(self.worker, "log", None)
        code: int | None = getattr(self.worker, "exit_code", None)
        limits = tuple(sorted(self.limits))
        return Attempt(
            self.number, self.began_s, self.released_s, self.energy_j, code, str(log or ""), sm_mhz, limits, gpu_j
        )

    def forget_descriptor(self) -> None:
        """Close what told of its process's end."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def release_together(residents: Iterator[Occupant], now_s: float) -> None:
    """Give the word to those that load once every one of them is ready, so that a batch begins together."""
    loading = [one for one in residents if one.loading]
    if all(one.worker is not None and one.worker.ready for one in loading):
        for one in loading:
            go = getattr(one.worker, "go", None)
            if go is not None:
                go()
            one.released_s = now_s
