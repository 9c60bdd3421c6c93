"""A GPU of this machine that runs jobs: they start without waiting, and fail without ending the run."""

import math
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from heshare.devices.device import Progress, Reading, TaskFailure
from heshare.lab.tenants.measured_work import MeasuredWork
from heshare.lab.tenants.tenant_power import TenantPower
from heshare.ops.descriptors import ShortageError
from heshare.ops.executor.executor_device import Attempt, ExecutorDevice, Timeouts
from heshare.ops.executor.gang import Gang, GangMember
from heshare.ops.executor.job_process import AssignedJob, JobLauncher
from heshare.ops.jobs.run_state import MPS_ENDED
from heshare.ops.mps import MPS, DaemonRestarts, MpsSession
from heshare.ops.nvml.binding import GpuLostError, NoReplyError
from heshare.ops.nvml.card_sampler import CardSample, CardSampler
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.workers.launcher import Worker
from heshare.shared.errors import DeviceError
from heshare.shared.processes import pidfd
from heshare.world.workload import Resident, Workload

_OUT_OF_MEMORY = re.compile(r"out of (GPU )?memory|OutOfMemory|OUT_OF_MEMORY|MemoryError|ALLOC_FAILED", re.IGNORECASE)
_IDLE_POLLS_S = (0.5, 2.0, 10.0)
"""When an idle GPU is still polled, s after its last job: its power falls slowly."""
_USED = 2.0
"""Power over idle power from which on an idle GPU is polled until it has fallen: others use it, or NVML errs."""
_SOON_S, _FRESH_S = 0.05, 0.05
_SAME_S = 0.02
"""Within so long of a sample the GPU is not read again, s: what happens at one moment needs one."""
_TURNS = "jobs take turns (time-slicing) from now on; shares are not enforced"
_NO_REPLY = "NVML does not reply"
_GIVE_UP_S = 600.0
"""An idle GPU that has not replied for so long is not waited for any more, s."""


