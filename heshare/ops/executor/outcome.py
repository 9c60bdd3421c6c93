"""The outcome of a run on real GPUs, computed from its journal alone: each job once, each joule once."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Self

import pandas as pd

from heshare.lab.limits.prices.price_terms import PriceTerms
from heshare.lab.limits.prices.signal_cost import journal_cost
from heshare.ops.executor.job_tasks import JobHistory, assigned_jobs, job_history, specs_from_json
from heshare.ops.executor.run_journal import entry_time_s
from heshare.ops.workers.job_process import AssignedJob
from heshare.shared import files

_OWN_CLOCK = (
    "Clocks were left to the cards (--allow-clocks was not given, or they cannot be set): the plan is for these clocks."
)
_NOTHING_YET: dict[str, Any] = {"energy_j": 0.0, "idle_j": 0.0, "shares_j": {}}
_SALVAGED = (
    "damaged lines of the journal were left out: {lines} ({copy} has them). A job whose end was in one ran again; "
    "times and energy are those of the other lines."
)
_WAYS = ("energy_j", "energy_model_j")
"""The energies of an attempt: equal shares, and by the power that each job draws alone."""
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
            the start of the attempt that completed), execution_s (of that attempt), jct_s, energy_j (of that attempt),
            lost_j (of its other attempts), energy_model_j and lost_model_j (the same by the power that each job draws
            alone; NaN in journals of older versions), exit_code, reason, log.
        gpus: one row a GPU: uuid, name, energy_j, completed_j, lost_j, idle_j, between_j (from the last account of a
            session that was killed to the next session: unknown in part; NaN where the card's counter began again),
            planned_mhz (the clocks that the plan could choose from), sm_mhz (mean at the ends of attempts), limits,
            state (`ok`, `drained` or `lost` at the end).
        totals: the numbers of the whole run.
        notes: notes for the operator.
        history: the history of each job in the journal.
        unwritten: why the report could not be written, and what to do; empty if it was.
    """

    jobs: pd.DataFrame
    gpus: pd.DataFrame
    totals: dict[str, float | int | str]
    notes: list[str]
    history: JobHistory
    unwritten: str = ""

    @property
    def complete(self) -> bool:
        """Whether every job has completed."""
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
        return "\n".join([*lines, "", _SHARES]) + "\n"

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
                f"room, then write it with heshare run --resume {folder}."
            )
            return replace(self, unwritten=unwritten)
        return self


def run_outcome(entries: Sequence[Mapping[str, Any]]) -> RunOutcome:
    """Return the outcome of the run that wrote these entries of its journal."""
    run = entries[0]["run"]
    history = job_history(entries)
    sessions = _sessions(entries)
    ends: defaultdict[str, list[tuple[float, Mapping[str, Any]]]] = defaultdict(list)
    for session in sessions:
        for end in session["ends"]:
            ends[end["job"]].append((session["at"] - sessions[0]["at"], end))
    assigned = assigned_jobs(specs_from_json(run["jobs"]))
    jobs = pd.DataFrame([_job_row(job, ends[job.key], history) for job in assigned])
    gpus = pd.DataFrame([_gpu_row(index, sessions) for index in range(len(sessions[0]["gpus"]) if sessions else 0)])
    notes = [
        f"session {number}, GPU {note['gpu']}: {note['text']}" if note["gpu"] is not None else note["text"]
        for number, session in enumerate(sessions, start=1)
        for note in session["notes"]
    ]
    notes += _pauses(sessions) + [_SALVAGED.format(**entry["salvaged"]) for entry in entries if "salvaged" in entry]
    notes += _energy_notes(sessions)
    totals = _totals(run, jobs, gpus, sessions)
    if run.get("price") is not None:
        signal = PriceTerms.of_json(run["price"]).signal
        totals[signal.counts] = journal_cost(entries, signal)
    return RunOutcome(jobs, gpus, totals, notes, history)


