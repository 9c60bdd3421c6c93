"""Entries of made-up journals, with what a test does not care about filled in; journals of random runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heshare.ops.jobs.entries import (
    Account,
    Decision,
    End,
    Entry,
    Run,
    Sample,
    Session,
    SessionGpu,
    Started,
    encode,
)
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.jobs.run_journal import NAME
from heshare.ops.jobs.run_state import RunState
from heshare.shared.journal import journal_line, read_journal
from heshare.shared.version import __version__
from heshare.world.workload import Workload

GPU = SessionGpu("GPU-0", "T4", "210-1410")


def run_of(count: int = 3, *, version: str = __version__, **more: Any) -> Run:
    """Return the description of a run of copies of a job called `a`."""
    spec = JobSpec("a", ("true",), Workload("resnet50", 8), 10.0, None, count, None, 0, 500.0, Path("/"), (), 0.0, 2)
    return Run("random", (spec,), version, **more)


def session(at: float = 1000.0, gpus: int = 1, counters_j: Sequence[float | None] = (), **more: Any) -> Session:
    """Return the begin of a session on so many GPUs."""
    cards = tuple(SessionGpu(f"GPU-{index}", "T4", "210-1410") for index in range(gpus))
    return Session(at, cards, pid=1, counters_j=tuple(counters_j) or (0.0,) * gpus, token="t", **more)


def started(*jobs: str, gpu: int = 0, mps_pct: int = 50, t: float = 0.0, lasted_s: float = 0.0) -> Decision:
    """Return a decision that starts jobs."""
    return Decision(t, tuple(Started(job, gpu, mps_pct) for job in jobs), t + lasted_s, "arrival")


def ended(job: str, outcome: str = "completed", *, end_s: float = 1.0, energy_j: float = 1.0, **more: Any) -> End:
    """Return the end of an attempt, by default the only one of its session."""
    settings: dict[str, Any] = {"gpu": 0, "iterations": 5.0 if outcome == "completed" else 0.0, **more}
    settings.setdefault("account", Account(energy_j))
    return End(job=job, outcome=outcome, end_s=end_s, energy_j=energy_j, **settings)


def sampled(t: float, *accounts: Account) -> Sample:
    """Return the accounts of a moment."""
    return Sample(t, accounts)


def state_of(*entries: Entry) -> RunState:
    """Return the state after entries."""
    state = RunState()
    for entry in entries:
        state.add(entry)
    return state


def write_journal(folder: Path, entries: Sequence[Entry]) -> Path:
    """Write entries as the journal of the run in a folder, which is made; return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / NAME).write_bytes(b"".join(journal_line(encode(entry)) for entry in entries))
    return folder


def journal_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's journal as they are on disk."""
    return read_journal(folder / NAME, "run")


class RandomRun:
    """A run on some GPUs that draw power all the time, and the entries that an executor would journal of it.

    At random moments jobs start, complete, fail or are paused, accounts are sampled, and sessions are killed and
    resumed. With `faults` counters are unknown for a while, or begin again between two sessions.
    """

    def __init__(self, seed: int, *, gpus: int = 2, jobs: int = 25, steps: int = 150, faults: bool = False) -> None:
        self._rng, self._faults = np.random.default_rng(seed), faults
        self._waiting = [f"a-{index}" for index in range(jobs)]
        self._counters_j = [float(self._rng.uniform(1e3, 1e6)) for _ in range(gpus)]
        self._at_s = 1000.0
        self.entries: list[Entry] = [run_of(jobs)]
        self._begin()
        for _ in range(steps):
            self._step()

    def _begin(self) -> None:
        """Begin a session; what ran before has been killed."""
        self._waiting += [job for shares in getattr(self, "_shares_j", []) for job in shares]
        count = len(self._counters_j)
        self._t_s, self._at_s = 0.0, self._at_s + 1000.0
        self._energy_j, self._idle_j = [0.0] * count, [0.0] * count
        self._shares_j: list[dict[str, float]] = [{} for _ in range(count)]
        self.entries.append(session(self._at_s, count, [self._counter_j(gpu) for gpu in range(count)]))

    def _step(self) -> None:
        self._t_s += 1.0
        for gpu in range(len(self._counters_j)):
            self._spend(gpu, float(self._rng.uniform(0.0, 100.0)))

        gpu, kind = int(self._rng.integers(len(self._counters_j))), self._rng.random()
        if kind < 0.35 and self._waiting and len(self._shares_j[gpu]) < 3:
            job = self._waiting.pop(0)
            self._shares_j[gpu][job] = 0.0
            self.entries.append(started(job, gpu=gpu, t=self._t_s))
        elif kind < 0.7 and self._shares_j[gpu]:
            self._end(gpu)
        elif kind < 0.9:
            accounts = [self._account(gpu) for gpu in range(len(self._counters_j))]
            self.entries.append(sampled(self._t_s, *accounts))
        elif kind < 0.95:
            self._pass_between_sessions()
            self._begin()

    def _spend(self, gpu: int, spent_j: float) -> None:
        self._counters_j[gpu] += spent_j
        self._energy_j[gpu] += spent_j
        shares_j = self._shares_j[gpu]
        if not shares_j:
            self._idle_j[gpu] += spent_j
        for job in shares_j:
            shares_j[job] += spent_j / len(shares_j)

    def _end(self, gpu: int) -> None:
        job = list(self._shares_j[gpu])[int(self._rng.integers(len(self._shares_j[gpu])))]
        outcome = str(self._rng.choice(["completed", "failed: crash", "failed: shared", "paused"]))
        again = outcome != "completed" and bool(self._rng.random() < 0.7)
        energy_j = self._shares_j[gpu].pop(job)
        done = 0.0 if outcome.startswith("failed") else 1.0
        self.entries.append(
            ended(job, outcome, gpu=gpu, end_s=self._t_s, energy_j=energy_j, account=self._account(gpu),
                  iterations=done, again=again, charged=outcome == "failed: crash")
        )  # fmt: skip
        if again or outcome == "paused":
            self._waiting.append(job)

    def _pass_between_sessions(self) -> None:
        for gpu in range(len(self._counters_j)):
            self._counters_j[gpu] += float(self._rng.uniform(0.0, 1000.0))
            if self._faults and self._rng.random() < 0.3:
                self._counters_j[gpu] = float(self._rng.uniform(0.0, 100.0))

    def _counter_j(self, gpu: int) -> float | None:
        unknown = self._faults and self._rng.random() < 0.2
        return None if unknown else self._counters_j[gpu]

    def _account(self, gpu: int) -> Account:
        shares_j = dict(self._shares_j[gpu])
        return Account(self._energy_j[gpu], self._idle_j[gpu], shares_j, self._counter_j(gpu), power_w=80.0)
