"""State of a run, computed from the entries of its journal, for status, report, jobs.csv and gpus.csv.

A GPU's account begins at 0 in each session and is the sum of idle time, running jobs and ended attempts. Energy between
two sessions is known from the GPU's counter alone and belongs to no job: `between_j`, not part of the run's energy.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from heshare.ops.jobs import entries
from heshare.ops.jobs.job_file import JobSpec

MPS_ENDED = "mps"
"""The kind of failure by the end of an MPS daemon; these are limited for each GPU, not for each job."""


@dataclass
class JobState:
    """State of a job over all its attempts.

    Attributes:
        key, spec: its name in results, and its entry in the file; `index` is which copy of the entry it is.
        outcome: `completed` or `failed` once it is finished, `left` until then.
        attempts: number of attempts, those without an end included.
        charged: number of attempts that failed by the job's own fault.
        free: number of attempts that failed without its fault, except by the end of an MPS daemon.
        iterations: those that paused attempts completed.
        energy_j: of the attempts that counted, J; `lost_j` of those that failed or were cut off.
        execution_s: time on a GPU of the attempts that counted, s.
        last: the end of the last attempt that has one; `completion_s` is its time since the run's start, s.
        gpu: its last GPU, an index of `RunState.gpus`; None before its first attempt.
        placed: its present placement and the begin of that (Unix time, s); None if it does not run.
    """

    key: str
    spec: JobSpec
    index: int
    outcome: str = "left"
    attempts: int = 0
    charged: int = 0
    free: int = 0
    iterations: float = 0.0
    energy_j: float = 0.0
    lost_j: float = 0.0
    execution_s: float = 0.0
    last: entries.End | None = None
    completion_s: float = math.nan
    gpu: int | None = None
    placed: entries.Placed | None = None
    since_s: float = math.nan

    @property
    def over(self) -> bool:
        return self.outcome != "left"

    def end(self, end: entries.End, completion_s: float) -> None:
        """Add the end of an attempt."""
        self.last, self.completion_s, self.placed = end, completion_s, None
        if end.wasted:
            self.lost_j += end.energy_j
        else:
            self.energy_j += end.energy_j
            self.execution_s += end.end_s - end.start_s

        if end.completed:
            self.outcome = "completed"
            return
        self.iterations += end.iterations
        if end.failure and end.failure != MPS_ENDED:
            self.charged += end.charged
            self.free += not end.charged
            if not end.again:
                self.outcome = "failed"


@dataclass
class GpuState:
    """State of a GPU, and its energies in all sessions of the run, J.

    Attributes:
        opened: its description in its last session.
        account: the last one of that session.
        completed_j, lost_j: of attempts that have ended, or were cut off with their session.
        between_j: from the last account of a session to the next session, by the counter, of any user;
            `unknown_between` is whether it is missing between two sessions, since the counter is unknown or was reset.
        clocks_mhz: the clocks at the ends of attempts; `limits` are the clock limits that NVML reported.
    """

    opened: entries.SessionGpu
    account: entries.Account = field(default_factory=lambda: entries.Account(0.0))
    completed_j: float = 0.0
    lost_j: float = 0.0
    between_j: float = 0.0
    unknown_between: bool = False
    clocks_mhz: list[float] = field(default_factory=list)
    limits: set[str] = field(default_factory=set)
    # Of the sessions before this one.
    _energy_before_j: float = 0.0
    _idle_before_j: float = 0.0
    _estimated_before_j: float = 0.0
    _unknown_before_s: float = 0.0
    # The first and the last known value of the counter, J, and whether it was reset in between.
    _first_counter_j: float | None = None
    _last_counter_j: float = -math.inf
    _began_again: bool = False

    @property
    def energy_j(self) -> float:
        """Its energy in the sessions of the run, up to the last account, J."""
        return self._energy_before_j + self.account.energy_j

    @property
    def idle_j(self) -> float:
        return self._idle_before_j + self.account.idle_j

    @property
    def running_j(self) -> float:
        """Of the jobs that run, J."""
        return sum(self.account.shares_j.values())

    @property
    def parts_j(self) -> float:
        """The sum of its parts, J."""
        return self.completed_j + self.lost_j + self.idle_j + self.running_j

    @property
    def counter_j(self) -> float:
        """Difference of its energy counter since the begin of the run, J: `energy_j` plus `between_j`.

        NaN if it is unknown or was reset.
        """
        if self._first_counter_j is None or self.account.counter_j is None or self._began_again:
            return math.nan
        return self.account.counter_j - self._first_counter_j

    @property
    def estimated_j(self) -> float:
        """The part of its energy that is an integral of power readings, J."""
        return self._estimated_before_j + self.account.estimated_j

    @property
    def unknown_s(self) -> float:
        """Time whose energy is not counted, s."""
        return self._unknown_before_s + self.account.unknown_s

    def begin_session(self, opened: entries.SessionGpu, counter_j: float | None, *, first: bool) -> None:
        """Close the account of the previous session, and begin another one."""
        last = self.account
        if first:
            self._first_counter_j = counter_j
        else:
            self._energy_before_j += last.energy_j
            self._idle_before_j += last.idle_j
            self._estimated_before_j += last.estimated_j
            self._unknown_before_s += last.unknown_s
            if counter_j is None or last.counter_j is None or counter_j < last.counter_j:
                self.unknown_between = True
            else:
                self.between_j += counter_j - last.counter_j
        self.opened = opened
        self.take(entries.Account(0.0, counter_j=counter_j))

    def take(self, account: entries.Account) -> None:
        """Take the next account of the present session."""
        self.account = account
        if account.counter_j is not None:
            self._began_again |= account.counter_j < self._last_counter_j
            self._last_counter_j = account.counter_j

    def end(self, end: entries.End) -> None:
        """Add the end of an attempt on it."""
        if end.wasted:
            self.lost_j += end.energy_j
        else:
            self.completed_j += end.energy_j
        if end.sm_mhz is not None:
            self.clocks_mhz.append(end.sm_mhz)
        self.limits.update(end.limits)
        self.take(end.account)


@dataclass
class SessionState:
    """One session of a run.

    Attributes:
        gpus: its GPUs, indices of `RunState.gpus`.
        ends: of its attempts.
        first_action: its first decision with actions, and the accounts of its GPUs before it.
        notes: for the operator.
        last_s: the time of its last entry, s.
    """

    session: entries.Session
    gpus: tuple[int, ...] = ()
    ends: list[entries.End] = field(default_factory=list)
    first_action: tuple[entries.Decision, tuple[entries.Account, ...]] | None = None
    notes: list[entries.Note] = field(default_factory=list)
    last_s: float = 0.0


class RunState:
    """State after the entries of a run's journal, of all its sessions, in order.

    Attributes:
        run: the description of the run.
        jobs: the state of each job, by key.
        gpus: the state of each GPU that a session had. Entries name a GPU by its index in their session.
        updated_s: the time of the last account, Unix time, s; NaN without one.
    """

    def __init__(self) -> None:
        self.run = entries.Run("")
        self.jobs: dict[str, JobState] = {}
        self.gpus: list[GpuState] = []
        self._places: list[int] = []
        self.sessions: list[SessionState] = []
        self.updated_s = math.nan
        self.decisions = 0

    def add(self, entry: entries.Entry) -> None:
        """Add the next entry; `LookupError` or `ValueError` if it is inconsistent with those before it."""
        match entry:
            case entries.Run():
                self._add_run(entry)
            case entries.Session():
                self._add_session(entry)
            case entries.Decision():
                self._add_decision(entry)
            case entries.End():
                self._add_end(entry)
            case entries.Sample():
                self._add_sample(entry)
            case entries.Note():
                if self.sessions:
                    self.sessions[-1].notes.append(entry)

        if self.sessions:
            self.sessions[-1].last_s = max(self.sessions[-1].last_s, entries.entry_time_s(entry))

    @property
    def at(self) -> float:
        """The Unix time at which the last session began, s; NaN without one."""
        return self.sessions[-1].session.at if self.sessions else math.nan

    @property
    def started_s(self) -> float:
        """The Unix time at which the first session began, s; NaN without one."""
        return self.sessions[0].session.at if self.sessions else math.nan

    @property
    def running(self) -> list[JobState]:
        """The jobs that run; those of a session that was killed until `end_session`."""
        return [job for job in self.jobs.values() if job.placed is not None]

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state; those that have not arrived yet are waiting."""
        outcomes = Counter(job.outcome for job in self.jobs.values())
        running = len(self.running)
        return {
            "waiting": outcomes["left"] - running,
            "running": running,
            "completed": outcomes["completed"],
            "failed": outcomes["failed"],
        }

    def end_session(self) -> None:
        """Count running attempts as lost, since the executor of the last session has ended. Idempotent."""
        for gpu in self.gpus:
            for key, share_j in gpu.account.shares_j.items():
                gpu.lost_j += share_j
                self.jobs[key].lost_j += share_j
            gpu.account = msgspec.structs.replace(
                gpu.account, shares_j={}, power_w=None, sm_mhz=None, requested_mhz=None
            )
        for job in self.running:
            job.placed = None

    def _add_run(self, run: entries.Run) -> None:
        self.run = run
        self.jobs.update((job.key, job) for job in job_states(run.jobs))

    def _add_session(self, session: entries.Session) -> None:
        self.end_session()
        self._places = []
        counters_j = session.counters_j or (None,) * len(session.gpus)
        for opened, counter_j in zip(session.gpus, counters_j, strict=True):
            known = [index for index, gpu in enumerate(self.gpus) if gpu.opened.uuid == opened.uuid]
            if not known:
                self.gpus.append(GpuState(opened))
            index = known[0] if known else len(self.gpus) - 1
            self.gpus[index].begin_session(opened, counter_j, first=not known)
            self._places.append(index)
        self.sessions.append(SessionState(session, tuple(self._places)))

    def _add_decision(self, decision: entries.Decision) -> None:
        self.decisions += 1
        for placed in decision.placed:
            job = self.jobs[placed.job]
            job.attempts += 1
            job.gpu = self._places[placed.gpu]
            job.placed, job.since_s = placed, self.at + decision.decided_s
        if decision.actions and self.sessions and self.sessions[-1].first_action is None:
            accounts = tuple(self.gpus[index].account for index in self._places)
            self.sessions[-1].first_action = decision, accounts

    def _add_end(self, end: entries.End) -> None:
        session = self.sessions[-1]
        session.ends.append(end)
        self.jobs[end.job].end(end, session.session.at + end.end_s - self.started_s)
        self.gpus[self._places[end.gpu]].end(end)
        self.updated_s = self.at + end.end_s

    def _add_sample(self, sample: entries.Sample) -> None:
        self.updated_s = self.at + sample.t
        for index, account in zip(self._places, sample.gpus, strict=True):
            self.gpus[index].take(account)


def job_states(specs: Iterable[JobSpec]) -> list[JobState]:
    """Return the state of every copy of every entry before a run."""
    return [JobState(_key(spec, index), spec, index) for spec in specs for index in range(spec.count)]


def _key(spec: JobSpec, index: int) -> str:
    return spec.name if spec.count == 1 else f"{spec.name}-{index}"
