"""`heshare jobs status`: the state of a run, from its journal."""

from __future__ import annotations

import math
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heshare.ops.executor.run_control import is_alive, pending_request
from heshare.ops.jobs import run_journal
from heshare.ops.views.metric_catalogue import limit_w
from heshare.shared import display

if TYPE_CHECKING:
    from rich.console import RenderableType

_GPU_COLUMNS = ("GPU", "model", "UUID", "state", "power", "clock", "requested", "jobs", "energy", "idle", "lost")
_JOB_COLUMNS = ("job", "GPU", "share", "for", "power", "energy", "power (model)", "energy (model)")
_TEXTS = ("model", "UUID", "state", "job")
"""Columns of texts, which begin at the left; those of numbers end at the right."""
_WIDE_ONLY = ("UUID", "idle", "lost")
WIDE = 100
"""Columns of a terminal that has room for all columns of the tables."""
WIDE_TEXT = 250
"""Columns of plain text."""
Rows = list[tuple[str, ...]]


class RunView:
    """What `heshare jobs status` shows of the run in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.update()

    def update(self) -> None:
        """Read the journal, without a lock.

        Raises:
            InputError: no run there, or a damaged journal.
        """
        self.state, self.alive = run_journal.read_state(self._folder), is_alive(self._folder)
        if not self.alive:
            self.state.end()
        self._pid = self.state.sessions[-1].session.pid if self.state.sessions else None
        self._request = pending_request(self._folder) if self.alive else ""

    def as_dict(self, now_s: float) -> dict[str, Any]:
        state = self.state
        names = ("uuid", "name", "sm_mhz", "requested_mhz", "power_w", "energy_j", "idle_j", "lost_j", "state")
        return {
            "folder": str(self._folder),
            "alive": self.alive,
            "pid": self._pid,
            "policy": state.run.policy,
            "request": self._request,
            "counts": state.counts(),
            "running": [
                {
                    "job": job,
                    "gpu": "+".join(state.gpus[gpu].uuid for gpu in running.gpus),
                    "mps_pct": running.mps_pct,
                    "since_s": now_s - running.since_s,
                }
                for job, running in state.running.items()
            ],
            "gpus": [{name: getattr(gpu, name) for name in names} for gpu in state.gpus],
            "account_age_s": now_s - state.updated_s,
            "notes": self.notes(),
        }

    def head(self, now_s: float) -> list[str]:
        """Return the lines about the whole run; `now_s` is a Unix time, s."""
        state, request = self.state, f", {self._request} requested" if self._request else ""
        counts = state.counts()
        how = "has ended, or was killed" if counts["waiting"] + counts["running"] else "is complete"
        how = f"runs, process {self._pid}{request}" if self.alive else how
        powers_w = [gpu.power_w for gpu in state.gpus if not math.isnan(gpu.power_w)]
        lines = [
            f"{self._folder}: {how}; policy {state.run.policy}, {state.decisions} decisions",
            "jobs: " + ", ".join(f"{count} {name}" for name, count in counts.items()),
            f"power {_number(sum(powers_w) if powers_w else math.nan, 'W')}"
            + (f" (limit {limit_w(state):.0f} W), " if limit_w(state) > 0 else ", ")
            + f"energy {display.energy(sum(gpu.energy_j for gpu in state.gpus))}",
        ]
        if self.alive and not math.isnan(state.updated_s):
            lines[-1] += f"; last account {max(0.0, now_s - state.updated_s):.0f} s ago"
        if faults := ", ".join(f"{count} {kind}" for kind, count in sorted(state.faults.items())):
            lines.append(f"faults: {faults}")
        if not self.alive and counts["waiting"]:
            lines.append(f"continue with: heshare jobs run --resume {self._folder}")
        return lines

    def notes(self) -> list[str]:
        return [note.text for session in self.state.sessions for note in session.notes][-5:]

    def gpu_rows(self) -> Rows:
        on = [gpu for running in self.state.running.values() for gpu in running.gpus]
        return [
            (
                *(
                    str(index),
                    gpu.name,
                    gpu.uuid[:12],
                    gpu.state,
                    _number(gpu.power_w, "W"),
                ),
                *(_number(gpu.sm_mhz, "MHz"), _number(gpu.requested_mhz, "MHz"), str(on.count(index))),
                *(display.energy(energy_j) for energy_j in (gpu.energy_j, gpu.idle_j, gpu.lost_j)),
            )
            for index, gpu in enumerate(self.state.gpus)
        ]

    def job_rows(self, now_s: float) -> Rows:
        """Return a row for each job that runs, the one with the most power first."""
        rows = []
        shown = self.state.shown_jobs(now_s)
        for job, running in self.state.running.items():
            found = [shown[job, gpu] for gpu in running.gpus]
            numbers = [
                text
                for way in ("equal", "model")
                for text in (
                    _number(sum(one.power_w.get(way, math.nan) for one in found), "W"),
                    display.energy(sum(one.energy_j[way] for one in found)) if way in found[0].energy_j else "-",
                )
            ]
            since = _duration(now_s - running.since_s)
            row = (job, "+".join(map(str, running.gpus)), f"{running.mps_pct} %", since, *numbers)
            power_w = sum(one.power_w.get("model", one.power_w.get("equal", 0.0)) for one in found)
            rows.append((-power_w, job, row))
        return [row for *_, row in sorted(rows)]

    def text(self, now_s: float) -> str:
        from rich.console import Console

        console = Console(file=StringIO(), width=WIDE_TEXT, color_system=None)
        with console.capture() as shown:
            console.print(self.screen(now_s, WIDE_TEXT))
        return "".join(f"{line.rstrip()}\n" for line in shown.get().splitlines())

    def screen(self, now_s: float, width: int = WIDE) -> RenderableType:
        """Return everything as tables for a terminal of so many columns."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        def table(columns: tuple[str, ...], rows: Rows, styles: list[str]) -> Table:
            made = Table(box=None, header_style="bold", pad_edge=False)
            shown = [place for place, name in enumerate(columns) if width >= WIDE or name not in _WIDE_ONLY]
            for place in shown:
                made.add_column(columns[place], no_wrap=True, justify="left" if columns[place] in _TEXTS else "right")
            for row, style in zip(rows, styles, strict=True):
                made.add_row(*(Text(display.printable(row[place])) for place in shown), style=style)
            return made

        jobs, styles = self.job_rows(now_s), {"lost": "red", "drained": "yellow"}
        gpus = table(_GPU_COLUMNS, self.gpu_rows(), [styles.get(gpu.state, "") for gpu in self.state.gpus])
        head = [Text(display.printable(line)) for line in self.head(now_s)]
        notes = [Text(display.printable(f"note: {note}"), style="dim") for note in self.notes()]
        return Group(*head, Text(), gpus, Text(), table(_JOB_COLUMNS, jobs, [""] * len(jobs)), Text(), *notes)


def _number(value: float, unit: str) -> str:
    return "-" if math.isnan(value) else f"{value:.0f} {unit}"


def _duration(time_s: float) -> str:
    minutes, seconds = divmod(max(0, round(time_s)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
