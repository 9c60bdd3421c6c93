"""The outcome of a run on real GPUs, computed from its journal alone: each job once, each joule once."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Self

import pandas as pd

from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.executor.job_tasks import assigned_jobs
from heshare.ops.jobs.entries import Account, End
from heshare.ops.jobs.run_state import JobHistory, RunState, SessionState
from heshare.shared import files
from heshare.shared.display import printable

_OWN_CLOCK = (
    "Clocks were left to the cards (--allow-clocks was not given, or they cannot be set): the plan is for these clocks."
)
_SALVAGED = (
    "damaged lines of the journal were left out: {lines} ({copy} has them). A job whose end was in one ran again; "
    "times and energy are those of the other lines."
)
_SHARES = (
    "Energy of a GPU is its own counter's. Energy of a job is a share of it, since no counter reports that of one MPS "
    "client. energy_j, completed_j and lost_j are equal shares among those that ran at each moment. energy_model_j and "
    "lost_model_j divide the idle power equally, and what the GPU draws above it in proportion to the power that each "
    "job draws alone at its share and the GPU's clock, by the device model or a measured profile. Both ways sum to the "
    "counter's energy. NaN: an older version wrote the journal, without the second way."
)


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run, finished or not.

    Attributes:
        jobs: one row a job: key, outcome (`completed`, `failed` or `left`), attempts, gpu, waiting_s (from arrival to
            the start of the attempt that completed), execution_s (of that attempt), jct_s, predicted_s (what was
            predicted for the last attempt, in the conditions in which it ran), predicted_by (from what: `like`, or a
            measured attempt), energy_j (of the attempt that completed), lost_j (of its other attempts), energy_model_j
            and lost_model_j (the same by the power that each job draws alone; NaN in journals of older versions),
            exit_code, reason, log.
        gpus: one row a GPU: uuid, name, energy_j, completed_j, lost_j, idle_j, between_j (from the last account of a
            session that was killed to the next session: unknown in part; NaN where the card's counter began again),
            planned_mhz (the clocks that the plan could choose from), sm_mhz (mean at the ends of attempts), limits,
            state (`ok`, `drained` or `lost` at the end).
        history: the history of each job in the journal.
        unwritten: why the report could not be written, and what to do; empty if it was.
        drained: whether the last session was asked to start nothing more.
    """

    jobs: pd.DataFrame
    gpus: pd.DataFrame
    totals: dict[str, float | int | str]
    notes: list[str]
    history: JobHistory
    unwritten: str = ""
    drained: bool = False

    @property
    def complete(self) -> bool:
        return bool((self.jobs["outcome"] == "completed").all())

    def report(self) -> str:
        """Return the outcome of the run as the text of `report.txt`."""
        lines = [
            f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}"
            for name, value in self.totals.items()
        ]
        lines += ["", self.gpus.to_string(index=False), "", self.jobs.drop(columns=["log"]).to_string(index=False)]
        if self.notes:
            lines += ["", "Notes", *[f"- {note}" for note in self.notes]]
        own_clock = any("own" in str(clock) for clock in self.gpus.get("planned_mhz", []))
        lines += ["", _OWN_CLOCK] if own_clock else []
        text = "\n".join([*lines, "", _SHARES]) + "\n"
        return "\n".join(printable(line) for line in text.split("\n"))

    def write(self, folder: Path) -> Self:
        """Write the report beside the journal, from which it can be made again at any time; return the outcome.

        Each file is written whole or stays as it was. A disk that is full changes nothing about the run: the outcome
        that is returned says so in `unwritten`.
        """
        texts = {
            "jobs.csv": self.jobs.to_csv(index=False, lineterminator="\n"),
            "gpus.csv": self.gpus.to_csv(index=False, lineterminator="\n"),
            "report.txt": self.report(),
        }
        try:
            for name, text in texts.items():
                files.write_text(folder / name, text, private=True)
        except OSError as error:
            unwritten = (
                f"{folder}: the report could not be written ({error.strerror}). The journal has every result: make "
                f"room, then write it with heshare jobs run --resume {folder}."
            )
            return replace(self, unwritten=unwritten)
        return self


def run_outcome(state: RunState) -> RunOutcome:
    sessions = state.sessions
    ends: defaultdict[str, list[tuple[float, End]]] = defaultdict(list)
    for session in sessions:
        for end in session.ends:
            ends[end.job].append((session.session.at - sessions[0].session.at, end))
    assigned = assigned_jobs(state.run.jobs)
    jobs = pd.DataFrame([_job_row(job, ends[job.key], state.history) for job in assigned])
    gpus = pd.DataFrame([_gpu_row(index, sessions) for index in range(len(state.gpus))])
    notes = [
        note.text if note.gpu is None else f"session {number}, GPU {note.gpu}: {note.text}"
        for number, session in enumerate(sessions, start=1)
        for note in session.notes
    ]
    notes += _pauses(sessions) + [_SALVAGED.format(lines=cut.lines, copy=cut.copy) for cut in state.salvaged]
    notes += _energy_notes(sessions)
    return RunOutcome(jobs, gpus, _totals(state, jobs, gpus), notes, state.history)


def _pauses(sessions: Sequence[SessionState]) -> list[str]:
    texts = []
    for number, (before, after) in enumerate(pairwise(sessions), start=2):
        pause_s = max(0.0, after.session.at - before.session.at - before.last_s)
        text = f"session {number} began {pause_s:.0f} s after the last entry of session {number - 1}"
        back_s = after.session.set_back_s
        texts.append(text + (f"; the clock had been set back, by {back_s:.0f} s or more" if back_s else ""))
    return texts


