"""Conversion of the jobs of a trace into tasks: selection, load and workloads."""

from pathlib import Path

import numpy as np
import pytest

from heshare.devices.task_sizes import time_alone_s
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.trace_jobs import offered_load, scale_to_load, tasks_of_trace, usable_jobs
from heshare.shared.errors import InputError
from heshare.world.helios_trace import JobTrace, TraceJob, read_trace
from heshare.world.workload import Workload

POOL = training.workloads("gavel")
TABLE_IV = (Workload("resnet50", 4),)


def trace(*jobs):
    rows = tuple(TraceJob(index, submit_s, duration_s, gpus) for index, (submit_s, duration_s, gpus) in enumerate(jobs))
    return JobTrace(Path("x.csv"), rows, {})


def test_usable_jobs_leaves_out_and_counts_the_others():
    found = usable_jobs(trace((5, 9, 0), (7, 9, 2), (8, 0, 1), (9, 4, 64), (11, 4, 1)), most_gpus=8)
    assert [(job.id, job.submit_s, job.gpus) for job in found.jobs] == [(1, 0, 2), (4, 4, 1)]
    assert found.report() == (
        "x.csv: 2 jobs read, 3 rows skipped "
        "(1 x duration: none; 1 x gpu_num: more GPUs than there are; 1 x gpu_num: no GPU)"
    )


def test_usable_jobs_raises_if_no_job_is_left():
    with pytest.raises(InputError, match="no job for a GPU"):
        usable_jobs(trace((0, 9, 64)), most_gpus=8)


def test_read_trace_raises_at_the_row_for_too_many_gpus(tmp_path):
    path = tmp_path / "trace.csv"
    rows = ["1,2020-09-01 00:00:00,10,8", "2,2020-09-01 00:00:01,10,9", "3,2020-09-01 00:00:02,10,1"]
    path.write_text("\n".join(["job_id,submit_time,duration_s,gpu_num", *rows]), encoding="utf-8")
    with pytest.raises(InputError, match="row 3, column gpu_num: found '9'; expected at most the 8 GPUs"):
        read_trace(path, most_gpus=8)
    left = read_trace(path, most_gpus=8, on_bad="skip")
    assert ([job.id for job in left.jobs], left.skipped) == ([1, 3], {"gpu_num: more GPUs than there are": 1})


def test_offered_load_and_scale_to_load():
    some = trace((0, 30, 2), (20, 40, 1))
    assert offered_load(some, 10) == 0.5
    slower = scale_to_load(some, 10, 0.25)
    assert [job.submit_s for job in slower.jobs] == [0, 40]
    assert offered_load(slower, 10) == 0.25
    with pytest.raises(InputError, match="a load above zero"):
        scale_to_load(some, 10, 0.0)
    with pytest.raises(InputError, match="more than one moment"):
        scale_to_load(trace((0, 30, 2)), 10, 0.5)


def drawn(some, **options):
    return tasks_of_trace(some, rng=np.random.default_rng(0), **options)


def test_tasks_of_trace_take_as_long_alone_as_their_jobs():
    durations_s = (3.0, 60.0, 7_000.0, 172_800.0)
    tasks = drawn(trace(*[(index, d, 1 + index) for index, d in enumerate(durations_s)]), training_pool=POOL)
    assert [(task.arrival_s, task.gpus) for task in tasks] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    for task, duration_s in zip(tasks, durations_s, strict=True):
        assert task.iterations * training.step(task.workload).step_s == pytest.approx(duration_s)


def test_tasks_of_trace_have_workloads_of_which_they_complete_an_epoch():
    jobs = trace(*[(0, duration_s, 1) for duration_s in (1.0, 30.0, 100.0, 5_000.0) for _ in range(40)])
    tasks = drawn(jobs, training_pool=POOL)

    def epoch_s(workload):
        one = training.step(workload)
        return one.step_s * one.epoch_samples / workload.batch_size

    shortest_s = min(map(epoch_s, POOL))
    for task, job in zip(tasks, jobs.jobs, strict=True):
        assert epoch_s(task.workload) <= max(job.duration_s, shortest_s)
        assert task.epochs == max(1, round(job.duration_s / epoch_s(task.workload)))
    assert len({task.workload for task in tasks[-40:]}) > 10


def test_tasks_of_trace_can_make_some_jobs_inference():
    jobs = trace(*[(0, 100.0, 1 + index % 2) for index in range(200)])
    tasks = drawn(jobs, training_pool=POOL, inference_pool=TABLE_IV, inference=0.5)
    serving = [task for task in tasks if task.workload.phase == "inference"]
    assert 30 < len(serving) < 70
    assert {(task.gpus, task.iterations * time_alone_s(task.workload), task.epochs) for task in serving} == {
        (1, 100.0, None)
    }
    assert all(task.workload.phase == "training" for task in tasks if task.gpus > 1)


@pytest.mark.parametrize("inference", [-0.1, 1.1, 0.5])
def test_tasks_of_trace_raises_without_workloads_of_a_kind(inference):
    with pytest.raises(InputError, match="workloads of each kind"):
        drawn(trace((0, 1.0, 1)), training_pool=POOL, inference=inference)
