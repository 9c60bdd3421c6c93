"""Clocks: noted before they are locked, given back at the end, and by others where their process could not do that."""

from __future__ import annotations

import io
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
from heshare.ops.clocks import ClockLock, locked_clocks
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


def test_noted_first(doubles, card, monkeypatch):
    """A clock is noted before it is locked and until it is given back."""
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


def test_refused(doubles, card):
    """A refusal of the driver leaves no note and unlocks nothing."""
    doubles.fake.set("may_lock", 0)
    clock = ClockLock(card, UUID)
    clock.release()  # it is not locked, and may be another process's
    with pytest.raises(NoPermissionError):
        clock.lock(1170)
    clock.close()
    assert (notes(), doubles.fake.get("locked_mhz"), doubles.fake.called(RESET)) == ([], 0, 0)


def test_one_process(doubles, card, holder, monkeypatch):
    """A second process is refused the clock while the first runs, and takes over once that was killed."""
    monkeypatch.setattr(clocks, "_TAKE_OVER_S", 0.1)
    first, clock = holder(), ClockLock(card, UUID)
    with pytest.raises(DeviceError, match=f"process {first.pid}"):
        clock.lock(990)
    assert doubles.fake.get("locked_mhz") == 1170
    first.kill()
    first.wait()
    clock.lock(990)
    assert doubles.fake.get("locked_mhz") == 990
    clock.close()
    assert (notes(), doubles.fake.get("locked_mhz")) == ([], 0)


def test_restore(doubles, holder):
    """`restore` unlocks what a killed process left, and leaves the clock of one that runs."""
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


def test_restore_fails(doubles, holder, monkeypatch):
    """`restore` says why a clock cannot be given back; the note stays."""
    holder().kill()
    doubles.fake.fail(RESET, 999)
    (refused,) = restore().refused
    assert "NVML code 999" in refused
    doubles.fake.fail(RESET, 0)
    monkeypatch.setattr(clocks, "_READ_BACK_S", 0.1)
    doubles.fake.set("sm_mhz", 1170)  # as if somebody else held it there
    (refused,) = restore().refused
    assert "1170 MHz" in refused
    doubles.fake.set("sm_mhz", 1980)
    assert restore().unlocked == (UUID,)


def test_damaged_note(doubles, holder):
    """A damaged note is named and hides no other."""
    holder().kill()
    (state_folder() / "gpu-0.json").write_text("{}")
    restored = restore()
    assert restored.unlocked == (UUID,)
    assert "not a state file of heshare" in restored.refused[0]
    assert [clock.uuid for clock in locked_clocks()] == [""]


@pytest.mark.nightly
def test_lost_gpu(doubles):
    """A run whose GPU is lost with a locked clock reports it; its cleanup process unlocks it later."""

    def lose():
        assert until(lambda: doubles.fake.get("locked_mhz", 1))
        doubles.fake.set("lost", 1, card=1)

    gone, lines = doubles.once_started(lose), io.StringIO()
    result = doubles.run(JOBS, policy="drill", devices="nvml", clocks=True, log=OperatorLog(lines))
    gone.join()
    assert result.complete
    report = (doubles.folder / "run" / "report.txt").read_text()
    for text in (report, lines.getvalue()):
        assert text.count("may stay locked") == 1
    assert doubles.fake.get("locked_mhz", 1) > 0
    assert until(lambda: not any(map(is_locked, (doubles.folder / "locks").iterdir())))
    assert doubles.run(jobs_of(job("a", "true")), into="next").complete
    assert until(lambda: CliRunner().invoke(app, ["doctor"]).exit_code == 1)
    doubles.fake.set("lost", 0, card=1)
    assert until(lambda: doubles.fake.get("locked_mhz", 1) == 0)
    assert until(lambda: doubles.traces() == [])
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0


@pytest.mark.nightly
def test_left_locked(doubles, holder):
    """A run at a clock that was left locked notes it and is planned for it."""
    process = holder()
    doubles.fake.fail(RESET, 999)
    process.send_signal(signal.SIGKILL)
    process.wait()
    result = doubles.run(jobs_of(job("a", "true")), clocks=True)
    doubles.fake.fail(RESET, 0)
    assert result.complete
    assert list(result.gpus["planned_mhz"]) == ["1170 (the card's own)"]
    assert any("1170 MHz" in note for note in result.notes)
    restore()
    assert until(lambda: doubles.traces() == [])
