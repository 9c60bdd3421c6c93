"""The state and the totals of a run, added up from the entries of its journal as they come."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heshare.lab.limits.power_budget import PowerBudget
from heshare.lab.limits.prices.energy_signal import EnergySignal
from heshare.lab.limits.prices.price_terms import PriceTerms
from heshare.lab.limits.prices.signal_cost import sampled_cost
from heshare.ops.executor.job_tasks import JobHistory

WAYS = {"equal": ("shares_j", "energy_j"), "model": ("model_shares_j", "energy_model_j")}
"""The ways of dividing a GPU's energy among its jobs, with their keys in samples and in ends of attempts."""
JOB_FAULTS = ("crash", "timeout", "memory", "start", "shared", "mps", "lost", "drained")
"""The kinds of failures of an attempt (`heshare.devices.device.TaskFailure`)."""
RUN_FAULTS = (
    *("gpu-lost", "gpu-drained", "gpu-silent", "host-lost", "mps-down", "no-mps"),
    *("clock-refused", "clocks-refused"),
)
"""The events of a run that an operator must look at."""
FAULTS = (*(f"job-{kind}" for kind in JOB_FAULTS), *RUN_FAULTS)
STATES = ("waiting", "running", "completed", "failed")
GPU_STATES = ("ok", "drained", "lost")
MOST_LEFT = 100
"""Most jobs that have left their GPUs and are still shown one by one."""
LEFT_S = 300.0
"""How long they are shown, s: longer than Prometheus usually waits between two scrapes."""