def _sessions(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries by session: its start, ends of attempts, last sample, jobs ended since, last time."""
    sessions: list[dict[str, Any]] = []
    for entry in entries:
        if "session" in entry:
            sessions.append(
                {**entry["session"], "ends": [], "sample": None, "since": set(), "notes": [], "last_s": 0.0}
            )
        elif sessions and "end" in entry:
            sessions[-1]["ends"].append(entry["end"])
            sessions[-1]["since"].add(entry["end"]["job"])
        elif sessions and "sample" in entry:
            sessions[-1].update(sample=entry["sample"], since=set())
        elif sessions and "note" in entry:
            sessions[-1]["notes"].append(entry["note"])
        if sessions:
            sessions[-1]["last_s"] = max(sessions[-1]["last_s"], entry_time_s(entry))
    return sessions


def _pauses(sessions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the time before each session but the first, as notes: JCTs and makespan include it."""
    texts = []
    for number, (before, after) in enumerate(pairwise(sessions), start=2):
        pause_s = max(0.0, after["at"] - before["at"] - before["last_s"])
        text = f"session {number} began {pause_s:.0f} s after the last entry of session {number - 1}"
        back_s = after.get("set_back_s", 0.0)
        texts.append(text + (f"; the clock had been set back, by {back_s:.0f} s or more" if back_s else ""))
    return texts


def _job_row(job: AssignedJob, ends: Sequence[tuple[float, Mapping[str, Any]]], history: JobHistory) -> dict[str, Any]:
    """Return the row of a job; `ends` are those of its attempts, each with the start of its session, s."""
    session_s, last = ends[-1] if ends else (math.nan, {})
    useful = [end for _, end in ends if not _wasted(end)]
    lost_j, lost_model_j = (_sum_j([end for _, end in ends if _wasted(end)], name) for name in _WAYS)
    execution_s = jct_s = energy_j = energy_model_j = math.nan
    if last.get("outcome") == "completed":
        energy_j, energy_model_j = (_sum_j(useful, name) for name in _WAYS)
        execution_s = sum(end["end_s"] - end["start_s"] for end in useful)
        jct_s = session_s + last["end_s"] - job.spec.arrival_s
    return {
        "job": job.key,
        "outcome": history.over.get(job.key, "left"),
        "arrival_s": job.spec.arrival_s,
        "attempts": history.attempts[job.key],
        "gpu": last.get("gpu", pd.NA),
        "waiting_s": jct_s - execution_s,
        "execution_s": execution_s,
        "jct_s": jct_s,
        "energy_j": energy_j,
        "lost_j": lost_j,
        "energy_model_j": energy_model_j,
        "lost_model_j": lost_model_j,
        "exit_code": pd.NA if last.get("exit_code") is None else last["exit_code"],
        "reason": last.get("reason", ""),
        "log": last.get("log", ""),
    }


def _sum_j(ends: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the sum of an energy of attempts, J; NaN if one of them has none."""
    return float(sum(end.get(name, math.nan) for end in ends))


def _gpu_row(index: int, sessions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    completed_j = lost_j = idle_j = between_j = 0.0
    clocks_mhz: list[float] = []
    limits: set[str] = set()
    state = "ok"
    for session, following in zip_longest(sessions, sessions[1:]):
        ends = [end for end in session["ends"] if end["gpu"] == index]
        lost_j += sum(end["energy_j"] for end in ends if _wasted(end))
        completed_j += sum(end["energy_j"] for end in ends if not _wasted(end))
        clocks_mhz += [end["sm_mhz"] for end in ends if end["sm_mhz"] is not None]
        limits.update(*[end["limits"] for end in ends])
        last = session["sample"]["gpus"][index] if session["sample"] else _NOTHING_YET
        state = last.get("state", state)
        idle_j += last["idle_j"]
        # An attempt that ran at the last account and has no end was cut off with the session.
        lost_j += sum(share_j for key, share_j in last["shares_j"].items() if key not in session["since"])
        if following is not None:
            between_j += _between_j(session["counters_j"][index], last["energy_j"], following["counters_j"][index])
    opened = sessions[0]["gpus"][index]
    return {
        "gpu": index,
        "uuid": opened["uuid"],
        "name": opened["name"],
        "energy_j": completed_j + lost_j + idle_j,
        "completed_j": completed_j,
        "lost_j": lost_j,
        "idle_j": idle_j,
        "between_j": between_j,
        "planned_mhz": opened["planned_mhz"],
        "sm_mhz": sum(clocks_mhz) / len(clocks_mhz) if clocks_mhz else math.nan,
        "limits": "+".join(sorted(limits)),
        "sharing": opened["sharing"],
        "state": state,
        **({"host": opened["host"]} if "host" in opened else {}),
    }


def _energy_notes(sessions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes on the energies that are no counter's, or on no account."""
    notes = []
    for number, session in enumerate(sessions, start=1):
        for index, gpu in enumerate(session["sample"]["gpus"] if session["sample"] else ()):
            place = f"session {number}, GPU {index}"
            if gpu.get("estimated_j"):
                notes.append(f"{place}: {gpu['estimated_j']:.6g} J of its energy are integrals of power readings")
            if gpu.get("unknown_s"):
                notes.append(f"{place}: its energy during {gpu['unknown_s']:.1f} s is unknown, and on no account")
    return notes


def _wasted(end: Mapping[str, Any]) -> bool:
    """Return whether an attempt was for nothing: it failed, or it was paused and does not keep its iterations."""
    return bool(end["outcome"].startswith("failed") or (end["outcome"] != "completed" and end["iterations"] == 0))


def _between_j(began_j: float | None, spent_j: float, ended_j: float | None) -> float:
    """Return the energy from a session's last account to the next session, J; NaN if the counter began again."""
    if began_j is None or ended_j is None or ended_j < began_j + spent_j:
        return math.nan
    return ended_j - began_j - spent_j


def _totals(
    run: Mapping[str, Any], jobs: pd.DataFrame, gpus: pd.DataFrame, sessions: Sequence[Mapping[str, Any]]
) -> dict[str, float | int | str]:
    counts = jobs["outcome"].value_counts()
    ends_s = [session["at"] + end["end_s"] for session in sessions for end in session["ends"]]
    energies = ("energy_j", "completed_j", "lost_j", "idle_j", "between_j")
    return {
        "policy": str(run["policy"]),
        "jobs": len(jobs),
        **{name: int(counts.get(name, 0)) for name in ("completed", "failed", "left")},
        "attempts": int(jobs["attempts"].sum()),
        "sessions": len(sessions),
        "avg_jct_s": float(jobs["jct_s"].mean()),
        "avg_waiting_s": float(jobs["waiting_s"].mean()),
        "avg_execution_s": float(jobs["execution_s"].mean()),
        "makespan_s": max(ends_s) - sessions[0]["at"] if ends_s else math.nan,
        **{name: float(gpus[name].sum(skipna=False)) if len(gpus) else 0.0 for name in energies},
        "provenance": "measured",
    }
