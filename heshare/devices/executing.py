"""A GPU of the executor: jobs start on it without waiting, and fail on it without taking the run with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from heshare.devices.command import Assigned, JobLauncher
from heshare.devices.device import Reading
from heshare.devices.failing import Failed
from heshare.devices.meter import Gauge, Meter, Patience
from heshare.devices.mps import MPS, TIME_SLICE, MpsSession
from heshare.devices.residents import Attempt, Occupant, release_together
from heshare.errors import DeviceError
from heshare.world.workload import Resident, Workload

_IDLE_LOOKS_S = (0.5, 2.0, 10.0)
_SOON_S = 0.05


class JobDevice:
    """The `Device` of the executor, in wall time.

    Args:
        gauge: the card.
        launcher: what starts jobs.
        jobs: the jobs by task id.
        now_s: the time that all devices of the run share, s.
        mps: the session whose clients the jobs are, or None.
        clocks: whether the gauge may set clocks; if not, the card's one planned clock is taken as its own.
        patience: how long to wait for what.

    Attributes:
        host: none but this machine.
        attempts: what is known of attempts that are over, by task, until somebody takes it.
        idle_j: energy while nothing ran, J.
        meter: what the card tells, and what the operator should know of it.
    """

    provenance = "measured"
    host = ""

    def __init__(
        self,
        gauge: Gauge,
        launcher: JobLauncher,
        jobs: Mapping[int, Assigned],
        now_s: Callable[[], float],
        *,
        mps: MpsSession | None = None,
        clocks: bool = False,
        patience: Patience | None = None,
    ) -> None:
        self.gpu = gauge.gpu if clocks else replace(gauge.gpu, clocks_mhz=(gauge.gpu.max_mhz,))
        self.uuid = gauge.uuid
        self.attempts: dict[int, Attempt] = {}
        self.idle_j = 0.0
        self._patience = patience or Patience()
        self.meter = Meter(gauge, now_s, self._patience.nvml_s)
        self._launcher, self._jobs, self._now_s, self._mps, self._clocks = launcher, jobs, now_s, mps, clocks
        self._on: dict[int, Occupant] = {}
        self._failed: list[Failed] = []
        self._requested_mhz: int | None = None
        self._first_failure: tuple[float, int] = (-math.inf, -1)
        self._idle_since_s = -math.inf

    @property
    def lost(self) -> str:
        """Why the GPU can no longer be used; empty as long as it can."""
        return self.meter.lost

    @property
    def sharing(self) -> str:
        """`mps` or `time-slice`: how jobs share it."""
        return TIME_SLICE if self._mps is None else self._mps.sharing

    def set_clock(self, sm_mhz: int | None) -> None:
        """Ask for a clock; one that will not set is noted, and the run goes on at the card's own.

        Raises:
            InputError: the clock is not on the grid.
        """
        if sm_mhz is not None:
            self.gpu.check_clock(sm_mhz)
        if not self._clocks or self.meter.set_clock(sm_mhz):
            self._requested_mhz = sm_mhz

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a job, as soon as its memory is free; what goes wrong is a failure of the job, told later.

        Raises:
            DeviceError: the id runs already, or there are too many clients.
        """
        if task_id in self._on or len(self._on) >= self.gpu.mps_clients:
            found = f"{len(self._on)} jobs on it" if task_id not in self._on else f"job {task_id} on it"
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): {found} already. Wait for one to end.")
        self._account()
        wanted = math.inf if iterations is None else iterations
        one = Occupant(task_id, self._jobs[task_id], Resident(workload, mps_pct), wanted, self._now_s())
        self._on[task_id] = one
        self._try(one)

    def stop(self, task_id: int) -> float:
        """End a job; returns the iterations that it did, which is none for a command.

        Raises:
            DeviceError: no such job runs here.
        """
        if task_id not in self._on:
            raise DeviceError(f"{self.gpu.name} ({self.uuid}): no job {task_id} on it. Stop only what runs.")
        self._account()
        one = self._on[task_id]
        done = 0.0 if one.worker is None else one.worker.stop()
        self._leave(one)
        return min(done, one.iterations)

    def stop_all(self) -> None:
        """End every job, all at once."""
        self._account()
        for one in self._on.values():
            one.end(Failed(one.task_id, "lost", "the run ended", charged=False))
        for one in list(self._on.values()):
            if one.ending is not None:
                one.ending.join()
        self._account()
        for one in list(self._on.values()):
            self._leave(one)

    def read(self) -> Reading:
        """What it does at this moment, by the latest answers of the card."""
        residents = {task: one.progress() for task, one in self._on.items()}
        self.meter.look()
        latest = replace(self.meter.latest, time_s=self._now_s(), residents=residents)
        if self.lost:
            # Its power is unknown from here on; no figure is made up for it.
            return replace(latest, power_w=0.0)
        return replace(latest, requested_mhz=self._requested_mhz)

    def next_event_s(self) -> float:
        """When to look again, s: soon while jobs load or end, else about once a second; `inf` once it is idle."""
        now_s = self._now_s()
        if self._failed:
            return now_s
        if not self._on:
            ahead = [self._idle_since_s + after for after in _IDLE_LOOKS_S if self._idle_since_s + after > now_s]
            return math.inf if self.lost else min(ahead, default=math.inf)
        if any(one.loading or one.ending is not None for one in self._on.values()):
            return now_s + _SOON_S
        deadline_s = min(one.deadline_s() for one in self._on.values())
        watched = all(one.descriptor >= 0 for one in self._on.values())
        return max(now_s, min(deadline_s, now_s + (self._patience.look_s if watched else _SOON_S)))

    def advance(self, to_s: float) -> list[int]:
        """See what has happened by now; returns the jobs that completed."""
        self._account()
        for one in self._on.values():
            if one.worker is None:
                self._try(one)
            elif one.ending is None:
                one.worker.poll()
        completed = self._take_finished()
        self._collect_failures()
        self._check_mps()
        now_s = self._now_s()
        for one in self._on.values():
            if one.overdue(now_s):
                one.end(Failed(one.task_id, "timeout", f"took longer than its {one.job.spec.timeout_s:g} s"))
        release_together(iter(self._on.values()), now_s)
        return completed

    def take_failed(self) -> list[Failed]:
        """The attempts that failed since this was last asked."""
        failed, self._failed = self._failed, []
        return failed

    def descriptors(self) -> list[int]:
        """File descriptors that become readable when a job's process ends."""
        return [one.descriptor for one in self._on.values() if one.descriptor >= 0]

    def standing(self) -> dict[int, Attempt]:
        """What is known so far of the attempts on it, by task."""
        latest = self.meter.latest
        return {task: one.attempt(latest.sm_mhz, latest.energy_j) for task, one in self._on.items()}

    def shares_j(self) -> dict[int, float]:
        """Energy so far of each job on it, and of those that left it unheard, J."""
        return {
            **{task: one.energy_j for task, one in self.attempts.items()},
            **{task: one.energy_j for task, one in self._on.items()},
        }

    @property
    def running(self) -> int:
        """How many jobs are on it."""
        return len(self._on)

    def _try(self, one: Occupant) -> None:
        """Start its process if its memory is free; else wait for that."""
        now_s = self._now_s()
        room_mib = self._room_mib(one)
        if room_mib < one.job.spec.memory_mib:
            if now_s - one.asked_s > self._patience.memory_s:
                reason = (
                    f"{one.job.spec.memory_mib:.0f} MiB wanted, {room_mib:.0f} free for {now_s - one.asked_s:.0f} s"
                )
                one.fate = Failed(one.task_id, "memory", reason, charged=False)
            return
        try:
            worker = self._launcher.start(
                one.task_id, one.resident.workload, one.resident.mps_pct, one.iterations, gpu_uuid=self.uuid
            )
        except DeviceError as error:
            one.number = self._launcher.attempt(one.task_id)
            one.fate = Failed(one.task_id, "start", str(error))
            return
        one.started(worker, self._now_s(), self._launcher.attempt(one.task_id))

    def _room_mib(self, newcomer: Occupant) -> float:
        """Memory that neither our jobs nor anybody else needs, MiB."""
        others = [one for one in self._on.values() if one is not newcomer and one.worker is not None]
        ours_mib = sum(one.job.spec.memory_mib for one in others)
        foreign_mib = max(0.0, self.gpu.memory_mib - self.meter.free_mib() - ours_mib)
        return self.gpu.memory_mib - ours_mib - foreign_mib

    def _take_finished(self) -> list[int]:
        completed = [
            task
            for task, one in self._on.items()
            if one.worker is not None and one.worker.finished and one.ending is None
        ]
        for task in completed:
            worker = self._on[task].worker
            assert worker is not None
            worker.stop()
            self._leave(self._on[task])
        return completed

    def _collect_failures(self) -> None:
        for one in list(self._on.values()):
            fate = one.fate if one.worker is None else one.failure()
            if fate is None:
                continue
            if one.worker is not None:
                one.worker.stop()
            self._leave(one)
            self._failed.append(self._judge(one, fate))

    def _judge(self, one: Occupant, fate: Failed) -> Failed:
        """One of several failures close together is taken for a failure of what they share; the first is suspect."""
        now_s, (first_s, first) = self._now_s(), self._first_failure
        if fate.kind not in ("crash", "memory") or self._mps is None or self._mps.sharing != MPS:
            return fate
        # What was started after the first failure has failed on its own.
        if first != fate.task_id and one.began_s <= first_s and now_s - first_s <= self._patience.shared_s:
            reason = f"failed with its neighbours on {self.uuid}: {fate.reason}"
            return Failed(fate.task_id, "shared", reason, charged=False)
        self._first_failure = (now_s, fate.task_id)
        return replace(fate, alone=True) if self._on else fate

    def _check_mps(self) -> None:
        """When the MPS daemon has gone, all its clients are ended and told apart, and a new one is started."""
        if self._mps is None or self._mps.alive() or self.lost:
            return
        recent = self._now_s() - self._first_failure[0] <= self._patience.shared_s
        for one in self._on.values():
            reason = f"the MPS server of {self.uuid} went down"
            one.end(Failed(one.task_id, "shared", reason, charged=False, alone=not recent and len(self._on) == 1))
        for one in list(self._on.values()):
            if one.ending is not None:
                one.ending.join()
        self._collect_failures()
        self.meter.note(f"the MPS server of {self.uuid} went down and was started again")
        self._mps.stop()
        self._mps.start()

    def _leave(self, one: Occupant) -> None:
        one.forget_descriptor()
        del self._on[one.task_id]
        self.attempts[one.task_id] = one.attempt(self.meter.latest.sm_mhz, self.meter.latest.energy_j)
        if not self._on:
            self._idle_since_s = self._now_s()

    def _account(self) -> None:
        """Divide the energy since the last look among those that ran; give up those on a GPU that is lost."""
        spent_j = self.meter.spent_j()
        running = [one for one in self._on.values() if one.worker is not None]
        for one in running:
            one.energy_j += spent_j / len(running)
            one.limits.update(self.meter.limits)
        if not running:
            self.idle_j += spent_j
        if self.lost:
            for one in self._on.values():
                fate = Failed(one.task_id, "lost", f"{self.uuid} was lost", charged=False)
                one.end(fate)
                one.fate = one.fate or fate
