"""Conversion of `jobs.yaml` entries to tasks: copies, sizes, and the rest of each job after earlier sessions."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from heshare.devices.task_sizes import time_alone_s
from heshare.ops.executor.job_process import AssignedJob
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.jobs.run_state import JobState, job_states
from heshare.shared.errors import require
from heshare.world.task import Task

FREE_ATTEMPTS = 10
"""Retries of a job after failures that it did not cause."""


def remaining_tasks(
    jobs: Iterable[JobState], *, elapsed_s: float = 0.0
) -> tuple[tuple[Task, ...], dict[int, AssignedJob]]:
    """Return the tasks of the unfinished jobs, and the jobs by task id.

    `elapsed_s` is the time since the first start of the run, s.
    """
    tasks: list[Task] = []
    assigned: dict[int, AssignedJob] = {}
    for job in jobs:
        if job.over:
            continue
        task_id = len(tasks)
        iterations = max(iteration_count(job.spec) - job.iterations, 1e-9)
        arrival_s = max(0.0, job.spec.arrival_s - elapsed_s)
        tasks.append(Task(task_id, job.spec.workload, iterations, arrival_s, gpus=job.spec.gpus))
        assigned[task_id] = AssignedJob(job.key, job.spec, job.index, job.attempts)
    return tuple(tasks), assigned


def iteration_count(spec: JobSpec) -> float:
    """Return the iterations of a job: those of its entry, or those that take its expected time."""
    if spec.iterations is not None:
        return spec.iterations
    assert spec.expected_time_s is not None
    return spec.expected_time_s / time_alone_s(spec.workload)


def check_jobs(specs: Sequence[JobSpec], file: Path) -> None:
    """Check the names of jobs, their programs and folders; `InputError` with the row of one that is wrong."""
    seen: set[str] = set()
    for job in job_states(specs):
        found, expected, row = f"two jobs called {job.key!r}", "one job a name, copies included", job.spec.row
        require("name", found, job.key not in seen, expected, "Rename one of the entries.", file=file, row=row)
        seen.add(job.key)

    for spec in specs:
        if spec.command:
            _check_program(spec, file)


def check_real_jobs(specs: Sequence[JobSpec], file: Path, models_lack: str) -> None:
    """Check also the requirements of real GPUs; `models_lack` names missing libraries of workloads of Table IV.

    Raises:
        InputError: as `check_jobs`, a job on several GPUs, or a workload without the libraries that run it.
    """
    check_jobs(specs, file)
    for spec in specs:
        found, expected = f"{spec.gpus} GPUs for one job", "one: real GPUs run no jobs on several"
        action = "Give it one GPU; emulated ones run it: heshare run --tasks JOBS.yaml."
        require("gpus", found, spec.gpus == 1, expected, action, file=file, row=spec.row)
        if not spec.command:
            found, expected = f"a workload, {spec.workload}", "what can run here"
            require("workload", found, not models_lack, expected, models_lack, file=file, row=spec.row)


def _check_program(spec: JobSpec, file: Path) -> None:
    action = "Make it, or correct the path."
    is_folder = spec.directory.is_dir()
    require("directory", spec.directory, is_folder, "a folder that exists", action, file=file, row=spec.row)

    name, path = spec.command[0], dict(spec.environment).get("PATH", os.environ.get("PATH"))
    program = str(spec.directory / name) if os.sep in name else name
    expected = "a program on the PATH, or the path of one that may be executed"
    action = "Correct the command, or install the program."
    there = shutil.which(program, path=path) is not None
    require("command", f"the program {name!r}", there, expected, action, file=file, row=spec.row)
