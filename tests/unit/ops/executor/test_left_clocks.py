"""Clocks that cannot be given back: the run's outcome stands, its report names them, and they are unlocked later."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.kill_drill import UUID
from support.waiting import end, until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.clocks import clock_lock
from heshare.ops.executor.gpu_lock import GpuLock
from heshare.ops.executor.operator_log import OperatorLog

JOBS = "jobs: [{name: a, command: [sleep, '0.4'], like: 'resnet50:8', iterations: 1, count: 4}]"
RESET = "nvmlDeviceResetGpuLockedClocks"
LOCK = """
import sys, time
from heshare.ops.nvml.binding import Nvml
from heshare.ops.clocks.clock_lock import ClockLock
with Nvml() as nvml:
    card = nvml.card(0)
    ClockLock(card, card.uuid()).lock(1170)
    print("locked", flush=True)
    time.sleep(60)
"""


def locker():
    """Return a process that has locked the clock of the first GPU at 1170 MHz."""
    process = subprocess.Popen([sys.executable, "-c", LOCK], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"locked\n"
    return process


def lose_the_second_gpu(doubles):
    """Lose it once its clock is locked; return the thread."""

    def lose():
        outputs = doubles.folder / "run" / "outputs"
        assert until(lambda: outputs.exists() and list(outputs.iterdir()) and doubles.fake.get("locked1_mhz"))
        doubles.fake.set("lost1", 1)

    thread = threading.Thread(target=lose)
    thread.start()
    return thread


def watchdogs(doubles):
    """Return the watchdogs of runs of this test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"HESHARE_DRILL={doubles.folder}".encode() in (folder / "environ").read_bytes()
            if ours and b"heshare.ops.executor.watchdog" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_a_run_whose_gpu_is_lost_with_a_locked_clock_reports_and_its_watchdog_unlocks_it(doubles):
    gone, lines = lose_the_second_gpu(doubles), io.StringIO()
    result = doubles.run(JOBS, policy="drill", devices="nvml", clocks=True, log=OperatorLog(lines))
    gone.join()
    assert result.complete
    warning = "its clock could not be given back and may stay locked"
    report = (doubles.folder / "run" / "report.txt").read_text()
    for text in (report, lines.getvalue()):
        assert text.count(warning) == 1
        assert "Run `heshare restore` once the GPU replies again" in text
    assert doubles.fake.get("locked1_mhz") > 0
    (note,) = clock_lock.notes()
    assert until(lambda: len(watchdogs(doubles)) == 1)  # another may be ending
    (dog,) = watchdogs(doubles)
    # The GPUs are free for other runs meanwhile, and the watchdog is the only thing that is left.
    assert doubles.run(JOBS, into="next").complete
    assert watchdogs(doubles) == [dog]
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1
    doubles.fake.set("lost1", 0)
    assert until(lambda: doubles.fake.get("locked1_mhz") == 0)
    assert until(lambda: not note.exists())
    assert until(lambda: not watchdogs(doubles))
    assert doubles.traces() == []
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0