@dataclass(slots=True)
class JobOnGpu:
    """A job on a GPU: it waits for memory until it has a `worker`, runs, and ends; times as in `Attempt`.

    Attributes:
        failure: how it will have failed once its process has ended.
        stopping: the thread that ends its process, None as long as it may run.
        descriptor: readable as soon as its process has ended, or None.
        limits: what was seen to hold the clock down while it ran.
        gang: its part on other GPUs too, if it has any.
    """

    task_id: int
    job: AssignedJob
    resident: Resident
    iterations: float
    requested_s: float
    began_s: float = math.nan
    worker: Worker | None = None
    energy_j: float = 0.0
    energy_model_j: float = 0.0
    number: int = 0
    released_s: float = math.nan
    failure: TaskFailure | None = None
    stopping: threading.Thread | None = None
    descriptor: int | None = None
    limits: set[str] = field(default_factory=set)
    gang: Gang | None = None
    measured: MeasuredWork = field(default_factory=MeasuredWork)

    @property
    def loading(self) -> bool:
        return self.worker is not None and math.isnan(self.released_s) and self.stopping is None

    @property
    def finished(self) -> bool:
        return self.worker is not None and self.worker.finished and self.stopping is None

    def deadline_s(self) -> float:
        """Return when it has taken too long, s; the first GPU of a gang alone has to look at that."""
        limit_s = None if isinstance(self.worker, GangMember) else self.job.spec.timeout_s
        return math.inf if limit_s is None or math.isnan(self.began_s) else self.began_s + limit_s

    def begin_stop(self, kind: str, reason: str, *, charged: bool = False, alone: bool = False) -> None:
        """Have its process ended, without waiting for that; then the attempt has failed as `TaskFailure` describes."""
        if self.stopping is None and self.worker is not None:
            self.failure = TaskFailure(self.task_id, kind, reason, charged, alone)
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
        time_s = math.nan if self.worker is None else self.worker.time_s
        done = 0.0 if self.worker is None else min(self.iterations, self.worker.done)
        return Progress(self.task_id, self.resident, done, time_s if time_s > 0 else math.inf)

    def attempt(self, latest: Reading) -> Attempt:
        log: Path | None = getattr(self.worker, "log", None)
        code: int | None = getattr(self.worker, "exit_code", None)
        times_s, limits = (self.began_s, self.released_s), tuple(sorted(self.limits))
        shares_j = self.energy_j, self.energy_model_j
        return Attempt(
            self.number,
            *times_s,
            *shares_j,
            code,
            str(log or ""),
            latest.sm_mhz,
            limits,
            latest.energy_j,
            self.measured,
        )

    def close_descriptor(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class LocalExecutorDevice(ExecutorDevice):
    """A GPU of this machine in wall time; only a GPU that NVML calls lost gives up its jobs.

    `card` is opened with a deadline and has no tasks of its own; `launcher` starts clients of `mps`. Without `clocks`
    the GPU's top clock is taken as the only one. `NvmlError` if it does not reply, or is lost.
    """

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
        tenant_power: TenantPower,
    ) -> None:
        gpu = card.gpu if clocks else replace(card.gpu, clocks_mhz=(card.gpu.max_mhz,))
        super().__init__(gpu, card.uuid, now_s, Reading(now_s(), None, math.nan, 0.0, 0.0))
        self._card, self._launcher, self._jobs, self._mps = card, launcher, jobs, mps
        self._clocks, self._timeouts, self._tenant_power = clocks, timeouts, tenant_power
        assert card.guarded is not None
        self._sampler = CardSampler(card.guarded, card.power_call(), card.gpu.tdp_w, self.note)
        first = self._sampler.sample(wait_s=timeouts.nvml_s)
        if first is None:
            raise NoReplyError(f"{gpu.name} ({card.uuid}): {_NO_REPLY}. Reset the GPU, or leave it out.")
        self._free_mib, self._known_mhz = math.inf, float(gpu.max_mhz)
        self._apply(first)
        self.counter_j = None if math.isnan(self._sampler.counter_j) else self._sampler.counter_j
        self._residents: dict[int, JobOnGpu] = {}
        self._divided_j, self._divided_s = self.latest.energy_j, self.latest.time_s
        self._limits: tuple[str, ...] = ()
        self._sampled_s = self._next_read_s = -math.inf
        self._first_failure: tuple[float, int] = (-math.inf, -1)
        self._idle_since_s, self._short = -math.inf, False
        self._restarts, self._mps_due_s = DaemonRestarts(timeouts.mps_pauses_s), math.inf

    @property
    def sharing(self) -> str:
        return self._mps.sharing

    def update(self, *, force: bool = False) -> None:
        """Read the GPU and divide its energy, unless that was done a moment ago (or `force`).

        A silent GPU's `latest` stays as it was.
        """
        now_s = self._now_s()
        if self.lost or now_s < (self._sampled_s + _SAME_S if force else self._next_read_s):
            return
        self._sampled_s, self._next_read_s = now_s, now_s + _FRESH_S
        try:
            sample = self._sampler.sample()
        except GpuLostError as error:
            self.lost = str(error)
            self.note(f"lost: {error}", "gpu-lost")
            return
        if sample is not None:
            self._apply(sample)
            self._divide_energy()  # so that in every account jobs and idle time add up to the card's energy
        if news := self._card.clock_news():
            self.note(news)
        self._update_drained()

    def set_clock(self, sm_mhz: int | None) -> None:
        """Request a clock of the grid; one that cannot be set is noted, and the GPU keeps its own."""
        if sm_mhz is not None:
            self.gpu.check_clock(sm_mhz)
        if self._clocks:
            if self.lost:
                return
            if self._sampler.silent_s:
                self.note(f"clock {sm_mhz} MHz not set: {_NO_REPLY}")
                return
            try:
                self._card.set_clock(sm_mhz)
            except DeviceError as error:
                self.note(f"clock {sm_mhz} MHz not set: {error}", "clock-refused")
                return
            self._sampled_s = self._next_read_s = -math.inf
        self.requested_mhz = sm_mhz

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a job as soon as its memory is free; an error is a failure of the job, which `take_failures` returns.

        Raises:
            DeviceError: the id runs already, or there are too many clients.
        """
        if task_id in self._residents or len(self._residents) >= self.gpu.mps_clients:
            found = f"{self.running} jobs on it" if task_id not in self._residents else f"job {task_id} on it"
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): {found} already. Wait for one to end.")
        self._bring_up_to_date()
        requested = math.inf if iterations is None else iterations
        resident = JobOnGpu(task_id, self._jobs[task_id], Resident(workload, mps_pct), requested, self._now_s())
        resident.gang = self._launcher.join(task_id, self.uuid)
        self._residents[task_id] = resident
        self._try_start(resident)

    def stop(self, task_id: int) -> float:
        self._require_running(task_id)
        self._bring_up_to_date()
        resident = self._residents[task_id]
        return min(self._remove(resident), resident.iterations)

    def stop_all(self) -> None:
        self._bring_up_to_date()
        for resident in self._residents.values():
            resident.begin_stop("lost", "the run ended")
        self._join_stopping()
        self._bring_up_to_date()
        for resident in list(self._residents.values()):
            self._remove(resident)

    def began_s(self, task_id: int) -> float:
        released_s = self._residents[task_id].released_s if task_id in self._residents else -math.inf
        return math.inf if math.isnan(released_s) else released_s

    def read(self) -> Reading:
        self.update()
        progress = {task: resident.progress() for task, resident in self._residents.items()}
        # A policy decides by the last clock that was read.
        sm_mhz = self._known_mhz if math.isnan(self.latest.sm_mhz) else self.latest.sm_mhz
        return self._reading(progress, sm_mhz=sm_mhz, requested_mhz=None if self.lost else self.requested_mhz)

    def next_event_s(self) -> float:
        """Return when to poll it again, s: soon while jobs load or end, else after `poll_s`; `inf` once it is idle."""
        now_s = self._now_s()
        if self._failed:
            return now_s
        if not self._residents:
            if 0.0 < self._sampler.silent_s < _GIVE_UP_S and not self.lost:
                return now_s + self._timeouts.poll_s
            ahead = [self._idle_since_s + after_s for after_s in _IDLE_POLLS_S if self._idle_since_s + after_s > now_s]
            # Below a power limit, starts would wait for ever for a last reading of what was not the run's.
            used = self.latest.power_w > _USED * self.gpu.idle_w
            later_s = min(ahead, default=now_s + _IDLE_POLLS_S[-1] if used else math.inf)
            return math.inf if self.lost or self._sampler.drained else later_s
        residents = self._residents.values()
        if any(resident.loading or resident.stopping is not None for resident in residents):
            return now_s + _SOON_S
        deadline_s = min(resident.deadline_s() for resident in residents)
        # A process without a descriptor does not wake the run at its end, so it is polled more often.
        watched = all(resident.descriptor is not None for resident in residents)
        return max(now_s, min(deadline_s, now_s + (self._timeouts.poll_s if watched else _SOON_S)))

    def advance(self, to_s: float) -> list[int]:
        self._bring_up_to_date()
        for resident in self._residents.values():
            if resident.worker is None:
                self._try_start(resident)
            elif resident.stopping is None:
                resident.worker.poll()
        completed = [resident for resident in self._residents.values() if resident.finished and self._reports(resident)]
        for resident in completed:
            self._remove(resident)
        self._collect_failures()
        self._check_mps()
        now_s = self._now_s()
        for resident in self._residents.values():
            if resident.stopping is None and now_s >= resident.deadline_s():
                resident.begin_stop("timeout", f"took longer than its {resident.job.spec.timeout_s:g} s", charged=True)
        self._release_loaded(now_s)
        return [resident.task_id for resident in completed]

    def descriptors(self) -> list[int]:
        found = [resident.descriptor for resident in self._residents.values()]
        return [descriptor for descriptor in found if descriptor is not None]

    def attempts(self) -> dict[int, Attempt]:
        return {task: resident.attempt(self.latest) for task, resident in self._residents.items()}

    def _apply(self, sample: CardSample) -> None:
        power_w = 0.0 if math.isnan(sample.power_w) else sample.power_w  # no value is invented for what is unknown
        throttled = bool(sample.limits)
        self.latest = Reading(self._now_s(), None, sample.sm_mhz, power_w, sample.energy_j, throttled=throttled)
        self._limits = sample.limits
        self._free_mib = math.inf if math.isnan(sample.free_mib) else sample.free_mib
        self._known_mhz = self._known_mhz if math.isnan(sample.sm_mhz) else sample.sm_mhz
        self.estimated_j, self.unknown_s = self._sampler.energy.estimated_j, self._sampler.energy.unknown_s

    def _update_drained(self) -> None:
        silent_s = self._sampler.silent_s
        drained = self._sampler.drained or (_NO_REPLY if silent_s else "")
        if drained == self.drained:
            return
        if not drained:
            self.note("NVML replies again: the GPU takes new jobs", "gpu-replies")
        elif drained == _NO_REPLY:
            self.note(
                f"{_NO_REPLY} (for {silent_s:.0f} s): its jobs run on, it gets no new ones until NVML replies",
                "gpu-silent",
            )
        else:
            self.note(f"drained after {drained}: its jobs run on, it gets no new ones", "gpu-drained")
        self.drained = drained

    def _try_start(self, resident: JobOnGpu) -> None:
        """Start its process if its memory is free and MPS is there; else wait for that. A drained GPU starts none."""
        if resident.failure is not None:
            return  # it has failed to start: another attempt is the policy's to decide
        if self.drained:
            reason = f"{self.uuid} takes no new jobs: {self.drained}"
            resident.failure = TaskFailure(resident.task_id, "drained", reason, charged=False)
            return
        if math.isfinite(self._mps_due_s):
            return
        waited_s = self._now_s() - resident.requested_s
        needed_mib, free_mib = resident.job.spec.memory_mib, self._free_for_mib(resident)
        if free_mib < needed_mib:
            if waited_s > self._timeouts.memory_s:
                reason = f"{needed_mib:.0f} MiB needed, {free_mib:.0f} free for {waited_s:.0f} s"
                resident.failure = TaskFailure(resident.task_id, "memory", reason, charged=False)
            return
        workload, mps_pct = resident.resident.workload, resident.resident.mps_pct
        try:
            task_id, iterations, gang = resident.task_id, resident.iterations, resident.gang
            worker: Worker | None
            if gang is None:
                worker = self._launcher.start(task_id, workload, mps_pct, iterations, gpu_uuid=self.uuid)
            else:
                worker = self._launcher.start_gang(task_id, gang, iterations, self.uuid)
            if worker is not None:
                resident.worker, resident.began_s, resident.descriptor = worker, self._now_s(), pidfd(worker.pid)
        except ShortageError as error:
            if not self._short:
                self.note(f"the start of a job waits: {error}", "job-waits")
            self._short = True
            return
        except DeviceError as error:
            resident.failure = TaskFailure(resident.task_id, "start", str(error))
        self._short = False
        resident.number = self._launcher.attempt(resident.task_id)

    def _free_for_mib(self, newcomer: JobOnGpu) -> float:
        """Return the memory that neither the other jobs nor, where that is known, foreign processes need, MiB."""
        others = [one for one in self._residents.values() if one is not newcomer and one.worker is not None]
        ours_mib = sum(other.job.spec.memory_mib for other in others)
        # Jobs may not yet hold all that they need, so only what is held beyond that is foreign.
        foreign_mib = max(0.0, self.gpu.memory_mib - self._free_mib - ours_mib)
        return self.gpu.memory_mib - ours_mib - foreign_mib

    def _release_loaded(self, now_s: float) -> None:
        """Allow the jobs that load to begin once every one of them is ready, so that a batch begins together."""
        loading = [(one, one.worker) for one in self._residents.values() if one.worker is not None and one.loading]
        if all(worker.ready for _, worker in loading):
            for resident, worker in loading:
                worker.go()
                resident.released_s = now_s

    def _collect_failures(self) -> None:
        for resident in list(self._residents.values()):
            failure = resident.ended_failure()
            if failure is not None and self._reports(resident):
                self._remove(resident)
                self._failed.append(self._classify(resident, failure))

    def _reports(self, resident: JobOnGpu) -> bool:
        return resident.gang is None or resident.gang.claim(self.uuid)

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
        """End all clients of an MPS daemon that has ended, as failed together; start a new one after a pause."""
        now_s = self._now_s()
        if now_s >= self._mps_due_s and not self.lost:
            self._mps_due_s = math.inf
            self._mps.start()
            failed = self._mps.sharing != MPS
            text = f"MPS does not start again ({self._mps.reason}): {_TURNS}" if failed else "MPS was started again"
            self.note(text, "no-mps" if failed else "mps-restarted")
        if self._mps.alive() or self.lost:
            return
        recent = now_s - self._first_failure[0] <= self._timeouts.shared_s
        alone = not recent and self.running == 1
        clients = [resident for resident in self._residents.values() if resident.gang is None]
        for resident in clients:
            resident.begin_stop(MPS_ENDED, f"the MPS server of {self.uuid} went down", alone=alone)
        self._join_stopping()
        self._collect_failures()
        self._mps.stop()
        pause_s = self._restarts.pause_s(now_s)
        self._mps_due_s = now_s + pause_s
        then = f"it is started again in {pause_s:g} s" if math.isfinite(pause_s) else f"it is left so: {_TURNS}"
        self.note(f"the MPS server of {self.uuid} went down; {then}", "mps-down")

    def _join_stopping(self) -> None:
        for resident in self._residents.values():
            if resident.stopping is not None:
                resident.stopping.join()

    def _remove(self, resident: JobOnGpu) -> float:
        done = 0.0 if resident.worker is None else resident.worker.stop()
        resident.close_descriptor()
        del self._residents[resident.task_id]
        self._launcher.leave(resident.task_id)
        self.ended[resident.task_id] = resident.attempt(self.latest)
        if not self._residents:
            self._idle_since_s = self._now_s()
        return done

    def _bring_up_to_date(self) -> None:
        """Divide the energy so far among the jobs that ran, before those change; end them on a lost GPU."""
        self.update(force=True)
        if self.lost:
            for resident in self._residents.values():
                reason = f"{self.uuid} was lost"
                resident.begin_stop("lost", reason)
                # A job that still waits for memory has no process to end, and fails at once.
                resident.failure = resident.failure or TaskFailure(resident.task_id, "lost", reason, charged=False)

    def _divide_energy(self) -> None:
        spent_j, took_s = max(0.0, self.latest.energy_j - self._divided_j), self.latest.time_s - self._divided_s
        moved = self.latest.energy_j != self._divided_j  # a counter stands still for 0.1 s or so
        if moved:
            self._divided_j, self._divided_s = self.latest.energy_j, self.latest.time_s
        running = [resident for resident in self._residents.values() if resident.worker is not None]
        # Without MPS a job has the whole GPU in its turn, whatever its share.
        turns = self._mps.sharing != MPS
        residents = [replace(one.resident, mps_pct=100) if turns else one.resident for one in running]
        shares_j = self._tenant_power.shares_j(self._card.gpu, residents, self.latest.sm_mhz, spent_j, took_s)
        if moved:
            works = [one.measured for one in running]
            MeasuredWork.add_to(works, self._card.gpu, residents, self.latest.sm_mhz, spent_j, took_s)
        for resident, share_j in zip(running, shares_j, strict=True):
            resident.energy_j += spent_j / len(running)
            resident.energy_model_j += share_j
            resident.limits.update(self._limits)
        if not running:
            self.idle_j += spent_j
