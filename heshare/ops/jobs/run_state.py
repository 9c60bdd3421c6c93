"""State of a run, folded from the entries of its journal: what status, top, metrics, report and resume are views of.

Energies never fall: the counters of a session come after those of the sessions before it, and what ran when a session
was killed counts as lost.
"""

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from heshare.ops.jobs import entries

MPS_ENDED = "mps"
"""The kind of a failure by the end of an MPS daemon: how often that may happen is limited for a GPU, not for a job."""
WAYS = ("equal", "model")
"""Ways of dividing a GPU's energy among its jobs: equal shares, and by the power that each draws alone."""
JOB_FAULTS = ("crash", "timeout", "memory", "start", "shared", "mps", "lost", "drained")
"""Kinds of failures of an attempt (`heshare.devices.device.TaskFailure`)."""
RUN_FAULTS = (
    *("gpu-lost", "gpu-drained", "gpu-silent", "mps-down", "no-mps"),
    *("clock-refused", "clocks-refused"),
)
"""Events of a run that an operator must look at."""
FAULTS = (*(f"job-{kind}" for kind in JOB_FAULTS), *RUN_FAULTS)
MOST_LEFT = 100
"""Most jobs that have left their GPUs and are still shown one by one."""
LEFT_S = 300.0
"""How long they are shown, s: longer than Prometheus usually waits between two scrapes."""


@dataclass(frozen=True)
class JobHistory:
    """History of the jobs of a run, by job key.

    Attributes:
        over: how each job that is over ended, `completed` or `failed`.
        attempts: the number of attempts, those that never ended included.
        charged: how many of them failed by the job's own fault.
        free: how many failed by no fault of its own, the ends of an MPS daemon left aside.
        did: iterations that paused attempts completed.
    """

    over: dict[str, str] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    charged: Counter[str] = field(default_factory=Counter)
    free: Counter[str] = field(default_factory=Counter)
    did: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, entry: entries.Entry) -> None:
        if isinstance(entry, entries.Decision):
            self.attempts.update(placed.job for placed in entry.placed)
        if not isinstance(entry, entries.End):
            return
        if entry.completed:
            self.over[entry.job] = "completed"
            return
        self.did[entry.job] += entry.iterations
        if entry.failure and entry.failure != MPS_ENDED:
            (self.charged if entry.charged else self.free)[entry.job] += 1
            if not entry.again:
                self.over[entry.job] = "failed"


@dataclass
class SessionState:
    """One session of a run: its ends, the last accounts, the jobs that ended since these, notes, its last time, s."""

    session: entries.Session
    ends: list[entries.End] = field(default_factory=list)
    first_action: tuple[entries.Decision, entries.Sample | None] | None = None
    sample: entries.Sample | None = None
    since: set[str] = field(default_factory=set)
    notes: list[entries.Note] = field(default_factory=list)
    last_s: float = 0.0


@dataclass
class GpuState:
    """State of a GPU, and its energies in all sessions of the run.

    Attributes:
        energy_j, idle_j, lost_j: by its counter; while nothing ran; for attempts that failed or were cut off, J.
        power_w, requested_mhz, sm_mhz: now; NaN where unknown, or for no requested clock. `state`: ok, drained, lost.
        shares_j: the energy in this session of each job that is on it, J, by way and job.
        weights: the part of the power that each of these jobs has now, by way and job.
    """

    uuid: str
    name: str
    sharing: str = ""
    energy_j: float = 0.0
    idle_j: float = 0.0
    lost_j: float = 0.0
    power_w: float = math.nan
    requested_mhz: float = math.nan
    sm_mhz: float = math.nan
    state: str = "ok"
    shares_j: dict[str, dict[str, float]] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    # Of the sessions before this one; and what attempts that ended in this one have.
    before_j: float = 0.0
    idle_before_j: float = 0.0
    ended_j: float = 0.0

    def add_account(self, account: entries.Account) -> None:
        by_way = dict(zip(WAYS, (account.shares_j, account.model_shares_j), strict=True))
        shares_j = {way: dict(by_job) for way, by_job in by_way.items() if by_job is not None}
        for way, by_job in shares_j.items():
            before = self.shares_j.get(way, {})
            grown = {job: max(0.0, share_j - before.get(job, 0.0)) for job, share_j in by_job.items()}
            if (total_j := sum(grown.values())) > 0.0:
                self.weights[way] = {job: growth_j / total_j for job, growth_j in grown.items()}
        self.shares_j = shares_j
        # The account of idle energy is brought up to date only when the next job starts.
        busy = any(shares_j.values())
        idle_j = account.idle_j if busy else max(account.idle_j, account.energy_j - self.ended_j)
        self.energy_j = max(self.energy_j, self.before_j + account.energy_j)
        self.idle_j = max(self.idle_j, self.idle_before_j + idle_j)
        self.state = account.state
        lost = self.state == "lost"
        # 0 W stands for a power that is unknown.
        self.power_w = math.nan if lost else account.power_w or math.nan
        self.sm_mhz = math.nan if lost or account.sm_mhz is None else account.sm_mhz
        self.requested_mhz = math.nan if account.requested_mhz is None else float(account.requested_mhz)

    def remove(self, job: str) -> None:
        """Take a job off it; those that stay have its power."""
        for shares_j in self.shares_j.values():
            shares_j.pop(job, None)
        for weights in self.weights.values():
            weights.pop(job, None)
            if (total := sum(weights.values())) > 0.0:
                weights.update({other: weight / total for other, weight in weights.items()})

    def begin_session(self) -> None:
        self.before_j, self.idle_before_j, self.ended_j = self.energy_j, self.idle_j, 0.0
        self.end()

    def end(self) -> None:
        self.shares_j, self.weights = {}, {}
        self.power_w = self.sm_mhz = self.requested_mhz = math.nan


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs: its first GPU's index, its MPS percentage, since when (Unix time, s), its other GPUs."""

    gpu: int
    mps_pct: int
    since_s: float
    also: tuple[int, ...] = ()

    @property
    def gpus(self) -> tuple[int, ...]:
        return (self.gpu, *self.also)


