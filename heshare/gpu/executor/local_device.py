"""A GPU of this machine that runs jobs: they start without waiting, and fail without ending the run."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from heshare.devices.device import Reading, TaskFailure
from heshare.errors import DeviceError
from heshare.gpu.executor.gpu_readings import GpuReadings, Timeouts
from heshare.gpu.executor.job_on_gpu import Attempt, JobOnGpu, release_together
from heshare.gpu.mps import MPS, MpsSession
from heshare.gpu.nvml.nvml_device import NvmlDevice
from heshare.gpu.workers.job_process import AssignedJob, JobLauncher
from heshare.world.workload import Resident, Workload

_IDLE_POLLS_S = (0.5, 2.0, 10.0)
"""When an idle GPU is still polled, s after its last job: its power falls slowly."""
_SOON_S = 0.05


class LocalExecutorDevice:
    """The `ExecutorDevice` of a GPU of this machine, in wall time.

    Args:
        card: the GPU, with no tasks of its own.
        launcher: starts jobs.
        jobs: the jobs by task id.
        now_s: the time that all devices of the run share, s.
        mps: the session whose clients the jobs are.
        clocks: whether clocks may be set; if not, the GPU's top clock is taken as the only one.
        timeouts: how long to wait.

    Attributes:
        host: empty, for this machine.
        ended: the records of attempts that have ended, by task, until they are taken out.
        idle_j: energy while nothing ran, J.
        notes: notes for the operator, in order.
    """

    provenance = "measured"
    host = ""

    def __init__(
        self,
        card: NvmlDevice,
        launcher: JobLauncher,
        jobs: Mapping[int, AssignedJob],
        now_s: Callable[[], float],
        *,
        mps: MpsSession,
        clocks: bool,
        timeouts: Timeouts,
    ) -> None:
        self.gpu = card.gpu if clocks else replace(card.gpu, clocks_mhz=(card.gpu.max_mhz,))
        self.uuid = card.uuid
        self.ended: dict[int, Attempt] = {}
        self.idle_j = 0.0
        self._timeouts = timeouts
        self._readings = GpuReadings(card, now_s, timeouts.nvml_s)
        self.notes, self.note = self._readings.notes, self._readings.note
        self._launcher, self._jobs, self._now_s, self._mps, self._clocks = launcher, jobs, now_s, mps, clocks
        self._residents: dict[int, JobOnGpu] = {}
        self._failed: list[TaskFailure] = []
        self._requested_mhz: int | None = None
        self._first_failure: tuple[float, int] = (-math.inf, -1)
        self._idle_since_s = -math.inf

    @property
    def latest(self) -> Reading:
        """The latest reading of the GPU."""
        return self._readings.latest

    @property
    def lost(self) -> str:
        """The reason for which the GPU can no longer be used; empty as long as it can."""
        return self._readings.lost

    @property
    def sharing(self) -> str:
        """The way in which jobs share it: `mps` or `time-slice`."""
        return self._mps.sharing

    @property
    def running(self) -> int:
        """The number of jobs on it."""
        return len(self._residents)

    def update(self, *, force: bool = False) -> None:
        """Read the GPU, unless that was done a moment ago (or `force`)."""
        self._readings.update(force=force)

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request a clock; one that cannot be set is noted, and the GPU keeps its own.

        Raises:
            InputError: the clock is not on the grid.
        """
        if sm_mhz is not None:
            self.gpu.check_clock(sm_mhz)
        if not self._clocks or self._readings.set_clock(sm_mhz):
            self._requested_mhz = sm_mhz

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a job as soon as its memory is free; an error is a failure of the job, which `take_failures` returns.

        Raises:
            DeviceError: the id runs already, or there are too many clients.
        """
        if task_id in self._residents or len(self._residents) >= self.gpu.mps_clients:
            found = f"{self.running} jobs on it" if task_id not in self._residents else f"job {task_id} on it"
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): {found} already. Wait for one to end.")
        self._divide_energy()
        wanted = math.inf if iterations is None else iterations
        resident = JobOnGpu(task_id, self._jobs[task_id], Resident(workload, mps_pct), wanted, self._now_s())
        self._residents[task_id] = resident
        self._try_start(resident)

    def stop(self, task_id: int) -> float:
        """End a job; return the iterations that it did, which is none for a command.

        Raises:
            DeviceError: no such job runs here.
        """
        if task_id not in self._residents:
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): no job {task_id} on it. Stop only what runs.")
        self._divide_energy()
        resident = self._residents[task_id]
        done = 0.0 if resident.worker is None else resident.worker.stop()
        self._remove(resident)
        return min(done, resident.iterations)

    def stop_all(self) -> None:
        """End every job, all at once."""
        self._divide_energy()
        for resident in self._residents.values():
            resident.begin_stop(TaskFailure(resident.task_id, "lost", "the run ended", charged=False))
        self._join_stopping()
        self._divide_energy()
        for resident in list(self._residents.values()):
            self._remove(resident)

    def read(self) -> Reading:
        """Return its state at this moment, by the latest readings of the GPU."""
        residents = {task: resident.progress() for task, resident in self._residents.items()}
        self.update()
        latest = replace(self.latest, time_s=self._now_s(), residents=residents)
        if self.lost:
            # Its power is unknown from here on; no value is invented for it.
            return replace(latest, power_w=0.0)
        return replace(latest, requested_mhz=self._requested_mhz)

    def next_event_s(self) -> float:
        """Return when to poll it again, s: soon while jobs load or end, else after `poll_s`; `inf` once it is idle."""
        now_s = self._now_s()
        if self._failed:
            return now_s
        if not self._residents:
            ahead = [self._idle_since_s + after_s for after_s in _IDLE_POLLS_S if self._idle_since_s + after_s > now_s]
            return math.inf if self.lost else min(ahead, default=math.inf)
        residents = self._residents.values()
        if any(resident.loading or resident.stopping is not None for resident in residents):
            return now_s + _SOON_S
        deadline_s = min(resident.deadline_s() for resident in residents)
        # A process without a descriptor does not wake the run at its end, so it is polled more often.
        watched = all(resident.descriptor >= 0 for resident in residents)
        return max(now_s, min(deadline_s, now_s + (self._timeouts.poll_s if watched else _SOON_S)))

    def advance(self, to_s: float) -> list[int]:
        """Bring it to the present; return the jobs that completed."""
        self._divide_energy()
        for resident in self._residents.values():
            if resident.worker is None:
                self._try_start(resident)
            elif resident.stopping is None:
                resident.worker.poll()
        completed = self._take_completed()
        self._collect_failures()
        self._check_mps()
        now_s = self._now_s()
        for resident in self._residents.values():
            if resident.stopping is None and now_s >= resident.deadline_s():
                reason = f"took longer than its {resident.job.spec.timeout_s:g} s"
                resident.begin_stop(TaskFailure(resident.task_id, "timeout", reason))
        release_together(self._residents.values(), now_s)
        return completed

    def take_failures(self) -> list[TaskFailure]:
        """Return the attempts that failed since the last call."""
        failed, self._failed = self._failed, []
        return failed

    def descriptors(self) -> list[int]:
        """Return the file descriptors that become readable when a job's process ends."""
        return [resident.descriptor for resident in self._residents.values() if resident.descriptor >= 0]

    def attempts(self) -> dict[int, Attempt]:
        """Return the records so far of the attempts on it, by task."""
        return {task: self._attempt(resident) for task, resident in self._residents.items()}

    def shares_j(self) -> dict[int, float]:
        """Return the energy so far of each job on it, and of those in `ended`, J."""
        shares_j = {task: attempt.energy_j for task, attempt in self.ended.items()}
        return shares_j | {task: resident.energy_j for task, resident in self._residents.items()}

    def _try_start(self, resident: JobOnGpu) -> None:
        """Start its process if its memory is free; else wait for that."""
        waited_s = self._now_s() - resident.requested_s
        needed_mib, free_mib = resident.job.spec.memory_mib, self._free_for_mib(resident)
        if free_mib < needed_mib:
            if waited_s > self._timeouts.memory_s:
                reason = f"{needed_mib:.0f} MiB wanted, {free_mib:.0f} free for {waited_s:.0f} s"
                resident.failure = TaskFailure(resident.task_id, "memory", reason, charged=False)
            return
        workload, mps_pct = resident.resident.workload, resident.resident.mps_pct
        try:
            worker = self._launcher.start(resident.task_id, workload, mps_pct, resident.iterations, gpu_uuid=self.uuid)
        except DeviceError as error:
            resident.number = self._launcher.attempt(resident.task_id)
            resident.failure = TaskFailure(resident.task_id, "start", str(error))
            return
        resident.set_worker(worker, self._now_s(), self._launcher.attempt(resident.task_id))

    def _free_for_mib(self, newcomer: JobOnGpu) -> float:
        """Return the memory that neither the other jobs nor foreign processes need, MiB."""
        others = [one for one in self._residents.values() if one is not newcomer and one.worker is not None]
        ours_mib = sum(other.job.spec.memory_mib for other in others)
        # Jobs may not yet hold all that they need, so only what is held beyond that is foreign.
        foreign_mib = max(0.0, self.gpu.memory_mib - self._readings.free_mib() - ours_mib)
        return self.gpu.memory_mib - ours_mib - foreign_mib

    def _take_completed(self) -> list[int]:
        completed = []
        for task, resident in list(self._residents.items()):
            if resident.worker is not None and resident.worker.finished and resident.stopping is None:
                resident.worker.stop()
                self._remove(resident)
                completed.append(task)
        return completed

    def _collect_failures(self) -> None:
        for resident in list(self._residents.values()):
            failure = resident.ended_failure()
            if failure is not None:
                if resident.worker is not None:
                    resident.worker.stop()
                self._remove(resident)
                self._failed.append(self._classify(resident, failure))

    def _classify(self, resident: JobOnGpu, failure: TaskFailure) -> TaskFailure:
        """Return a failure soon after another one as one of what both share; the job that failed first is suspect."""
        now_s, (first_s, first_task) = self._now_s(), self._first_failure
        if failure.kind not in ("crash", "memory") or self._mps.sharing != MPS:
            return failure
        # A job that was started after the first failure has failed on its own.
        recent = resident.began_s <= first_s and now_s - first_s <= self._timeouts.shared_s
        if first_task != failure.task_id and recent:
            reason = f"failed with its neighbours on {self.uuid}: {failure.reason}"
            return TaskFailure(failure.task_id, "shared", reason, charged=False)
        self._first_failure = (now_s, failure.task_id)
        return replace(failure, alone=True) if self._residents else failure

    def _check_mps(self) -> None:
        """End all clients of an MPS daemon that has ended, as failed together, and start a new daemon."""
        if self._mps.alive() or self.lost:
            return
        recent = self._now_s() - self._first_failure[0] <= self._timeouts.shared_s
        alone = not recent and self.running == 1
        for resident in self._residents.values():
            reason = f"the MPS server of {self.uuid} went down"
            resident.begin_stop(TaskFailure(resident.task_id, "shared", reason, charged=False, alone=alone))
        self._join_stopping()
        self._collect_failures()
        self.note(f"the MPS server of {self.uuid} went down and was started again")
        self._mps.stop()
        self._mps.start()

    def _join_stopping(self) -> None:
        for resident in self._residents.values():
            if resident.stopping is not None:
                resident.stopping.join()

    def _remove(self, resident: JobOnGpu) -> None:
        resident.close_descriptor()
        del self._residents[resident.task_id]
        self.ended[resident.task_id] = self._attempt(resident)
        if not self._residents:
            self._idle_since_s = self._now_s()

    def _attempt(self, resident: JobOnGpu) -> Attempt:
        return resident.attempt(self.latest.sm_mhz, self.latest.energy_j)

    def _divide_energy(self) -> None:
        """Divide the energy since the last call equally among the jobs that ran; end those on a lost GPU."""
        spent_j = self._readings.take_spent_j()
        running = [resident for resident in self._residents.values() if resident.worker is not None]
        for resident in running:
            resident.energy_j += spent_j / len(running)
            resident.limits.update(self._readings.limits)
        if not running:
            self.idle_j += spent_j
        if self.lost:
            for resident in self._residents.values():
                failure = TaskFailure(resident.task_id, "lost", f"{self.uuid} was lost", charged=False)
                resident.begin_stop(failure)
                # A job that still waits for memory has no process to end, and fails at once.
                resident.failure = resident.failure or failure
