"""Runs on faulty GPUs: sensors that fail for good, Xid events, calls that block."""

from __future__ import annotations

import pytest
from support.job_rows import job, jobs_of
from support.run_entries import journal_lines

CLOCK, POWER, COUNTER = "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEnergyConsumption"
SENSORS = {
    CLOCK: "clock", "nvmlDeviceGetMemoryInfo": "free memory", "nvmlDeviceGetCurrentClocksEventReasons": "limits",
    "nvmlEventSetWait_v2": "health",
}  # fmt: skip
UNUSED = ("nvmlDeviceGetTemperature", "nvmlGpmSampleGet")


def rows(doubles, kind):
    return [entry[kind] for entry in journal_lines(doubles.folder / "run") if kind in entry]


@pytest.mark.parametrize(
    "failing", [{COUNTER: "energy counter"}, {POWER: "power", **SENSORS}], ids=["counter", "others"]
)
@pytest.mark.slow
def test_failing_sensors(doubles, failing):
    """Sensors that fail for good end no job and are noted once."""
    thread = doubles.once_started(lambda: [doubles.fake.fail(one, 999) for one in (*failing, *UNUSED)], count=2)
    result = doubles.run(jobs_of(job("a", "sleep", "1.5", count=2)))
    thread.join()
    assert result.complete
    assert list(result.jobs["attempts"]) == [1, 1]
    assert list(result.gpus["state"]) == ["ok"]
    assert (rows(doubles, "sample")[-1]["gpus"][0].get("sm_mhz") is None) is (CLOCK in failing)
    noted = [note.partition("no reading of ")[2].partition(",")[0] for note in result.notes if "no reading" in note]
    assert sorted(noted) == sorted(failing.values())
    assert result.totals["energy_j"] == pytest.approx(200.0, rel=0.5)
    assert any("integrals of power readings" in note for note in result.notes) is (COUNTER in failing)


def test_application_xid(doubles):
    """An Xid of an application is noted and drains no GPU."""
    happening = doubles.once_started(lambda: doubles.fake.event(31))
    result = doubles.run(jobs_of(job("a", "sleep", "1"), job("b", "sleep", "0.1", arrival_s=0.8)))
    happening.join()
    assert list(result.gpus["state"]) == ["ok"]
    assert any("Xid 31" in note for note in result.notes)
