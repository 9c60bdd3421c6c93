"""What a live run came to, computed from its journal alone: each job once, each joule once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from heshare.running import jobs as jobfiles
from heshare.running.jobs import History


@dataclass(frozen=True)
class Outcome:
    """A live run, over or not.

    Attributes:
        jobs: one row a job: key, outcome (`completed`, `failed` or `left`), attempts, gpu, waiting_s (from arrival to
            the start of the attempt that completed), execution_s (of that attempt), jct_s, energy_j (of that attempt),
            lost_j (of its other attempts), exit_code, reason, log.
        gpus: one row a GPU: uuid, name, energy_j, completed_j, lost_j, idle_j, between_j (from the last account of a
            session that was killed to the next session: unknown in part; NaN where the card's counter began again),
            planned_mhz (the clocks that the plan could choose from), sm_mhz (mean at the ends of attempts), limits.
        totals: the numbers of the whole.
        notes: what the operator should know.
        history: what the journal says of each job.
    """

    jobs: pd.DataFrame
    gpus: pd.DataFrame
    totals: dict[str, float | int | str]
    notes: list[str]
    history: History

    @property
    def complete(self) -> bool:
        """Whether every job has completed."""
        return bool((self.jobs["outcome"] == "completed").all())


def outcome(entries: Sequence[Mapping[str, Any]]) -> Outcome:
    """Read a journal's entries."""
    run = entries[0]["run"]
    history = jobfiles.history(entries)
    sessions = _sessions(entries)
    rows: dict[str, dict[str, Any]] = {
        job.key: {"job": job.key, "outcome": history.over.get(job.key, "left"), "arrival_s": job.spec.arrival_s}
        for job in jobfiles.copies(jobfiles.from_json(run["jobs"]))
    }
    first_s = sessions[0]["at"] if sessions else 0.0
    for key, row in rows.items():
        row.update(_of_job(key, row["arrival_s"], sessions, first_s, history))
    jobs = pd.DataFrame(list(rows.values()))
    gpus = pd.DataFrame(_of_gpus(sessions))
    notes = [
        f"session {number}, GPU {note['gpu']}: {note['text']}" if note["gpu"] is not None else note["text"]
        for number, session in enumerate(sessions, start=1)
        for note in session["notes"]
    ]
    return Outcome(jobs, gpus, _totals(run, jobs, gpus, sessions), notes, history)


def _sessions(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries by session: its opening, its ends, its last sample, the ends after that."""
    found: list[dict[str, Any]] = []
    for entry in entries:
        if "session" in entry:
            found.append({**entry["session"], "ends": [], "sample": None, "since": set(), "notes": []})
        elif found and "end" in entry:
            found[-1]["ends"].append(entry["end"])
            found[-1]["since"].add(entry["end"]["job"])
        elif found and "sample" in entry:
            found[-1].update(sample=entry["sample"], since=set())
        elif found and "note" in entry:
            found[-1]["notes"].append(entry["note"])
    return found


def _of_job(
    key: str, arrival_s: float, sessions: Sequence[Mapping[str, Any]], first_s: float, history: History
) -> dict[str, Any]:
    ends = [(session["at"] - first_s, end) for session in sessions for end in session["ends"] if end["job"] == key]
    row: dict[str, Any] = {"attempts": history.attempts.get(key, 0), "gpu": pd.NA}
    row |= dict.fromkeys(("waiting_s", "execution_s", "jct_s", "energy_j"), float("nan"))
    row |= {"lost_j": sum(end["energy_j"] for _, end in ends if _lost(end))}
    row |= {"exit_code": pd.NA, "reason": "", "log": ""}
    if ends:
        at_s, last = ends[-1]
        row |= {"gpu": last["gpu"], "reason": last["reason"], "log": last["log"]}
        row["exit_code"] = pd.NA if last["exit_code"] is None else last["exit_code"]
        if last["outcome"] == "completed":
            parts = [end for _, end in ends if not _lost(end)]
            row["energy_j"] = sum(end["energy_j"] for end in parts)
            row["execution_s"] = sum(end["end_s"] - end["start_s"] for end in parts)
            row["jct_s"] = at_s + last["end_s"] - arrival_s
            row["waiting_s"] = row["jct_s"] - row["execution_s"]
    return row


def _of_gpus(sessions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    uuids = [gpu["uuid"] for gpu in sessions[0]["gpus"]] if sessions else []
    return [_of_gpu(index, uuid, sessions) for index, uuid in enumerate(uuids)]


def _of_gpu(index: int, uuid: str, sessions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    completed_j = lost_j = idle_j = between_j = 0.0
    clocks: list[float] = []
    limits: set[str] = set()
    for number, session in enumerate(sessions):
        ends = [end for end in session["ends"] if end["gpu"] == index]
        lost_j += sum(end["energy_j"] for end in ends if _lost(end))
        completed_j += sum(end["energy_j"] for end in ends if not _lost(end))
        clocks += [end["sm_mhz"] for end in ends]
        limits |= {limit for end in ends for limit in end["limits"]}
        last: dict[str, Any] = {"energy_j": 0.0, "idle_j": 0.0, "shares_j": {}}
        if session["sample"] is not None:
            last = session["sample"]["gpus"][index]
        idle_j += last["idle_j"]
        # What ran at the last account and never came to an end was for nothing.
        lost_j += sum(share_j for key, share_j in last["shares_j"].items() if key not in session["since"])
        if number + 1 < len(sessions):
            between_j += _between_j(session["counters_j"][index], last["energy_j"], sessions[number + 1], index)
    opened = sessions[0]["gpus"][index]
    return {
        "gpu": index,
        "uuid": uuid,
        "name": opened["name"],
        "energy_j": completed_j + lost_j + idle_j,
        "completed_j": completed_j,
        "lost_j": lost_j,
        "idle_j": idle_j,
        "between_j": between_j,
        "planned_mhz": opened["planned_mhz"],
        "sm_mhz": sum(clocks) / len(clocks) if clocks else float("nan"),
        "limits": "+".join(sorted(limits)),
        "sharing": opened["sharing"],
        **({"host": opened["host"]} if "host" in opened else {}),
    }


def _lost(end: Mapping[str, Any]) -> bool:
    """Whether an attempt was for nothing: it failed, or it was paused and does not keep what it had done."""
    return bool(end["outcome"].startswith("failed") or (end["outcome"] != "completed" and end["iterations"] == 0))


def _between_j(began_j: float | None, spent_j: float, following: Mapping[str, Any], index: int) -> float:
    """Energy from the last account of a session to the beginning of the next; NaN if the counter began again."""
    ended_j = following["counters_j"][index]
    if began_j is None or ended_j is None or ended_j < began_j + spent_j:
        return float("nan")
    return float(ended_j - began_j - spent_j)


def _totals(
    run: Mapping[str, Any], jobs: pd.DataFrame, gpus: pd.DataFrame, sessions: Sequence[Mapping[str, Any]]
) -> dict[str, float | int | str]:
    counts = jobs["outcome"].value_counts()
    ends = [session["at"] + end["end_s"] for session in sessions for end in session["ends"]]
    energy = {
        name: float(gpus[name].sum(skipna=False)) if len(gpus) else 0.0
        for name in ("energy_j", "completed_j", "lost_j", "idle_j", "between_j")
    }
    return {
        "policy": str(run["policy"]),
        "jobs": len(jobs),
        **{name: int(counts.get(name, 0)) for name in ("completed", "failed", "left")},
        "attempts": int(jobs["attempts"].sum()),
        "sessions": len(sessions),
        "avg_jct_s": float(jobs["jct_s"].mean()),
        "avg_waiting_s": float(jobs["waiting_s"].mean()),
        "avg_execution_s": float(jobs["execution_s"].mean()),
        "makespan_s": max(ends) - sessions[0]["at"] if ends else float("nan"),
        **energy,
        "provenance": "measured",
    }
