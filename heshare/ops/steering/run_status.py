"""The state of a run on real GPUs, from its journal alone, while it goes on or afterwards."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heshare.ops.executor import run_journal
from heshare.ops.executor.job_tasks import assigned_jobs, job_history, specs_from_json
from heshare.ops.steering.run_control import is_alive, pending_request

LAST_NOTES = 5


@dataclass(frozen=True)
class RunStatus:
    """The state of a run.

    Attributes:
        folder: of the run.
        alive: whether an executor works on it.
        pid: the process of the last session's executor.
        request: what the operator has requested and the executor has not finished, `drain`, `stop` or nothing.
        counts: jobs by state: `waiting`, `running`, `completed`, `failed`.
        running: one row for each job that runs: job, gpu (UUID), mps_pct, since_s (time that it runs, s).
        gpus: one row a GPU: uuid, name, sm_mhz, power_w, energy_j, state at the last account, and its last note.
        account_age_s: time since the last account, s; NaN without one.
        notes: the last notes for the operator.
    """

    folder: str
    alive: bool
    pid: int | None
    policy: str
    request: str
    counts: dict[str, int]
    running: list[dict[str, Any]]
    gpus: list[dict[str, Any]]
    account_age_s: float
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    def text(self) -> str:
        """Return it as lines for people."""
        executor = f"process {self.pid}" if self.alive else "none: the run has ended, or was killed"
        lines = [
            f"run: {self.folder}, policy {self.policy}",
            f"executor: {executor}" + (f"; {self.request} requested" if self.alive and self.request else ""),
            "jobs: " + ", ".join(f"{count} {state}" for state, count in self.counts.items()),
        ]
        if self.account_age_s == self.account_age_s:
            lines.append(f"last account: {self.account_age_s:.0f} s ago")
        for gpu in self.gpus:
            lines.append(
                f"GPU {gpu['uuid']} ({gpu['name']}): {gpu['power_w']:.0f} W, {gpu['sm_mhz']:.0f} MHz, "
                f"{gpu['energy_j'] / 1e3:.1f} kJ"
                + (f", {gpu['state']}" if gpu["state"] != "ok" else "")
                + (f"; {gpu['note']}" if gpu["note"] else "")
            )
        lines += [f"runs: {row['job']} on {row['gpu']} for {row['since_s']:.0f} s" for row in self.running]
        lines += [f"note: {note}" for note in self.notes]
        if not self.alive and self.counts["waiting"]:
            lines.append(f"continue with: heshare run --resume {self.folder}")
        return "\n".join(lines)


def run_status(folder: Path) -> RunStatus:
    """Return the state of the run in a folder; the journal is read without a lock, and not changed.

    Raises:
        InputError: no run there, or a damaged journal.
    """
    with run_journal.reading_entries(folder):
        status = _status(folder)
        status.text()  # only this would notice values of other types
    return status


def _status(folder: Path) -> RunStatus:
    entries = run_journal.read(folder)
    lives = is_alive(folder)
    run: Mapping[str, Any] = entries[0]["run"] if entries else {}
    places = [place for place, entry in enumerate(entries) if "session" in entry]
    session = entries[places[-1]]["session"] if places else {}
    since = entries[places[-1] :] if places else []
    now_s = time.time() - session.get("at", math.nan)
    keys = [job.key for job in assigned_jobs(specs_from_json(run.get("jobs", [])))]
    over = job_history(entries).over
    running = _running(since, session, now_s) if lives else []
    outcomes = [over.get(key) for key in keys]
    counts = {
        "waiting": len(keys) - len(over) - len(running),
        "running": len(running),
        **{state: outcomes.count(state) for state in ("completed", "failed")},
    }
    samples = [entry["sample"] for entry in since if "sample" in entry]
    notes = [entry["note"] for entry in since if "note" in entry]
    return RunStatus(
        str(folder),
        lives,
        session.get("pid"),
        str(run.get("policy", "")),
        pending_request(folder) if lives else "",
        counts,
        running,
        _gpus(session, samples[-1] if samples else None, notes),
        now_s - samples[-1]["t"] if samples else math.nan,
        [str(note["text"]) for note in notes[-LAST_NOTES:]],
    )


def _running(entries: Sequence[Mapping[str, Any]], session: Mapping[str, Any], now_s: float) -> list[dict[str, Any]]:
    """Return the jobs that a session has started and that have not ended."""
    rows: dict[str, dict[str, Any]] = {}
    for entry in entries:
        for action in entry.get("decision", {}).get("actions", ()):
            if action[0] in ("start", "migrate"):
                _, job, gpu, mps_pct, _ = action
                since_s = now_s - entry["decision"]["decided_s"]
                uuid = session["gpus"][gpu]["uuid"]
                rows[job] = {"job": job, "gpu": uuid, "mps_pct": mps_pct, "since_s": since_s}
        if "end" in entry:
            rows.pop(entry["end"]["job"], None)
    return list(rows.values())


def _gpus(
    session: Mapping[str, Any], sample: Mapping[str, Any] | None, notes: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    rows = []
    for index, gpu in enumerate(session.get("gpus", [])):
        account = sample["gpus"][index] if sample else {}
        known = {name: account.get(name) for name in ("sm_mhz", "power_w", "energy_j")}
        values = {name: math.nan if value is None else value for name, value in known.items()}
        state = account.get("state", "ok")
        last = [str(note["text"]) for note in notes if note["gpu"] == index]
        rows.append(
            {"uuid": gpu["uuid"], "name": gpu["name"], **values, "state": state, "note": last[-1] if last else ""}
        )
    return rows
