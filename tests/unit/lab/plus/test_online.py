"""Online planning: its moments, tasks, seeds and planning times, by hand on toy GPUs."""

import numpy as np
import pytest
from support.policy_runs import run_emulated, run_on_toys

from heshare.devices.task_sizes import draw
from heshare.lab.plus.online import OnlinePlanner, PlanningTime
from heshare.scheduling.front import Front
from heshare.scheduling.plan import Batch, Plan
from heshare.testing.policy_contract import check_run
from heshare.testing.toy import toy_gpu
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu()
WORK = Workload("resnet18", 4)


class OneTaskPlanner(OnlinePlanner):
    """Plans every task alone, task i on GPU `where(i)`; records each planning: tasks, ready times, seeds."""

    def __init__(self, where=lambda task: 0, seconds=0.0, interval_s=0.0, warm=True):
        time = PlanningTime(seconds, 0.0, 0.0)
        super().__init__("one", "trade-off", interval_s=interval_s, charge=1.0, warm=warm, steps=1, time=time)
        self.where, self.plannings = where, []

    def seed_plans(self, front):
        return front.plans

    def front(self, tasks, ready_s, seeds):
        self.plannings.append(([task.id for task in tasks], ready_s.tolist(), [seed.tolist() for seed in seeds]))
        queues = [[] for _ in self.cluster.gpus]
        for task in tasks:
            queues[self.where(task.id)].append(Batch((task.id,), (100,)))
        plan = Plan(self.cluster, tuple(tasks), tuple(map(tuple, queues)), 1.0, 1.0)
        return Front((plan,), np.array([[1.0, 1.0]]))


def simulate(policy, tasks, gpus=1):
    done = run_on_toys(tasks, policy, (GPU,) * gpus)
    check_run(done)
    return {interval.task: (interval.gpu, interval.start_s, interval.end_s) for interval in done.record.intervals}


def test_planning_time():
    """No task starts before the planning time is over."""
    intervals = simulate(OneTaskPlanner(seconds=3.0), [Task(0, WORK, 10.0), Task(1, WORK, 5.0)])
    assert intervals == {0: (0, 3.0, 13.0), 1: (0, 13.0, 18.0)}


def test_previous_plan():
    """The previous plan is followed until the next one is ready."""
    # Task 2 arrives at 9; the planning over 1 and 2 ends at 11, and at 10.5 the previous plan has started 1.
    policy = OneTaskPlanner(seconds=2.0)
    intervals = simulate(policy, [Task(0, WORK, 8.5), Task(1, WORK, 5.0), Task(2, WORK, 1.0, 9.0)])
    assert [tasks for tasks, *_ in policy.plannings] == [[0, 1], [1, 2]]
    assert intervals[1] == (0, 10.5, 15.5)
    assert intervals[2] == (0, 15.5, 16.5)


def test_ready_times():
    """Ready times are the predicted ends of the running tasks."""
    policy = OneTaskPlanner(seconds=2.0, where=lambda task: task % 2)
    simulate(
        policy, [Task(0, WORK, 10.0), Task(1, WORK, 4.0), Task(2, WORK, 1.0, 1.0), Task(3, WORK, 1.0, 5.0)], gpus=2
    )
    first, second, third = policy.plannings[:3]
    assert first[:2] == ([0, 1], [0.0, 0.0])
    # At 2, when the first plan is ready, 0 and 1 start; a planning of 2 s ends when they have 8 and 2 s left.
    assert second[:2] == ([2], [8.0, 2.0])
    # At 5: 0 ends at 12 and 1 at 6.
    assert third[:2] == ([2, 3], [5.0, 0.0])


def test_interval():
    """Plannings are at least the interval apart."""
    tasks = [Task(0, WORK, 50.0), *[Task(at, WORK, 1.0, float(at)) for at in range(1, 8)]]
    policy = OneTaskPlanner(interval_s=5.0)
    simulate(policy, tasks)
    assert [tasks for tasks, *_ in policy.plannings] == [[0], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7]]


def test_seeds():
    """A search begins with the previous plans."""
    tasks = [Task(0, WORK, 9.0), Task(1, WORK, 9.0), Task(2, WORK, 9.0), Task(3, WORK, 1.0, 1.0)]
    policy = OneTaskPlanner(where=lambda task: 1)
    simulate(policy, tasks, gpus=2)
    assert policy.plannings[0][2] == []
    assert [tasks for tasks, *_ in policy.plannings[:2]] == [[0, 1, 2], [1, 2, 3]]
    assert policy.plannings[1][2][0][:2] == [1, 1]
    cold = OneTaskPlanner(where=lambda task: 1, warm=False)
    simulate(cold, tasks, gpus=2)
    assert all(seeds == [] for *_, seeds in cold.plannings)


def test_charge():
    """The charge scales the time before the first start."""
    tasks = draw(6, rng=np.random.default_rng(0), arrivals="at_once")
    runs = [run_emulated(tasks, f"heshare-online:trade-off(charge={charge})", "T4,A100") for charge in (0, 1, 100)]
    begins_s = [min(interval.start_s for interval in done.record.intervals) for done in runs]
    assert begins_s[0] == 0.0 < begins_s[1]
    assert begins_s[2] == pytest.approx(100 * begins_s[1])
