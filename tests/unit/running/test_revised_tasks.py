"""Tasks that are planned otherwise during a run: those that wait or have not arrived take it, those that run do not."""

from __future__ import annotations

import numpy as np
import pytest
from support.scripted_policy import ScriptedPolicy

from heshare.policies.policy import Start
from heshare.running.observer import Observer
from heshare.running.run import run
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu()
SMALL, LARGE = Workload("mobilenet", 1), Workload("mobilenet", 16)


class Revising(Observer):
    """Gives every task 2 iterations of another workload once the first one has ended."""

    def __init__(self, pending):
        self.pending, self.left = pending, 1
        self.ended = 0

    def on_interval_end(self, interval, failed):
        self.ended += 1

    def revised(self):
        if self.ended and self.left:
            self.left = 0
            return [Task(task.id, LARGE, 2.0, task.arrival_s) for task in self.pending]
        return ()


def test_tasks_that_do_not_run_are_revised():
    views = []

    def two_at_once(event, view):
        views.append({task.id: (task.workload, task.iterations, view.remaining[task.id]) for task in view.waiting})
        room = 2 - len(view.gpus[0].running)
        return [Start(task.id, 0) for task in view.waiting[:room]]

    pending = [*(Task(index, SMALL, 10.0 * (index + 1)) for index in range(3)), Task(3, SMALL, 50.0, 500.0)]
    done = run(
        pending, Cluster((GPU,)), ScriptedPolicy(two_at_once), predictor=ToyPredictor(),
        rng=np.random.default_rng(0), devices=[ToyDevice(GPU)], observer=Revising(pending),
    )  # fmt: skip
    assert views[0][2] == (SMALL, 30.0, 30.0)
    assert {2: (LARGE, 2.0, 2.0)} in views
    assert {3: (LARGE, 2.0, 2.0)} in views
    assert [(task.workload, task.iterations) for task in done.tasks] == [
        (SMALL, 10.0), (SMALL, 20.0), (LARGE, 2.0), (LARGE, 2.0),
    ]  # fmt: skip
    assert sorted(interval.iterations for interval in done.record.intervals) == pytest.approx([2.0, 2.0, 10.0, 20.0])
