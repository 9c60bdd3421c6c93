"""Runs on GPUs that are sick: calls that block, sensors that fail for good, Xid and ECC events, counters that jump."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from support.run_entries import journal_lines
from support.waiting import until

from heshare.ops.clocks import clock_notes
from heshare.ops.clocks.service_clock import ClockLeftLockedError, ServiceClock
from heshare.ops.executor import local_gpus
from heshare.ops.nvml import card_survey, guarded_gpu
from heshare.ops.views.run_view import RunView
from heshare.shared.errors import DeviceError

FIRST = "GPU-00000000-1111-2222-3333-444444444444"
CLOCK, POWER, COUNTER = "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEnergyConsumption"


def job(name, seconds, **fields):
    more = "".join(f", {key}: {value}" for key, value in fields.items())
    return f"  - {{name: {name}, command: [sleep, '{seconds}'], like: 'resnet50:8', iterations: 1{more}}}\n"


def ends(doubles):
    return [entry["end"] for entry in journal_lines(doubles.folder / "run") if "end" in entry]


def states(doubles):
    """The states of each GPU in the samples of the run's journal, in order, each once."""
    rows = [entry["sample"]["gpus"] for entry in journal_lines(doubles.folder / "run") if "sample" in entry]
    return [list(dict.fromkeys(row[index].get("state", "ok") for row in rows)) for index in range(len(rows[0]))]


def when_running(doubles, jobs, action):
    """Do something once so many jobs have been started."""

    def wait():
        until_s = time.monotonic() + 20.0
        while time.monotonic() < until_s:
            try:
                entries = journal_lines(doubles.folder / "run")
            except Exception:
                entries = []
            started = [
                one for row in entries for one in row.get("decision", {}).get("actions", ()) if one[0] == "start"
            ]
            if len(started) >= jobs:
                time.sleep(0.3)
                action()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


SENSORS = {
    CLOCK: "clock", "nvmlDeviceGetMemoryInfo": "free memory", "nvmlDeviceGetCurrentClocksEventReasons": "limits",
    "nvmlEventSetWait_v2": "health",
}  # fmt: skip
UNUSED = ("nvmlDeviceGetTemperature", "nvmlGpmSampleGet")


@pytest.mark.parametrize(
    "failing", [{POWER: "power"}, {COUNTER: "energy counter"}, SENSORS], ids=["power", "counter", "others"]
)
@pytest.mark.slow
def test_sensors_that_fail_for_good_end_no_job_and_are_noted_once(doubles, failing):
    thread = when_running(doubles, 2, lambda: [doubles.fake.fail(one, 999) for one in (*failing, *UNUSED)])
    result = doubles.run("jobs:\n" + job("a", 1.5, count=2))
    thread.join()
    assert result.complete
    assert list(result.jobs["attempts"]) == [1, 1]
    assert list(result.gpus["state"]) == ["ok"]
    last = [row["sample"]["gpus"][0] for row in journal_lines(doubles.folder / "run") if "sample" in row][-1]
    assert (last.get("sm_mhz") is None) is (CLOCK in failing)
    noted = [note.partition("no reading of ")[2].partition(",")[0] for note in result.notes if "no reading" in note]
    assert sorted(noted) == sorted(failing.values())
    assert result.totals["energy_j"] == pytest.approx(200.0, rel=0.5)
    assert any("integrals of power readings" in note for note in result.notes) is (COUNTER in failing)
    assert not any("unknown, and on no account" in note for note in result.notes)


@pytest.mark.slow
def test_a_counter_that_jumps_is_noted_and_not_believed(doubles):
    jumping = when_running(doubles, 1, lambda: doubles.fake.set("energy_mj", 1e12))
    result = doubles.run("jobs:\n" + job("a", 1.5))
    jumping.join()
    assert result.complete
    assert result.totals["energy_j"] == pytest.approx(180.0, rel=0.6)
    assert any("the energy counter moved by" in note for note in result.notes)
    assert any("integrals of power readings" in note for note in result.notes)


