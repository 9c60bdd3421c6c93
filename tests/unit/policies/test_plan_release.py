"""Release of plans: clock before tasks, one batch after the other, new plan when tasks arrive."""

import pytest
from support.policy_runs import run_on_toys

from heshare.policies.plan_release import FixedPlanPolicy, PlanReleasePolicy
from heshare.policies.policy import Traits
from heshare.scheduling.plan import Batch, Plan
from heshare.shared.errors import PolicyError
from heshare.testing.toy import toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu()
LIGHT = Workload("resnet18", 4)


def run_policy(tasks, policy, gpus=1):
    return run_on_toys(tasks, policy, (GPU,) * gpus)


def plan(tasks, *queues):
    return Plan(Cluster((GPU,) * len(queues)), tuple(tasks), queues, 0.0, 0.0)


def timeline_rows(result):
    return [(row.gpu, row.start_s, row.end_s, row.residents) for row in result.timeline.itertuples()]


def test_next_batch():
    """A batch starts when the batch before has ended."""
    tasks = [Task(index, LIGHT, iterations) for index, iterations in enumerate([1.0, 3.0, 2.0])]
    result = run_policy(tasks, FixedPlanPolicy(plan(tasks, (Batch((0, 1), (40, 60), 1000), Batch((2,), (100,), 500)))))
    assert timeline_rows(result) == [(0, 0.0, 2.0, "0@40+1@60"), (0, 2.0, 4.0, "1@60"), (0, 4.0, 8.0, "2@100")]
    assert result.timeline["requested_mhz"].tolist() == [1000, 1000, 500]
    assert result.waiting_s.tolist() == [0.0, 0.0, 4.0]
    assert result.energy_active_j == 4.0 * 110.0 + 4.0 * 60.0


def test_independent_gpus():
    """GPUs release their batches independently."""
    tasks = [Task(0, LIGHT, 5.0), Task(1, LIGHT, 1.0), Task(2, LIGHT, 1.0)]
    result = run_policy(
        tasks, FixedPlanPolicy(plan(tasks, (Batch((0,), (100,)),), (Batch((1,), (100,)), Batch((2,), (100,))))), 2
    )
    assert result.jct_s.tolist() == [5.0, 1.0, 2.0]
    assert result.timeline["requested_mhz"].isna().all()


def test_traits():
    """A fixed plan derives its traits from the batches."""
    tasks = [Task(0, LIGHT, 1.0), Task(1, LIGHT, 1.0)]
    assert FixedPlanPolicy(plan(tasks, (Batch((0, 1), (50, 50)),))).traits == Traits(False, True, False)
    clocked = plan(tasks, (Batch((0,), (100,), 500), Batch((1,), (100,))))
    assert FixedPlanPolicy(clocked).traits == Traits(True, False, False)


def test_other_tasks():
    """A fixed plan rejects other tasks and another cluster."""
    tasks = [Task(0, LIGHT, 1.0)]
    policy = FixedPlanPolicy(plan(tasks, (Batch((0,), (100,)),)))
    with pytest.raises(PolicyError, match="the plan is for 1"):
        run_policy([*tasks, Task(1, LIGHT, 1.0)], policy)
    with pytest.raises(PolicyError, match="the run is on 2xToy"):
        run_policy(tasks, policy, gpus=2)


class LongestFirst(PlanReleasePolicy):
    """One task at a time on GPU 0, the longest waiting task first."""

    name = "longest-first"
    traits = Traits(False, False, False)

    def reset(self, cluster, predictor, rng):
        super().reset(cluster, predictor, rng)
        self.planned = []

    def plan(self, tasks):
        self.planned.append([task.id for task in tasks])
        longest = sorted(tasks, key=lambda task: -task.iterations)
        return [[Batch((task.id,), (100,)) for task in longest]]


def test_new_tasks():
    """New tasks are planned together with those not started."""
    policy = LongestFirst()
    tasks = [Task(0, LIGHT, 4.0), Task(1, LIGHT, 1.0), Task(2, LIGHT, 2.0, 1.0), Task(3, LIGHT, 3.0, 2.0)]
    result = run_policy(tasks, policy)
    # Planned at 0, and at 4 once for both arrivals, because no task could start before.
    assert policy.planned == [[0, 1], [1, 2, 3]]
    assert [interval.task for interval in result.record.intervals] == [0, 3, 2, 1]
