"""Clocks: noted before they are locked, given back at the end, and by others where their process could not do that."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys

import pytest
from support.job_rows import job, jobs_of
from support.kill_drill import UUID
from support.waiting import end, until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops import clocks
from heshare.ops.cleanup import restore
from heshare.ops.clocks import ClockLeftLockedError, ClockLock, locked_clocks
from heshare.ops.executor.operator_log import OperatorLog
from heshare.ops.nvml.binding import NoPermissionError
from heshare.ops.nvml.card_reader import CardReader
from heshare.ops.state.state_file import OwnerStatus, state_folder
from heshare.shared.errors import DeviceError
from heshare.shared.file_lock import is_locked

RESET, LOCK = "nvmlDeviceResetGpuLockedClocks", "nvmlDeviceSetGpuLockedClocks"
JOBS = jobs_of(job("a", "sleep", "0.8", count=4))
HOLD = """
import sys, time
from heshare.ops.clocks import ClockLock
from heshare.ops.nvml.card_reader import CardReader
ClockLock(CardReader().card(sys.argv[1]), sys.argv[1]).lock(1170)
print("locked", flush=True)
time.sleep(600)
"""


@pytest.fixture
def card(doubles):
    with CardReader(60.0) as reader:
        yield reader.card(UUID)
    doubles.fake.fail(RESET, 0)


@pytest.fixture
def holder(doubles):
    """A function that starts a process which holds the card's clock at 1170 MHz; it is killed at the end."""
    started = []

    def start():
        started.append(subprocess.Popen([sys.executable, "-c", HOLD, UUID], stdout=subprocess.PIPE))
        assert started[-1].stdout.readline() == b"locked\n"
        return started[-1]

    yield start
    for process in started:
        end(process)


def notes():
    return sorted(path.name for path in state_folder().glob("*"))


def test_a_clock_is_noted_before_it_is_locked_and_until_it_is_given_back(doubles, card, monkeypatch):
    """So a kill at any moment leaves a note of it."""
    seen = []
    monkeypatch.setattr(card, "lock_clock", lambda sm_mhz: seen.append((sm_mhz, notes())))
    monkeypatch.setattr(card, "unlock_clock", lambda: seen.append((None, notes())))
    clock = ClockLock(card, UUID)
    clock.lock(1170)
    clock.lock(990)
    clock.close()
    clock.close()
    noted = [f"gpu-{UUID}.json"]
    assert seen == [(1170, noted), (990, noted), (None, noted)]
    assert notes() == []


def test_a_refusal_of_the_driver_leaves_no_note(doubles, card):
    """Nothing was changed; there is nothing to restore."""
    doubles.fake.set("may_lock", 0)
    clock = ClockLock(card, UUID)
    with pytest.raises(NoPermissionError):
        clock.lock(1170)
    clock.close()
    assert (notes(), doubles.fake.get("locked_mhz"), doubles.fake.called(RESET)) == ([], 0, 0)


def test_a_clock_that_was_not_locked_is_not_unlocked(doubles, card):
    """Somebody else may have locked it."""
    clock = ClockLock(card, UUID)
    clock.release()
    clock.close()
    assert doubles.fake.called(RESET) == 0


def test_a_clock_has_one_process_that_locks_it(doubles, card, holder, monkeypatch):
    """The second is refused as long as the first runs, and takes over from it once that was killed."""
    monkeypatch.setattr(clocks, "_TAKE_OVER_S", 0.1)
    first, clock = holder(), ClockLock(card, UUID)
    with pytest.raises(DeviceError, match=rf"locked at 1170 MHz by process {first.pid} .* which runs"):
        clock.lock(990)
    assert doubles.fake.get("locked_mhz") == 1170
    first.kill()
    first.wait()
    clock.lock(990)
    assert doubles.fake.get("locked_mhz") == 990
    clock.close()
    assert (notes(), doubles.fake.get("locked_mhz")) == ([], 0)


