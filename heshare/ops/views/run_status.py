"""The state of a run on real GPUs, from its journal alone, while it goes on or afterwards."""

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heshare.ops.executor.run_control import is_alive, pending_request
from heshare.ops.jobs import run_journal
from heshare.ops.jobs.entries import Account
from heshare.ops.jobs.run_state import SessionState

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
            lines.append(f"continue with: heshare jobs run --resume {self.folder}")
        return "\n".join(lines)


def run_status(folder: Path) -> RunStatus:
    """Return the state of the run in a folder; the journal is read without a lock, and not changed.

    Raises:
        InputError: no run there, or a damaged journal.
    """
    state, lives = run_journal.read_state(folder), is_alive(folder)
    if not lives:
        state.running.clear()
    last = state.sessions[-1] if state.sessions else None
    now_s = time.time()
    return RunStatus(
        str(folder),
        lives,
        None if last is None else last.session.pid,
        state.run.policy,
        pending_request(folder) if lives else "",
        state.counts(),
        [
            {
                "job": job,
                "gpu": state.gpus[running.gpu].uuid,
                "mps_pct": running.mps_pct,
                "since_s": now_s - running.since_s,
            }
            for job, running in state.running.items()
        ],
        [] if last is None else [_gpu(index, last) for index in range(len(state.gpus))],
        now_s - last.session.at - last.sample.t if last is not None and last.sample is not None else math.nan,
        [note.text for note in (last.notes if last else [])[-LAST_NOTES:]],
    )


def _gpu(index: int, last: SessionState) -> dict[str, Any]:
    opened = last.session.gpus[index]
    account = last.sample.gpus[index] if last.sample else Account(math.nan, power_w=math.nan)
    notes = [note.text for note in last.notes if note.gpu == index]
    return {
        "uuid": opened.uuid,
        "name": opened.name,
        "sm_mhz": math.nan if account.sm_mhz is None else account.sm_mhz,
        "power_w": account.power_w,
        "energy_j": account.energy_j,
        "state": account.state,
        "note": notes[-1] if notes else "",
    }
