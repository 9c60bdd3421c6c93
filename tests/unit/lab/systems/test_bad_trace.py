"""A trace with errors: refused with row and column, or run without the bad rows."""

import numpy as np
import pytest

from heshare.lab.systems.shared.trace_jobs import venus_tasks
from heshare.policies.registry import make
from heshare.running.run import run
from heshare.shared.errors import InputError
from heshare.testing.toy import ScriptedPolicy, ToyPredictor
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

HEADER = "job_id,user,gpu_num,state,submit_time,start_time,end_time,duration"
GOOD = "{id},u,{gpus},COMPLETED,2020-09-01 00:{minute:02d}:00,,,{seconds}"
BAD = {
    "gpu_num": "7,u,,COMPLETED,2020-09-01 00:10:00,,,60",
    "duration": "7,u,1,COMPLETED,2020-09-01 00:10:00,,,-5",
    "submit_time": "7,u,1,COMPLETED,2020-08-31 00:10:00,,,60",
    "job_id": "2,u,1,COMPLETED,2020-09-01 00:10:00,,,60",
}
TOO_LARGE = "8,u,64,COMPLETED,2020-09-01 00:10:00,,,60"


def write_trace(tmp_path, *bad):
    rows = [GOOD.format(id=i, gpus=1 + i % 3, minute=i, seconds=60 + i) for i in range(6)]
    rows += [*bad, *[GOOD.format(id=10 + i, gpus=1, minute=20 + i, seconds=30) for i in range(4)]]
    path = tmp_path / "cluster_log.csv"
    path.write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")
    return path


@pytest.mark.parametrize("column", [*BAD, "large"])
def test_venus_tasks_refuses_a_bad_row_with_row_and_column(column, tmp_path):
    path = write_trace(tmp_path, BAD.get(column, TOO_LARGE))
    with pytest.raises(InputError) as caught:
        venus_tasks(None, rng=np.random.default_rng(0), gpus=8, file=path)
    assert (caught.value.row, caught.value.column) == (8, column if column in BAD else "gpu_num")


def test_a_run_counts_skipped_rows_and_runs_the_others(tmp_path):
    cpu_alone, at_once = "20,u,0,COMPLETED,2020-09-01 00:11:00,,,60", "21,u,1,COMPLETED,2020-09-01 00:11:00,,,0"
    path = write_trace(tmp_path, *BAD.values(), TOO_LARGE, cpu_alone, at_once, "22,u")
    tasks, trace = venus_tasks(None, rng=np.random.default_rng(0), gpus=8, file=path, on_bad="skip")
    assert sum(trace.skipped.values()) == 8
    assert len(tasks) == 10
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0)}
    done = run(tasks, Cluster.parse("8xV100"), make("fifo"), **options)
    assert np.isfinite(done.completion_s).all()


@pytest.mark.parametrize(
    "too_large",
    [
        Task(1, Workload("resnet50", 4), 5.0, 9e6, gpus=9),
        Task(1, Workload("resnet50", 4), 5.0, 9e6, gpus=12, widths=(9, 16)),
        Task(1, Workload("miso_bert", 8, phase="training"), 5.0, 9e6),
    ],
)
def test_a_run_refuses_a_task_that_no_gpu_can_hold_before_it_begins(too_large):
    tasks = [Task(0, Workload("resnet50", 4), 5.0), too_large]
    events = []
    policy = ScriptedPolicy(lambda event, view: events.append(event))
    options = {"predictor": ToyPredictor(), "rng": np.random.default_rng(0)}
    with pytest.raises(InputError, match=r"task 1, .* can hold it; expected a task that 8xT4 can hold"):
        run(tasks, Cluster.parse("8xT4"), policy, **options)
    assert not events