def test_the_watchdog_of_a_killed_run_stays_until_a_clock_is_unlocked_and_the_next_run_can_do_it(doubles):
    child = os.fork()
    if child == 0:
        try:
            doubles.run(JOBS, policy="drill", devices="nvml", clocks=True)
        finally:
            os._exit(1)
    assert until(lambda: doubles.fake.get("locked_mhz") and doubles.fake.get("locked1_mhz"))
    doubles.fake.set("lost0", 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert until(lambda: doubles.fake.get("locked1_mhz") == 0)
    assert until(lambda: [path.name for path in clock_lock.notes()] == [f"gpu-{UUID}.json"])
    assert until(lambda: len(watchdogs(doubles)) == 1)  # another may be ending
    (dog,) = watchdogs(doubles)
    GpuLock(UUID).close()  # the watchdog has left it to the next run
    os.kill(dog, signal.SIGKILL)  # so that only the next run can unlock the clock
    doubles.fake.set("lost0", 0)
    result = doubles.run(JOBS, into="next")
    assert doubles.fake.get("locked_mhz") == 0
    assert list(result.gpus["sm_mhz"]) == [1980]
    assert until(lambda: not watchdogs(doubles))
    assert doubles.traces() == []


def test_the_next_run_unlocks_a_clock_that_a_killed_process_left(doubles):
    end(locker())
    assert doubles.fake.get("locked_mhz") == 1170
    (clock,) = clock_lock.locked_clocks()
    assert clock.text == f"GPU {UUID}: a run that ended left its clock locked at 1170 MHz. Run `heshare restore`."
    result = doubles.run(JOBS)
    assert list(result.gpus["sm_mhz"]) == [1980]
    assert doubles.traces() == []


@pytest.mark.parametrize("allowed", [False, True])
def test_a_run_at_a_clock_that_stays_locked_says_so_and_is_planned_for_it(doubles, allowed):
    end(locker())
    doubles.fake.fail(RESET, 999)
    result = doubles.run(JOBS, clocks=allowed)
    doubles.fake.fail(RESET, 0)
    assert result.complete
    assert list(result.gpus["planned_mhz"]) == ["1170 (the card's own)"]
    assert any("left its clock locked at 1170 MHz. Run `heshare restore`" in note for note in result.notes)
    assert CliRunner().invoke(app, ["restore"]).stdout == f"Clocks unlocked: {UUID}\n"
    assert doubles.traces() == []


def test_a_clock_of_a_process_that_runs_is_left_alone_and_said(doubles):
    process = locker()
    done = CliRunner().invoke(app, ["restore"])
    assert done.exit_code == 0
    assert f"locked at 1170 MHz by process {process.pid}" in done.stdout
    doctor = CliRunner().invoke(app, ["doctor"])
    assert doctor.exit_code == 0
    assert "killed" not in doctor.stdout
    result = doubles.run(JOBS)
    assert any(f"by process {process.pid}" in note for note in result.notes)
    assert doubles.fake.get("locked_mhz") == 1170
    end(process)
    assert clock_lock.restore().unlocked == (UUID,)


def test_restore_exits_with_2_and_names_a_clock_that_cannot_be_unlocked(doubles):
    end(locker())
    doubles.fake.fail(RESET, 999)
    done = CliRunner().invoke(app, ["restore"])
    doubles.fake.fail(RESET, 0)
    assert done.exit_code == 2
    assert "nvmlDeviceResetGpuLockedClocks failed" in done.stderr
    clock_lock.restore()


def test_doctor_during_a_run_names_it_and_exits_with_0(doubles):
    found = []

    def ask():
        assert until(lambda: doubles.fake.get("locked_mhz"))
        found.append(CliRunner().invoke(app, ["doctor"]))

    thread = threading.Thread(target=ask)
    thread.start()
    doubles.run(JOBS, policy="drill", devices="nvml", clocks=True)
    thread.join()
    (doctor,) = found
    assert doctor.exit_code == 0
    folder = doubles.folder / "run"
    assert f"in use by the run in {folder} (process {os.getpid()})" in doctor.stdout
    assert "killed" not in doctor.stdout


def test_a_run_notes_a_watchdog_that_ended_and_goes_on_with_another_one(doubles):
    killed = []

    def kill():
        outputs = doubles.folder / "run" / "outputs"
        assert until(lambda: outputs.exists() and list(outputs.iterdir()))
        killed.extend(watchdogs(doubles))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    result = doubles.run(JOBS.replace("0.4", "2.5"))
    thread.join()
    assert result.complete
    assert len(killed) == 1
    assert any("the watchdog ended (by SIGKILL) and was started again" in note for note in result.notes)
    assert watchdogs(doubles) == []
    assert doubles.traces() == []
