"""`heshare jobs status`, the state of a run from its journal, and `heshare jobs stop`."""

import math
import signal
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.ops.jobs import run_journal
from heshare.ops.jobs.run_state import RunState
from heshare.ops.state.run_state_file import run_state_path
from heshare.ops.state.state_file import OwnerStatus, ProcessLocation, open_state_file
from heshare.shared import display
from heshare.shared.errors import DeviceError, require
from heshare.shared.file_lock import is_locked
from heshare.shared.processes import signal_process

MOST_NOTES = 5


def is_alive(folder: Path) -> bool:
    """Return whether an executor is running the run, which then holds the lock of the journal."""
    return is_locked(folder / run_journal.NAME)


def stop(folder: Path) -> None:
    """Request an orderly end of a run, by SIGTERM to its executor.

    Raises:
        InputError: no run in the folder, or no executor is running it.
        DeviceError: this process cannot signal the executor: another user's, on another host or in a container.
    """
    state = run_journal.read_state(folder)
    action = "There is nothing to end. `heshare jobs run --resume` continues it, `heshare jobs status` shows it."
    require(None, "a run without an executor", is_alive(folder), "a run in progress", action, file=folder)

    session = state.sessions[-1].session if state.sessions else None
    sent = False
    if session is not None and session.token is not None:
        try:
            with open_state_file(run_state_path(session.token)) as file:
                here = file.owner_status is OwnerStatus.RUNNING and file.location.same_processes(ProcessLocation.here())
                started = int(file.facts["started"])
                sent = here and signal_process(file.pid, signal.SIGTERM, started=started)
        except FileNotFoundError:
            pass
    if not sent:
        pid = "?" if session is None else session.pid
        raise DeviceError(
            f"{folder}: its executor (process {pid}) was not found among the processes of this user here. Send it "
            "SIGTERM as its user, on its host or in its container."
        )


class RunStatus:
    """The status of the run in a folder, as `heshare jobs status` shows it.

    Attributes:
        state: of the run.
        alive: whether an executor is running it.

    Raises:
        InputError: no run there, or a damaged journal.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.alive = is_alive(folder)
        self.state: RunState = run_journal.read_state(folder)
        if not self.alive:
            self.state.end_session()
        sessions = self.state.sessions
        self._pid = sessions[-1].session.pid if sessions else None

    def as_dict(self, now_s: float) -> dict[str, Any]:
        """Return the status as JSON values; `now_s` is a Unix time, s."""
        state = self.state
        running = [
            {
                "job": job.key,
                "gpu": state.gpus[job.gpu].opened.uuid,
                "mps_pct": job.placed.mps_pct,
                "since_s": now_s - job.since_s,
                "energy_j": self._energy_j(job.key, job.gpu),
            }
            for job in state.running
            if job.placed is not None and job.gpu is not None
        ]

        gpus = [
            {
                "uuid": gpu.opened.uuid,
                "name": gpu.opened.name,
                "state": gpu.account.state,
                "power_w": gpu.account.power_w,
                "sm_mhz": gpu.account.sm_mhz,
                "requested_mhz": gpu.account.requested_mhz,
                "energy_j": gpu.energy_j,
                "idle_j": gpu.idle_j,
                "lost_j": gpu.lost_j,
            }
            for gpu in state.gpus
        ]

        return {
            "folder": str(self._folder),
            "alive": self.alive,
            "pid": self._pid,
            "policy": state.run.policy,
            "counts": state.counts(),
            "running": running,
            "gpus": gpus,
            "account_age_s": now_s - state.updated_s,
            "notes": self.notes(),
        }

    def text(self, now_s: float) -> str:
        """Return the status as text; `now_s` is a Unix time, s."""
        parts = ["\n".join(self._head(now_s))]
        for rows in (self._gpu_rows(), self._job_rows(now_s)):
            if rows:
                parts.append(pd.DataFrame(rows).to_string(index=False))
        parts.append("\n".join(f"note: {note}" for note in self.notes()))
        lines = "\n\n".join(part for part in parts if part).split("\n")
        return "".join(f"{display.printable(line).rstrip()}\n" for line in lines)

    def notes(self) -> list[str]:
        """Return the last notes."""
        return [note.text for session in self.state.sessions for note in session.notes][-MOST_NOTES:]

    def _head(self, now_s: float) -> list[str]:
        state, counts = self.state, self.state.counts()
        unfinished = counts["waiting"] + counts["running"] > 0
        how = "has ended, or was killed" if unfinished else "is complete"
        how = f"runs, process {self._pid}" if self.alive else how
        powers_w = [gpu.account.power_w for gpu in state.gpus if gpu.account.power_w is not None]
        power = f"{sum(powers_w):.0f} W" if powers_w else "-"
        limit = f" (limit {_limit_w(state, now_s):.0f} W)" if state.run.power_limit else ""
        age = ""
        if self.alive and not math.isnan(state.updated_s):
            age = f"; last account {max(0.0, now_s - state.updated_s):.0f} s ago"

        lines = [
            f"{self._folder}: {how}; policy {state.run.policy}, {state.decisions} decisions",
            "jobs: " + ", ".join(f"{count} {name}" for name, count in counts.items()),
            f"power {power}{limit}, energy {display.energy(sum(gpu.energy_j for gpu in state.gpus))}{age}",
        ]
        if not self.alive and counts["waiting"]:
            lines.append(f"continue with: heshare jobs run --resume {self._folder}")
        return lines

    def _gpu_rows(self) -> list[dict[str, str]]:
        on = [job.gpu for job in self.state.running]
        return [
            {
                "GPU": str(index),
                "model": gpu.opened.name,
                "UUID": gpu.opened.uuid,
                "state": gpu.account.state,
                "power": _number(gpu.account.power_w, "W"),
                "clock": _number(gpu.account.sm_mhz, "MHz"),
                "requested": _number(gpu.account.requested_mhz, "MHz"),
                "jobs": str(on.count(index)),
                "energy": display.energy(gpu.energy_j),
                "idle": display.energy(gpu.idle_j),
                "lost": display.energy(gpu.lost_j),
            }
            for index, gpu in enumerate(self.state.gpus)
        ]

    def _job_rows(self, now_s: float) -> list[dict[str, str]]:
        return [
            {
                "job": job.key,
                "GPU": str(job.gpu),
                "share": f"{job.placed.mps_pct} %",
                "for": _duration(now_s - job.since_s),
                "energy": display.energy(self._energy_j(job.key, job.gpu)),
            }
            for job in self.state.running
            if job.placed is not None and job.gpu is not None
        ]

    def _energy_j(self, key: str, gpu: int) -> float:
        return self.state.gpus[gpu].account.shares_j.get(key, 0.0)


def _limit_w(state: RunState, now_s: float) -> float:
    steps = state.run.power_limit or []
    begun = [limit_w for time_s, limit_w in steps if time_s <= max(0.0, now_s - state.started_s)]
    return begun[-1] if begun else steps[0][1]


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f} {unit}"


def _duration(time_s: float) -> str:
    minutes, seconds = divmod(max(0, round(time_s)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
