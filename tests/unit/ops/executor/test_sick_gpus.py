"""Runs on GPUs that are sick: sensors that fail for good, Xid events, calls that block."""

from __future__ import annotations

import threading

import pytest
from support.job_rows import by_job, job, jobs_of
from support.run_entries import journal_lines

CLOCK, POWER, COUNTER = "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEnergyConsumption"
SENSORS = {
    CLOCK: "clock", "nvmlDeviceGetMemoryInfo": "free memory", "nvmlDeviceGetCurrentClocksEventReasons": "limits",
    "nvmlEventSetWait_v2": "health",
}  # fmt: skip
UNUSED = ("nvmlDeviceGetTemperature", "nvmlGpmSampleGet")


def rows(doubles, kind):
    return [entry[kind] for entry in journal_lines(doubles.folder / "run") if kind in entry]


def states(doubles):
    """The states of the first GPU in the samples of the run's journal, in order, each once."""
    return list(dict.fromkeys(sample["gpus"][0].get("state", "ok") for sample in rows(doubles, "sample")))


@pytest.mark.parametrize(
    "failing", [{POWER: "power"}, {COUNTER: "energy counter"}, SENSORS], ids=["power", "counter", "others"]
)
@pytest.mark.slow
def test_sensors_that_fail_for_good_end_no_job_and_are_noted_once(doubles, failing):
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


def test_an_applications_xid_is_noted_and_drains_nothing(doubles):
    happening = doubles.once_started(lambda: doubles.fake.event(31))
    result = doubles.run(jobs_of(job("a", "sleep", "1"), job("b", "sleep", "0.1", arrival_s=0.8)))
    happening.join()
    assert list(result.gpus["state"]) == ["ok"]
    assert any("Xid 31" in note for note in result.notes)


@pytest.mark.slow
def test_a_blocking_call_stops_neither_other_cards_nor_time_limits(doubles):
    blocking = doubles.once_started(lambda: doubles.fake.block(CLOCK, card=0), count=2)
    later = threading.Timer(6.0, doubles.fake.fail, (CLOCK, 0))
    later.start()
    hangs = job("hangs", "sleep", "60", timeout_s=1.0, arrival_s=1.0)
    late = job("late", "sleep", "0.1", arrival_s=3.5, count=6)
    result = doubles.run(jobs_of(job("a", "sleep", "4", count=2), hangs, late), devices="nvml")
    blocking.join()
    later.join()
    jobs = by_job(result)
    assert "longer than its 1 s" in jobs.pop("hangs")["reason"]
    assert {row["outcome"] for row in jobs.values()} == {"completed"}
    assert {jobs[f"late-{index}"]["gpu"] for index in range(6)} == {1}
    assert states(doubles)[:2] == ["ok", "drained"]
    assert any("GPU 0" in note and "NVML does not reply" in note for note in result.notes)
    assert doubles.traces() == []
