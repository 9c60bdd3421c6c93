"""Clocks that cannot be given back: the run's outcome stands, its report names them, and they are unlocked later."""

from __future__ import annotations

import io

import pytest
from support.job_rows import job, jobs_of
from support.kill_drill import UUID
from support.waiting import until
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.clocks.service_clock import ClockLeftLockedError, ServiceClock
from heshare.ops.executor.operator_log import OperatorLog

JOBS = jobs_of(job("a", "sleep", "0.8", count=4))
RESET = "nvmlDeviceResetGpuLockedClocks"


def doctor():
    return CliRunner().invoke(app, ["doctor"])


@pytest.mark.slow
def test_a_run_whose_gpu_is_lost_with_a_locked_clock_reports_it_and_its_clock_service_unlocks_it(doubles):
    def lose():
        assert until(lambda: doubles.fake.get("locked1_mhz"))
        doubles.fake.set("lost1", 1)

    gone, lines = doubles.once_started(lose), io.StringIO()
    result = doubles.run(JOBS, policy="drill", devices="nvml", clocks=True, log=OperatorLog(lines))
    gone.join()
    assert result.complete
    report = (doubles.folder / "run" / "report.txt").read_text()
    for text in (report, lines.getvalue()):
        assert text.count("its clock could not be given back and may stay locked") == 1
    assert doubles.fake.get("locked1_mhz") > 0
    # The GPUs are free for other runs meanwhile.
    assert doubles.run(JOBS, into="next").complete
    assert doctor().exit_code == 1
    doubles.fake.set("lost1", 0)
    assert until(lambda: doubles.fake.get("locked1_mhz") == 0)
    assert until(lambda: doubles.traces() == [])
    assert doctor().exit_code == 0


@pytest.mark.slow
def test_a_run_at_a_clock_that_a_killed_run_left_locked_says_so_and_is_planned_for_it(doubles):
    clock = ServiceClock(UUID, None)
    clock.lock(1170)
    doubles.fake.fail(RESET, 999)
    clock._process.kill()
    with pytest.raises(ClockLeftLockedError):
        clock.close()
    result = doubles.run(JOBS, clocks=True)
    doubles.fake.fail(RESET, 0)
    assert result.complete
    assert list(result.gpus["planned_mhz"]) == ["1170 (the card's own)"]
    assert any("left its clock locked at 1170 MHz. Run `heshare restore`" in note for note in result.notes)
    assert until(lambda: doubles.traces() == [])
