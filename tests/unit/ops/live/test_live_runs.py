"""Live runs that are kept and reused."""

from __future__ import annotations

from contextlib import closing

from support.run_entries import ended, session

from heshare.ops.jobs.entries import Run
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.jobs.run_journal import RunJournal
from heshare.ops.live.live_runs import is_complete
from heshare.ops.live.live_task_set import job_file_text
from heshare.world.task import Task
from heshare.world.workload import Workload

END = ended("task-0", end_s=2.0, released_s=1.0, gpu_j=5.0, energy_j=5.0)
SESSION = session(0.0)


def test_complete_runs_are_uninterrupted_and_have_a_report(tmp_path):
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
