"""The cleanup process: whatever ends a process that changed the machine, its child releases everything."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.drills.machine import left_behind, processes
from support.kill_drill import UUID
from support.waiting import end, until

from heshare.ops import cleanup
from heshare.ops.cleanup import CleanupProcess, pauses_s
from heshare.ops.executor.gpu_lock import GpuLock
from heshare.ops.state.run_state_file import find_runs, run_state_file_of_this_process
from heshare.shared.errors import DeviceError
from heshare.shared.file_lock import is_locked
from heshare.shared.processes import is_running

HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from heshare.ops.clocks import ClockLock
from heshare.ops.executor.gpu_lock import GpuLock
from heshare.ops.cleanup import CleanupProcess
from heshare.ops.mps import MpsSession
from heshare.ops.nvml.card_reader import CardReader
from heshare.ops.state.run_state_file import run_state_file_of_this_process
from heshare.shared.processes import MARK

folder, uuid, token = sys.argv[1:]
lock = GpuLock(uuid)
cleanup = CleanupProcess([lock.descriptor])
run = run_state_file_of_this_process(Path(folder) / "run", token, [uuid])
file = run.write()
run.publish(file)
os.environ[MARK] = token
reader = CardReader(60.0)
ClockLock(reader.card(uuid), uuid).lock(1170)
mps = MpsSession(uuid)
mps.start()
stray = ["sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600; sleep 600"]
subprocess.Popen(stray, env={**os.environ, "HESHARE_JOB": "a"})
print(cleanup.pid, flush=True)
time.sleep(600)
"""
RESET = "nvmlDeviceResetGpuLockedClocks"


@pytest.fixture
def holder(doubles):
    """A function that starts a process with a lock, a clock, MPS, a note and a job; it is killed at the end."""
    started = []

    def start():
        words = [str(doubles.folder), UUID, f"{os.getpid():032d}"]
        started.append(subprocess.Popen([sys.executable, "-c", HOLD, *words], stdout=subprocess.PIPE))
        pid = int(started[-1].stdout.readline())
        assert until(lambda: len([job for _, _, job in processes(doubles.folder) if job]) == 3)
        return started[-1], pid

    yield start
    for process in started:
        end(process)


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_the_cleanup_process_gives_back_what_a_killed_process_held(doubles, holder):
    """Its jobs, those that ignore SIGTERM included, MPS, the clock, the note; and the lock last."""
    process, _ = holder()
    assert doubles.fake.get("locked_mhz") == 1170
    kill(process.pid)
    process.wait()
    assert until(lambda: left_behind(doubles.folder, doubles.fake) == [])


@pytest.mark.slow
def test_the_lock_is_held_until_no_job_runs_and_the_clock_is_tried_again(doubles, holder):
    """A clock that cannot be unlocked keeps no run from the GPUs that the ended one had."""
    doubles.fake.fail(RESET, 999)
    process, pid = holder()
    (lock,) = (doubles.folder / "locks").iterdir()
    kill(process.pid)
    process.wait()
    assert until(lambda: not is_locked(lock))
    assert [job for _, _, job in processes(doubles.folder) if job] == []
    assert is_running(pid)
    assert doubles.fake.get("locked_mhz") == 1170
    doubles.fake.fail(RESET, 0)
    assert until(lambda: left_behind(doubles.folder, doubles.fake) == [])


@pytest.mark.slow
def test_the_cleanup_process_waits_for_a_note_that_another_process_has(doubles, holder):
    """That one may be restoring as well, and may not succeed."""
    process, pid = holder()
    note = doubles.folder / "state" / "heshare" / f"gpu-{UUID}.json"
    with note.open("r+") as file:
        taking = threading.Thread(target=fcntl.flock, args=(file, fcntl.LOCK_EX))
        taking.start()
        kill(process.pid)
        process.wait()
        taking.join()
        assert until(lambda: find_runs() == [])
        time.sleep(0.5)
        assert (is_running(pid), doubles.fake.get("locked_mhz")) == (True, 1170)
    assert until(lambda: left_behind(doubles.folder, doubles.fake) == [])


