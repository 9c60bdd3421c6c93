"""Runs on a machine in memory under faults of a seed; and that the simulator finds faults that were put back."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.simulator.cards import JobPlan, SimNvml
from support.simulator.edges import MODULES
from support.simulator.simulation import Fault, Schedule, Simulation, crash_at_every_write, simulate, warm

from heshare.lab.limits.budget_policy import BudgetPolicy, _Answer
from heshare.ops.clocks.served_card import ServedCard
from heshare.ops.executor.fault_tolerant import FaultTolerantPolicy
from heshare.ops.executor.gang import Gang
from heshare.ops.executor.run_observer import JournalingObserver
from heshare.ops.jobs.entries import End
from heshare.shared import journal

FUNCTIONS = [name.replace("_", "nvmlDevice", 1) for name in vars(SimNvml) if re.match("_[A-Z]", name)]


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
def test_two_hundred_seeds_break_no_promise():
    command = [sys.executable, "-m", "support.simulator", "--seeds", "0:200", "--jobs", str(os.cpu_count() or 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.slow
def test_a_seed_replays_byte_for_byte():
    program = "from support.simulator.simulation import *; warm(); print([simulate(seed).digest for seed in range(6)])"
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
def test_a_disk_that_fails_at_changes_of_files_loses_nothing():
    assert crash_at_every_write(("full", "broken", "short"), step=20) >= 12


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


def test_a_full_disk_ends_a_run_with_the_command_that_resumes_it():
    simulation = Simulation(Schedule(1, 1, False, True, {"a": JobPlan(5.0)}, {}, {}, [Fault("disk-full", 0, 3.0, 9.0)]))
    outcome = simulation.run()
    assert not outcome.violations
    assert re.search("DeviceError .*No space left.*--resume", outcome.log())


@pytest.mark.slow
@pytest.mark.parametrize("at_s", [0.0, 3.0])
def test_whichever_nvml_function_fails_for_good_the_machine_is_restored(at_s):
    for index, function in enumerate(FUNCTIONS):
        fault = Fault("refuse", 0, at_s, 1e6, 0, (function, (999, 15, 3, 4, 10)[index % 5]))
        plans = {"a": JobPlan(2.0), "b": JobPlan(4.0)}
        simulation = Simulation(Schedule(1, 2, True, True, plans, {"a": 1}, {}, [fault]))
        assert not simulation.run().violations, function
        assert simulation.injector.struck == ["refuse"]


def test_a_gang_that_takes_too_long_is_ended_while_its_other_gpus_wait():
    plans = {"a": JobPlan(9.0, deaf=True, gpus=2)}
    simulation = Simulation(Schedule(1, 2, False, True, plans, {}, {"a": 3.0}, []))
    assert not simulation.run().violations, "its second GPU looked at the time without a pause"
    assert [run.code for run in simulation.machine.jobs.runs] == [-9]


def test_starts_go_on_once_too_high_readings_of_an_idle_gpu_are_over():
    faults = [Fault("lie", 0, 2.3, 13.2, 0, ("power", 1e6))]  # longer than an idle GPU was read
    simulation = Simulation(Schedule(1, 1, False, True, {"a": JobPlan(9.0)}, {}, {}, faults, 700.0, foreseen=False))
    assert not simulation.run().violations


def test_nothing_starts_by_a_lower_clock_that_is_refused():
    notes = []

    def broken(call, path, size):
        notes.extend([path] if call == "sync" and "/gpu-" in path else [])
        if len(notes) == 2:  # the first one is of the lock that tries the right
            notes.append("")
            raise OSError(errno.EIO, "Input/output error", path)
        return size

    plans = {name: JobPlan(3.0, power_w=285.0) for name in "ab"}
    simulation = Simulation(Schedule(0, 1, True, True, plans, {}, {}, [], 577.0))
    simulation.machine.os.struck = broken
    assert not simulation.run().violations
    assert len(notes) > 2


def test_a_disk_slower_than_the_looks_at_power_ends_no_run():
    def slow(call, path, size):
        if call == "sync" and path.endswith("journal.jsonl"):
            simulation.machine.sleep(2.5)
        return size

    simulation = Simulation(Schedule(0, 1, True, True, {"a": JobPlan(3.0)}, {}, {}, [], 577.0))
    simulation.machine.os.struck = slow
    outcome = simulation.run()
    assert not outcome.violations
    assert outcome.sessions == 1


def test_energy_of_a_hang_that_ends_with_the_run_is_on_an_account():
    faults = [Fault("slow", 0, 0.4, 12.0, 1), Fault("hang", 0, 6.8, 17.0, 0)]  # the first reply is the last reading
    simulation = Simulation(Schedule(0, 2, True, True, {"a": JobPlan(10.0)}, {}, {}, faults))
    assert not simulation.run().violations


@pytest.mark.parametrize("faults", [[], [Fault("kill-watchdog", 0, 2.0), Fault("sigkill", 0, 2.1)]])
def test_a_run_and_the_one_after_a_kill_leave_nothing_to_restore(faults):
    simulation = Simulation(Schedule(1, 1, True, True, {"a": JobPlan(5.0)}, {"a": 2}, {}, faults))
    machine = simulation.machine
    processes = machine.processes.values()
    simulation._restore = lambda: machine.run_until(lambda: not any(one.alive for one in processes), 300.0)
    outcome = simulation.run()
    assert not outcome.violations
    assert outcome.sessions == 1 + bool(faults)


@pytest.mark.slow
def test_a_crash_at_every_change_of_every_file_loses_nothing():
    assert crash_at_every_write() > 300


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


def half_a_gang(self, uuid):
    """Start a gang as soon as one of its GPUs is free."""
    self.free.add(uuid)
    return self.worker is None


def neighbours_of_gangs(self, actions, view):
    """Pass on all that the policy wants."""
    yield from actions


def unsettled_readings(self, view, _observe=BudgetPolicy._observe):
    """Believe a reading from before a change."""
    _observe(self, view)
    self._present_w = [gpu.power_w for gpu in view.gpus]


def deaf_to_readings(self, owner, view, wanted, _init=_Answer.__init__):
    """Start jobs and raise clocks by predictions alone."""
    for known in (owner._bounds._known, owner._bounds._bounds):
        known.clear()
    owner._present_w = [math.nan] * len(view.gpus)
    _init(self, owner, replace(view, gpus=[replace(gpu, power_w=0.0) for gpu in view.gpus]), wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "owner", "name", "fault", "said"),
    [
        (0, JournalingObserver, "on_decision", journalled_late, "of which the journal on disk has nothing"),
        (0, ServedCard, "_unlock", note_removed_early, "is removed while its clock is locked"),
        (0, Gang, "may_start", half_a_gang, "starts on 1 cards and needs 2"),
        (0, FaultTolerantPolicy, "_filtered", neighbours_of_gangs, "and one of them is on several"),
        (146, BudgetPolicy, "_observe", unsettled_readings, "W are drawn where"),
        (894, _Answer, "__init__", deaf_to_readings, "a job starts, or a clock rises, after"),
        (0, journal.Journal, "append", short_write_is_whole, "the journal cannot be read"),
    ],
)
def test_a_fault_put_back_is_found_and_replays(first, owner, name, fault, said):
    more = {(owner, name): fault}
    for seed in range(first, first + 1000):
        outcome = simulate(seed, more)
        if any(said in text for text in outcome.violations):
            again = simulate(seed, more)
            assert again.log() == outcome.log()
            return
    pytest.fail("not found in 1,000 seeds")
