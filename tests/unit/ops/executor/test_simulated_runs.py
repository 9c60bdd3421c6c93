"""Runs on a machine in memory under faults of a seed; and that the simulator finds faults that were put back."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from support.simulator.cards import JobPlan
from support.simulator.edges import MODULES
from support.simulator.simulation import Fault, Schedule, Simulation, crash_at_every_write, simulate, warm

from heshare.ops.clocks.served_card import ServedCard
from heshare.ops.executor.run_observer import JournalingObserver
from heshare.ops.jobs.entries import End
from heshare.shared import journal


@pytest.fixture(autouse=True, scope="module")
def _warm():
    warm()


def test_the_modules_on_the_machine_in_memory_reach_no_other():
    real = (os, time, socket, select, subprocess, threading, fcntl, tempfile, shutil, Path)
    machine = Simulation(Schedule.of(0)).machine
    with machine.linked():
        for module in MODULES:
            left = [name for name, value in vars(module).items() if any(value is one for one in real)]
            assert not left, (module.__name__, left)


@pytest.mark.parametrize("seed", range(12))
def test_a_seed_breaks_no_promise(seed):
    assert not simulate(seed).violations


@pytest.mark.slow
def test_a_thousand_seeds_break_no_promise():
    command = [sys.executable, "-m", "support.simulator", "--seeds", "0:1000", "--jobs", str(os.cpu_count() or 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.slow
def test_a_seed_replays_byte_for_byte():
    program = "from support.simulator.simulation import *; warm(); print([simulate(seed).digest for seed in range(12)])"
    printed = set()
    for hash_seed in ("0", "7"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        printed.add(done.stdout)
    assert len(printed) == 1
    assert simulate(3).digest in printed.pop()


@pytest.mark.slow
def test_a_crash_at_changes_of_files_loses_nothing():
    assert crash_at_every_write(("kill-middle",), step=40) >= 4


@pytest.mark.slow
def test_a_disk_that_fails_at_changes_of_files_loses_nothing():
    assert crash_at_every_write(("full", "broken", "short"), step=40) >= 12


def test_a_job_whose_reaper_is_killed_ends_before_its_next_attempt():
    faults = [Fault("kill-reaper", 0, 1.0)]
    simulation = Simulation(Schedule(1, 1, False, True, {"a": JobPlan(5.0)}, {"a": 2}, {}, faults))
    assert not simulation.run().violations
    assert [run.code for run in simulation.machine.jobs.runs] == [-9, 0]


def test_a_start_that_fails_is_an_attempt_that_counts():
    def full(call, path, size, _strike=None):
        if path.endswith("a.1.log"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return size

    simulation = Simulation(Schedule(1, 1, False, True, {"a": JobPlan(1.0)}, {"a": 1}, {}, []))
    simulation.machine.os.struck = full
    assert not simulation.run().violations
    outcomes = [entry.outcome for entry in simulation.promises.entries("/runs/a") if isinstance(entry, End)]
    assert outcomes == ["failed: start", "completed"]


@pytest.mark.slow
def test_a_crash_at_every_change_of_every_file_loses_nothing():
    assert crash_at_every_write() > 400


def journalled_late(self, event, actions, _now=JournalingObserver.on_decision):
    """Journal each decision only when the next one comes: after its jobs have started."""
    held = self.__dict__.setdefault("held", [])
    while held:
        _now(self, *held.pop())
    held.append((event, actions))


def note_removed_early(self):
    """Remove the note of a clock before the clock is unlocked."""
    if self._note is not None:
        self._note.remove()
        self._call(lambda card: card.unlock_clock())
        self._forget()


def short_write_is_whole(self, entry, *, sync=True):
    """Take what the first `write` has written for all of it."""
    line = journal.journal_line(entry)
    self._cut()
    journal.os.write(self._lock.descriptor, line)
    if sync:
        journal.os.fsync(self._lock.descriptor)
    self._end += len(line)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "fault", "said"),
    [
        (JournalingObserver, "on_decision", journalled_late, "of which the journal on disk has nothing"),
        (ServedCard, "_unlock", note_removed_early, "is removed while its clock is locked"),
        (journal.Journal, "append", short_write_is_whole, "the journal cannot be read"),
    ],
)
def test_a_fault_put_back_is_found_and_replays(owner, name, fault, said):
    more = {(owner, name): fault}
    for seed in range(1000):
        outcome = simulate(seed, more)
        if any(said in text for text in outcome.violations):
            again = simulate(seed, more)
            assert again.log() == outcome.log()
            return
    pytest.fail("not found in 1,000 seeds")