def test_restore_unlocks_what_a_killed_process_left_and_nothing_else(doubles, holder):
    """The clock of a process that runs is listed and left alone."""
    process = holder()
    restored = restore()
    assert (restored.unlocked, doubles.fake.get("locked_mhz")) == ((), 1170)
    assert str(process.pid) in restored.left[0]
    assert [clock.owner_status for clock in locked_clocks()] == [OwnerStatus.RUNNING]
    process.kill()
    process.wait()
    assert [clock.owner_status for clock in locked_clocks()] == [OwnerStatus.ENDED]
    restored = restore()
    assert (restored.unlocked, restored.left, doubles.fake.get("locked_mhz")) == ((UUID,), (), 0)
    assert (notes(), restore().unlocked) == ([], ())


def test_restore_says_why_a_clock_cannot_be_given_back(doubles, holder, monkeypatch):
    """The note stays: it is tried again."""
    holder().kill()
    doubles.fake.fail(RESET, 999)
    (refused,) = restore().refused
    assert "NVML code 999" in refused
    doubles.fake.fail(RESET, 0)
    monkeypatch.setattr(clocks, "_READ_BACK_S", 0.1)
    doubles.fake.set("sm_mhz", 1170)  # as if somebody else held it there
    (refused,) = restore().refused
    assert "was unlocked, but it still reads 1170 MHz" in refused
    doubles.fake.set("sm_mhz", 1980)
    assert restore().unlocked == (UUID,)


def test_a_damaged_note_is_named_and_hides_no_other(doubles, holder):
    """It stays until somebody deletes it."""
    holder().kill()
    (state_folder() / "gpu-0.json").write_text("{}")
    restored = restore()
    assert restored.unlocked == (UUID,)
    assert "not a state file of heshare" in restored.refused[0]
    assert [clock.uuid for clock in locked_clocks()] == [""]


def test_a_clock_that_cannot_be_given_back_stays_noted(doubles, card):
    """As that of an ended process, so that others may undo it at once."""
    clock = ClockLock(card, UUID)
    clock.lock(1170)
    doubles.fake.fail(RESET, 999)
    with pytest.raises(ClockLeftLockedError, match=r"may stay locked .* `heshare restore`"):
        clock.close()
    facts = json.loads((state_folder() / f"gpu-{UUID}.json").read_text())
    assert (facts["uuid"], facts["sm_mhz"], facts["before_mhz"]) == (UUID, 1170, 1980)
    doubles.fake.fail(RESET, 0)
    assert restore().unlocked == (UUID,)


@pytest.mark.slow
def test_a_run_whose_gpu_is_lost_with_a_locked_clock_reports_it_and_its_cleanup_process_unlocks_it(doubles):
    """The outcome of its jobs stands, and its GPUs are free for other runs meanwhile."""

    def lose():
        assert until(lambda: doubles.fake.get("locked1_mhz"))
        doubles.fake.set("lost1", 1)

    gone, lines = doubles.once_started(lose), io.StringIO()
    result = doubles.run(JOBS, policy="drill", devices="nvml", clocks=True, log=OperatorLog(lines))
    gone.join()
    assert result.complete
    report = (doubles.folder / "run" / "report.txt").read_text()
    for text in (report, lines.getvalue()):
        assert text.count("its clock could not be unlocked and may stay locked") == 1
    assert doubles.fake.get("locked1_mhz") > 0
    assert until(lambda: not any(map(is_locked, (doubles.folder / "locks").iterdir())))
    assert doubles.run(jobs_of(job("a", "true")), into="next").complete
    assert until(lambda: CliRunner().invoke(app, ["doctor"]).exit_code == 1)
    doubles.fake.set("lost1", 0)
    assert until(lambda: doubles.fake.get("locked1_mhz") == 0)
    assert until(lambda: doubles.traces() == [])
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0


@pytest.mark.slow
def test_a_run_at_a_clock_that_a_killed_process_left_locked_says_so_and_is_planned_for_it(doubles, holder):
    """Where it cannot be unlocked the plan must be for the clock at which jobs will run."""
    process = holder()
    doubles.fake.fail(RESET, 999)
    process.send_signal(signal.SIGKILL)
    process.wait()
    result = doubles.run(jobs_of(job("a", "true")), clocks=True)
    doubles.fake.fail(RESET, 0)
    assert result.complete
    assert list(result.gpus["planned_mhz"]) == ["1170 (the card's own)"]
    assert any("left its clock locked at 1170 MHz. Run `heshare restore`" in note for note in result.notes)
    restore()
    assert until(lambda: doubles.traces() == [])
