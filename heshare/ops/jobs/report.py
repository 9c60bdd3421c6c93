"""Report of a run on real GPUs, computed from its journal alone: jobs, energies by GPU, totals and notes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pandas as pd

from heshare.ops.jobs import run_journal
from heshare.ops.jobs.run_state import GpuState, JobState, RunState, SessionState
from heshare.shared import files
from heshare.shared.display import printable

_SAME = 1e-3
"""Energies count as equal if they differ by less than this part or by less than 1 J."""
_OWN_CLOCK = (
    "Clocks were left to the cards (--allow-clocks was not given, or they cannot be set): the plan is for these clocks."
)
_ENERGY = (
    "Energy of a GPU is its own counter's in the sessions of the run; its parts are completed_j, lost_j and idle_j. "
    "between_j is what the counter moved between sessions: from the last account before a stop or a kill. Energy of a "
    "job is a share of its GPU's, since no counter reports that of one MPS client: idle power is divided equally among "
    "the jobs of each moment, and what the GPU draws above it in proportion to the power that each job draws alone at "
    "its share and the GPU's clock, by the device model."
)


@dataclass(frozen=True)
class RunReport:
    """The report of a run, finished or not.

    Attributes:
        jobs: one row a job: job, outcome (`completed`, `failed` or `left`), arrival_s, attempts, gpu, waiting_s (from
            arrival to completion without the time on a GPU), execution_s (on a GPU, of the attempts that counted),
            jct_s, energy_j (of the attempts that counted), lost_j (of the others), exit_code, reason, log.
        gpus: one row a GPU: gpu, uuid, name, energy_j (in the sessions of the run) and its parts completed_j, lost_j
            and idle_j; between_j (from the last account of a session to the next session, of any user), counter_j
            (difference of the energy counter, energy_j plus between_j; NaN if unknown or after a counter reset),
            planned_mhz (the clocks that the plan could choose from), sm_mhz (mean at the ends of attempts), limits,
            sharing, state (`ok`, `drained` or `lost` at the end).
        totals: of the run, by name.
        notes: messages for the operator.
        unwritten: why the report could not be written, and what to do; empty if it was written.
    """

    jobs: pd.DataFrame
    gpus: pd.DataFrame
    totals: dict[str, float | int | str]
    notes: list[str]
    unwritten: str = ""

    @property
    def complete(self) -> bool:
        return bool((self.jobs["outcome"] == "completed").all())

    def text(self) -> str:
        """Return the report as the text of `report.txt`."""
        lines = [
            f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}"
            for name, value in self.totals.items()
        ]
        lines += ["", self.gpus.to_string(index=False), "", self.jobs.drop(columns=["log"]).to_string(index=False)]
        if self.notes:
            lines += ["", "Notes", *[f"- {note}" for note in self.notes]]
        if any("own" in str(clock) for clock in self.gpus.get("planned_mhz", [])):
            lines += ["", _OWN_CLOCK]
        text = "\n".join([*lines, "", _ENERGY]) + "\n"
        return "\n".join(printable(line) for line in text.split("\n"))

    def write(self, folder: Path) -> Self:
        """Write the report to the folder of the journal, atomically for each file; return the report.

        An error such as a full disk is not raised, but reported in `unwritten` of the returned report.
        """
        texts = {
            "jobs.csv": self.jobs.to_csv(index=False, lineterminator="\n"),
            "gpus.csv": self.gpus.to_csv(index=False, lineterminator="\n"),
            "report.txt": self.text(),
        }
        try:
            for name, text in texts.items():
                files.write_text(folder / name, text, private=True)
        except OSError as error:
            unwritten = (
                f"{folder}: the report could not be written ({error.strerror}). The journal has every result: free "
                f"disk space, then write it with heshare jobs report {folder}."
            )
            return replace(self, unwritten=unwritten)
        return self


def read_report(folder: Path) -> RunReport:
    """Return the report of the run in a folder, with running jobs counted as if the executor had ended.

    Raises:
        InputError: no run there, or a damaged journal.
    """
    return run_report(run_journal.read_state(folder))


def run_report(state: RunState) -> RunReport:
    """Return the report of a run whose executor has ended or is ending."""
    state.end_session()
    jobs = pd.DataFrame([_job_row(job) for job in state.jobs.values()])
    gpus = pd.DataFrame([_gpu_row(index, gpu) for index, gpu in enumerate(state.gpus)])
    return RunReport(jobs, gpus, _totals(state, jobs, gpus), _notes(state))


def _job_row(job: JobState) -> dict[str, Any]:
    last = job.last
    completed = job.outcome == "completed"
    jct_s = job.completion_s - job.spec.arrival_s if completed else math.nan
    execution_s = job.execution_s if completed else math.nan
    return {
        "job": job.key,
        "outcome": job.outcome,
        "arrival_s": job.spec.arrival_s,
        "attempts": job.attempts,
        "gpu": pd.NA if last is None else job.gpu,
        "waiting_s": jct_s - execution_s,
        "execution_s": execution_s,
        "jct_s": jct_s,
        "energy_j": job.energy_j if completed else math.nan,
        "lost_j": job.lost_j,
        "exit_code": pd.NA if last is None or last.exit_code is None else last.exit_code,
        "reason": "" if last is None else last.reason,
        "log": "" if last is None else last.log,
    }


def _gpu_row(index: int, gpu: GpuState) -> dict[str, Any]:
    clocks_mhz = gpu.clocks_mhz
    return {
        "gpu": index,
        "uuid": gpu.opened.uuid,
        "name": gpu.opened.name,
        "energy_j": gpu.energy_j,
        "completed_j": gpu.completed_j,
        "lost_j": gpu.lost_j,
        "idle_j": gpu.idle_j,
        "between_j": gpu.between_j,
        "counter_j": gpu.counter_j,
        "planned_mhz": gpu.opened.planned_mhz,
        "sm_mhz": sum(clocks_mhz) / len(clocks_mhz) if clocks_mhz else math.nan,
        "limits": "+".join(sorted(gpu.limits)),
        "sharing": gpu.opened.sharing,
        "state": gpu.account.state,
    }


def _totals(state: RunState, jobs: pd.DataFrame, gpus: pd.DataFrame) -> dict[str, float | int | str]:
    counts = jobs["outcome"].value_counts()
    completions_s = [job.completion_s for job in state.jobs.values() if job.last is not None]
    energies = ("energy_j", "completed_j", "lost_j", "idle_j", "between_j")
    return {
        "policy": state.run.policy,
        "jobs": len(jobs),
        **{name: int(counts.get(name, 0)) for name in ("completed", "failed", "left")},
        "attempts": int(jobs["attempts"].sum()),
        "sessions": len(state.sessions),
        "avg_jct_s": float(jobs["jct_s"].mean()),
        "avg_waiting_s": float(jobs["waiting_s"].mean()),
        "avg_execution_s": float(jobs["execution_s"].mean()),
        "makespan_s": max(completions_s, default=math.nan),
        **{name: float(gpus[name].sum()) if len(gpus) else 0.0 for name in energies},
        "provenance": "measured",
    }


def _notes(state: RunState) -> list[str]:
    sessions = enumerate(state.sessions, start=1)
    notes = [
        note.text if note.gpu is None else f"session {number}, GPU {session.gpus[note.gpu]}: {note.text}"
        for number, session in sessions
        for note in session.notes
    ]
    notes += _pauses(state.sessions)
    for index, gpu in enumerate(state.gpus):
        notes += [f"GPU {index}: {text}" for text in _energy_notes(gpu)]
    return notes


def _pauses(sessions: Sequence[SessionState]) -> list[str]:
    texts = []
    for number, (before, after) in enumerate(pairwise(sessions), start=2):
        pause_s = max(0.0, after.session.at - before.session.at - before.last_s)
        text = f"session {number} began {pause_s:.0f} s after the last entry of session {number - 1}"
        back_s = after.session.set_back_s
        texts.append(text + (f"; the clock had been set back, by {back_s:.0f} s or more" if back_s else ""))
    return texts


def _energy_notes(gpu: GpuState) -> list[str]:
    notes = []
    if gpu.estimated_j:
        notes.append(f"{gpu.estimated_j:.6g} J of its energy are integrals of power readings")
    if gpu.unknown_s:
        notes.append(f"its energy during {gpu.unknown_s:.1f} s is unknown, and in no account")
    if gpu.unknown_between:
        notes.append("its energy between two sessions is unknown, since its counter is, or began again")
    if _differ(gpu.parts_j, gpu.energy_j):
        notes.append(f"its parts sum to {gpu.parts_j:.6g} J, where its energy is {gpu.energy_j:.6g} J")
    known_j = gpu.energy_j + gpu.between_j
    if not math.isnan(gpu.counter_j) and _differ(gpu.counter_j, known_j):
        notes.append(f"its own counter says {gpu.counter_j:.6g} J, where its accounts have {known_j:.6g} J")
    return notes


def _differ(one_j: float, other_j: float) -> bool:
    return abs(one_j - other_j) > max(1.0, _SAME * abs(other_j))
