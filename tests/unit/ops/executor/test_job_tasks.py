"""Tasks from the entries of a job file, what is left of them after earlier sessions, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from heshare.ops.executor.job_tasks import check_jobs, check_real_jobs, job_states, remaining_tasks
from heshare.ops.jobs.job_file import JobSpec
from heshare.shared.errors import InputError
from heshare.world.workload import Workload


def spec_of(command, *, arrival_s=30.0, folder=Path("/"), gpus=1):
    workload = Workload("resnet50", 8)
    return JobSpec("a", command, workload, 10.0, None, 2, None, 0, 500.0, folder, (), arrival_s, 2, gpus=gpus)


@pytest.mark.parametrize(("elapsed_s", "arrival_s"), [(0.0, 30.0), (10.0, 20.0), (50.0, 0.0)])
def test_remaining(elapsed_s, arrival_s):
    """A later session has the jobs that are not over, without iterations that were completed."""
    over, left = job_states([spec_of(("true",))])
    over.outcome, left.iterations, left.attempts = "completed", 4.0, 2
    tasks, assigned = remaining_tasks([over, left], elapsed_s=elapsed_s)
    assert [(task.id, task.iterations, task.arrival_s) for task in tasks] == [(0, 6.0, arrival_s)]
    assert [(job.key, job.index, job.attempts) for job in assigned.values()] == [("a-1", 1, 2)]


def test_programs_exist(tmp_path):
    """Programs and folders of commands must exist; those of workloads are the package's own."""
    check_jobs([spec_of(("true",))], tmp_path)
    check_jobs([spec_of((), folder=tmp_path / "none")], tmp_path)
    with pytest.raises(InputError, match="the program 'no-such-program'"):
        check_jobs([spec_of(("no-such-program",))], tmp_path)
    with pytest.raises(InputError, match="a folder that exists"):
        check_jobs([spec_of(("true",), folder=tmp_path / "none")], tmp_path)


def test_real_gpus(tmp_path):
    """Real GPUs run no gang, and no workload whose libraries are missing."""
    gang, workload, command = spec_of(("true",), gpus=2), spec_of(()), spec_of(("true",))
    lack = "torch missing: pip install 'heshare[live]'"
    for spec, models_lack, message in ((gang, "", "2 GPUs for one job; expected one"), (workload, lack, lack)):
        check_jobs([spec], tmp_path)
        with pytest.raises(InputError, match="row 2") as refused:
            check_real_jobs([spec], tmp_path, models_lack)
        assert message in str(refused.value)
    check_real_jobs([command], tmp_path, lack)
    check_real_jobs([workload], tmp_path, "")
