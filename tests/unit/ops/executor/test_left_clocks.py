"""Clocks that cannot be given back: the run's outcome stands, its report names them, and they are unlocked later."""

from __future__ import annotations

import io
import os
import signal
import threading
from pathlib import Path

import pytest
from support.kill_drill import UUID
from support.waiting import until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.clocks import clock_notes
from heshare.ops.clocks.service_clock import ClockLeftLockedError, ServiceClock
from heshare.ops.executor.operator_log import OperatorLog

JOBS = "jobs: [{name: a, command: [sleep, '0.4'], like: 'resnet50:8', iterations: 1, count: 4}]"
RESET = "nvmlDeviceResetGpuLockedClocks"


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


@pytest.mark.slow
def test_a_run_whose_gpu_is_lost_with_a_locked_clock_reports_it_and_its_clock_service_unlocks_it(doubles):
    gone, lines = lose_the_second_gpu(doubles), io.StringIO()
    result = doubles.run(JOBS, policy="drill", devices="nvml", clocks=True, log=OperatorLog(lines))
    gone.join()
    assert result.complete
    report = (doubles.folder / "run" / "report.txt").read_text()
    for text in (report, lines.getvalue()):
        assert text.count("its clock could not be given back and may stay locked") == 1
    assert doubles.fake.get("locked1_mhz") > 0
    assert watchdogs(doubles) == []
    # The GPUs are free for other runs meanwhile.
    assert doubles.run(JOBS, into="next").complete
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1
    doubles.fake.set("lost1", 0)
    assert until(lambda: doubles.fake.get("locked1_mhz") == 0)
    assert until(lambda: doubles.traces() == [])
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0


@pytest.fixture
def left_locked(doubles):
    """The first GPU's clock, left locked at 1170 MHz by a process that was killed with its clock service."""
    clock = ServiceClock(UUID, None)
    clock.lock(1170)
    doubles.fake.fail(RESET, 999)
    clock._process.kill()
    with pytest.raises(ClockLeftLockedError):
        clock.close()
    assert len(clock_notes.notes()) == 1


@pytest.mark.slow
def test_the_next_run_unlocks_a_clock_that_a_killed_run_left(doubles, left_locked):
    doubles.fake.fail(RESET, 0)
    result = doubles.run(JOBS)
    assert list(result.gpus["sm_mhz"]) == [1980]
    assert until(lambda: doubles.traces() == [])


@pytest.mark.parametrize("allowed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_run_at_a_clock_that_stays_locked_says_so_and_is_planned_for_it(doubles, left_locked, allowed):
    result = doubles.run(JOBS, clocks=allowed)
    doubles.fake.fail(RESET, 0)
    assert result.complete
    assert list(result.gpus["planned_mhz"]) == ["1170 (the card's own)"]
    assert any("left its clock locked at 1170 MHz. Run `heshare restore`" in note for note in result.notes)
    assert until(lambda: doubles.traces() == [])


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


@pytest.mark.slow
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
