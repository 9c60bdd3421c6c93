"""Runs of a user without the right to set clocks, by the clock service: clocks set, the service lost, doctor."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.clock_service import ServiceProcess
from support.job_rows import job, jobs_of
from support.kill_drill import POLICY, UUID
from typer.testing import CliRunner

from heshare.cli import app


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
