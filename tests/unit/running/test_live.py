"""A live comparison: its accounts from a journal, loading in virtual time, and all of it over a played GPU."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import closing
from dataclasses import replace

import pytest

from heshare.devices.emulated import EmulatedDevice
from heshare.devices.loading import Loading, LoadingDevice
from heshare.devices.nvml import Nvml
from heshare.errors import DeviceError, InputError
from heshare.policies.registry import make
from heshare.profiles.protocol import Protocol
from heshare.reporting import live as results
from heshare.reporting import live_claims
from heshare.running.jobs import as_json
from heshare.running.ledger import Ledger
from heshare.running.live import jobs, journal, measuring, trial
from heshare.testing import rehearsal
from heshare.testing.fakenvml import compiler
from heshare.world.catalogue import gpu
from heshare.world.jobfile import read_jobs
from heshare.world.task import Task
from heshare.world.workload import Workload

RESNET = Workload("resnet50", 8)


def loading_device(**costs):
    return LoadingDevice(EmulatedDevice(gpu("H100")), Loading(**costs))


def test_tasks_load_and_begin_together():
    device = loading_device(one_s=2.0, more_s=0.5)
    device.start(0, RESNET, 100, 10)
    device.start(1, RESNET, 100, 10)
    assert device.next_event_s() == 2.5
    assert device.advance(2.4) == []
    idle_w = device.read().power_w
    assert idle_w == EmulatedDevice(gpu("H100")).read().power_w
    assert {one.done for one in device.read().residents.values()} == {0.0}
    device.advance(2.5)
    assert device.read().power_w > idle_w
    assert sorted(device.advance(device.next_event_s() + 1e-9)) == [0, 1]


def test_what_is_started_after_an_end_waits_for_it():
    device = loading_device(one_s=1.0, end_s=0.5)
    device.start(0, RESNET, 100, 1)
    ended_s = device.advance(1.0) or device.next_event_s()
    assert device.advance(ended_s) == [0]
    device.start(1, RESNET, 100, 1)
    assert device.next_event_s() == pytest.approx(ended_s + 1.5)


def test_a_task_holds_its_place_until_its_process_has_ended():
    device = loading_device(exit_s=0.5)
    device.start(0, RESNET, 100, 1)
    last_s = device.next_event_s()
    assert device.advance(last_s) == []
    assert device.read().power_w == EmulatedDevice(gpu("H100")).read().power_w
    assert device.read().residents[0].done == 1
    assert device.next_event_s() == pytest.approx(last_s + 0.5)
    assert device.advance(last_s + 0.5) == [0]
    assert device.read().residents == {}


def test_warming_up_draws_power_and_counts_nothing():
    device = loading_device(one_s=2.0, warm_s=0.5)
    device.start(0, RESNET, 100, 1000)
    assert device.next_event_s() == 1.5
    device.advance(1.5)
    assert device.read().power_w > EmulatedDevice(gpu("H100")).read().power_w
    device.advance(2.0)
    plain = EmulatedDevice(gpu("H100"))
    plain.start(0, RESNET, 100, 1000)
    assert device.next_event_s() - 2.0 == pytest.approx(plain.next_event_s())


def test_one_that_loads_can_be_stopped():
    device = loading_device(one_s=2.0, warm_s=0.5)
    device.start(0, RESNET, 100, 10)
    device.advance(1.8)
    with pytest.raises(DeviceError, match="already"):
        device.start(0, RESNET, 100, 10)
    assert device.stop(0) == 0.0
    assert device.read().residents == {}
    assert device.next_event_s() == float("inf")


@pytest.mark.parametrize("bad", [{"one_s": -1.0}, {"more_s": float("nan")}])
def test_costs_that_are_none_are_refused(bad):
    with pytest.raises(InputError):
        Loading(**bad)


def end(job, start_s, released_s, end_s, gpu_j, outcome="completed", gpu=0):
    return {
        "end": {
            "job": job, "gpu": gpu, "outcome": outcome, "start_s": start_s, "released_s": released_s, "end_s": end_s,
            "gpu_j": gpu_j, "sm_mhz": 1980.0, "limits": ["power limit"], "reason": "x",
        }
    }  # fmt: skip


def entries(*ends, sample_j=(700.0, 60.0)):
    return [
        {"session": {"gpus": [{"sharing": "mps"}, {"sharing": "time-slice"}]}},
        {"sample": {"gpus": [{"energy_j": 100.0}, {"energy_j": 50.0}]}},
        {"decision": {"decided_s": 3.0, "actions": [["start"]]}},
        *ends,
        {"sample": {"gpus": [{"energy_j": each} for each in sample_j]}},
    ]


def test_time_and_energy_count_from_the_first_decision():
    said = entries(end("a", 3.0, 5.0, 10.0, 400.0), end("b", 3.0, 5.0, 13.0, 600.0))
    found = journal.measured(said, {"a": 0.0, "b": 0.0})
    assert found.avg_jct_s == pytest.approx((7.0 + 10.0) / 2)
    assert found.makespan_s == 10.0
    assert found.energy_active_j == 500.0  # GPU 0 until its last end; nothing ran on GPU 1
    assert found.energy_cluster_j == 610.0
    assert found.before_s == 3.0
    assert found.limits == ("power limit",)
    assert found.sharing == ("mps", "time-slice")
    assert list(found.jobs["loading_s"]) == [2.0, 2.0]


def test_a_run_that_is_not_whole_is_no_measurement():
    said = entries(end("a", 3.0, 5.0, 10.0, 400.0, outcome="failed: crash"))
    with pytest.raises(DeviceError, match="did not complete a: x"):
        journal.measured(said, {"a": 0.0})
    whole = entries(end("a", 3.0, 5.0, 10.0, 400.0))
    with pytest.raises(DeviceError, match="in one piece"):
        journal.measured([*whole, {"session": {}}], {"a": 0.0})


def test_what_loaded_together_is_one_group():
    said = entries(end("a", 3.0, 5.0, 10.0, 1.0), end("b", 3.0, 5.0, 11.0, 1.0), end("c", 11.0, 12.0, 13.0, 1.0))
    found = list(journal.loaded(said))
    assert [(one.jobs, one.asked_s, one.begun_s, one.ended_s) for one in found] == [
        (("a", "b"), 3.0, 5.0, 11.0), (("c",), 11.0, 12.0, 13.0),
    ]  # fmt: skip


def test_claims_by_what_they_need():
    h100 = live_claims.coverage({"H100"}, trial.POLICIES, clocks=False, played=False)
    tested = h100.set_index("id")["tested"]
    assert set(live_claims.untested_for_clocks(h100)) >= {"M5", "H1", "H5", "O3"}
    assert tested["S1"] == tested["E1"] == "no"
    paper = live_claims.coverage({"T4", "V100", "A100"}, trial.POLICIES, clocks=True, played=False)
    assert dict(zip(paper["id"], paper["tested"], strict=True))["H1"] == "yes"
    assert live_claims.untested_for_clocks(paper) == []
    clocked = live_claims.coverage({"H100"}, trial.POLICIES, clocks=True, played=False).set_index("id")["tested"]
    assert clocked["H1"] == live_claims.ELSEWHERE
    assert clocked["M1"] == "no"


def test_needs_name_what_there_is():
    known = {one.id for one in live_claims.known().values()}
    assert set(live_claims.NEEDS) <= known
    for need in live_claims.NEEDS.values():
        assert all(make(name).name == name for name in need.policies)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """Everything `heshare live` does, over a played GPU: recorded, run under two policies, compared; and once more."""
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    folder = tmp_path_factory.mktemp("l")  # before the stage turns TMPDIR
    before = dict(os.environ)
    asked = trial.Asked(
        policies=("random", "sched-only"), tasks=6, minutes=0.05, budget_s=12.0, seed=4, allow_clocks=True
    )
    heard = []
    try:
        with rehearsal.stage(folder, load_s=0.0, warmup_s=0.05, look_s=0.1, period_s=0.02) as ways:
            protocol = Protocol(repeats=1, window_s=0.15, warmup_s=0.02, readings=1)
            ways = replace(ways, protocol=protocol, say=heard.append, progress=False)
            first = trial.conduct(asked, folder / "work", ways)
            runs = sorted((folder / "work" / "runs").iterdir())
            stamps = [path.stat().st_mtime_ns for path in runs]
            again = trial.conduct(asked, folder / "work", ways)
            kept = stamps == [path.stat().st_mtime_ns for path in sorted((folder / "work" / "runs").iterdir())]
            with Nvml() as nvml:
                locked = nvml.binding.nvmlLib.fakenvml_get(b"locked_mhz")
        written = results.write(first, folder / "out", folder / "work" / "profiles", command="a test")
        yield first, again, kept, written, locked
    finally:
        os.environ.clear()
        os.environ.update(before)
        tempfile.tempdir = None


def test_simulated_is_near_measured_when_the_truth_is_known(rehearsed):
    first, _, _, _, _ = rehearsed
    found = results.comparison(first)
    assert set(found["policy"]) == {"random", "sched-only"}
    # What plays the GPU is the shipped device model, so all that is left is time to start, to look, to end.
    assert results.worst(found, "shipped", "average JCT") < 25.0
    assert results.worst(found, "shipped", "energy, active") < 25.0


def test_a_second_time_nothing_is_done_again(rehearsed):
    first, again, kept, _, _ = rehearsed
    assert kept
    assert results.comparison(again).equals(results.comparison(first))


def test_jobs_are_real_tasks_of_six_models(rehearsed):
    first, _, _, written, _ = rehearsed
    assert len({one.workload.model for one in first.tasks}) >= jobs.LEAST_WORKLOADS
    table = written.tables["jobs"]
    assert len(table) == 2 * len(first.tasks)
    assert (table["loading_s"] > 0).all()


def test_results_say_that_no_gpu_was_there(rehearsed):
    _, _, _, written, _ = rehearsed
    assert written.manifest["stand_in"] is True
    assert written.kind == "emulated"
    assert written.folder.name.startswith("stand-in-")
    assert not (written.folder / "profiles").exists()
    assert set(written.tables["claims"]["tested"]) == {"no"}
    text = (written.folder / results.MANIFEST).read_text()
    assert os.sep + "tmp" not in text
    assert json.loads(text)["cards"][0]["driver"]
    assert set(written.tables["runs"]["sharing"]) == {"mps"}


def test_results_that_were_changed_are_refused(rehearsed, tmp_path):
    _, _, _, written, _ = rehearsed
    copy = shutil.copytree(written.folder, tmp_path / "copy")
    (copy / "comparison.csv").write_text("policy\n")
    with pytest.raises(InputError, match="changed after"):
        results.read(copy)
    with pytest.raises(InputError, match="make live"):
        results.read("nowhere")


def test_clocks_are_given_back(rehearsed):
    assert rehearsed[4] == 0.0


def test_only_a_run_in_one_piece_is_kept(tmp_path):
    file = tmp_path / "jobs.yaml"
    file.write_text(jobs.as_yaml([Task(0, RESNET, 3)]))
    said = {"policy": "random", "jobs": as_json(read_jobs(file))}
    ended = {"end": {**end("task-0", 0.0, 1.0, 2.0, 5.0)["end"], "energy_j": 5.0, "exit_code": None, "log": ""}}
    session = {"session": {"at": 0.0, "gpus": [{"uuid": "u", "name": "H100", "planned_mhz": "", "sharing": "mps"}]}}
    for ends, report, expected in (([ended], True, True), ([ended], False, False), ([], True, False)):
        folder = tmp_path / f"{len(ends)}{report}"
        with closing(Ledger(folder / "run", said)) as ledger:
            for entry in (session, *ends):
                ledger.add(entry)
        if report:
            (folder / "run" / "report.txt").touch()
        assert measuring.whole(folder) is expected
    with closing(Ledger(tmp_path / "1True" / "run", None)) as ledger:
        ledger.add({"session": {**session["session"], "counters_j": [0.0]}})
    assert not measuring.whole(tmp_path / "1True")
    assert not measuring.whole(tmp_path / "nothing")
