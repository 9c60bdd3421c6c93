"""Base class of the GPUs that run jobs, and what they share."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from heshare.devices.device import Progress, Reading, TaskFailure
from heshare.lab.tenants.measured_work import MeasuredWork
from heshare.ops.executor.operator_log import Note
from heshare.ops.nvml.guarded_gpu import DEADLINE_S
from heshare.shared.errors import DeviceError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Waiting times of the executor, s.

    Attributes:
        poll_s: between two polls of a GPU while jobs run.
        memory_s: for memory that another process holds.
        nvml_s: for a call of NVML; then its process is replaced, and the GPU takes no new jobs until it replies. The
            first call, which may load the driver, has three times as long.
        shared_s: failures on one GPU within so long of each other are one failure of what they share.
        grace_s: for a command to end after SIGTERM.
        settle_s: after a change of a GPU's jobs or clock, until a reading of its power below a power limit counts.
        mps_pauses_s: before the first restart of an MPS daemon that ends again and again, the second, ...; after the
            last one the GPU goes on by time-slicing.
    """

    poll_s: float = 1.0
    memory_s: float = 60.0
    nvml_s: float = DEADLINE_S
    shared_s: float = 2.0
    grace_s: float = 5.0
    settle_s: float = 10.0
    mps_pauses_s: tuple[float, ...] = (1.0, 4.0, 15.0)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The record of one attempt at a job.

    Attributes:
        began_s: when its process had been started, s; NaN if it never was.
        released_s: when it had loaded and was allowed to begin, s; NaN if it never was.
        energy_j: its share of the GPU's energy, which its residents of each moment share equally, J. NVML does not
            report the energy of one client, so this is an attribution, not a measurement.
        energy_model_j: its share with the power above idle divided by what each draws alone (`heshare.lab.tenants`), J.
        exit_code: of its process, None where that does not apply.
        sm_mhz: the clock at its end, MHz.
        limits: what held the clock down while it ran.
        gpu_j: the energy of the GPU by its end, J, on the account of its device.
        measured: what it has shown, beside what the device model has for it.
    """

    number: int
    began_s: float
    released_s: float
    energy_j: float
    energy_model_j: float
    exit_code: int | None
    log: str
    sm_mhz: float
    limits: tuple[str, ...]
    gpu_j: float
    measured: MeasuredWork = field(default_factory=MeasuredWork)


class ExecutorDevice:
    """A GPU that runs jobs: a `Device` with accounts of its jobs and of its energy.

    `now_s` is the time that all devices of the run share.

    Attributes:
        requested_mhz: the clock that was requested, MHz; None for the card's own.
        lost: why the GPU can no longer be used; empty as long as it can.
        drained: why nothing new may start on it, for now or for good, while its jobs run on; empty as long as it may.
        ended: the records of attempts that have ended, by task, until they are taken out.
        idle_j: energy while nothing ran, J.
        counter_j: its energy counter when it was taken for the run, J; None where that is unknown.
        estimated_j: the part of its energy that is an integral of power readings, J; the rest is its counter's.
        unknown_s: time whose energy is unknown, and on no account, s.
    """

    provenance = "measured"

    def __init__(self, gpu: Gpu, uuid: str, now_s: Callable[[], float], latest: Reading) -> None:
        self.gpu, self.uuid, self.latest = gpu, uuid, latest
        self.requested_mhz: int | None = None
        self.lost = self.drained = ""
        self.ended: dict[int, Attempt] = {}
        self.counter_j: float | None = None
        self.idle_j = self.estimated_j = self.unknown_s = 0.0
        self.notes: list[str] = []
        self._now_s = now_s
        self._residents: dict[int, Any] = {}
        self._failed: list[TaskFailure] = []

    @property
    def running(self) -> int:
        return len(self._residents)

    @property
    def state(self) -> str:
        """`lost`, `drained` (its jobs run on, nothing new may start) or `ok`, as the journal and the report have it."""
        return "lost" if self.lost else "drained" if self.drained else "ok"

    def note(self, text: str, event: str = "note") -> None:
        """Tell the operator something about the GPU: as the named event on stderr, and as a note in the report."""
        self.notes.append(Note.at(self._now_s(), text, event))

    def start_as(self, task_id: int, resident: Resident, iterations: float | None = None) -> None:
        """Refuse another way of sharing than MPS; `DeviceError`."""
        found = f"{self.gpu.name} ({self.uuid}): sharing by {resident.sharing} is not possible"
        raise DeviceError(f"{found}; it shares by MPS alone. Use a policy that needs no more, or emulated GPUs.")

    def hold(self, task_id: int, time_s: float) -> None:
        """Do nothing: the processes of a real gang wait for each other by themselves."""

    def began_s(self, task_id: int) -> float:
        """Return when a job began, s: inf while its process loads or its start waits, and -inf without such a job."""
        return -math.inf

    def take_failures(self) -> list[TaskFailure]:
        failed, self._failed = self._failed, []
        return failed

    def attempts(self) -> dict[int, Attempt]:
        raise NotImplementedError

    def shares_j(self) -> dict[int, float]:
        """Return the energy so far of each job on it, and of those in `ended`, in equal shares, J."""
        return {task: attempt.energy_j for task, attempt in (self.ended | self.attempts()).items()}

    def model_shares_j(self) -> dict[int, float]:
        """Return the same energies with the power above idle divided by what each job draws alone, J."""
        return {task: attempt.energy_model_j for task, attempt in (self.ended | self.attempts()).items()}

    def _reading(self, progress: dict[int, Progress], **more: Any) -> Reading:
        # The power of a lost GPU is unknown; no value is invented for it.
        power_w = 0.0 if self.lost else self.latest.power_w
        return replace(self.latest, time_s=self._now_s(), residents=progress, power_w=power_w, **more)

    def _require_running(self, task_id: int) -> None:
        if task_id not in self._residents:
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): no job {task_id} on it. Stop only what runs.")