@pytest.mark.slow
def test_a_hardware_error_drains_a_card_and_its_jobs_run_on(doubles):
    happening = when_running(doubles, 2, lambda: doubles.fake.event(79))
    result = doubles.run("jobs:\n" + job("a", 3.5, count=2) + job("late", 0.1, arrival_s=3.0, count=4), devices="nvml")
    happening.join()
    assert result.complete
    assert list(result.jobs["attempts"])[:2] == [1, 1]
    assert list(result.gpus["state"]) == ["drained", "ok"]
    assert states(doubles)[0] == ["ok", "drained"]
    late = [end for end in ends(doubles) if end["job"].startswith("late")]
    assert {end["gpu"] for end in late if end["outcome"] == "completed"} == {1}
    # A card that was idle is asked at the start of a job, which is then planned again, free of charge.
    assert {(end["outcome"], end["charged"]) for end in late} <= {("completed", False), ("failed: drained", False)}
    assert any("GPU 0" in note and "drained after" in note for note in result.notes)
    first, second = RunView(doubles.folder / "run").as_dict(0.0)["gpus"]
    assert (first["state"], second["state"]) == ("drained", "ok")


def test_an_applications_xid_is_noted_and_drains_nothing(doubles):
    happening = when_running(doubles, 1, lambda: doubles.fake.event(31))
    result = doubles.run("jobs:\n" + job("a", 1.0) + job("b", 0.1, arrival_s=0.8))
    happening.join()
    assert result.complete
    assert list(result.gpus["state"]) == ["ok"]
    assert any("Xid 31" in note for note in result.notes)


@pytest.mark.slow
def test_a_blocking_call_stops_neither_other_cards_nor_time_limits(doubles):
    blocking = when_running(doubles, 2, lambda: doubles.fake.block(CLOCK, card=0))
    later = threading.Timer(6.0, doubles.fake.fail, (CLOCK, 0))
    later.start()
    text = (
        job("a", 4.0, count=2)
        + job("hangs", 60, timeout_s=1.0, arrival_s=1.0)
        + job("late", 0.1, arrival_s=3.5, count=6)
    )
    result = doubles.run("jobs:\n" + text, devices="nvml")
    blocking.join()
    later.join()
    outcomes = dict(zip(result.jobs["job"], result.jobs["outcome"], strict=True))
    assert outcomes.pop("hangs") == "failed"
    assert set(outcomes.values()) == {"completed"}
    rows = {end["job"]: end for end in ends(doubles)}
    assert "longer than its 1 s" in rows["hangs"]["reason"]
    assert {rows[f"late-{index}"]["gpu"] for index in range(6)} == {1}
    assert states(doubles)[0][:2] == ["ok", "drained"]
    assert any("GPU 0" in note and "NVML does not reply" in note for note in result.notes)
    assert doubles.traces() == []


@pytest.mark.slow
def test_a_signal_ends_a_run_with_a_blocking_call_at_once(doubles):
    def act():
        doubles.fake.block(CLOCK)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    acting = when_running(doubles, 2, act)
    with pytest.raises(BaseException, match="SIGTERM"):
        doubles.run("jobs:\n" + job("a", 60, count=2), devices="nvml", clocks=True)
    acting.join()
    doubles.fake.fail(CLOCK, 0)
    assert doubles.traces() == []


@pytest.mark.slow
def test_restore_names_the_card_that_does_not_reply(doubles, monkeypatch):
    monkeypatch.setattr(guarded_gpu.GuardedGpu.__init__, "__defaults__", (0.5,))
    unlock = "nvmlDeviceResetGpuLockedClocks"
    clock = ServiceClock(FIRST, None)
    clock.lock(1200)
    doubles.fake.fail(unlock, 999)
    with pytest.raises(ClockLeftLockedError):
        clock.close()
    doubles.fake.block(unlock)
    assert until(lambda: f"{FIRST}: NVML has not returned from unlock_clock" in "".join(clock_notes.restore().refused))
    doubles.fake.fail(unlock, 0)
    assert until(lambda: doubles.traces() == [])


@pytest.mark.slow
def test_select_gpus_ends_within_a_bound_if_nvml_blocks(doubles, monkeypatch):
    monkeypatch.setattr(card_survey.survey, "__defaults__", (0.3,))
    doubles.fake.block("nvmlDeviceGetHandleByIndex_v2")
    with pytest.raises(DeviceError, match="has not returned"):
        local_gpus.select_gpus("nvml")
    doubles.fake.fail("nvmlDeviceGetHandleByIndex_v2", 0)
