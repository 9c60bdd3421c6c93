"""Host memory of a job: bounded by its control group, and told where there is none. The groups are stand-in folders."""

from __future__ import annotations

import os

import pytest
from support.job_rows import job, jobs_of

from heshare.ops.executor.job_process import CommandWorker
from heshare.ops.jobs.job_file import read_jobs
from heshare.ops.workers import job_cgroup
from heshare.ops.workers.job_cgroup import JobCgroup, bound_memory
from heshare.shared.errors import InputError


@pytest.fixture
def group(tmp_path, monkeypatch):
    """A folder in the place of this process's own control group."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    (folder / "cgroup.procs").write_text(f"{os.getpid()}\n12\n")
    monkeypatch.setattr(job_cgroup, "_own_group", lambda: folder)
    monkeypatch.setattr(job_cgroup, "_END_S", 0.05)  # a folder with files cannot be removed as a group can
    return folder


def test_the_run_moves_aside_so_that_its_group_can_bound_the_memory_of_jobs(group):
    assert bound_memory() == ""
    assert (group / "executor" / "cgroup.procs").read_text() == "12"  # the last of both
    assert (group / "cgroup.subtree_control").read_text() == "+memory"


def test_a_group_that_bounds_no_memory_is_told(group, monkeypatch):
    (group / "cgroup.subtree_control").mkdir()  # cannot be written
    assert "does not bound memory" in bound_memory()
    monkeypatch.setattr(job_cgroup, "_own_group", lambda: None)
    assert "Delegate=yes" in bound_memory()


def test_a_job_gets_its_limit_and_no_swap_and_is_killed_as_a_whole(group):
    made = JobCgroup(4711, 500)
    folder = group / "job-4711"
    assert (folder / "cgroup.procs").read_text() == "4711"
    assert int((folder / "memory.max").read_text()) == 500 << 20
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "memory.oom.group").read_text() == "1"
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 1\noom_kill 2\noom_group_kill 1\n")
    made.end()
    assert made.exceeded
    unbounded = JobCgroup(4712)
    assert not (group / "job-4712" / "memory.max").exists()
    unbounded.end()
    assert not unbounded.exceeded


def test_a_job_that_was_killed_for_its_memory_says_so(group, tmp_path):
    worker = CommandWorker(
        "big", ["sh", "-c", "echo last words; kill -9 $$"], directory=tmp_path, environment=dict(os.environ),
        log=tmp_path / "log", iterations=1.0, grace_s=0.5, memory_mib=64,
    )  # fmt: skip
    (group / f"job-{worker.pid}" / "memory.events").write_text("oom_kill 1\n")
    while worker.exit_code is None:
        worker.poll()
    assert worker.failure is not None
    assert worker.failure.startswith("used more than its 64 MiB of host memory, and was killed (see ")


def test_a_run_says_once_that_host_memory_is_not_bounded(doubles, monkeypatch):
    monkeypatch.setattr(job_cgroup, "_own_group", lambda: None)
    result = doubles.run(jobs_of(*[job(name, "true", count=2, host_memory_mib=500) for name in "ab"]))
    told = [note for note in result.notes if "host_memory_mib" in note]
    assert len(told) == 1
    assert "not enforced" in told[0]
    assert result.complete


def test_host_memory_is_of_commands_and_at_least_16_mib(doubles):
    assert read_jobs(doubles.write(jobs_of(job("a", "true", host_memory_mib=500))))[0].host_memory_mib == 500
    with pytest.raises(InputError, match="host_memory_mib"):
        read_jobs(doubles.write(jobs_of(job("a", "true", host_memory_mib=5))))
    with pytest.raises(InputError, match="`host_memory_mib` beside a workload"):
        read_jobs(doubles.write("jobs: [{name: a, workload: resnet50:8, iterations: 5, host_memory_mib: 500}]"))
