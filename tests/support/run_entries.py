"""Entries of made-up journals, with what a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def spec_of(name: str = "a", **more: Any) -> JobSpec:
    """Return the entry of a job, by default a command that is never started."""
    settings: dict[str, Any] = {
        "command": ("true",),
        "workload": Workload("resnet50", 8),
        "iterations": 10.0,
        "expected_time_s": None,
        "count": 1,
        "timeout_s": None,
        "retries": 0,
        "memory_mib": 500.0,
        "directory": Path("/"),
        "environment": (),
        "arrival_s": 0.0,
        "row": 2,
    }
    return JobSpec(name, **{**settings, **more})


def run_of(count: int = 3, *, version: str = __version__, **more: Any) -> Run:
    """Return the description of a run of copies of a job called `a`."""
    return Run("random", (spec_of(count=count),), version, **more)


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