@dataclass(frozen=True, slots=True)
class JobEnergy:
    """Energy of a job on one GPU, all its attempts there together, J, and its power now, W; each by way."""

    energy_j: dict[str, float]
    power_w: dict[str, float]


class RunState:
    """Fold of the entries of a run's journal, of all its sessions, in order.

    Jobs are shown one by one while they run and for `LEFT_S` afterwards, but never more than the last `MOST_LEFT` of
    those that do not run: what is shown is bounded by the number of clients that the GPUs can have.

    Attributes:
        left_s: when each of the last jobs has left its GPU, Unix time, s.
        started_s, updated_s: when the first session began, and the time of the last account; Unix time, s, or NaN.
        decisions, decision_s: how many there were, and how long they took together, s.
        faults: how many there were, by kind (`FAULTS`).
    """

    def __init__(self) -> None:
        self.run = entries.Run("")
        self.sessions: list[SessionState] = []
        self.history = JobHistory()
        self.salvaged: list[entries.Salvaged] = []
        self.learned: dict[str, entries.Learned] = {}
        self.gpus: list[GpuState] = []
        self.running: dict[str, RunningJob] = {}
        self.left_s: OrderedDict[str, float] = OrderedDict()
        self.started_s = self.updated_s = math.nan
        self.decisions, self.decision_s = 0, 0.0
        self.faults: Counter[str] = Counter()
        # Of attempts that have ended, J, by job, GPU and way.
        self._ended_j: dict[str, dict[int, dict[str, float]]] = {}

    def add(self, entry: entries.Entry) -> None:
        """Add the next entry; `LookupError` or `ValueError` if it does not fit to those before it."""
        self.history.add(entry)
        match entry:
            case entries.Run():
                self.run = entry
            case entries.Session():
                self._add_session(entry)
            case entries.Decision():
                self._add_decision(entry)
            case entries.End():
                self._add_end(entry)
            case entries.Learned():
                self.learned[entry.command] = entry
            case entries.Sample():
                self._add_sample(entry)
            case entries.Note():
                if self.sessions:
                    self.sessions[-1].notes.append(entry)
                self.faults[entry.event] += entry.event in RUN_FAULTS
            case entries.Salvaged():
                self.salvaged.append(entry)
        if self.sessions:
            self.sessions[-1].last_s = max(self.sessions[-1].last_s, entries.entry_time_s(entry))

    @property
    def jobs(self) -> int:
        return sum(spec.count for spec in self.run.jobs)

    @property
    def at(self) -> float:
        """The Unix time at which the last session began, s; NaN without one."""
        return self.sessions[-1].session.at if self.sessions else math.nan

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state; those that have not arrived yet are waiting."""
        outcomes = Counter(self.history.over.values())
        return {
            "waiting": self.jobs - len(self.history.over) - len(self.running),
            "running": len(self.running),
            "completed": outcomes["completed"],
            "failed": outcomes["failed"],
        }

    def shown_jobs(self, now_s: float) -> dict[tuple[str, int], JobEnergy]:
        """Return the energies of the jobs that are shown one by one, by job and index of the GPU; `now_s` is Unix."""
        recent = [job for job, left_s in self.left_s.items() if now_s - left_s <= LEFT_S]
        shown = {}
        for job in (*self.running, *recent):
            gpus = set(self._ended_j.get(job, ()))
            if job in self.running:
                gpus.update(self.running[job].gpus)
            for index in sorted(gpus):
                shown[job, index] = self._energy(job, index)
        return shown

    def end(self) -> None:
        """Forget what only holds while an executor works on the run."""
        self.running.clear()
        for gpu in self.gpus:
            gpu.end()

    def _energy(self, job: str, index: int) -> JobEnergy:
        gpu, power_w = self.gpus[index], {}
        here = job in self.running and index in self.running[job].gpus
        # Counters begin with 0, or their first increase would be lost.
        energy_j = (dict.fromkeys(gpu.shares_j, 0.0) if here else {}) | self._ended_j.get(job, {}).get(index, {})
        for way, by_job in gpu.shares_j.items():
            if job in by_job:
                energy_j[way] = energy_j.get(way, 0.0) + by_job[job]
            if here and not math.isnan(gpu.power_w) and way in gpu.weights:
                power_w[way] = gpu.power_w * gpu.weights[way].get(job, 0.0)
        return JobEnergy(energy_j, power_w)

    def _add_session(self, session: entries.Session) -> None:
        if not self.sessions:
            self.started_s = session.at
            self.gpus = [GpuState(gpu.uuid, gpu.name) for gpu in session.gpus]
        for index, gpu in enumerate(self.gpus):
            for job, share_j in gpu.shares_j.get("equal", {}).items():
                ways_j = {way: by_job[job] for way, by_job in gpu.shares_j.items() if job in by_job}
                self._leave(job, index, ways_j, self.updated_s)
                gpu.lost_j += share_j
            gpu.begin_session()
        for gpu, opened in zip(self.gpus, session.gpus, strict=True):
            gpu.sharing, gpu.state = opened.sharing, "ok"
        self.running.clear()
        self.sessions.append(SessionState(session))

    def _add_decision(self, decision: entries.Decision) -> None:
        self.decisions += 1
        self.decision_s += max(0.0, decision.decided_s - decision.t)
        for placed in decision.placed:
            since_s = self.at + decision.decided_s
            self.running[placed.job] = RunningJob(placed.gpu, placed.mps_pct, since_s, placed.also)
            self.left_s.pop(placed.job, None)
        if decision.actions and self.sessions and self.sessions[-1].first_action is None:
            self.sessions[-1].first_action = decision, self.sessions[-1].sample

    def _add_end(self, end: entries.End) -> None:
        if not self.sessions:
            return
        self.sessions[-1].ends.append(end)
        self.sessions[-1].since.add(end.job)
        self.running.pop(end.job, None)
        for part in end.parts:
            gpu = self.gpus[part.gpu]
            gpu.remove(end.job)
            ways_j = {"equal": part.energy_j} | ({} if part.energy_model_j is None else {"model": part.energy_model_j})
            self._leave(end.job, part.gpu, ways_j, self.at + end.end_s)
            gpu.ended_j += part.energy_j
            gpu.lost_j += part.energy_j if end.wasted else 0.0
        if end.failure in JOB_FAULTS:
            self.faults[f"job-{end.failure}"] += 1

    def _leave(self, job: str, gpu: int, ways_j: Mapping[str, float], time_s: float) -> None:
        """Add an attempt that is over to the energy of its job; forget jobs that are not shown any more."""
        total_j = self._ended_j.setdefault(job, {}).setdefault(gpu, {})
        for way, energy_j in ways_j.items():
            total_j[way] = total_j.get(way, 0.0) + energy_j
        self.left_s.pop(job, None)
        self.left_s[job] = time_s
        while len(self.left_s) > MOST_LEFT:
            oldest, _ = self.left_s.popitem(last=False)
            if oldest in self.history.over:
                del self._ended_j[oldest]

    def _add_sample(self, sample: entries.Sample) -> None:
        if not self.sessions:
            return
        self.updated_s = self.at + sample.t
        for gpu, account in zip(self.gpus, sample.gpus, strict=True):
            gpu.add_account(account)
        self.sessions[-1].sample, self.sessions[-1].since = sample, set()
