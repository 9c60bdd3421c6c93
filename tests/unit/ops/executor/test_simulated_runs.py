"""Runs on a machine in memory under faults of a seed; and that the simulator finds faults that were put back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.simulator.simulation import crash_at_every_write, simulate, warm

from heshare.ops.clocks.served_card import ServedCard
from heshare.ops.executor.run_observer import JournalingObserver
from heshare.shared import journal


@pytest.fixture(autouse=True, scope="module")
def _warm():
    warm()


def test_a_thousand_seeds_break_no_promise():
    command = [sys.executable, "-m", "support.simulator", "--seeds", "0:1000", "--jobs", str(os.cpu_count() or 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


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


def test_a_crash_at_changes_of_files_loses_nothing():
    assert crash_at_every_write(("kill-middle",), step=40) >= 4


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
