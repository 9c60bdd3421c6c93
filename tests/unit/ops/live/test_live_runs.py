"""Live runs: which are complete, and their times and energies by the journal."""

from __future__ import annotations

from contextlib import closing

import pytest
from support.run_entries import ended, run_of, sampled, session, started, state_of

from heshare.ops.jobs.entries import Account, Run, Session, SessionGpu
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.jobs.run_journal import RunJournal
from heshare.ops.live.live_runs import is_complete, loaded_jobs, measured_run
from heshare.ops.live.live_task_set import job_file_text
from heshare.shared.errors import DeviceError
from heshare.world.task import Task
from heshare.world.workload import Workload

END = ended("task-0", end_s=2.0, released_s=1.0, energy_j=5.0)
SESSION = session(0.0)


def test_complete(tmp_path):
    """A complete run is uninterrupted and has a report."""
    file = tmp_path / "jobs.yaml"
    file.write_text(job_file_text([Task(0, Workload("resnet50", 8), 3)]))
    run = Run("random", read_jobs(file))
    for ends, report, expected in (([END], True, True), ([END], False, False), ([], True, False)):
        folder = tmp_path / f"{len(ends)}{report}"
        with closing(RunJournal(folder / "run", run)) as journal:
            for entry in (SESSION, *ends):
                journal.append(entry)
        if report:
            (folder / "run" / "report.txt").touch()
        assert is_complete(folder) is expected
    with closing(RunJournal(tmp_path / "1True" / "run", None)) as journal:
        journal.append(SESSION)
    assert not is_complete(tmp_path / "1True")
    assert not is_complete(tmp_path / "nothing")


def end(job, start_s, released_s, end_s, gpu_j, outcome="completed"):
    times = {"start_s": start_s, "released_s": released_s, "end_s": end_s}
    account = Account(gpu_j, gpu_j)
    return ended(job, outcome, **times, account=account, sm_mhz=1980.0, limits=("power limit",), reason="x")


def journal(*ends, sample_j=(700.0, 60.0)):
    gpus = (SessionGpu("GPU-0", "T4"), SessionGpu("GPU-1", "T4", sharing="time-slice"))
    before, after = ([Account(energy_j) for energy_j in counters] for counters in ((100.0, 50.0), sample_j))
    first = started("a-0", t=2.0, lasted_s=1.0)
    return state_of(run_of(), Session(0.0, gpus), sampled(0.0, *before), first, *ends, sampled(20.0, *after))


def test_from_first_decision():
    """Times and energies count from the first decision."""
    entries = journal(end("a-0", 3.0, 5.0, 10.0, 400.0), end("a-1", 3.0, 5.0, 13.0, 600.0))
    run = measured_run(entries, {"a-0": 0.0, "a-1": 0.0})
    assert run.avg_jct_s == pytest.approx((7.0 + 10.0) / 2)
    assert run.makespan_s == 10.0
    assert run.energy_active_j == 500.0  # GPU 0 until its last end; nothing ran on GPU 1
    assert run.energy_cluster_j == 610.0
    assert run.before_s == 3.0
    assert run.limits == ("power limit",)
    assert run.sharing == ("mps", "time-slice")
    assert list(run.jobs["loading_s"]) == [2.0, 2.0]


def test_incomplete():
    """An incomplete or interrupted run is refused."""
    entries = journal(end("a-0", 3.0, 5.0, 10.0, 400.0, outcome="failed: crash"))
    with pytest.raises(DeviceError, match="did not complete a-0: x"):
        measured_run(entries, {"a-0": 0.0})
    complete = journal(end("a-0", 3.0, 5.0, 10.0, 400.0))
    complete.add(complete.sessions[0].session)
    with pytest.raises(DeviceError, match="in one piece"):
        measured_run(complete, {"a-0": 0.0})


def test_loaded_together():
    """Jobs that were released together have one loading time."""
    entries = journal(
        end("a-0", 3.0, 5.0, 10.0, 1.0), end("a-1", 3.0, 5.0, 11.0, 1.0), end("a-2", 11.0, 12.0, 13.0, 1.0)
    )
    groups = [(group.jobs, group.started_s, group.begun_s, group.ended_s) for group in loaded_jobs(entries)]
    assert groups == [(("a-0", "a-1"), 3.0, 5.0, 11.0), (("a-2",), 11.0, 12.0, 13.0)]
