"""Invariants of a run, whatever fails: checked at each start of a job, after each session, and at the end.

The report and the status, which the user reads, are compared with what really happened on the machine, before any
`heshare restore`, unless the cleanup process was killed as well.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from support.simulator.machine import LIMIT_W, Card, JobRun, Machine
from support.simulator.process import SimProcess, WatchedFiles
from support.simulator.schedule import UNTRUE_READINGS, Schedule

from heshare.ops.executor.job_tasks import FREE_ATTEMPTS
from heshare.ops.jobs import entries, run_journal
from heshare.ops.jobs.entries import Decision, End, Sample, Session
from heshare.ops.jobs.report import RunReport, read_report
from heshare.ops.jobs.run_state import MPS_ENDED, RunState
from heshare.ops.jobs.run_status import RunStatus
from heshare.shared.errors import HeShareError

_REPORT = {"journal.jsonl", "jobs.csv", "gpus.csv", "report.txt", "outputs"}
_NOTICED_S = 0.1
"""How soon an executor knows of what happened to a card, at a start, s."""
_FRESH_S = 1.0
"""How old the last account of a session may be at its end, s."""
_EACH_J, _ONCE_J = 70.0, 300.0
"""By how much idle energy may differ from the truth: for each attempt, whose ends are noticed late, and once, J."""
_LOOKS = 0.03
"""Part of the waits of a run during which somebody asks for its status."""


@lru_cache(maxsize=4096)
def _entry(line: bytes) -> Any:
    """Return the entry of a line of a journal; None for a damaged one."""
    try:
        return entries.decode(json.loads(line.rpartition(b"\t")[0]))
    except ValueError:
        return None


class Invariants:
    """Watches a machine and the folder of a run, and notes on the machine what is broken."""

    def __init__(self, machine: Machine, schedule: Schedule, files: WatchedFiles, folder: Path, state: Path) -> None:
        self._machine, self._schedule, self._files = machine, schedule, files
        self._folder, self._state = folder, state / "heshare"
        self._rng = random.Random(schedule.seed)
        self._killed = False
        self._report: RunReport | None = None
        self._sessions = 0
        machine.starting, machine.locking = self._job_starts, self._clock_is_locked
        files.removing = self._file_goes

    # The journal, read independently of the code that is checked.

    def entries(self, folder: Path | None = None, *, synced: bool = False) -> list[Any]:
        path = (folder or self._folder) / run_journal.NAME
        if not path.exists():
            return []
        content = path.read_bytes()
        if synced:
            content = content[: self._files.synced.get(path.stat().st_ino, 0)]
        found = [_entry(line) for line in content.split(b"\n")[:-1]]
        if None in found:
            self._machine.violate("the journal has a damaged line")
        return [entry for entry in found if entry is not None]

    def begun(self, folder: Path) -> bool:
        return any(isinstance(entry, Decision) for entry in self.entries(folder))

    def over(self) -> bool:
        """Return whether each job has ended for good."""
        ended = {
            entry.job
            for entry in self.entries()
            if isinstance(entry, End) and (entry.completed or (entry.failure and not entry.again))
        }
        return ended >= self._schedule.jobs.keys()

    def session_begun(self) -> bool:
        """Return whether the present session has begun: it has its cards, and its note is there."""
        return sum(isinstance(entry, Session) for entry in self.entries()) > self._sessions

    # While it runs.

    def _job_starts(self, run: JobRun) -> None:
        machine, card = self._machine, run.card
        if run.process.name == "second":
            machine.violate(f"{card.uuid} has jobs of two runs")
            run.process.kill()
        placed: Counter[str] = Counter()
        for entry in self.entries(synced=True):
            if isinstance(entry, Decision):
                placed.update(one.job for one in entry.placed)
            elif isinstance(entry, End) and entry.completed and entry.job == run.key:
                machine.violate(f"{run.key} starts again, although the journal has it completed")
        if placed[run.key] < run.attempt:
            machine.violate(f"{run.key} starts its attempt {run.attempt}, of which the journal on disk has nothing")

        for other in machine.runs:
            if other.key == run.key and other.alive:
                machine.violate(f"{run.key} runs twice at one time")
            if (other.key, other.attempt) == (run.key, run.attempt):
                machine.violate(f"{run.key} has two processes of its attempt {run.attempt}")
        for found, since_s in (("lost", card.lost_s), ("drained", card.drained_s)):
            if machine.now_s - since_s > _NOTICED_S and machine.now_s >= card.hung_until_s + _NOTICED_S:
                machine.violate(f"{run.key} starts on a card that is {found}")

    def _clock_is_locked(self, card: Card) -> None:
        note = self._state / f"gpu-{card.uuid}.json"
        if not note.exists() or not self._files.synced.get(note.stat().st_ino):
            self._machine.violate(f"the clock of {card.uuid} is locked without a note on disk")

    def _file_goes(self, path: Path) -> None:
        uuid = path.stem.removeprefix("gpu-")
        card = self._machine.cards.get(uuid)
        if path.parent == self._state and card is not None and card.locked_mhz is not None:
            self._machine.violate(f"the note of the clock of {uuid} is removed while it is locked")

    def status(self, wall_s: float) -> None:
        """Ask for the status now and then: a GPU's energy is the sum of its parts at any time."""
        if self._rng.random() < _LOOKS and self.begun(self._folder):
            SimProcess(self._machine, "status", {}).run(lambda: self._check_status(wall_s, alive=True))

    def _check_status(self, wall_s: float, *, alive: bool) -> RunStatus:
        view = RunStatus(self._folder)
        shown = view.as_dict(wall_s)
        if shown["alive"] is not alive:
            self._machine.violate(f"status says that the run {'lives' if shown['alive'] else 'has ended'}")
        for index, gpu in enumerate(view.state.gpus):
            self._same("status", f"GPU {index}: its parts, and its energy", gpu.parts_j, gpu.energy_j)
        return view

    # After a session.

    def given_back(self, process: SimProcess, *, unreleased: bool) -> None:
        """Judge what a session that ended in order has left, before anybody else looks after it."""
        faulty = self._schedule.has("hung", "lost")
        if unreleased and not faulty:
            self._machine.violate("something could not be given back, although every card replies")
        self._left(process, "the session", clocks=not faulty)

    def cleaned(self, process: SimProcess) -> None:
        """Judge what is left once the cleanup process is done."""
        self._left(process, "the cleanup process", clocks=True)

    def _left(self, process: SimProcess, who: str, *, clocks: bool) -> None:
        machine = self._machine
        for run in machine.runs:
            if run.alive and run.process is process:
                machine.violate(f"{who} leaves a process of {run.key}")
        if any(daemon.process is process for daemon in machine.daemons):
            machine.violate(f"{who} leaves an MPS daemon")
        for card in machine.cards.values():
            if clocks and card.locked_mhz is not None:
                machine.violate(f"{who} leaves the clock of {card.uuid} locked")
        notes = [path.name for path in self._notes() if clocks or path.name.startswith("run-")]
        notes = [name for name in notes if not self._refused(name)]
        if notes and (clocks or not self._schedule.has("hung", "lost")):
            machine.violate(f"{who} leaves {', '.join(name.partition('-')[0] for name in notes)} notes")

    def _refused(self, name: str) -> bool:
        """Return whether a note is of a clock that nobody here may set: killed before the refusal, it has to stay."""
        return self._killed and self._schedule.unprivileged and name.startswith("gpu-")

    def _notes(self) -> list[Path]:
        return sorted(self._state.glob("*.json")) if self._state.exists() else []

    def after_session(self, *, ended: bool, wall_s: float) -> None:
        """Compare the report and the status with each other and with the machine."""
        if not self._killed and not ended:
            self._killed = True
        self._report = None
        for card in self._machine.cards.values():
            card.drained_s = math.inf  # what happened before a session does not count in it
        begun = [type(entry) for entry in self.entries()]
        sessions, self._sessions = self._sessions, begun.count(Session)
        if not self._sessions:
            return
        ended = ended and self._sessions > sessions
        try:
            report, view = read_report(self._folder), self._check_status(wall_s, alive=False)
        except HeShareError as error:
            self._machine.violate(f"the journal cannot be read: {error}")
            return
        self._report, status = report, view.as_dict(wall_s)
        decided = Decision in begun[len(begun) - begun[::-1].index(Session) :]
        if ended and decided and not (self._folder / "report.txt").exists():
            self._machine.violate("a session ended in order, and there is no report")

        for name in ("completed", "failed"):
            if status["counts"][name] != report.totals[name]:
                self._machine.violate(f"status and report differ in what has {name}")
        for shown, row in zip(status["gpus"], report.gpus.to_dict("records"), strict=True):
            for part in ("energy_j", "idle_j", "lost_j"):
                self._same("status", f"{part} of {row['uuid']}, and of the report", shown[part], row[part])
        self._energy(report, view.state, ended=ended)
        self._times()
        self._machine.log("energy", *(f"{one:.6f}" for one in report.gpus["energy_j"]))

    def _energy(self, report: RunReport, state: RunState, *, ended: bool) -> None:
        jobs_j = report.jobs["energy_j"].fillna(0.0).sum() + report.jobs["lost_j"].sum()
        given_j = report.gpus["completed_j"].sum() + report.gpus["lost_j"].sum()
        self._same("report", "the energies of jobs, and what GPUs gave to jobs", jobs_j, given_j)

        for index, (row, gpu) in enumerate(zip(report.gpus.to_dict("records"), state.gpus, strict=True)):
            parts_j = row["completed_j"] + row["lost_j"] + row["idle_j"]
            self._same("report", f"GPU {index}: its parts, and its energy", parts_j, row["energy_j"])
            if not gpu.unknown_between:
                self._against_truth(row, gpu.estimated_j + gpu.unknown_s * LIMIT_W, ended=ended)

    def _against_truth(self, row: dict[str, Any], estimated_j: float, *, ended: bool) -> None:
        """Compare the energy of a GPU with what it really drew, from its first reading to its last account."""
        card = self._machine.cards[row["uuid"]]
        windows = self._windows(card)
        untrue = self._schedule.has(*UNTRUE_READINGS)
        if not windows or (untrue and len(windows) > 1):
            return
        drawn_j = sum(card.energy_at(last_s) - card.energy_at(first_s) for first_s, last_s in windows)
        all_j = card.energy_at(windows[-1][1]) - card.energy_at(windows[0][0])
        for what, said_j, true_j in (("energy", "energy_j", drawn_j), ("between", "between_j", all_j - drawn_j)):
            if abs(row[said_j] - true_j) > 1e-3 + 1e-6 * all_j + (estimated_j if untrue else 0.0):
                found = f"{row[said_j]:.3f} J where it drew {true_j:.3f} J"
                self._machine.violate(f"{what} of {card.uuid}: {found} ({len(windows)} sessions)")
        if untrue or self._schedule.has("hung", "lost"):
            return

        idle_j = sum(card.idle_at(last_s) - card.idle_at(first_s) for first_s, last_s in windows)
        runs = sum(run.card is card for run in self._machine.runs)
        if abs(row["idle_j"] - idle_j) > _ONCE_J + runs * _EACH_J:
            self._machine.violate(f"idle energy of {card.uuid}: {row['idle_j']:.1f} J where it was {idle_j:.1f} J")
        if ended and self._machine.now_s - windows[-1][1] > _FRESH_S:
            self._machine.violate(f"the last account of {card.uuid} is old at the end of the session")

    def _windows(self, card: Card) -> list[tuple[float, float]]:
        """Return when the counter of a card was first and last read in each session; nothing where that is unknown."""
        windows: list[tuple[float, float]] = []
        place = 0
        for entry in self.entries():
            counters_j: list[float | None] = []
            if isinstance(entry, Session):
                place = [gpu.uuid for gpu in entry.gpus].index(card.uuid)
                counters_j = [entry.counters_j[place]] * 2
                windows.append((math.nan, math.nan))
            elif isinstance(entry, Sample):
                counters_j = [entry.gpus[place].counter_j]
            elif isinstance(entry, End) and entry.gpu == place:
                counters_j = [entry.account.counter_j]
            if not counters_j:
                continue
            if counters_j[0] is None or counters_j[0] not in card.shown:
                return []
            time_s = card.shown[counters_j[0]]
            windows[-1] = (time_s if len(counters_j) == 2 else windows[-1][0]), time_s
        return windows

    def _times(self) -> None:
        """Check that time never goes back from one entry to the next, whatever the wall clock does."""
        last_s = began_s = 0.0
        for entry in self.entries():
            if isinstance(entry, Session):
                began_s = entry.at
            time_s = began_s + entries.entry_time_s(entry) if not isinstance(entry, Session) else entry.at
            if isinstance(entry, Session) and time_s < last_s - 1e-6:
                self._machine.violate(f"a session begins {last_s - time_s:.1f} s before the end of the one before")
            last_s = max(last_s, time_s)

    # At the end.

    def at_the_end(self) -> None:
        """Check that each job is over, once, and that what is called completed was."""
        machine, schedule = self._machine, self._schedule
        good = {(run.key, run.attempt) for run in machine.runs if run.code == 0}
        completed: Counter[str] = Counter()
        charged: Counter[str] = Counter()
        free: Counter[str] = Counter()
        failed: set[str] = set()
        for entry in self.entries():
            if not isinstance(entry, End):
                continue
            completed[entry.job] += entry.completed
            charged[entry.job] += entry.charged
            free[entry.job] += bool(entry.failure) and not entry.charged and entry.failure != MPS_ENDED
            if entry.completed and (entry.job, entry.attempt) not in good:
                machine.violate(f"{entry.job}: attempt {entry.attempt} counts, but did not end well")
            if entry.failure and not entry.again:
                failed.add(entry.job)
            self._check_charge(entry)

        for key in schedule.jobs:
            retries = schedule.retries[key]
            if completed[key] + (key in failed) != 1:
                machine.violate(f"{key} is over {completed[key] + (key in failed)} times")
            if charged[key] > retries + 1:
                machine.violate(f"{key} is tried again, although its {retries} retries are used up")
            if key in failed and charged[key] <= retries and free[key] <= FREE_ATTEMPTS:
                machine.violate(f"{key} has failed for good, although it has retries left")
        self._check_report(completed, failed)
        for run in machine.runs:
            if run.alive:
                machine.violate(f"a process of {run.key} has outlived the run")

    def _check_charge(self, end: End) -> None:
        """Check that a failure which is charged to a job was the job's own."""
        run = next((one for one in self._machine.runs if (one.key, one.attempt) == (end.job, end.attempt)), None)
        own = run is not None and end.attempt <= len(run.plan.codes) and run.code == run.plan.codes[end.attempt - 1]
        excused = end.job in self._schedule.timeouts_s or self._schedule.has("mps-dies", "hung", "lost")
        if end.charged and not own and not excused:
            self._machine.violate(f"attempt {end.attempt} of {end.job} is charged to it: {end.reason}")

    def _check_report(self, completed: Counter[str], failed: set[str]) -> None:
        for job in [] if self._report is None else self._report.jobs.to_dict("records"):
            expected = "completed" if completed[job["job"]] else "failed" if job["job"] in failed else "left"
            if job["outcome"] != expected:
                self._machine.violate(f"the report has {job['job']} as {job['outcome']}, the journal as {expected}")

    def nothing_left(self) -> None:
        """Check that no process, clock, MPS daemon, note or temporary file is left after a restore."""
        machine = self._machine
        for run in machine.runs:
            if run.alive:
                machine.violate(f"a process of {run.key} is left")
        if machine.daemons:
            machine.violate("an MPS daemon is left")
        for card in machine.cards.values():
            if card.locked_mhz is not None:
                machine.violate(f"the clock of {card.uuid} is left locked")
        for path in self._state.iterdir() if self._state.exists() else ():
            if not self._refused(path.name):
                machine.violate(f"a file is left in the state folder: {path.suffix}")
        for path in self._folder.iterdir() if self._folder.exists() else ():
            if path.name not in _REPORT and not (self._killed and path.name.startswith(".")):
                machine.violate(f"a file is left in the folder of the run: {path.name}")

    def _same(self, where: str, what: str, one_j: float, other_j: float) -> None:
        if not abs(one_j - other_j) <= 1e-6 + 1e-9 * abs(other_j):
            self._machine.violate(f"{where}: {what}, differ: {one_j:.6f} J and {other_j:.6f} J")
