"""Metrics of a timeline, from intervals and segments small enough to add up by hand; the recorder."""

import numpy as np
import pytest

from heshare.devices.device import Progress, Reading
from heshare.running import timeline
from heshare.running.timeline import Interval, Segment, Timeline, TimelineRecorder
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

LIGHT = Workload("resnet18", 4)
# Task 0 arrives at 1, runs 2-4 on GPU 0, pauses, runs 7-8 on GPU 1. Task 1 arrives at 0 and runs 0-5 on GPU 1.
INTERVALS = (
    Interval(0, 0, 2.0, 4.0, 100, 4, 2.0, "paused"),
    Interval(1, 1, 0.0, 5.0, 50, 4, 5.0, "completed"),
    Interval(0, 1, 7.0, 8.0, 100, 4, 1.0, "completed"),
)
TASKS = (Task(0, LIGHT, 3.0, 1.0), Task(1, LIGHT, 5.0))
SEGMENTS = (
    Segment(0, 0.0, 2.0, None, 1000.0, 10.0, ()),
    Segment(0, 2.0, 4.0, None, 1000.0, 100.0, ((0, 100, 1.0),)),
    Segment(0, 4.0, 8.0, None, 1000.0, 10.0, ()),
    Segment(1, 0.0, 5.0, 500, 500.0, 60.0, ((1, 50, 1.0),)),
    Segment(1, 5.0, 7.0, 500, 500.0, 10.0, ()),
    Segment(1, 7.0, 8.0, 500, 500.0, 60.0, ((0, 100, 1.0),)),
)


RECORD = Timeline(("A-0", "A-1"), SEGMENTS, INTERVALS)


def test_times():
    """Totals give waiting, execution and completion times."""
    sums = timeline.sum_up(RECORD, TASKS)
    assert sums.waiting_s.tolist() == [1.0 + 3.0, 0.0]
    assert sums.execution_s.tolist() == [3.0, 5.0]
    assert sums.completion_s.tolist() == [8.0, 5.0]
    assert sums.last_gpu.tolist() == [1, 1]
    assert sums.busy_s.tolist() == [2.0, 6.0]


def test_energy():
    """Totals give energy until the last task and until the makespan."""
    sums = timeline.sum_up(RECORD, TASKS)
    assert sums.energy_active_j.tolist() == [20.0 + 200.0, 300.0 + 20.0 + 60.0]
    assert sums.energy_cluster_j.tolist() == [20.0 + 200.0 + 40.0, 380.0]


def test_failed_task():
    """If a task has failed, the cluster account stays open until the last interval."""
    failed = (*INTERVALS[:2], INTERVALS[2]._replace(outcome="failed: crash"))
    sums = timeline.sum_up(Timeline(RECORD.labels, SEGMENTS, failed), TASKS)
    assert np.isnan(sums.completion_s).tolist() == [True, False]
    assert sums.energy_cluster_j.tolist() == [20.0 + 200.0 + 40.0, 380.0]


def test_gang_counts_once():
    """Totals count a task on several GPUs once."""
    gang = tuple(Interval(0, gpu, 1.0, 4.0, 100, 4, 1.5, "completed") for gpu in (0, 1))
    sums = timeline.sum_up(Timeline(RECORD.labels, (), gang), TASKS[:1])
    assert (sums.waiting_s.tolist(), sums.execution_s.tolist()) == ([0.0], [3.0])


def test_idle_gpu():
    """Totals give a GPU without tasks no active energy."""
    idle = Segment(2, 0.0, 8.0, None, 1000.0, 10.0, ())
    sums = timeline.sum_up(Timeline((*RECORD.labels, "A-2"), (*SEGMENTS, idle), INTERVALS), TASKS)
    assert sums.energy_active_j.tolist()[2] == 0.0
    assert timeline.energy_j((), np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_end_inside_segment():
    """Energy ends inside a segment."""
    assert timeline.energy_j(SEGMENTS, np.array([3.0, 0.0])).tolist() == [120.0, 0.0]


def test_power_steps():
    """Power steps integrate to the energy."""
    times_s, power_w = timeline.power_steps(SEGMENTS)
    assert times_s.tolist() == [0.0, 2.0, 4.0, 5.0, 7.0, 8.0]
    assert power_w.tolist() == [70.0, 160.0, 70.0, 20.0, 70.0, 0.0]
    assert np.sum(power_w[:-1] * np.diff(times_s)) == pytest.approx(260.0 + 380.0)


def test_power_steps_end():
    """Sums of power have no digits that only rounding left, and end at exactly zero."""
    watts = (0.1, 0.2, 0.3)
    parts = [Segment(gpu, float(gpu), 9.0, None, 1000.0, power_w, ()) for gpu, power_w in enumerate(watts)]
    assert timeline.power_steps(parts)[1].tolist() == [0.1, 0.3, 0.6, 0.0]


def reading(time_s, power_w, *tasks):
    residents = {task: Progress(task, Resident(LIGHT, 40), 0.0, 2.0) for task in tasks}
    return Reading(time_s, None, 1000.0, power_w, 0.0, residents)


def test_recorder():
    """Recorder joins equal observations and drops empty segments."""
    recorder = TimelineRecorder(("Toy-0",))
    recorder.observe(0, 0.0, reading(0.0, 10.0))
    recorder.observe(0, 1.0, reading(1.0, 10.0))
    recorder.observe(0, 2.0, reading(2.0, 50.0, 3))
    recorder.observe(0, 2.0, reading(2.0, 60.0, 3, 4))
    record = recorder.finish(5.0)
    assert record.segments == (
        Segment(0, 0.0, 2.0, None, 1000.0, 10.0, ()),
        Segment(0, 2.0, 5.0, None, 1000.0, 60.0, ((3, 40, 2.0), (4, 40, 2.0))),
    )
    frame = record.segment_frame()
    assert frame["energy_j"].tolist() == [20.0, 180.0]
    assert frame["residents"].tolist() == ["", "3@40+4@40"]
    assert frame["requested_mhz"].isna().all()