@pytest.mark.slow
def test_restore_gives_back_what_is_left_where_the_cleanup_process_was_killed_as_well(doubles, holder):
    """Once: a second call finds nothing to do."""
    process, pid = holder()
    kill(process.pid, pid)
    process.wait()
    assert until(lambda: not is_running(pid))
    restored = cleanup.restore()
    assert [(run.folder, run.ended > 0) for run in restored.runs] == [(str(doubles.folder / "run"), True)]
    assert (restored.unlocked, restored.refused, restored.left) == ((UUID,), (), ())
    assert until(lambda: left_behind(doubles.folder, doubles.fake) == [])
    assert cleanup.restore() == cleanup.Restored()


def test_restore_leaves_alone_what_a_process_that_runs_holds(doubles, holder):
    """It may be called at any time, beside any run."""
    process, _ = holder()
    restored = cleanup.restore()
    assert (restored.runs, restored.unlocked) == ((), ())
    assert doubles.fake.get("locked_mhz") == 1170
    assert process.poll() is None


def test_a_cleanup_process_that_is_killed_is_restarted(doubles):
    """By one with the same locks."""
    told, lock = [], GpuLock(UUID)
    one = CleanupProcess([lock.descriptor], report=told.append)
    first = one.pid
    kill(first)
    assert until(lambda: told)
    assert told == ["the cleanup process ended (by SIGKILL) and was restarted"]
    assert one.pid != first
    inherited = {path.stat().st_ino for path in Path(f"/proc/{one.pid}/fd").iterdir()}
    assert lock.path.stat().st_ino in inherited
    for _ in range(2):
        one.dismiss()
    assert not is_running(one.pid)
    lock.close()


def test_a_cleanup_process_that_is_dismissed_with_something_left_goes_on_until_it_is_given_back(doubles):
    """Its parent runs on, and is not waited for."""
    run = run_state_file_of_this_process(doubles.folder / "run", "0" * 32, [])
    file = run.write()
    run.publish(file)
    one = CleanupProcess()
    one.dismiss(all_released=False)
    file.close()  # as a run leaves the note of what it could not give back
    assert until(lambda: not is_running(one.pid))
    assert find_runs() == []


def test_a_cleanup_process_that_is_killed_while_it_starts_is_started_again(tmp_path, monkeypatch):
    """A few times; then the run is refused, since nothing would give the GPUs back."""
    program, count = tmp_path / "python", tmp_path / "count"
    program.write_text(
        f'#!/bin/sh\necho >> {count}\n[ $(wc -l < {count}) -gt 2 ] || kill -9 $$\nexec {sys.executable} "$@"'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    CleanupProcess().dismiss()
    assert len(count.read_text().splitlines()) == 3
    program.write_text("#!/bin/sh\nexit 3")
    with pytest.raises(DeviceError, match=r"does not start \(exit code 3\). Check this Python"):
        CleanupProcess()


def test_pauses_grow_up_to_a_longest_one():
    """And have no end: what is left is given back some day."""
    pauses = list(islice(pauses_s(0.2), 20))
    assert pauses == sorted(pauses)
    assert pauses[1] == 2.0 * pauses[0]
    assert pauses[-1] == pauses[-2]


def test_pauses_before_a_cleanup_process_is_restarted_begin_again_after_one_that_lived_long(monkeypatch):
    """One that ends again and again takes no time from the run."""
    one = object.__new__(CleanupProcess)
    now_s, pauses, lives_s = [0.0], [], iter([0.0, 1.0, 1.0, 61.0, 1.0])

    def wait():
        life_s = next(lives_s, None)
        one._dismissed = life_s is None
        now_s[0] += life_s or 0.0
        return 1

    process = SimpleNamespace(wait=wait, stdin=SimpleNamespace(close=lambda: None))
    parts = {"_turn": threading.Lock(), "_report": lambda text: None, "_process": process, "_start": lambda: process}
    vars(one).update(parts)
    monkeypatch.setattr(cleanup, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=pauses.append))
    one._restart()
    assert pauses == [0.2, 0.4, 0.8, 0.2, 0.4]


def test_a_damaged_note_of_a_run_is_named_and_restores_nothing(doubles):
    """It may be of a run that runs."""
    folder = doubles.folder / "state" / "heshare"
    folder.mkdir(parents=True)
    (folder / "run-0.json").write_text('{"token": "x", "pid": 1}')
    assert [run.text.count("not a state file of heshare") for run in find_runs()] == [1]
    restored = cleanup.restore()
    assert (restored.runs, len(restored.refused)) == ((), 1)
    (folder / "run-0.json").unlink()
