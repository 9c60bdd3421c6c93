"""A GPU of this machine as a `Device` in wall time that runs the executor's jobs: starts do not block, jobs can fail.

`CardSampler` reads the GPU; its readings may be late or missing. The GPU's energy is divided among the jobs that run
(`heshare.running.task_energy`), so that the energies of jobs and idle time sum to the GPU's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from heshare.devices.device import Device, Progress, Reading, TaskFailure
from heshare.ops.clocks import ClockLock
from heshare.ops.descriptors import ShortageError
from heshare.ops.executor.job_launcher import JobLauncher
from heshare.ops.executor.job_on_gpu import Attempt, JobOnGpu
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.executor.operator_log import timed
from heshare.ops.jobs.run_state import MPS_ENDED
from heshare.ops.mps import MPS, DaemonRestarts, MpsSession
from heshare.ops.nvml.binding import GpuLostError, NoReplyError
from heshare.ops.nvml.card_reader import DEADLINE_S
from heshare.ops.nvml.card_sampler import CardSample, CardSampler
from heshare.ops.probe import low_clock
from heshare.running.task_energy import share_energy
from heshare.shared.errors import DeviceError
from heshare.shared.processes import pidfd
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

_IDLE_POLLS_S = (0.5, 2.0, 10.0)
"""Times after its last job at which an idle GPU is polled, s: its power falls slowly."""
_USED = 2.0
"""Ratio of power to idle power above which an idle GPU is polled further: another process uses it, or NVML errs."""
_SOON_S, _FRESH_S = 0.05, 0.05
_SAME_S = 0.02
"""Age of a sample up to which the GPU is not read again, s: simultaneous events need one sample."""
_BUSY_S = 2.0
"""Time with a job after which a clock that is still low counts as locked by another process, s."""
_GIVE_UP_S = 600.0
"""Time without a reply after which an idle GPU is no longer polled, s."""
_TURNS = "jobs take turns (time-slicing) from now on; shares are not enforced"
_NO_REPLY = "NVML does not reply"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Waiting times of the executor, s.

    Attributes:
        poll_s: between two polls of a GPU while jobs run.
        memory_s: for memory that another process uses.
        nvml_s: for an NVML call; then the process that made it is replaced, and the GPU gets no new jobs until it
            replies.
        shared_s: failures on one GPU within this time of each other count as one failure of a shared component.
        grace_s: for a command to end after SIGTERM.
        settle_s: after a change of a GPU's jobs or clock, until a power reading below a power limit counts.
        mps_pauses_s: before the first, second, ... restart of an MPS daemon that ends repeatedly; after the last one
            the GPU is shared by time-slicing.
    """

    poll_s: float = 1.0
    memory_s: float = 60.0
    nvml_s: float = DEADLINE_S
    shared_s: float = 2.0
    grace_s: float = 5.0
    settle_s: float = 10.0
    mps_pauses_s: tuple[float, ...] = (1.0, 4.0, 15.0)


@dataclass(frozen=True, slots=True)
class CardOfRun:
    """The GPU of an `ExecutorDevice`.

    Attributes:
        gpu: its description for policies; with a single clock if clocks may not be set.
        uuid: of the GPU.
        sampler: takes its readings.
        clock: locks its clock; None if that is not allowed.
        exclusive: whether its compute mode allows only one process at a time without MPS.
    """

    gpu: Gpu
    uuid: str
    sampler: CardSampler
    clock: ClockLock | None
    exclusive: bool = False