def _job_row(job: AssignedJob, ends: Sequence[tuple[float, End]], history: JobHistory) -> dict[str, Any]:
    """Return the row of a job; `ends` are those of its attempts, each with the start of its session, s."""
    useful = [end for _, end in ends if not end.wasted]
    lost = [end for _, end in ends if end.wasted]
    execution_s = jct_s = energy_j = energy_model_j = math.nan
    session_s, last = ends[-1] if ends else (math.nan, None)
    if last is not None and last.completed:
        energy_j, energy_model_j = _equal_j(useful), _model_j(useful)
        execution_s = sum(end.end_s - end.start_s for end in useful)
        jct_s = session_s + last.end_s - job.spec.arrival_s
    return {
        "job": job.key,
        "outcome": history.over.get(job.key, "left"),
        "arrival_s": job.spec.arrival_s,
        "attempts": history.attempts[job.key],
        "gpu": pd.NA if last is None else _gpus(last),
        "waiting_s": jct_s - execution_s,
        "execution_s": execution_s,
        "jct_s": jct_s,
        "predicted_s": math.nan if last is None or last.predicted_s is None else last.predicted_s,
        "predicted_by": "" if last is None else last.predicted_by,
        "energy_j": energy_j,
        "lost_j": _equal_j(lost),
        "energy_model_j": energy_model_j,
        "lost_model_j": _model_j(lost),
        "exit_code": pd.NA if last is None or last.exit_code is None else last.exit_code,
        "reason": "" if last is None else last.reason,
        "log": "" if last is None else last.log,
    }


def _model_j(ends: Sequence[End]) -> float:
    """Return the energy of attempts by the power that each job draws alone, J; NaN if one of them has none."""
    parts = [part for end in ends for part in end.parts]
    return float(sum(math.nan if part.energy_model_j is None else part.energy_model_j for part in parts))


def _equal_j(ends: Sequence[End]) -> float:
    return float(sum(part.energy_j for end in ends for part in end.parts))


def _gpus(end: End) -> int | str:
    return "+".join(str(part.gpu) for part in end.parts) if end.also else end.gpu


def _gpu_row(index: int, sessions: Sequence[SessionState]) -> dict[str, Any]:
    completed_j = lost_j = idle_j = between_j = 0.0
    clocks_mhz: list[float] = []
    limits: set[str] = set()
    state = "ok"
    for session, following in zip_longest(sessions, sessions[1:]):
        parts = [(end.wasted, part.energy_j) for end in session.ends for part in end.parts if part.gpu == index]
        lost_j += sum(energy_j for wasted, energy_j in parts if wasted)
        completed_j += sum(energy_j for wasted, energy_j in parts if not wasted)
        ends = [end for end in session.ends if end.gpu == index]
        clocks_mhz += [end.sm_mhz for end in ends if end.sm_mhz is not None]
        limits.update(*[end.limits for end in ends])
        last = session.sample.gpus[index] if session.sample else Account(0.0, state=state)
        state = last.state
        idle_j += last.idle_j
        # An attempt that ran at the last account and has no end was cut off with the session.
        lost_j += sum(share_j for key, share_j in last.shares_j.items() if key not in session.since)
        if following is not None:
            counters_j = session.session.counters_j[index], following.session.counters_j[index]
            between_j += _between_j(counters_j[0], last.energy_j, counters_j[1])
    opened = sessions[0].session.gpus[index]
    return {
        "gpu": index,
        "uuid": opened.uuid,
        "name": opened.name,
        "energy_j": completed_j + lost_j + idle_j,
        "completed_j": completed_j,
        "lost_j": lost_j,
        "idle_j": idle_j,
        "between_j": between_j,
        "planned_mhz": opened.planned_mhz,
        "sm_mhz": sum(clocks_mhz) / len(clocks_mhz) if clocks_mhz else math.nan,
        "limits": "+".join(sorted(limits)),
        "sharing": opened.sharing,
        "state": state,
    }


def _energy_notes(sessions: Sequence[SessionState]) -> list[str]:
    notes = []
    for number, session in enumerate(sessions, start=1):
        for index, gpu in enumerate(session.sample.gpus if session.sample else ()):
            place = f"session {number}, GPU {index}"
            if gpu.estimated_j:
                notes.append(f"{place}: {gpu.estimated_j:.6g} J of its energy are integrals of power readings")
            if gpu.unknown_s:
                notes.append(f"{place}: its energy during {gpu.unknown_s:.1f} s is unknown, and on no account")
    return notes


def _between_j(began_j: float | None, spent_j: float, ended_j: float | None) -> float:
    """Return the energy from a session's last account to the next session, J; NaN if the counter began again."""
    if began_j is None or ended_j is None or ended_j < began_j + spent_j:
        return math.nan
    return ended_j - began_j - spent_j


def _totals(state: RunState, jobs: pd.DataFrame, gpus: pd.DataFrame) -> dict[str, float | int | str]:
    counts = jobs["outcome"].value_counts()
    ends_s = [session.session.at + end.end_s for session in state.sessions for end in session.ends]
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
        "makespan_s": max(ends_s) - state.started_s if ends_s else math.nan,
        **{name: float(gpus[name].sum(skipna=False)) if len(gpus) else 0.0 for name in energies},
        "provenance": "measured",
    }
