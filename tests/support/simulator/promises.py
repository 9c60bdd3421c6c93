"""What a run promises whatever fails, checked at every event and at the end (`docs/operations.md`, Promises)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from support.simulator.cards import IDLE_W, Card, JobRun
from support.simulator.disk import SimPath
from support.simulator.edges import SimMachine

from heshare.ops.jobs.entries import Decision, End, Note, Sample, Session, decode
from heshare.shared import journal
from heshare.shared.errors import InputError

NAME = "journal.jsonl"
LEARNED = "/state/heshare/learned.json"
"""What is kept of commands for later runs."""


class Promises:
    """Watches a machine, and notes what is broken in its `violations`."""

    def __init__(self, machine: SimMachine, rng: random.Random) -> None:
        self._machine, self._rng = machine, rng
        self._decoded: dict[int, Any] = {}
        machine.jobs.starting, machine.nvml.locking = self._job_starts, self._locks
        change = machine.os._change

        def changed(call: str, path: str, size: int = 0) -> int:
            if call in ("unlink", "rename") and path.startswith("/state/heshare/gpu-"):
                self._note_goes(path)
            if not path.startswith(("/runs/", "/tmp/", "/state/", "/locks/")):
                machine.violate(f"a file outside the run's folder: {call} {path}")
            return change(call, path, size)

        machine.os._change = changed  # type: ignore[method-assign]

    def entries(self, folder: str, *, synced: bool = False) -> list[Any]:
        node = self._machine.disk.find(f"{folder}/{NAME}")
        if node is None:
            return []
        content = node.synced if synced else bytes(node.data)
        try:
            lines, _ = journal._parse(content, SimPath(folder) / NAME, "run", "")
        except InputError as error:
            self._machine.violate(f"the journal cannot be read: {error}", error)
            return []
        known = self._decoded
        for line in lines:
            if id(line) not in known:  # lines are kept by the cache of `journal_entry`
                known[id(line)] = decode(line)
        return [known[id(line)] for line in lines]

    def _job_starts(self, run: JobRun) -> None:
        machine, folder = self._machine, run.folder
        placed: Counter[str] = Counter()
        for entry in self.entries(folder, synced=True):
            if isinstance(entry, Decision):
                placed.update(one.job for one in entry.placed)
            elif isinstance(entry, End) and entry.completed and entry.job == run.key:
                machine.violate(f"{run.key} starts again, although the journal has it completed")
        self._beside(run)
        if placed[run.key] < run.attempt:
            machine.violate(f"{run.key} starts its attempt {run.attempt}, of which the journal on disk has nothing")
        for other in machine.jobs.runs:
            if other.key == run.key and other.code is None:
                machine.violate(f"{run.key} runs twice at one time")
            if (other.folder, other.key, other.attempt) == (folder, run.key, run.attempt):
                machine.violate(f"{run.key} has two processes of its attempt {run.attempt}")

    def _beside(self, run: JobRun) -> None:
        """Check that a job has as many cards as it needs, and a job on several cards no other one on them."""
        machine, needed = self._machine, self._machine.jobs.plans[run.key].gpus
        if len(set(run.cards)) != needed:
            machine.violate(f"{run.key} starts on {len(set(run.cards))} cards and needs {needed}")
        for other in machine.jobs.runs:
            several = len(run.cards) > 1 or len(other.cards) > 1
            if several and other.code is None and not set(run.cards).isdisjoint(other.cards):
                machine.violate(f"{run.key} starts on a card of {other.key}, and one of them is on several")

    def _locks(self, card: Card) -> None:
        node = self._machine.disk.find(f"/state/heshare/gpu-{card.uuid}.json")
        if node is None or not node.synced:
            self._machine.violate(f"the clock of {card.uuid} is locked without a note on disk")

    def _note_goes(self, path: str) -> None:
        uuid = path.rpartition("/gpu-")[2].removesuffix(".json")
        if any(card.uuid == uuid and card.locked_mhz is not None for card in self._machine.cards):
            self._machine.violate(f"the note of {uuid} is removed while its clock is locked")

    def journal_readable(self, folder: str, cuts: int = 3) -> None:
        """Check that the journal can be read at its end, and cut at random bytes."""
        node = self._machine.disk.find(f"{folder}/{NAME}")
        if node is None or not node.data:
            return
        content = bytes(node.data)
        where = [len(content), *(self._rng.randrange(len(content)) for _ in range(cuts))]
        check_cuts(content, where, self._machine.violate)

    def energy(self, folder: str, *, killed: bool) -> None:
        """Check that jobs, idle time and what was lost add up to each card's counter.

        At no account more is given out than the counter has; at the last one all but a moment of idle power is, unless
        the last session was `killed` before that account.
        """
        given: Counter[int] = Counter()
        left_j: list[float] = []
        for entry in self.entries(folder):
            match entry:
                case Session():
                    given = Counter()
                case End():
                    for part in entry.parts:
                        given[part.gpu] += part.energy_j  # type: ignore[assignment]
                case Sample():
                    totals = [given[at] + one.idle_j + sum(one.shares_j.values()) for at, one in enumerate(entry.gpus)]
                    left_j = [one.energy_j - total_j for one, total_j in zip(entry.gpus, totals, strict=True)]
                    for index, one_j in enumerate(left_j):
                        if one_j < -1e-6 - 1e-9 * entry.gpus[index].energy_j:
                            found = f"{-one_j:.6f} J more are given out than the counter has"
                            self._machine.violate(f"energy of GPU {index} at {entry.t:.3f} s: {found}")
        for index, one_j in enumerate(left_j):
            if one_j > 1.5 * IDLE_W and not killed:
                self._machine.violate(f"{one_j:.3f} J of GPU {index} are on no account at the end")

    def each_job_once(self, folder: str, keys: list[str], may_fail: set[str]) -> None:
        """Check that every job is over, each once, and that what is called completed was."""
        completed: Counter[str] = Counter()
        failed: set[str] = set()
        good = {(run.key, run.attempt) for run in self._machine.jobs.runs if run.code == 0}
        for entry in self.entries(folder):
            if isinstance(entry, End) and len(entry.parts) != self._machine.jobs.plans[entry.job].gpus:
                self._machine.violate(f"{entry.job}: attempt {entry.attempt} ends on {len(entry.parts)} cards")
            if isinstance(entry, End) and entry.completed:
                completed[entry.job] += 1
                if (entry.job, entry.attempt) not in good:
                    self._machine.violate(f"{entry.job}: attempt {entry.attempt} counts, but did not end well")
            elif isinstance(entry, End) and entry.failure and not entry.again:
                failed.add(entry.job)
        for key in keys:
            if completed[key] > 1:
                self._machine.violate(f"{key} is counted {completed[key]} times")
            if completed[key] and key in failed:
                self._machine.violate(f"{key} is counted as completed and as failed")
            if not completed[key] and key not in failed:
                self._machine.violate(f"{key} is lost")
            if key in failed and key not in may_fail:
                self._machine.violate(f"{key} failed for good, by no fault of its own")

    def refusal_said(self, folder: str) -> None:
        """Check that each session in which no clock may be set says so before it runs a job."""
        said = False
        for entry in self.entries(folder):
            said = (said and not isinstance(entry, Session)) or (isinstance(entry, Note) and "clocks" in entry.event)
            if isinstance(entry, Decision) and entry.placed and not said:
                self._machine.violate("a job is placed, and nothing says that clocks are refused")

    def nothing_left(self) -> None:
        """Check that no process, clock, MPS daemon, note or file is left."""
        machine = self._machine
        for process in machine.processes.values():
            if process.alive:
                machine.violate(f"a process is left: {process.name} {process.pid}")
        for card in machine.cards:
            if card.locked_mhz is not None:
                machine.violate(f"the clock of {card.uuid} is left locked")
        for path in machine.disk.files("/state"):
            if path != LEARNED:
                machine.violate(f"a note is left: {path}")
        for path in machine.disk.files("/tmp"):
            machine.violate(f"a temporary file is left: {path}")

    def stop_in_time(self, asked_s: float | None, bound_s: float) -> None:
        if asked_s is not None and self._machine.now - asked_s > bound_s:
            self._machine.violate(f"a stop took {self._machine.now - asked_s:.1f} s, more than {bound_s:g} s")


def check_cuts(content: bytes, cuts: list[int], violate: Any) -> None:
    """Check that a journal cut at these bytes reads as the beginning of the whole one."""
    path = SimPath("/runs/a") / NAME
    try:
        whole, _ = journal._parse(content, path, "run", "")
        for cut in cuts:
            part, _ = journal._parse(content[:cut], path, "run", "")
            if part != whole[: len(part)]:
                violate(f"the journal cut at byte {cut} has other entries")
    except Exception as error:
        violate(f"the journal cannot be read: {error}", error)
