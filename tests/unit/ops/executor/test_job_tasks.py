"""Tasks from the entries of a job file, and what is left of them after earlier sessions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from heshare.ops.executor.job_tasks import assigned_jobs, check_programs, remaining_tasks
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.jobs.run_state import JobHistory
from heshare.shared.errors import InputError
from heshare.world.workload import Workload


def spec_of(command, *, arrival_s=30.0, folder=Path("/")):
    workload = Workload("resnet50", 8)
    return JobSpec("a", command, workload, 10.0, None, 2, None, 0, 500.0, folder, (), arrival_s, 2)


@pytest.mark.parametrize(
    ("elapsed", "arrival_s"), [({}, 30.0), ({"elapsed_s": 10.0}, 20.0), ({"elapsed_s": 50.0}, 0.0)]
)
def test_a_later_session_has_what_is_left(elapsed, arrival_s):
    history = JobHistory(over={"a-0": "completed"}, attempts=Counter({"a-1": 2}))
    history.did["a-1"] = 4.0
    tasks, assigned = remaining_tasks(assigned_jobs([spec_of(("true",))]), history, **elapsed)
    assert [(task.id, task.iterations, task.arrival_s) for task in tasks] == [(0, 6.0, arrival_s)]
    assert [(job.key, job.attempts) for job in assigned.values()] == [("a-1", 2)]


def test_programs_and_folders_of_commands_must_exist(tmp_path):
    check_programs([spec_of(("true",)), spec_of((), folder=tmp_path / "none")], tmp_path)
    with pytest.raises(InputError, match="the program 'no-such-program'"):
        check_programs([spec_of(("no-such-program",))], tmp_path)
    with pytest.raises(InputError, match="a folder that exists"):
        check_programs([spec_of(("true",), folder=tmp_path / "none")], tmp_path)
