"""The clock services of a run and of the machine: the clock is given back however the run or the service ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.clock_service import ServiceProcess
from support.job_rows import job, jobs_of
from support.kill_drill import POLICY, UUID
from support.waiting import until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.clocks import clock_notes
from heshare.ops.clocks.service_clock import ServiceClock, clock_control, service_socket
from heshare.ops.nvml.binding import NoPermissionError, NvmlError
from heshare.shared.errors import DeviceError

RESET = "nvmlDeviceResetGpuLockedClocks"
LOCK = f"""
import time
from heshare.ops.clocks.service_clock import ServiceClock
clock = ServiceClock("{UUID}", None)
clock.lock(1170)
print(clock._process.pid, flush=True)
time.sleep(300)
"""


class Locker:
    """A process that has locked the first GPU's clock at 1170 MHz, and the clock service that it started."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", LOCK], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.service = int(self.process.stdout.readline())

    def kill(self, *, service_too: bool = False) -> None:
        """Kill it, with its service before if wanted."""
        if service_too:
            os.kill(self.service, 9)
            assert until(lambda: not Path(f"/proc/{self.service}/cmdline").read_bytes())
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def locker(doubles) -> Iterator[Locker]:
    one = Locker()
    assert doubles.fake.get("locked_mhz") == 1170
    yield one
    one.kill()
    doubles.fake.fail(RESET, 0)
    clock_notes.restore()
    assert until(lambda: doubles.traces() == [])


def restore():
    return CliRunner().invoke(app, ["restore"])


def test_clocks_are_set_by_the_machines_service_where_its_socket_is(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HESHARE_CLOCKS", raising=False)
    monkeypatch.setattr("heshare.ops.clocks.service_clock.SERVICE_SOCKET", str(tmp_path / "none"))
    assert service_socket() is None
    assert clock_control(admin=True)[0]
    assert not clock_control(admin=False)[0]
    monkeypatch.setenv("HESHARE_CLOCKS", str(tmp_path / "gone"))
    assert service_socket() == tmp_path / "gone"
    able, sentence = clock_control(admin=True)
    assert not able
    assert "does not answer" in sentence


@pytest.mark.slow
def test_a_clock_of_a_process_that_runs_is_left_alone_and_said(doubles, locker) -> None:
    assert f"locked at 1170 MHz for process {locker.process.pid} of" in restore().stdout
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0
    assert doubles.fake.get("locked_mhz") == 1170
    message = f"locked at 1170 MHz for process {locker.process.pid}"
    with closing(ServiceClock(UUID, None)) as clock, pytest.raises(NvmlError, match=message):
        clock.lock(1200)
    result = doubles.run("jobs: [{name: a, command: [sleep, '0.1'], like: 'resnet50:8', iterations: 1}]")
    assert any(f"for process {locker.process.pid}" in note for note in result.notes)


def test_restore_unlocks_what_a_run_and_its_service_left_that_were_killed_together(doubles, locker) -> None:
    locker.kill(service_too=True)
    (clock,) = clock_notes.locked_clocks()
    assert clock.text == f"GPU {UUID}: a run that ended left its clock locked at 1170 MHz. Run `heshare restore`."
    doubles.fake.fail(RESET, 999)
    done = restore()
    assert done.exit_code == 2
    assert f"{RESET} failed" in done.stderr
    doubles.fake.fail(RESET, 0)
    assert restore().stdout == f"Clocks unlocked: {UUID}\n"
    assert doubles.fake.get("locked_mhz") == 0


def test_the_next_lock_takes_over_what_killed_processes_left(doubles, locker) -> None:
    locker.kill(service_too=True)
    clock = ServiceClock(UUID, None)
    clock.lock(1500)
    assert doubles.fake.get("locked_mhz") == 1500
    clock.close()
    assert doubles.fake.get("locked_mhz") == 0


def test_an_own_service_that_is_killed_is_started_again(doubles) -> None:
    clock = ServiceClock(UUID, None)
    clock.lock(1200)
    os.kill(clock._process.pid, 9)
    assert until(lambda: "was lost" in clock.news())
    assert until(lambda: "is back: clock 1200 MHz is locked again" in clock.news())
    clock.close()
    assert (doubles.fake.get("locked_mhz"), clock_notes.notes()) == (0, [])


def test_own_service_without_the_right_names_it_and_notes_nothing(doubles) -> None:
    doubles.fake.set("may_lock", 0)
    clock = ServiceClock(UUID, None)
    with pytest.raises(NoPermissionError, match="CAP_SYS_ADMIN"):
        clock.lock(1200)
    assert clock_notes.notes() == []
    clock.close()


def test_a_clock_is_not_locked_where_it_cannot_be_noted(doubles, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    clock = ServiceClock(UUID, None)
    with pytest.raises(DeviceError, match=r"cannot be noted in .*gpu-.*Set XDG_STATE_HOME"):
        clock.lock(1200)
    assert doubles.fake.get("locked_mhz") == 0
    clock.close()


@pytest.fixture
def service(doubles, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcess]:
    """A service that may set clocks, which this process may not."""
    one = ServiceProcess(doubles.folder / "s", dict(os.environ)).begin()
    monkeypatch.setenv("HESHARE_CLOCKS", str(one.socket))
    monkeypatch.setenv("FAKENVML_FAIL", "nvmlDeviceSetGpuLockedClocks=4,nvmlDeviceResetGpuLockedClocks=4")
    yield one
    if one.process is not None and one.process.poll() is None:
        one.kill()


def test_run_without_the_right_sets_clocks_by_the_service(doubles, service) -> None:
    result = doubles.run(jobs_of(job("job", "sleep", "0.1", count=4)), policy=POLICY, devices="nvml", clocks=True)
    assert result.complete
    assert not [note for note in result.notes if "clock" in note]
    assert min(result.gpus["sm_mhz"]) < 1980
    assert doubles.traces() == []
    assert service.notes == []
    assert service.end() == 0
    assert service.log().count(f": lock {UUID} ") >= 2


def test_run_is_planned_for_the_cards_own_clocks_where_the_service_does_not_answer(doubles, service) -> None:
    service.end()
    result = doubles.run(jobs_of(job("job", "sleep", "0.1")), policy=POLICY, clocks=True)
    assert result.complete
    assert "the clock service does not answer" in "\n".join(map(str, result.notes))


def test_doctor_says_how_clocks_are_set(doubles, service) -> None:
    done = CliRunner().invoke(app, ["doctor"])
    assert "clock control: yes" in done.stdout
    assert f"Clocks can be locked by the clock service at {service.socket}: * 210 to 1980 MHz." in done.stdout