class ExecutorDevice(Device):
    """A GPU that runs jobs.

    Args:
        card: the GPU.
        launcher: starts clients of `mps`.
        jobs: the job of each task.
        now_s: the time that all devices of the run share, s.
        mps: the MPS session of the GPU.
        timeouts: waiting times.
        notes: messages for the operator from the opening of the GPU.
        on_stop: begins to end the jobs of all GPUs of the run (`begin_stop`).

    Attributes:
        lost: the reason why the GPU is unusable, else empty.
        drained: the reason why no new job may start on it while its jobs run on, else empty; it may be temporary.
        latest: the latest reading, without the jobs.
        requested_mhz: the requested clock, MHz; None for the GPU's default.
        idle_j: energy while nothing ran, J.
        ended: the records of attempts that have ended, by task, until the observer removes them.
        notes: messages for the operator that are not journalled yet.
        first_counter_j: the energy counter at the begin of the session, J; NaN if unknown.
        counter_j: the energy counter at the last reading, J.
        estimated_j: the part of its energy that is an integral of power readings, J.
        unknown_s: time whose energy is unknown and not counted, s.

    Raises:
        NvmlError: the GPU does not reply, or is lost.
    """

    provenance = "measured"

    def __init__(
        self,
        card: CardOfRun,
        launcher: JobLauncher,
        jobs: Mapping[int, AssignedJob],
        now_s: Callable[[], float],
        *,
        mps: MpsSession,
        timeouts: Timeouts,
        notes: list[str],
        on_stop: Callable[[], None],
    ) -> None:
        self.gpu, self.uuid = card.gpu, card.uuid
        self.lost = self.drained = ""
        self.requested_mhz: int | None = None
        self.ended: dict[int, Attempt] = {}
        self.idle_j = self.estimated_j = self.unknown_s = 0.0
        self.notes = notes
        self._card, self._sampler, self._launcher, self._jobs = card, card.sampler, launcher, jobs
        self._now_s, self._mps, self._timeouts, self._on_stop = now_s, mps, timeouts, on_stop
        self._residents: dict[int, JobOnGpu] = {}
        self._failed: list[TaskFailure] = []
        self._limits: tuple[str, ...] = ()
        self._sampled_s = self._next_read_s = self._idle_since_s = -math.inf
        self._busy_since_s = math.inf
        self._first_failure: tuple[float, int] = (-math.inf, -1)
        self._short = self._low_clock_reported = False
        self._restarts, self._mps_due_s = DaemonRestarts(timeouts.mps_pauses_s), math.inf

        first = self._sampler.sample(wait_s=timeouts.nvml_s)
        if first is None:
            raise NoReplyError(f"{card.gpu.name} ({card.uuid}): {_NO_REPLY}. Reset the GPU, or leave it out.")
        self._free_mib, self._known_mhz = math.inf, float(card.gpu.max_mhz)
        self.latest = self._reading_of(first)
        self._divided_j, self._divided_s = self.latest.energy_j, self.latest.time_s
        self.first_counter_j = self.counter_j

    @property
    def running(self) -> int:
        return len(self._residents)

    @property
    def sharing(self) -> str:
        return self._mps.sharing

    @property
    def state(self) -> str:
        """`lost`, `drained` (its jobs run on, no new ones start) or `ok`, as in the journal and the report."""
        return "lost" if self.lost else "drained" if self.drained else "ok"

    @property
    def expected(self) -> bool:
        """Whether it is drained only because NVML does not reply, and a reply is still awaited."""
        return not self.lost and 0.0 < self._sampler.silent_s < _GIVE_UP_S

    def shares_j(self) -> dict[int, float]:
        """Return the energy so far of each of its jobs and of those in `ended`, J."""
        ended_j = {task: attempt.energy_j for task, attempt in self.ended.items()}
        return ended_j | {task: resident.energy_j for task, resident in self._residents.items()}

    def note(self, text: str) -> None:
        """Add a message about the GPU for the operator, on stderr and in the report."""
        self.notes.append(timed(self._now_s(), text))

    def began_s(self, task_id: int) -> float:
        """Return the begin of a job, s: inf while its process loads or its start waits, -inf without such a job."""
        if task_id not in self._residents:
            return -math.inf
        released_s = self._residents[task_id].released_s
        return math.inf if math.isnan(released_s) else released_s

    def descriptors(self) -> list[int]:
        """Return the descriptors that become readable when a job's process ends."""
        found = [resident.descriptor for resident in self._residents.values()]
        return [descriptor for descriptor in found if descriptor is not None]

    # The methods of `Device`.

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request a clock of the grid; if it cannot be set, a message is added and the GPU's default remains."""
        if sm_mhz is not None:
            self.gpu.check_clock(sm_mhz)
        if self._card.clock is not None:
            if self.lost:
                return
            if self._sampler.silent_s:
                self.note(f"clock {sm_mhz} MHz not set: {_NO_REPLY}")
                return
            try:
                if sm_mhz is None:
                    self._card.clock.release()
                else:
                    self._card.clock.lock(sm_mhz)
            except DeviceError as error:
                self.note(f"clock {sm_mhz} MHz not set: {error}")
                return
            self._sampled_s = self._next_read_s = -math.inf
        self.requested_mhz = sm_mhz

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a job as soon as its memory is free; errors are failures of the job, see `take_failures`.

        Raises:
            DeviceError: a task with this id runs, or there are too many clients.
        """
        if task_id in self._residents or len(self._residents) >= self.gpu.mps_clients:
            found = f"{self.running} jobs on it" if task_id not in self._residents else f"job {task_id} on it"
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): {found} already. Wait for one to end.")

        self._bring_up_to_date()
        requested = math.inf if iterations is None else iterations
        resident = JobOnGpu(task_id, self._jobs[task_id], Resident(workload, mps_pct), requested, self._now_s())
        self._residents[task_id] = resident
        self._try_start(resident)

    def stop(self, task_id: int) -> float:
        """Stop a job and return its iterations, as `Device.stop`."""
        if task_id not in self._residents:
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): no job {task_id} on it. Stop only what runs.")
        self._bring_up_to_date()
        resident = self._residents[task_id]
        return min(self._remove(resident), resident.iterations)

    def stop_all(self) -> None:
        """End all jobs at the end of the run, and begin to end those of its other GPUs."""
        self._bring_up_to_date()
        self._on_stop()
        self._join_stopping()
        self._bring_up_to_date()
        for resident in list(self._residents.values()):
            self._remove(resident)

    def begin_stop(self) -> None:
        """Begin to end all jobs without waiting for their end."""
        for resident in self._residents.values():
            resident.begin_stop("lost", "the run ended")

    def read(self) -> Reading:
        """Return the latest reading, with the progress of the jobs."""
        self.update()
        progress = {task: resident.progress() for task, resident in self._residents.items()}
        return self._as_seen(progress)

    def next_event_s(self) -> float:
        """Return the time of the next poll, s: soon while jobs load or end, else after `poll_s`; `inf` once idle."""
        now_s = self._now_s()
        if self._failed:
            return now_s
        if not self._residents:
            return self._next_idle_poll_s(now_s)

        residents = self._residents.values()
        if any(resident.loading or resident.stopping is not None for resident in residents):
            return now_s + _SOON_S
        deadline_s = min(resident.deadline_s for resident in residents)
        # The end of a process without a pidfd does not wake the run, so it is polled more often.
        watched = all(resident.descriptor is not None for resident in residents)
        return max(now_s, min(deadline_s, now_s + (self._timeouts.poll_s if watched else _SOON_S)))

    def advance(self, to_s: float) -> list[int]:
        """Poll the jobs; return those that have completed."""
        self._bring_up_to_date()
        for resident in self._residents.values():
            if resident.worker is None:
                self._try_start(resident)
            elif resident.stopping is None:
                resident.worker.poll()

        completed = [resident for resident in self._residents.values() if resident.finished]
        for resident in completed:
            self._remove(resident)
        self._collect_failures()
        self._check_mps()

        now_s = self._now_s()
        for resident in self._residents.values():
            self._end_excess(resident, now_s)
        self._release_loaded(now_s)
        return [resident.task_id for resident in completed]

    def take_failures(self) -> list[TaskFailure]:
        """Return the attempts that failed since the last call."""
        failed, self._failed = self._failed, []
        return failed

    # Readings and energy.

    def update(self, *, force: bool = False) -> None:
        """Read the GPU and divide its energy, unless the last sample is recent and `force` is false.

        Without a reply `latest` does not change.
        """
        now_s = self._now_s()
        if self.lost or now_s < (self._sampled_s + _SAME_S if force else self._next_read_s):
            return
        self._sampled_s, self._next_read_s = now_s, now_s + _FRESH_S
        try:
            sample = self._sampler.sample()
        except GpuLostError as error:
            self.lost = str(error)
            self.note(f"lost: {error}")
            return

        if sample is not None:
            self.latest = self._reading_of(sample)
            self._divide_energy()
            self._report_low_clock(now_s)
        self._update_drained()

    def _bring_up_to_date(self) -> None:
        """Divide the energy so far among the jobs that ran, before a change of jobs; end the jobs of a lost GPU."""
        self.update(force=True)
        if self.lost:
            for resident in self._residents.values():
                reason = f"{self.uuid} was lost"
                resident.begin_stop("lost", reason)
                # A job that waits for memory has no process yet, and fails at once.
                resident.failure = resident.failure or TaskFailure(resident.task_id, "lost", reason, charged=False)

    def _reading_of(self, sample: CardSample) -> Reading:
        self._limits = sample.limits
        self._free_mib = math.inf if math.isnan(sample.free_mib) else sample.free_mib
        self._known_mhz = self._known_mhz if math.isnan(sample.sm_mhz) else sample.sm_mhz
        self.counter_j = self._sampler.counter_j
        self.estimated_j, self.unknown_s = self._sampler.energy.estimated_j, self._sampler.energy.unknown_s
        power_w = 0.0 if math.isnan(sample.power_w) else sample.power_w  # unknown power is not estimated
        return Reading(self._now_s(), None, sample.sm_mhz, power_w, sample.energy_j, throttled=bool(sample.limits))

    def _as_seen(self, progress: dict[int, Progress]) -> Reading:
        # Policies get the last clock that was read. The power of a lost GPU is unknown.
        sm_mhz = self._known_mhz if math.isnan(self.latest.sm_mhz) else self.latest.sm_mhz
        return replace(
            self.latest,
            time_s=self._now_s(),
            residents=progress,
            power_w=0.0 if self.lost else self.latest.power_w,
            sm_mhz=sm_mhz,
            requested_mhz=None if self.lost else self.requested_mhz,
        )

    def _divide_energy(self) -> None:
        """Divide the energy since the last division among the jobs that ran, or add it to idle energy."""
        spent_j = self.latest.energy_j - self._divided_j
        if spent_j <= 0.0:
            return  # counters are updated only about every 0.1 s
        took_s = self.latest.time_s - self._divided_s
        self._divided_j, self._divided_s = self.latest.energy_j, self.latest.time_s

        running = [resident for resident in self._residents.values() if resident.worker is not None]
        if not running:
            self.idle_j += spent_j
            return
        # Without MPS a job has the whole GPU in its time slice, whatever its share.
        turns = self._mps.sharing != MPS
        residents = [replace(one.resident, mps_pct=100) if turns else one.resident for one in running]
        shares_j = share_energy(self._card.gpu, residents, self.latest.sm_mhz, spent_j, took_s)
        for resident, share_j in zip(running, shares_j, strict=True):
            resident.energy_j += share_j
            resident.limits.update(self._limits)

    def _report_low_clock(self, now_s: float) -> None:
        """Report once that the clock stays low under load without a limit that NVML reports."""
        busy = any(not math.isnan(resident.released_s) for resident in self._residents.values())
        self._busy_since_s = min(self._busy_since_s, now_s) if busy else math.inf
        if self._low_clock_reported or self.requested_mhz is not None or now_s - self._busy_since_s < _BUSY_S:
            return
        top_mhz = float(self.gpu.max_mhz)
        text = low_clock(self.latest.sm_mhz, top_mhz, idles=False, throttled=self.latest.throttled)
        if text:
            self._low_clock_reported = True
            self.note(text)

    def _update_drained(self) -> None:
        silent_s = self._sampler.silent_s
        drained = self._sampler.drained or (_NO_REPLY if silent_s else "")
        if not drained and self._card.exclusive and self._mps.sharing != MPS and math.isinf(self._mps_due_s):
            drained = "its compute mode is exclusive, and without MPS jobs cannot share it"
        if drained == self.drained:
            return

        if not drained:
            self.note("NVML replies again: the GPU takes new jobs")
        elif drained == _NO_REPLY:
            text = f"{_NO_REPLY} (for {silent_s:.0f} s): its jobs run on, it gets no new ones until NVML replies"
            self.note(text)
        else:
            self.note(f"drained after {drained}: its jobs run on, it gets no new ones")
        self.drained = drained

    def _next_idle_poll_s(self, now_s: float) -> float:
        if self.lost:
            return math.inf
        if self.expected:
            return now_s + self._timeouts.poll_s
        if self._sampler.drained:
            return math.inf
        ahead = [self._idle_since_s + after_s for after_s in _IDLE_POLLS_S if self._idle_since_s + after_s > now_s]
        # Under a power limit, starts would wait for ever if the last reading includes another process's power.
        used = self.latest.power_w > _USED * self.gpu.idle_w
        return min(ahead, default=now_s + _IDLE_POLLS_S[-1] if used else math.inf)

    # Starts and ends of jobs.

    def _try_start(self, resident: JobOnGpu) -> None:
        """Start the process if its memory is free and MPS runs, else wait; fail on a lost or drained GPU."""
        if resident.failure is not None:
            return  # its start has failed: the policy decides on another attempt
        if self.lost:
            resident.failure = TaskFailure(resident.task_id, "lost", f"{self.uuid} was lost", charged=False)
            return
        if self.drained:
            reason = f"{self.uuid} takes no new jobs: {self.drained}"
            resident.failure = TaskFailure(resident.task_id, "drained", reason, charged=False)
            return
        if math.isfinite(self._mps_due_s):
            return
        needed_mib, free_mib = resident.job.spec.memory_mib, self._free_for_mib(resident)
        if free_mib < needed_mib:
            waited_s = self._now_s() - resident.requested_s
            if waited_s > self._timeouts.memory_s:
                reason = f"{needed_mib:.0f} MiB needed, {free_mib:.0f} free for {waited_s:.0f} s"
                resident.failure = TaskFailure(resident.task_id, "memory", reason, charged=False)
            return

        task_id, workload, mps_pct = resident.task_id, resident.resident.workload, resident.resident.mps_pct
        try:
            worker = self._launcher.start(task_id, workload, mps_pct, resident.iterations, gpu_uuid=self.uuid)
        except ShortageError as error:
            if not self._short:
                self.note(f"the start of a job waits: {error}")
            self._short = True
            return
        except DeviceError as error:
            resident.failure = TaskFailure(task_id, "start", str(error))
        else:
            resident.worker, resident.began_s, resident.descriptor = worker, self._now_s(), pidfd(worker.pid)
        self._short = False
        resident.number = self._launcher.attempt(task_id)

    def _free_for_mib(self, newcomer: JobOnGpu) -> float:
        """Return the memory that the other jobs do not need and foreign processes, if known, do not use, MiB."""
        others = [one for one in self._residents.values() if one is not newcomer and one.worker is not None]
        ours_mib = sum(other.job.spec.memory_mib for other in others)
        # Jobs may not have allocated all that they need, so only memory in use beyond their needs is foreign.
        foreign_mib = max(0.0, self.gpu.memory_mib - self._free_mib - ours_mib)
        return self.gpu.memory_mib - ours_mib - foreign_mib

    def _release_loaded(self, now_s: float) -> None:
        """Let the jobs that load begin once all of them are ready, so that a batch begins at the same time."""
        loading = [(one, one.worker) for one in self._residents.values() if one.worker is not None and one.loading]
        if all(worker.ready for _, worker in loading):
            for resident, worker in loading:
                worker.go()
                resident.released_s = now_s

    def _end_excess(self, resident: JobOnGpu, now_s: float) -> None:
        """Begin to end a job that exceeds its time limit or its output limit."""
        if resident.stopping is not None:
            return
        if now_s >= resident.deadline_s:
            resident.begin_stop("timeout", f"took longer than its {resident.job.spec.timeout_s:g} s", charged=True)
        elif excess := getattr(resident.worker, "excess", ""):
            resident.begin_stop("output", excess, charged=True)

    def _collect_failures(self) -> None:
        for resident in list(self._residents.values()):
            failure = resident.ended_failure()
            if failure is not None:
                self._remove(resident)
                self._failed.append(self._classify(resident, failure))

    def _classify(self, resident: JobOnGpu, failure: TaskFailure) -> TaskFailure:
        """Return a failure soon after another one as a failure of a shared component; the first job is suspect."""
        now_s, (first_s, first_task) = self._now_s(), self._first_failure
        if failure.kind not in ("crash", "memory") or self._mps.sharing != MPS:
            return failure
        # A job that was started after the first failure has failed independently.
        recent = resident.began_s <= first_s and now_s - first_s <= self._timeouts.shared_s
        if first_task != failure.task_id and recent:
            reason = f"failed with its co-runners on {self.uuid}: {failure.reason}"
            return TaskFailure(failure.task_id, "shared", reason, charged=False)
        self._first_failure = (now_s, failure.task_id)
        return replace(failure, alone=True) if self._residents else failure

    def _check_mps(self) -> None:
        """After the end of the MPS daemon: end all its clients as failed together, restart the daemon after a pause."""
        now_s = self._now_s()
        if now_s >= self._mps_due_s and not self.lost:
            self._mps_due_s = math.inf
            self._mps.start()
            failed = self._mps.sharing != MPS
            text = f"MPS does not start again ({self._mps.reason}): {_TURNS}" if failed else "MPS was started again"
            self.note(text)
        if self._mps.alive() or self.lost:
            return

        recent = now_s - self._first_failure[0] <= self._timeouts.shared_s
        alone = not recent and self.running == 1
        for resident in self._residents.values():
            resident.begin_stop(MPS_ENDED, f"the MPS server of {self.uuid} went down", alone=alone)
        self._join_stopping()
        self._collect_failures()
        self._mps.stop()
        pause_s = self._restarts.pause_s(now_s)
        self._mps_due_s = now_s + pause_s
        then = f"it is started again in {pause_s:g} s" if math.isfinite(pause_s) else f"no restart: {_TURNS}"
        self.note(f"the MPS server of {self.uuid} went down; {then}")

    def _join_stopping(self) -> None:
        for resident in self._residents.values():
            if resident.stopping is not None:
                resident.stopping.join()

    def _remove(self, resident: JobOnGpu) -> float:
        done = 0.0 if resident.worker is None else resident.worker.stop()
        resident.close_descriptor()
        del self._residents[resident.task_id]
        self.ended[resident.task_id] = resident.attempt(self.latest.sm_mhz)
        if not self._residents:
            self._idle_since_s = self._now_s()
        return done


class LostDevice(ExecutorDevice):
    """A GPU that is missing when a run is resumed: jobs that are started there fail at once, uncharged."""

    def __init__(self, gpu: Gpu, uuid: str, reason: str, now_s: Callable[[], float]) -> None:
        self.gpu, self.uuid, self.lost, self.drained = gpu, uuid, reason, ""
        self.requested_mhz = None
        self.latest = Reading(now_s(), None, math.nan, 0.0, 0.0)
        self.ended, self.notes = {}, []
        self.idle_j = self.estimated_j = self.unknown_s = 0.0
        self.first_counter_j = self.counter_j = math.nan
        self._now_s, self._known_mhz = now_s, float(gpu.max_mhz)
        self._mps = MpsSession(uuid)
        self._residents: dict[int, JobOnGpu] = {}
        self._failed: list[TaskFailure] = []
        self._progress: dict[int, Progress] = {}
        self.note(f"lost: {reason}")

    @property
    def expected(self) -> bool:
        """False: it is missing for the whole session."""
        return False

    def update(self, *, force: bool = False) -> None:
        """Do nothing."""

    def set_clock(self, sm_mhz: int | None) -> None:
        """Do nothing."""

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Record a failure of the job."""
        self._progress[task_id] = Progress(task_id, Resident(workload, mps_pct), 0.0, math.inf)
        self._failed.append(TaskFailure(task_id, "lost", self.lost, charged=False))

    def stop(self, task_id: int) -> float:
        """Remove the job."""
        self._failed = [failure for failure in self._failed if failure.task_id != task_id]
        self._leave(task_id)
        return 0.0

    def stop_all(self) -> None:
        """Do nothing."""

    def read(self) -> Reading:
        """Return a reading without values."""
        return self._as_seen(dict(self._progress))

    def next_event_s(self) -> float:
        """Return the present time if a job has failed, else `inf`."""
        return self._now_s() if self._failed else math.inf

    def advance(self, to_s: float) -> list[int]:
        """Do nothing."""
        return []

    def take_failures(self) -> list[TaskFailure]:
        """Return the jobs that were started here."""
        for failure in self._failed:
            self._leave(failure.task_id)
        return super().take_failures()

    def _leave(self, task_id: int) -> None:
        del self._progress[task_id]
        self.ended[task_id] = Attempt(0, math.nan, math.nan, 0.0, None, "", math.nan, ())
