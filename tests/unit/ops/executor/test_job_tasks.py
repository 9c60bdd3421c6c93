"""Tasks from the entries of a job file, what is left of them after earlier sessions, and what is refused."""

from __future__ import annotations

import pytest
from support.run_entries import spec_of

from heshare.ops.executor.job_tasks import check_jobs, check_real_jobs, job_states, remaining_tasks
from heshare.shared.errors import InputError


@pytest.mark.parametrize(("elapsed_s", "arrival_s"), [(0.0, 30.0), (10.0, 20.0), (50.0, 0.0)])
def test_remaining(elapsed_s, arrival_s):
    """A later session has the jobs that are not over, without iterations that were completed."""
    over, left = job_states([spec_of(count=2, arrival_s=30.0)])
    over.outcome, left.iterations, left.attempts = "completed", 4.0, 2
    tasks, assigned = remaining_tasks([over, left], elapsed_s=elapsed_s)
    assert [(task.id, task.iterations, task.arrival_s) for task in tasks] == [(0, 6.0, arrival_s)]
    assert [(job.key, job.index, job.attempts) for job in assigned.values()] == [("a-1", 1, 2)]


def test_programs_exist(tmp_path):
    """Programs and folders of commands must exist; those of workloads are the package's own."""
    check_jobs([spec_of()], tmp_path)
    check_jobs([spec_of(command=(), directory=tmp_path / "none")], tmp_path)
    with pytest.raises(InputError, match="the program 'no-such-program'"):
        check_jobs([spec_of(command=("no-such-program",))], tmp_path)
    with pytest.raises(InputError, match="a folder that exists"):
        check_jobs([spec_of(directory=tmp_path / "none")], tmp_path)


def test_real_gpus(tmp_path):
    """Real GPUs run no gang, and no workload whose libraries are missing; commands need none."""
    gang, workload, lack = spec_of(gpus=2), spec_of(command=()), "torch missing"
    for spec, models_lack, message in ((gang, "", "2 GPUs for one job"), (workload, lack, lack)):
        check_jobs([spec], tmp_path)
        with pytest.raises(InputError, match=message) as refused:
            check_real_jobs([spec], tmp_path, models_lack)
        assert refused.value.row == 2
    check_real_jobs([spec_of()], tmp_path, lack)
    check_real_jobs([workload], tmp_path, "")
