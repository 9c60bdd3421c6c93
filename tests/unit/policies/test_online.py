"""Planning again at arrivals: when, over what, from what, and what it costs; by hand on toy cards."""

import numpy as np
import pytest

from heshare.errors import InputError
from heshare.policies.online import HeShareOnline, Online, PlanningTime
from heshare.policies.registry import make
from heshare.prediction.truth import DevicePredictor
from heshare.running.draw import draw
from heshare.running.run import run
from heshare.scheduling.pareto import Front
from heshare.scheduling.plan import Batch, Plan
from heshare.testing.policies import check_run
from heshare.testing.toy import ToyDevice, ToyPredictor, toy_gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = toy_gpu()
WORK = Workload("resnet18", 4)


class OneByOne(Online):
    """Every task alone; task i on GPU `where(i)`. Notes each planning: tasks, when GPUs are free, seeds."""

    def __init__(self, where=lambda task: 0, seconds=0.0, interval_s=0.0, warm=True):
        time = PlanningTime(seconds, 0.0, 0.0)
        super().__init__("one", "trade-off", interval_s=interval_s, charge=1.0, warm=warm, steps=1, time=time)
        self.where, self.asked = where, []

    def kept(self, front):
        return front.plans

    def front(self, tasks, ready_s, seeds):
        self.asked.append(([task.id for task in tasks], ready_s.tolist(), [seed.tolist() for seed in seeds]))
        queues = [[] for _ in self.cluster.gpus]
        for task in tasks:
            queues[self.where(task.id)].append(Batch((task.id,), (100,)))
        plan = Plan(self.cluster, tuple(tasks), tuple(map(tuple, queues)), 1.0, 1.0)
        return Front((plan,), np.array([[1.0, 1.0]]))


def go(policy, tasks, gpus=1):
    cluster, devices = Cluster((GPU,) * gpus), [ToyDevice(GPU) for _ in range(gpus)]
    found = run(tasks, cluster, policy, predictor=ToyPredictor(), rng=np.random.default_rng(0), devices=devices)
    check_run(found)
    return {each.task: (each.gpu, each.start_s, each.end_s) for each in found.record.intervals}


def test_planning_takes_its_time_before_anything_starts():
    found = go(OneByOne(seconds=3.0), [Task(0, WORK, 10.0), Task(1, WORK, 5.0)])
    assert found == {0: (0, 3.0, 13.0), 1: (0, 13.0, 18.0)}


def test_the_plan_before_goes_on_until_the_next_one_is_ready():
    # Task 2 arrives at 9; the planning over 1 and 2 ends at 11, and at 10.5 the plan before has started 1.
    policy = OneByOne(seconds=2.0)
    found = go(policy, [Task(0, WORK, 8.5), Task(1, WORK, 5.0), Task(2, WORK, 1.0, 9.0)])
    assert [tasks for tasks, *_ in policy.asked] == [[0, 1], [1, 2]]
    assert found[1] == (0, 10.5, 15.5)
    assert found[2] == (0, 15.5, 16.5)


def test_who_arrives_during_a_planning_is_planned_next_and_each_gpu_is_known_to_be_busy():
    policy = OneByOne(seconds=2.0, where=lambda task: task % 2)
    go(policy, [Task(0, WORK, 10.0), Task(1, WORK, 4.0), Task(2, WORK, 1.0, 1.0), Task(3, WORK, 1.0, 5.0)], gpus=2)
    first, second, third = policy.asked[:3]
    assert first[:2] == ([0, 1], [0.0, 0.0])
    # At 2, when the first plan is taken up, 0 and 1 start; a planning of 2 s ends when they have 8 and 2 s left.
    assert second[:2] == ([2], [8.0, 2.0])
    # At 5: 0 ends at 12 and 1 at 6.
    assert third[:2] == ([2, 3], [5.0, 0.0])