@dataclass
class GpuTally:
    """The state of a GPU, and its energies in all sessions of the run.

    Attributes:
        uuid, name, host, sharing: of the GPU; `sharing` is `mps` or `time-slice`, `host` is empty for this machine.
        energy_j: by its counter, J; never falls.
        idle_j: the part of it while nothing ran, J; never falls.
        lost_j: the part of it for attempts that failed or were cut off, J; never falls.
        power_w: now, W; NaN where that is unknown.
        requested_mhz, sm_mhz: the requested clock and the one that is reached, MHz; NaN for none, and where unknown.
        state: one of `GPU_STATES`.
        shares_j: the energy in this session of each job that is on it, J, by way and job.
        weights: the part of the power that each of these jobs has now, by way and job.
        sampled: time of the run, s, and energy in this session, J, at the last account.
    """

    uuid: str
    name: str
    host: str = ""
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
    sampled: tuple[float, float] = (0.0, 0.0)
    # Of the sessions before this one; and what attempts that ended in this one have.
    before_j: float = 0.0
    idle_before_j: float = 0.0
    ended_j: float = 0.0

    def add_sample(self, sample: Mapping[str, Any]) -> None:
        """Take over the account of a moment."""
        shares_j = {way: dict(sample[keys[0]]) for way, keys in WAYS.items() if keys[0] in sample}
        for way, by_job in shares_j.items():
            before = self.shares_j.get(way, {})
            grown = {job: max(0.0, share_j - before.get(job, 0.0)) for job, share_j in by_job.items()}
            if (total_j := sum(grown.values())) > 0.0:
                self.weights[way] = {job: growth_j / total_j for job, growth_j in grown.items()}
        self.shares_j = shares_j
        energy_j = float(sample["energy_j"])
        # The account of idle energy is brought up to date only when the next job starts.
        idle_j = float(sample["idle_j"]) if any(shares_j.values()) else max(sample["idle_j"], energy_j - self.ended_j)
        self.energy_j = max(self.energy_j, self.before_j + energy_j)
        self.idle_j = max(self.idle_j, self.idle_before_j + idle_j)
        self.state = str(sample.get("state", "ok"))
        # 0 W stands for a power that is unknown.
        self.power_w = (sample["power_w"] or math.nan) if self.state != "lost" else math.nan
        self.sm_mhz = math.nan if sample["sm_mhz"] is None or self.state == "lost" else float(sample["sm_mhz"])
        requested_mhz = sample.get("requested_mhz")
        self.requested_mhz = math.nan if requested_mhz is None else float(requested_mhz)

    def remove(self, job: str) -> None:
        """Take a job off it; those that stay have its power."""
        for shares_j in self.shares_j.values():
            shares_j.pop(job, None)
        for weights in self.weights.values():
            weights.pop(job, None)
            if (total := sum(weights.values())) > 0.0:
                weights.update({other: weight / total for other, weight in weights.items()})

    def begin_session(self) -> None:
        """Begin another account after those of the sessions before."""
        self.before_j, self.idle_before_j, self.ended_j = self.energy_j, self.idle_j, 0.0
        self.end()

    def end(self) -> None:
        """Forget what only holds while an executor works on the run."""
        self.shares_j, self.weights = {}, {}
        self.power_w = self.sm_mhz = self.requested_mhz = math.nan


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job on a GPU.

    Attributes:
        gpu: the GPU's index.
        mps_pct: its MPS percentage.
        since_s: when it was started, Unix time, s.
    """

    gpu: int
    mps_pct: int
    since_s: float


@dataclass(frozen=True, slots=True)
class JobEnergy:
    """Energy of a job on one GPU, all its attempts there together.

    Attributes:
        energy_j: so far, J, by way of dividing the GPU's energy; never falls.
        power_w: now, W, by way; without an entry where it does not run there or the power is unknown.
    """

    energy_j: dict[str, float]
    power_w: dict[str, float]


class RunTally:
    """Adds up the entries of a run's journal, of all its sessions, in order.

    Jobs are shown one by one while they run, and for `LEFT_S` afterwards, but never more than the last `MOST_LEFT` of
    those that do not run. So what is kept and shown is bounded by the number of clients that the GPUs can have.

    Attributes:
        policy, version: of the run.
        provenance: `measured` or `emulated`.
        jobs: how many it has.
        gpus: its GPUs, in order.
        running: the jobs that run.
        left_s: when each of the last jobs has left its GPU, Unix time, s.
        started_s: when the first session began, Unix time, s; NaN before that.
        updated_s: the time of the last account, Unix time, s; NaN without one.
        budget: its limit on the sum of the GPUs' power, or None.
        signal, cost: the price or carbon intensity of its energy, or None; and what the energy cost so far.
        decisions, decision_s: how many there were, and how long they took together, s.
        faults: how many there were, by kind (`FAULTS`).
        notes: the last notes for the operator.
    """

    def __init__(self) -> None:
        self.policy = self.version = ""
        self.provenance = "measured"
        self.jobs = 0
        self.gpus: list[GpuTally] = []
        self.running: dict[str, RunningJob] = {}
        self.left_s: OrderedDict[str, float] = OrderedDict()
        self.started_s = self.updated_s = math.nan
        self.budget: PowerBudget | None = None
        self.signal: EnergySignal | None = None
        self.cost = 0.0
        self.decisions, self.decision_s = 0, 0.0
        self.faults: Counter[str] = Counter()
        self.notes: list[str] = []
        self._history = JobHistory()
        self._at_s = math.nan
        # Of attempts that have ended, J, by job, GPU and way.
        self._ended_j: dict[str, dict[int, dict[str, float]]] = {}

    def add(self, entry: Mapping[str, Any]) -> None:
        """Add an entry of the journal."""
        self._history.add(entry)
        for kind, handle in (
            ("run", self._add_run),
            ("session", self._add_session),
            ("decision", self._add_decision),
            ("end", self._add_end),
            ("sample", self._add_sample),
            ("note", self._add_note),
        ):
            if kind in entry:
                handle(entry[kind])

    @property
    def limit_w(self) -> float:
        """The limit on the sum of the GPUs' power at the time of the last account, W; NaN without one."""
        return math.nan if self.budget is None or self._now_s is None else self.budget.at(self._now_s)

    @property
    def price(self) -> float:
        """The price or carbon intensity of energy at the time of the last account, per kWh; NaN without one."""
        return math.nan if self.signal is None or self._now_s is None else self.signal.at(self._now_s)

    @property
    def _now_s(self) -> float | None:
        """The time of the run at the last account, s; None without one."""
        return None if math.isnan(self.updated_s) else self.updated_s - self.started_s

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each of `STATES`; those that have not arrived yet are waiting."""
        outcomes = Counter(self._history.over.values())
        waiting = self.jobs - len(self._history.over) - len(self.running)
        return {
            "waiting": waiting,
            "running": len(self.running),
            "completed": outcomes["completed"],
            "failed": outcomes["failed"],
        }

    def shown_jobs(self, now_s: float) -> dict[tuple[str, int], JobEnergy]:
        """Return the energies of the jobs that are shown one by one, by job and index of the GPU.

        Args:
            now_s: Unix time, s.
        """
        recent = [job for job, left_s in self.left_s.items() if now_s - left_s <= LEFT_S]
        shown = {}
        for job in (*self.running, *recent):
            gpus = set(self._ended_j.get(job, ()))
            if job in self.running:
                gpus.add(self.running[job].gpu)
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
        here = job in self.running and self.running[job].gpu == index
        # Counters begin with 0, or their first increase would be lost.
        energy_j = (dict.fromkeys(gpu.shares_j, 0.0) if here else {}) | self._ended_j.get(job, {}).get(index, {})
        for way, by_job in gpu.shares_j.items():
            if job in by_job:
                energy_j[way] = energy_j.get(way, 0.0) + by_job[job]
            if here and not math.isnan(gpu.power_w) and way in gpu.weights:
                power_w[way] = gpu.power_w * gpu.weights[way].get(job, 0.0)
        return JobEnergy(energy_j, power_w)

    def _add_run(self, run: Mapping[str, Any]) -> None:
        self.policy, self.version = str(run["policy"]), str(run.get("version", ""))
        self.jobs = sum(job["count"] for job in run["jobs"])
        if run.get("power_limit") is not None:
            self.budget = PowerBudget.of_json(run["power_limit"])
        if run.get("price") is not None:
            self.signal = PriceTerms.of_json(run["price"]).signal

    def _add_session(self, session: Mapping[str, Any]) -> None:
        self._at_s = float(session["at"])
        if not self.gpus:
            self.started_s = self._at_s
            self.gpus = [GpuTally(str(gpu["uuid"]), str(gpu["name"])) for gpu in session["gpus"]]
        # What ran when the session before was killed is lost.
        for index, gpu in enumerate(self.gpus):
            for job, share_j in gpu.shares_j.get("equal", {}).items():
                ways_j = {way: by_job[job] for way, by_job in gpu.shares_j.items() if job in by_job}
                self._leave(job, index, ways_j, self.updated_s)
                gpu.lost_j += share_j
            gpu.begin_session()
            gpu.sampled = (self._at_s - self.started_s, 0.0)
        for gpu, row in zip(self.gpus, session["gpus"], strict=True):
            gpu.host, gpu.sharing, gpu.state = str(row.get("host", "")), str(row["sharing"]), "ok"
        self.running.clear()

    def _add_decision(self, decision: Mapping[str, Any]) -> None:
        self.decisions += 1
        self.decision_s += max(0.0, decision["decided_s"] - decision["t"])
        for action in decision["actions"]:
            if action[0] in ("start", "migrate"):
                _, job, gpu, mps_pct, _ = action
                self.running[job] = RunningJob(gpu, mps_pct, self._at_s + decision["decided_s"])
                self.left_s.pop(job, None)

    def _add_end(self, end: Mapping[str, Any]) -> None:
        job, index, gpu = end["job"], end["gpu"], self.gpus[end["gpu"]]
        self.running.pop(job, None)
        gpu.remove(job)
        ways_j = {way: float(end[keys[1]]) for way, keys in WAYS.items() if end.get(keys[1]) is not None}
        self._leave(job, index, ways_j, self._at_s + end["end_s"])
        gpu.ended_j += ways_j.get("equal", 0.0)
        outcome = str(end["outcome"])
        if outcome.startswith("failed") or (outcome != "completed" and end["iterations"] == 0):
            gpu.lost_j += ways_j.get("equal", 0.0)
        kind = f"job-{outcome.removeprefix('failed: ')}"
        if outcome.startswith("failed") and kind in FAULTS:
            self.faults[kind] += 1

    def _leave(self, job: str, gpu: int, ways_j: Mapping[str, float], time_s: float) -> None:
        """Add an attempt that is over to the energy of its job; forget jobs that are not shown any more."""
        total_j = self._ended_j.setdefault(job, {}).setdefault(gpu, {})
        for way, energy_j in ways_j.items():
            total_j[way] = total_j.get(way, 0.0) + energy_j
        self.left_s.pop(job, None)
        self.left_s[job] = time_s
        while len(self.left_s) > MOST_LEFT:
            oldest, _ = self.left_s.popitem(last=False)
            if oldest in self._history.over:
                del self._ended_j[oldest]

    def _add_sample(self, sample: Mapping[str, Any]) -> None:
        self.updated_s = self._at_s + sample["t"]
        for gpu, account in zip(self.gpus, sample["gpus"], strict=True):
            before, gpu.sampled = gpu.sampled, (self.updated_s - self.started_s, float(account["energy_j"]))
            if self.signal is not None:
                self.cost += sampled_cost((before, gpu.sampled), self.signal)
            gpu.add_sample(account)

    def _add_note(self, note: Mapping[str, Any]) -> None:
        self.notes = [*self.notes[-4:], str(note["text"])]
        if note.get("event") in RUN_FAULTS:
            self.faults[note["event"]] += 1