def test_plannings_keep_their_distance():
    tasks = [Task(0, WORK, 50.0), *[Task(at, WORK, 1.0, float(at)) for at in range(1, 8)]]
    policy = OneByOne(interval_s=5.0)
    go(policy, tasks)
    assert [tasks for tasks, *_ in policy.asked] == [[0], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7]]


def test_a_gpu_that_runs_dry_has_the_others_planned_again():
    moved = []
    policy = OneByOne(where=lambda task: 1 if moved and task == 2 else task % 2)
    policy_front = policy.front

    def front(tasks, ready_s, seeds):
        found = policy_front(tasks, ready_s, seeds)
        moved.append(True)
        return found

    policy.front = front
    # 0 and 2 queue on GPU 0, 1 on GPU 1, which is free at 2: the plan made then has 2 there.
    found = go(policy, [Task(0, WORK, 10.0), Task(1, WORK, 2.0), Task(2, WORK, 3.0)], gpus=2)
    assert policy.asked[1][:2] == ([2], [8.0, 0.0])
    assert found[2] == (1, 2.0, 5.0)


def test_a_plan_begins_with_the_one_before():
    tasks = [Task(0, WORK, 9.0), Task(1, WORK, 9.0), Task(2, WORK, 9.0), Task(3, WORK, 1.0, 1.0)]
    policy = OneByOne(where=lambda task: 1)
    go(policy, tasks, gpus=2)
    assert policy.asked[0][2] == []
    assert [tasks for tasks, *_ in policy.asked[:2]] == [[0, 1, 2], [1, 2, 3]]
    assert policy.asked[1][2][0][:2] == [1, 1]
    cold = OneByOne(where=lambda task: 1, warm=False)
    go(cold, tasks, gpus=2)
    assert all(seeds == [] for *_, seeds in cold.asked)


def test_what_a_planning_takes():
    time = PlanningTime(1.0, 0.5, 0.01, whole=10)
    assert time.of(4, 100) == 1.0 + 0.5 * 16 + 0.01 * 400
    assert time.of(20, 100) == 1.0 + 0.5 * 200 + 0.01 * 2000


@pytest.mark.parametrize("name", ["heshare-online:trade-off", "heshare+-online:trade-off"])
def test_the_charge_is_paid_by_the_first_to_arrive(name):
    tasks = draw(6, rng=np.random.default_rng(0), arrivals="at_once")
    starts = []
    for charge in (0, 1, 100):
        done = run(
            tasks,
            Cluster.parse("T4,A100"),
            make(f"{name}(charge={charge})"),
            predictor=DevicePredictor(),
            rng=np.random.default_rng(0),
        )
        starts.append(min(each.start_s for each in done.record.intervals))
    assert starts[0] == 0.0
    assert starts[2] == pytest.approx(100 * starts[1])
    assert 0.01 < starts[1] < 1.0


def test_with_arrivals_it_is_faster_than_planning_only_when_a_gpu_is_free():
    tasks = draw(16, rng=np.random.default_rng(1), arrivals="poisson", interval_s=120.0)
    jct_s = {}
    for name in ("heshare:jct-opt(generations=50)", "heshare-online:jct-opt(generations=50)"):
        done = run(
            tasks, Cluster.parse("T4,V100,A100"), make(name), predictor=DevicePredictor(), rng=np.random.default_rng(0)
        )
        check_run(done)
        jct_s[name.split(":")[0]] = done.jct_s.mean()
    assert jct_s["heshare-online"] < jct_s["heshare"]


@pytest.mark.parametrize("text", ["interval_s=-1", "charge=-0.5", "rounds=0"])
def test_parameters_out_of_range_are_refused(text):
    with pytest.raises(InputError):
        make(f"heshare+-online:trade-off({text})")


def test_its_name_says_what_was_changed():
    assert (
        make("heshare-online:en-opt(charge=0,generations=20)").name
        == "heshare-online:en-opt(charge=0.0,generations=20)"
    )
    assert HeShareOnline("jct-opt").name == "heshare-online:jct-opt"
